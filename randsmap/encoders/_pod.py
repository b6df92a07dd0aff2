"""Proper orthogonal decomposition: the linear encoder and its inverse (paper, Sec. 3, App. A)."""

from __future__ import annotations

import numbers
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from randsmap._interface.arrays import check_beside, latents_of
from randsmap._interface.callers import compiled
from randsmap._interface.fields import FIELD_STATE, field_rows
from randsmap._interface.parameters import check_count, check_number, estimator, parameter
from randsmap._interface.state import NOT_SAVED, Array, Count, Part, check_fitted, immutable, restored_on_error, saved
from randsmap._interface.texts import shared_texts
from randsmap._linalg.rows import Rows
from randsmap._linalg.svd import orthonormalize_rows_against, truncated_svd
from randsmap._parallel import blas_threads, for_tiles
from randsmap.encoders._base import FieldEncoder
from randsmap.invariants import AffineInvariants, InvariantParameters, fit_estimator
from randsmap.maps.frozen import freeze
from randsmap.maps.linear_map import LinearMap, identity_basis, jacobian, jvp, vjp

_EPS = np.finfo(float).eps
_Values = NDArray[np.float64]


@immutable
class ModeCoordinates:
    """Coordinates (f - centre) . w of fields, the columns of W = `modes` (M, k)."""

    centre: _Values = saved(Array("M"))
    modes: _Values = saved(Array("M", "k"))

    def coordinates(self, X: _Values) -> _Values:
        """Coordinates (n, k) of fields X (n, M)."""
        out = np.empty((len(X), self.modes.shape[1]))

        def task(a, b):
            np.dot(X[a:b] - self.centre, self.modes, out=out[a:b])

        for_tiles(task, len(X), max(32, (1 << 21) // X.shape[1]))  # of 16 MB
        return out

    def jacobian(self, X: _Values) -> _Values:
        """W^T (n, k, M), the same everywhere."""
        return np.repeat(self.modes.T[None], len(X), axis=0)

    def jvp(self, X: _Values, V: _Values) -> _Values:
        """V W (n, k)."""
        return V @ self.modes

    def vjp(self, X: _Values, U: _Values) -> _Values:
        """U W^T (n, M)."""
        return U @ self.modes.T


@shared_texts
@estimator
class POD(InvariantParameters, FieldEncoder):
    """Proper orthogonal decomposition of centred fields, with an inverse that preserves invariants.

    Use it for fields that linear modes represent, and for reduced models: encoding costs one product, and it
    decodes itself. `DiffusionMaps` and `Isomap` need fewer coordinates for folded data.

    Parameters
    ----------
    n_components
        Number of modes, at most min(n, M). A float in (0, 1]: the fewest modes with at least that fraction of the
        energy, the sum of sigma^2. Modes with sigma <= max(n, M) eps sigma_1 are round-off and never kept.
    cell_weights
        Positive weights v, such as cell volumes, of the inner product sum_i v_i f_i g_i. It defines orthonormal modes,
        energies, and the projection on the invariants.

    Attributes
    ----------
    mean_ : ndarray (M,)
        Mean field.
    components_ : ndarray (n_components_, M)
        Modes, orthonormal, with C^T u = 0, and 0 on the constant cells. The entry of largest magnitude is positive.
    singular_values_ : ndarray (n_components_,)
        sigma, singular values of the centred fields, in descending order.
    energies_ : ndarray (n_components_,)
        sigma^2 as fractions of the sum over all modes.
    n_components_ : int
        Number of modes kept.
    n_features_in_ : int
        M, number of cells of a field.

    Notes
    -----
    In exact arithmetic POD conserves invariants (paper, App. A): centred fields satisfy C^T f = 0, and so do the modes,
    their linear combinations. Computed modes at noise level violate this. With invariants, the modes and every field of
    `inverse_transform` are therefore projected.

    The data are reduced by a QR factorisation and its triangle by a singular value decomposition. Products of the
    snapshots, which would lose the modes below sigma_1 sqrt(eps), are never formed.

    Large memory-mapped fields (`numpy.load` with mmap_mode, from 64 MB) are read by blocks, six times, with the same
    accuracy. The triangle has min(n, M)^2 numbers. If min(n, M) exceeds 2048 and n_components is at most a tenth of it,
    block iteration replaces the triangle. It takes about ten to forty steps and reads the file twice per step.

    References
    ----------
    L. Sirovich, Turbulence and the dynamics of coherent structures, Quart. Appl. Math. 45 (1987).

    Examples
    --------
    {bumps}
    >>> pod = randsmap.POD(0.999).fit(bumps)
    >>> pod.transform(bumps).shape
    (40, 5)
    >>> bool(abs(pod.inverse_transform(np.full((1, 5), 100.0)).sum() - 1) < 1e-12)
    True
    """

    _map: Any = None  # the decoding by modes
    _state = {
        "n_features_in_": Count("M"),
        "n_components_": Count("k"),
        "mean_": Array("M"),
        "components_": Array("k", "M"),
        "singular_values_": Array("k", low=0),
        "energies_": Array("k", low=0),
        "_encoding": Part(ModeCoordinates, M="M", k="k"),
        **FIELD_STATE,
        "invariants_": Part(AffineInvariants, M="M"),
        "_map": NOT_SAVED,
    }

    n_components: int | float = parameter(kw_only=False, shown="int or float")
    cell_weights: ArrayLike | None = parameter(default=None, shown="array (M,) or None")

    def fit(self, X: ArrayLike, y: Any = None) -> Self:
        with restored_on_error(self):
            X = field_rows(self, X, reset=True)
            given = getattr(X, "dtype", np.dtype(float))
            F = Rows.validated(self, X, reset=True, min_samples=2)
            n, M = F.shape
            if isinstance(self.n_components, numbers.Integral):
                check_count(self.n_components, "n_components", high=min(n, M), high_name="min(n_samples, n_cells)")
            else:
                check_number(self.n_components, "n_components", low=0, high=1, strict_low=True)
            invariants = fit_estimator(self, F, given)
            weights = invariants.cell_weights
            root = np.ones(M) if weights is None else np.sqrt(weights)
            normals = invariants.directions * root  # orthonormal rows

            # corrected to the last digit, so that no mode contains its error
            mean = invariants.project(np.array(F.centred(n).mean)[None])[0]
            plain = weights is None and not invariants.constant.any()
            scale = None if plain else np.where(invariants.constant, 0, root)
            centred = F.less(mean, scale=scale, normals=normals)
            with blas_threads():
                few = self.n_components if isinstance(self.n_components, numbers.Integral) else None
                sigma, modes, energy = truncated_svd(centred, self._count, few)
                modes = orthonormalize_rows_against(np.ascontiguousarray(modes), normals)
            modes[:, invariants.constant] = 0
            components = np.ascontiguousarray(modes / root)  # the sign does not change if a cell is split
            size = np.abs(components)
            # the first entry of the largest magnitude, within 1e-8, decides
            largest = np.argmax(size >= (1 - 1e-8) * size.max(axis=1, keepdims=True), axis=1)
            signs = np.where(components[np.arange(len(modes)), largest] < 0, -1, 1)[:, None]

            self.mean_ = mean
            self.components_ = components * signs
            self.singular_values_ = sigma[: len(modes)].copy()
            self.energies_ = (self.singular_values_ / sigma[0]) ** 2 / energy
            self.n_components_ = len(modes)
            self._encoding = ModeCoordinates(mean, np.ascontiguousarray((modes * root * signs).T))
            self.invariants_ = invariants
            self._map = self._make_map()  # made now, so that decoding does not change the estimator
        return self

    def _count(self, sigma, n, M):
        """Number of modes to keep of those with singular values sigma (all of them)."""
        if not sigma[0] > 0:
            raise ValueError("the fields are all the same (centred, their singular values are 0): there is no mode")
        rank = int(np.count_nonzero(sigma > max(n, M) * _EPS * sigma[0]))
        if isinstance(self.n_components, numbers.Integral):
            return min(int(self.n_components), rank)
        energy = np.cumsum((sigma / sigma[0]) ** 2)
        # the tolerance is the round-off of the sum: 1.0 must not depend on it
        enough = energy >= (float(self.n_components) - len(sigma) * _EPS) * energy[-1]
        return min(int(np.argmax(enough)) + 1 if self.n_components < 1 else rank, rank)

    @compiled
    def inverse_transform(
        self,
        X: ArrayLike,
        *,
        invariant_values: float | ArrayLike | None = None,
        cells: ArrayLike | None = None,
        out: NDArray[np.float64] | None = None,
    ) -> NDArray[np.float64]:
        """Fields mean + sum_k x_k u_k of coordinates X, projected on the invariants.

        Then |C_j^T f - m_j| <= a few ulp of |C_j|^T |f| + |m_j|, for any X.

        {latents} {invariant_values} {cells} {out} {returns_fields} {raises}
        """
        given = {} if invariant_values is None else {"invariant_values": invariant_values}
        X, cells = self.checked_latents(X, **given), self._checked_cells(cells)
        fields = self.linear_map.fields(X, invariant_values, cells, out, self.field_shape_)
        return self._field_shape.labelled(fields, cells, out)

    inverse_jacobian = jacobian
    inverse_jvp = jvp
    inverse_vjp = vjp
    freeze = freeze

    @compiled
    def checked_latents(self, X: ArrayLike, **others: Any) -> _Values:
        """X as points (n, d); `others` are for these rows."""
        if others:
            check_beside(X, others, invariants=self.invariants)
            latents_of(others.get("V"), self, "V")
        return self.linear_map.checked(latents_of(X, self))

    def frozen_encoder(self, precision, tol):
        check_fitted(self, "components_")
        return {"encoder_centre": self.mean_, "encoder_modes": self._encoding.modes.astype(precision)}

    @property
    def linear_map(self):
        """The map from latents to fields; a pickle does not hold it."""
        check_fitted(self, "components_")
        if self._map is None:
            self._map = self._make_map()
        return self._map

    def _make_map(self):
        coefficients = np.vstack([self.mean_, self.components_])
        return LinearMap(identity_basis(self.n_components_), coefficients, self.invariants_)

    def __getstate__(self):
        return {name: value for name, value in super().__getstate__().items() if name != "_map"}

    def _restore(self):
        self._map = self._make_map()  # which checks its shapes

    _n_features_out = property(lambda self: self.n_components_)

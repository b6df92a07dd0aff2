"""The k-NN decoder (paper App. B): convex mixtures of the fields of the nearest latent points."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from randsmap._interface.arrays import check_samples, real_numbers, validate_data
from randsmap._interface.callers import extrapolation_is_ignored, warn_caller
from randsmap._interface.parameters import check_count, check_parameters, estimator, parameter
from randsmap._interface.state import Array, Count, Part, immutable, saved
from randsmap._interface.texts import shared_texts
from randsmap._kernels import simplex as _kernel
from randsmap._linalg.neighbors import NeighborIndex
from randsmap._linalg.rows import BLOCK, MappedRows, Rows, blocks_to_fill
from randsmap._linalg.svd import sketched
from randsmap._parallel import parallel_rows
from randsmap.decoders import _base
from randsmap.maps.error_bar import with_error
from randsmap.maps.extrapolation import DISTANCE_FACTOR, Leverage
from randsmap.maps.linear_map import LinearMap, cell_subsets, in_units, mixture_basis

_Values = NDArray[np.float64]

# Distances between all training fields are kept up to this many (256 MB), so that decoding one row costs microseconds;
# beyond, each block of rows computes the distances that it needs.
KEPT_DISTANCES = 2**25
BLOCK_DISTANCES = 2**22
_COMPUTED = ("points", "index", "nystroem", "exponents", "columns")  # of a fit, whatever the number of neighbours


@immutable
class KNNFit(_base.Fit):
    """A fit of a k-NN decoder: its training data, and what is computed from them once."""

    latents: _Values = saved(Array("n", "d"))
    fields: Any = saved(Array("n", "M"))  # an array, or rows of a mapped file
    latent_scale: _Values = saved(Array("d", low=np.finfo(float).smallest_subnormal))
    # a diffusion map, of objective="encoder"
    encoder: Any = saved(Part("transform", n_in="M", n_out="d", optional=True))
    n_neighbors: int = saved(Count("k"))

    training_points = property(lambda self: self.latents)

    def _restore(self) -> None:
        if self.n_neighbors > len(self.latents):
            raise ValueError(f"{self.n_neighbors} neighbours among {len(self.latents)} points")
        if self.encoder is not None and not _is_diffusion_map(self.encoder):
            raise ValueError(f"the encoder is of class {type(self.encoder).__name__}")
        self.prepare()

    def prepare(self) -> tuple[Any, Any]:
        """Compute what the first decoded row would wait for."""
        return self.index, None if self.encoder is None else self.exponents

    points = cached_property(lambda self: in_units(self.latents, self.latent_scale))
    index = cached_property(lambda self: NeighborIndex(self.points))
    training_fields = property(lambda self: sketched(self.fields))

    @cached_property
    def nystroem(self) -> tuple[_Values, _Values]:
        """The encoder's offset and values, see `_exponents`."""
        density, values = self.encoder.nystroem_weights()
        return np.log(density), np.ascontiguousarray(values)

    @cached_property
    def exponents(self) -> _Values | None:
        """`_exponents` of all fields; None if they are too many."""
        few = len(self.fields) * len(self.nystroem[0]) <= KEPT_DISTANCES
        return _exponents(self.encoder, self.fields) if few else None

    @cached_property
    def columns(self) -> Callable[[NDArray[np.intp]], NDArray[np.float64]]:
        """Cells of the fields that were asked for."""
        fields = self.fields
        return cell_subsets(lambda cells: np.ascontiguousarray(fields[:, cells]))

    def neighbors(self, points: _Values, exclude: Any) -> NDArray[np.intp]:
        """The nearest training points (n, k) of each point, the nearest first."""
        k, n, m = self.n_neighbors, len(self.latents), len(points)
        if exclude is None:
            return self.index.query(points, k)[1]
        exclude = real_numbers(exclude, "exclude")
        if exclude.dtype.kind not in "iu" or exclude.shape != (m,):
            given = f"shape {exclude.shape} of {exclude.dtype}"
            raise ValueError(f"exclude must hold {m} integers, one for each row of X, got {given}")
        if m and not (-1 <= exclude.min() and exclude.max() < n):
            given = f"{exclude.min()} to {exclude.max()}"
            raise ValueError(f"exclude must hold indices of training points (or -1), below {n}, got {given}")
        if k == n:
            raise ValueError(f"exclude leaves {n - 1} training points, fewer than n_neighbors = {k}")
        candidates = self.index.query(points, k + 1)[1]
        kept = candidates != exclude[:, None]
        kept[kept.all(axis=1), -1] = False
        return candidates[kept].reshape(m, k)

    def weights(self, X: _Values, exclude: Any = None) -> tuple[NDArray[np.intp], _Values]:
        """Neighbours of latents X (n, d) and their weights (n, k)."""
        points = in_units(X, self.latent_scale)
        neighbors = self.neighbors(points, exclude)
        weights = np.empty(neighbors.shape)
        if self.encoder is None:
            stopped = _by_rows(256, _kernel.latent, (self.points,), points, neighbors, weights)
        elif self.exponents is not None:
            stopped = self._encoder_weights(self.exponents, X, neighbors, neighbors, weights)
        else:
            stopped = []
            for rows, used, places in _blocks_of_neighbors(neighbors, BLOCK_DISTANCES // len(self.nystroem[0])):
                exponents = _exponents(self.encoder, self.fields[used])
                found = self._encoder_weights(exponents, X[rows], neighbors[rows], places, weights[rows])
                stopped += [rows.start + row for row in found]
        if stopped:
            warn_caller(
                f"the search for the convex weights of row {min(stopped)} of X was stopped before it converged, so "
                "another mixture of its neighbours may come nearer to it. Use fewer neighbours",
                ConvergenceWarning,
            )
        return neighbors, weights

    def _encoder_weights(self, exponents, X, neighbors, places, weights):
        return _by_rows(16, _kernel.encoder, (exponents, *self.nystroem, self.latents), X, neighbors, places, weights)

    def decode(self, X: _Values, cells: Any = None, out: _Values | None = None, exclude: Any = None) -> _Values:
        """Fields (n, M), or some of their cells (n, c), at checked latents X (n, d)."""
        F: Any = self.fields
        fields = np.empty((len(X), F.shape[1] if cells is None else len(cells))) if out is None else out
        neighbors, weights = self.weights(X, exclude)
        mapped, columns = isinstance(F, MappedRows), slice(None) if cells is None else cells
        F = self.columns(cells) if cells is not None and not mapped else F
        for start, stop in blocks_to_fill(fields):
            near, w, mixtures = neighbors[start:stop], weights[start:stop], fields[start:stop]
            if not mapped:
                _by_rows(64, _kernel.mix, (F,), near, w, mixtures)
                continue
            for rows, used, places in _blocks_of_neighbors(near, BLOCK // max(1, fields.shape[1])):
                _by_rows(64, _kernel.mix, (F.read(used, columns),), places, w[rows], mixtures[rows])
        return fields

    @cached_property
    def linear_map(self) -> LinearMap:
        if isinstance(self.fields, MappedRows) or (self.encoder is not None and self.exponents is None):
            return _NeighborsAlone(self)
        exponents = (self.exponents, self.nystroem) if self.encoder is not None else ()
        basis = mixture_basis(self.latents, self.latent_scale, self.n_neighbors, *exponents)
        return LinearMap(basis, self.fields)

    @property
    def not_frozen(self) -> str:
        if isinstance(self.fields, MappedRows):
            return "its fields stay in their file. Fit it with copy=True"
        return (
            f'objective="encoder" needs the distances between all {len(self.fields)} training fields, of which an '
            f'image holds at most {KEPT_DISTANCES}: fit it to fewer fields, or with objective="latent"'
        )

    def with_n_neighbors(self, k: int) -> KNNFit:
        """The fit with another number of neighbours, which shares what is computed."""
        other = replace(self, n_neighbors=k)
        vars(other).update({name: value for name, value in vars(self).items() if name in _COMPUTED})
        return other

    def left_out(self, G, groups=None):
        n, out = len(G), np.empty_like(G)
        fit = self.with_n_neighbors(min(self.n_neighbors, n - 1))
        _by_rows(64, _kernel.mix, (G,), *fit.weights(self.latents, np.arange(n)), out)
        out = G - out
        for g in (g for g in groups or () if len(g) > 1):
            rest = np.delete(np.arange(n), g)
            fit = KNNFit(self.latents[rest], G[rest], self.latent_scale, None, min(self.n_neighbors, len(rest)))
            out[g] = G[g] - fit.decode(self.latents[g])
        return out

    @cached_property
    def leverage(self) -> Leverage:
        """Mean distance to the k nearest points over their own mean distance to their k nearest others."""
        k, (n, d) = self.n_neighbors, self.latents.shape
        # mean distance of a point to at least d + 1 others, never to its copies alone
        around = min(max(k, d + 1), n - 1)
        distances, indices = self.index.query(self.points, min(max(k, around) + 1, n))
        own = distances[:, 1 : around + 1].mean(axis=1) if around else np.full(1, np.inf)

        def ratio(distances: _Values, indices: NDArray[np.intp]) -> _Values:
            theirs, distance = own[indices].mean(axis=1), distances.mean(axis=1)
            return np.divide(distance, theirs, out=np.where(distance > 0, np.inf, 0.0), where=theirs > 0)

        def at(X: _Values) -> _Values:
            return ratio(*self.index.query(in_units(X, self.latent_scale), k))

        held_out = slice(1, k + 1) if k < n else slice(0, k)
        training = ratio(distances[:, :k], indices[:, :k])
        others = np.maximum(ratio(distances[:, held_out], indices[:, held_out]), 1)  # of twins 0
        return Leverage(at, self.latents, training, others, factor=DISTANCE_FACTOR)


class _NeighborsAlone(LinearMap):
    """A `LinearMap` of fields of a file, or of more distances than are kept: made anew of some rows' neighbours."""

    def __init__(self, fit: KNNFit, cells: NDArray[np.intp] | None = None) -> None:
        self.n_cells = fit.fields.shape[1] if cells is None else len(cells)
        self.width = fit.n_neighbors * max(self.n_cells, 1 if fit.encoder is None else len(fit.nystroem[0]))
        self.A = self.combinations = None
        self.basis, self._cells, self._evaluate, self.is_affine = fit, cells, fit.weights, False
        self.gather = partial(_NeighborsAlone, fit)

    def fields(self, X, invariant_values=None, cells=None, out=None, shape=None):
        return self.basis.decode(X)

    def _around(self, X):
        fit = self.basis
        used = np.unique(fit.neighbors(in_units(X, fit.latent_scale), None))
        columns = slice(None) if self._cells is None else self._cells
        F = fit.fields.read(used, columns) if isinstance(fit.fields, MappedRows) else fit.fields[used][:, columns]
        exponents = (_exponents(fit.encoder, fit.fields[used]), fit.nystroem) if fit.encoder is not None else ()
        basis = mixture_basis(fit.latents[used], fit.latent_scale, fit.n_neighbors, *exponents)
        return LinearMap(basis, np.ascontiguousarray(F))

    def tangents(self, X: _Values, V: _Values | None, first: int) -> _Values:
        return self._around(X).tangents(X, V, first)

    def cotangents(self, X: _Values, U: _Values, first: int) -> _Values:
        return self._around(X).cotangents(X, U, first)


def _by_rows(step, kernel, shared, *arrays):
    """Call kernel(*shared, *some rows of the arrays) in tasks of `step` rows; returns rows where a search was stopped.
    The kernel returns the first of such rows, or -1. A task takes some 0.1 ms."""
    stopped: list[int] = []

    def task(part):
        row = kernel(*shared, *(array[part] for array in arrays))
        if row is not None and row >= 0:
            stopped.append(part.start + row)

    parallel_rows(task, len(arrays[0]), step)
    return stopped


def _blocks_of_neighbors(neighbors, most):
    """By blocks of `most` neighbours, or one row: the rows, their training points, the neighbours among these."""
    n, k = neighbors.shape
    step = max(1, most // k)
    for start in range(0, n, step):
        rows = slice(start, start + step)
        used, places = np.unique(neighbors[rows], return_inverse=True)
        yield rows, used, places.reshape(-1, k)


@shared_texts
@estimator
class KNNDecoder(_base.HoldsFit, _base.FieldRegressor):
    """Convex mixtures of the training fields whose latent points are nearest.

    Use it for folded or few latent coordinates, where other decoders produce artefacts. Its derivatives jump
    between neighbourhoods: use `KernelDecoder` for reduced models.

    The weights are nonnegative and sum to 1, so every decoded field satisfies, to a few ulp, the linear invariants and
    the bounds that all training fields satisfy.

    Parameters
    ----------
    n_neighbors
        Number k of neighbours, at most the number of training points.
    objective
        The function that the weights a minimise over the simplex. "latent": |z - sum_k a_k z_k|, the projection of z on
        the convex hull of its neighbours. "encoder": |z - encode(sum_k a_k f_k)|, the paper's.
    encoder
        For objective="encoder". A fitted encoder is used without a copy, and `clone` keeps it; an unfitted one is
        cloned and fitted to the fields. Inside a `ManifoldModel`, None means the model's encoder.
    latent_scale
        Units of the latent coordinates for distances and, with objective="latent", for the projection. "std": their
        standard deviations over the training points. None: 1, as in the paper.
    copy
        False: memory-mapped training fields of 64 MB and more stay in their file, which must not change, and `predict`
        reads the neighbours. A pickle holds the name of the file; a model file cannot hold such a decoder.

    Attributes
    ----------
    encoder_ : DiffusionMaps
        The fitted encoder; None with objective="latent".
    latents_ : ndarray (n, d)
        Training points.
    fields_ : ndarray (n, M)
        Training fields; (n, 1) if y was one-dimensional. With copy=False ``fields_[a:b]`` reads some of them.

    Notes
    -----
    Neighbours are exact; equal distances are ordered by index. If there are several minimisers (k > d+1), the one with
    the least sum of a_k^2 is selected. With objective="encoder" the problem is not convex: Newton steps on the simplex
    have several starts, and up to 2^25 distances between training fields are stored.

    Derivatives are those of mixtures of the same neighbours. Fields have kinks and jumps where these change.

    References
    ----------
    Paper, App. B, Eq. B.1 and Eq. B.3. P. Wolfe, Math. Program. 11 (1976).

    Examples
    --------
    >>> import numpy as np, randsmap
    >>> latents = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    >>> fields = np.array([[0.2, 0.8], [0.5, 0.5], [0.9, 0.1]])
    >>> decoder = randsmap.KNNDecoder(n_neighbors=3).fit(latents, fields)
    >>> decoder.predict([[0.25, 0.25], [1.0, 1.0]]).round(3)
    array([[0.45, 0.55],
           [0.7 , 0.3 ]])
    """

    lacks = {
        "smoother": "`neighbor_weights` returns the weights of the neighbours; others are 0",
        "partial_fit": "the decoder stores its training fields: fit it again to all fields",
    }

    _state = {**_base.FIT_STATE, "_fitted": Part(KNNFit, d="d", M="M")}

    n_neighbors: int = parameter(int, default=5, low=1, kw_only=False)
    objective: str = parameter(str, default="latent", words=("latent", "encoder"))
    encoder: Any = parameter(default=None, shown="DiffusionMaps or None")
    latent_scale: str | float | ArrayLike | None = parameter(
        default=None, shown='float, array (d,), "std" or None', of_columns=True
    )
    copy: bool = parameter(bool, default=True)

    def __sklearn_clone__(self):
        new = super().__sklearn_clone__()
        if _base.is_fitted(self.encoder):  # scikit-learn's clone takes the fit out of it
            new.encoder = self.encoder
        return new

    def fit_state(self, X, y):
        given = check_parameters(self)
        X = validate_data(self, X, reset=True)
        F, _, layout = _base.check_fields(y, len(X), blocks=True)
        scale = _base.fitted_scale(self.latent_scale, X)
        if given["n_neighbors"] > len(X):
            most = f"the number of training points (n_samples = {len(X)})"
            raise ValueError(f"n_neighbors must be at most {most}, got {self.n_neighbors}")
        if not isinstance(F, Rows):
            F = F.copy()
        elif given["copy"]:
            F = F.whole()
        else:
            for _ in F.blocks(what="checking"):  # this pass finds values that are not finite
                pass
        encoder = self._fitted_encoder(F) if self.objective == "encoder" else None
        fit = KNNFit(X.copy(), F, scale, encoder, given["n_neighbors"])
        if encoder is not None and len(fit.nystroem[1]) != X.shape[1]:
            raise ValueError(
                f"X must have as many columns as the encoder has coordinates, {len(fit.nystroem[1])}, got {X.shape[1]}"
            )
        self._field_shape = layout
        return fit

    def _fitted_encoder(self, F):
        if self.encoder is None:
            raise ValueError(
                'objective="encoder" needs an encoder, a DiffusionMaps or that of a ManifoldModel, got None'
            )
        encoder = getattr(self.encoder, "estimator", self.encoder)  # unwraps a FrozenEstimator
        if not _is_diffusion_map(encoder):
            raise TypeError(f'objective="encoder" needs a DiffusionMaps encoder, got {type(self.encoder).__name__}')
        if not _base.is_fitted(encoder):
            encoder = clone(encoder).fit(F.array if isinstance(F, Rows) else F)
        M, expected = F.shape[1], encoder.n_features_in_
        if M != expected:
            raise ValueError(f"y must have as many columns as the encoder's fields, {expected}, got {M}")
        return encoder

    latents_ = _base.of_fit("latents")
    fields_ = _base.of_fit("fields")
    encoder_ = _base.of_fit("encoder")

    def with_n_neighbors(self, n_neighbors: int) -> KNNDecoder:
        """The decoder of the same data with another number of neighbours, without another fit.

        Parameters
        ----------
        n_neighbors : int
            At most the number of training points.

        Returns
        -------
        KNNDecoder
            Fitted; it shares the training data with this one.

        Raises
        ------
        sklearn.exceptions.NotFittedError, ValueError, TypeError
            Before `fit`, or if n_neighbors is no such number.
        """
        fit = self.fitted
        k = check_count(n_neighbors, "n_neighbors", high=len(fit.latents), high_name="n_samples")
        other: KNNDecoder = _base.holding(self, fit.with_n_neighbors(k), n_neighbors=n_neighbors)
        return other

    def predict(
        self,
        X: ArrayLike,
        *,
        cells: ArrayLike | None = None,
        out: NDArray[np.float64] | None = None,
        exclude: ArrayLike | None = None,
        return_error: bool | str = False,
        coverage: float = 0.9,
    ) -> Any:
        """Decode latent points.

        Parameters
        ----------
        X : array-like (n, d)
            Latent coordinates, n >= 1.
        {cells}
        {out}
        exclude : array-like of int (n,) or None
            For each row the index of a training point that must not be its neighbour, or -1. With
            ``exclude=range(n)`` the training points are decoded without themselves.
        {return_error}

        {returns_fields}
            Here it does not depend on them at all, nor on the number of threads.

        Warns
        -----
        ExtrapolationWarning
            If a row is far from the training points (without `exclude`).
        sklearn.exceptions.ConvergenceWarning
            If the search for the weights of a row, which is named, was stopped before it converged.

        {raises}
            Also if exclude holds no indices of training points or leaves fewer than n_neighbors.
        """
        fit = self.fitted
        check_samples(X=X, exclude=exclude)
        X = validate_data(self, X, reset=False)
        cells = self._checked_cells(cells)
        result, fields = self._output(out, X, len(X), cells)
        fit.decode(X, cells, fields, exclude)
        if exclude is None and not extrapolation_is_ignored():
            fit.trust.warn(self, X)
        return with_error(self._field_shape.labelled(result, cells, out), self, X, return_error, coverage)

    def neighbor_weights(
        self, X: ArrayLike, *, exclude: ArrayLike | None = None
    ) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
        """Neighbours of latent points and their weights in the decoded fields.

        Parameters
        ----------
        X, exclude
            As in `predict`.

        Returns
        -------
        neighbors : ndarray of int (n, n_neighbors)
            Rows of the training data, the nearest first.
        weights : ndarray (n, n_neighbors)
            Nonnegative, sum 1.

        Raises
        ------
        As `predict`.
        """
        check_samples(X=X, exclude=exclude)
        return self.fitted.weights(validate_data(self, X, reset=False), exclude)


def _exponents(encoder, F):
    """E_ki = -|f_k - g_i|^2 / epsilon^2 of fields F and the encoder's training fields g, for its values at mixtures.

    Since |z - g_i|^2 = sum_k a_k |f_k - g_i|^2 - (1/2) sum_kl a_k a_l |f_k - f_l|^2 for z = sum_k a_k f_k, sum a = 1,
    where the last term is common to all i, the transition probabilities from z are p_i ~ exp(offset_i + sum_k a_k E_ki)
    and its coordinates sum_i p_i values_i. Paper, App. C, the Nystroem extension.
    """
    blocks = (F if isinstance(F, Rows) else Rows(F)).blocks(what="distances")
    E = np.concatenate([encoder.squared_distances(block) for _, _, block in blocks])
    E /= -(encoder.epsilon_**2)
    return E


def _is_diffusion_map(encoder):
    """True if the encoder has the methods of a diffusion map that the search calls."""
    return all(hasattr(encoder, name) for name in ("transform", "nystroem_weights", "squared_distances"))

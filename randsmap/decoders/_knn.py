"""The k-NN decoder (paper App. B): convex mixtures of the fields of the nearest latent points."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.utils.validation import check_is_fitted

from randsmap._interface.fields import FIELD_STATE
from randsmap._interface.state import NOT_SAVED, Array, Count, Parameter, Part, check_fitted, validate_data
from randsmap._interface.validation import check_cells, check_choice, check_count
from randsmap._kernels import simplex as _kernel
from randsmap._linalg.neighbors import NeighborIndex
from randsmap._linalg.rows import BLOCK, Snapshots, filled, row_blocks
from randsmap._parallel import parallel_for
from randsmap.decoders._base import FieldRegressor, check_fields, fitted_scale
from randsmap.maps.bases import in_units
from randsmap.maps.extrapolation import DISTANCE_FACTOR, Leverage, LeverageMixin, Surroundings
from randsmap.maps.linear_map import CellSubsetCache

__all__ = ["KNNDecoder"]

# Distances between all training fields are kept up to this many (256 MB), so that decoding one
# row costs microseconds; beyond, those that a block of rows needs are computed with it.
KEPT_DISTANCES = 2**25
BLOCK_DISTANCES = 2**22


class KNNDecoder(LeverageMixin, FieldRegressor):
    """Convex mixtures of the training fields whose latent points are nearest.

    The weights are nonnegative and sum to 1, so every linear invariant and every bound that all
    training fields satisfy holds for every decoded field, to a few ulp.

    Parameters
    ----------
    n_neighbors : int, default=5
        Number k of neighbours, at most the number of training points.
    objective : {"latent", "encoder"}, default="latent"
        What the weights a minimise over the simplex: "latent" |y - sum_k a_k y_k|, the
        projection of y on the convex hull of its neighbours; "encoder"
        |y - encode(sum_k a_k f_k)|, the paper's.
    encoder : DiffusionMaps or None
        For objective="encoder". A fitted encoder is used as it is (`clone` keeps it too; it is
        never changed); one that is not fitted is cloned and fitted on the fields. Inside a
        `ManifoldModel`, None takes the model's encoder.
    latent_scale : float, array (d,), "std" or None, default=None
        Units of the latents in which neighbours are the nearest and, with objective="latent", y is projected;
        "std": the standard deviation of each coordinate of the training latents. None: 1, as in the paper.
    copy : bool, default=True
        False: large memory-mapped training fields (see Notes) stay in their file instead of being copied.

    Attributes
    ----------
    encoder_ : DiffusionMaps
        The fitted encoder (objective="encoder" only).
    latents_ : ndarray (n, d)
        Training points.
    fields_ : ndarray (n, M)
        Training fields; (n, 1) if y was one-dimensional. With copy=False what reads memory-mapped ones:
        ``fields_[a:b]`` is a copy of some of them.
    latent_scale_ : ndarray (d,)
        Units used.
    n_features_in_ : int
        d, the number of latent coordinates.

    Raises
    ------
    ValueError, TypeError
        From `fit`: the constructor stores its arguments as they are.

    Notes
    -----
    Neighbours are exact; equal distances are ordered by index.

    Among several minimisers (k > d+1) the one with least sum of a_k^2 is taken, which uses
    the neighbours evenly: decoded errors vary by factors among minimisers. With objective="latent"
    this is exact; coordinates that the neighbours span only by their rounding errors are ignored.

    objective="encoder" is not convex. The search starts from the latent weights along the
    linearised encoder (which leads to the zero of least sum of squares, to first order in the
    encoder's curvature); unless it attains zero, Newton steps on the simplex from there, from
    uniform weights and from each neighbour follow, and the best is kept. Because the weights
    sum to 1, squared distances of a mixture are affine in them up to a term that cancels in the
    Nystroem ratio: an evaluation costs O(k n), not O(M n). Up to 2^25 distances between
    training fields are kept for that.

    Decoding needs the training fields themselves, so that fields are copied once, large memory-mapped ones
    (`numpy.load` with mmap_mode) by blocks. With copy=False those of 64 MB and more are left where they are: `fit`
    reads them once, to check them, and `predict` the neighbours of some latent points at a time. So the file must
    stay as it is. A pickle then holds its name; a model file cannot hold such a decoder.

    References
    ----------
    Paper, App. B, Eqs. (convexinterpol) and (LiftkNN). Wolfe, Finding the nearest point in a
    polytope, Math. Program. 11 (1976).

    Examples
    --------
    >>> import numpy as np
    >>> from randsmap import KNNDecoder
    >>> latents = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    >>> fields = np.array([[0.2, 0.8], [0.5, 0.5], [0.9, 0.1]])
    >>> decoder = KNNDecoder(n_neighbors=3).fit(latents, fields)
    >>> decoder.predict([[0.25, 0.25], [1.0, 1.0]]).round(3)
    array([[0.45, 0.55],
           [0.7 , 0.3 ]])
    """

    latents_: NDArray[np.float64]
    fields_: NDArray[np.float64]
    encoder_: Any
    latent_scale_: NDArray[np.float64]
    latent_scale: Any = None  # in pickles of before, as the next
    copy: Any = True

    lacks = {
        **dict.fromkeys(
            ("jacobian", "jvp", "vjp"), "a mixture of neighbours has kinks and jumps where the neighbours change"
        ),
        "smoother": "`neighbor_weights` has the weights, of the neighbours alone",
        "partial_fit": "the decoder is its training fields: it is fitted again to more of them",
    }

    _state = {
        "n_features_in_": Count("d"),
        "latents_": Array("n", "d"),
        "fields_": Array("n", "M"),
        "latent_scale_": Array("d", low=np.finfo(float).smallest_subnormal, optional=True),  # not in files of before
        "encoder_": Part("transform", n_in="M", n_out="d", optional=True),
        "_n_neighbors": Count("k"),
        "_objective": Parameter(str, words=("latent", "encoder")),
        **FIELD_STATE,
        "_index": NOT_SAVED,
        "_points": NOT_SAVED,
        "_map": NOT_SAVED,
        "_kept": NOT_SAVED,
        "_kept_cells": NOT_SAVED,
        "_surroundings": NOT_SAVED,
    }

    def __init__(
        self,
        n_neighbors: int = 5,
        *,
        objective: str = "latent",
        encoder: Any = None,
        latent_scale: str | float | ArrayLike | None = None,
        copy: bool = True,
    ) -> None:
        self.n_neighbors = n_neighbors
        self.objective = objective
        self.encoder = encoder
        self.latent_scale = latent_scale
        self.copy = copy

    def __sklearn_clone__(self):
        # scikit-learn's clone would take the fit out of a nested encoder, which is used as it is
        params = self.get_params(deep=False)
        for name, value in params.items():
            if not (name == "encoder" and _is_fitted(value)):
                params[name] = clone(value, safe=False)
        new = type(self)(**params)
        if hasattr(self, "_metadata_request"):
            new._metadata_request = self._metadata_request
        return new

    def _fit(self, X, y):
        n_neighbors = check_count(self.n_neighbors, "n_neighbors")
        objective = check_choice(self.objective, "objective", ("latent", "encoder"))
        if not isinstance(self.copy, (bool, np.bool_)):
            raise TypeError(f"copy must be True or False, got {self.copy!r}")
        X = validate_data(self, X, reset=True)
        F, _, layout = check_fields(y, len(X), blocks=True)
        scale = fitted_scale(self.latent_scale, X)
        if n_neighbors > len(X):
            raise ValueError(
                f"n_neighbors must be at most the number of training points (n_samples = {len(X)}), got {n_neighbors}"
            )
        if not isinstance(F, Snapshots):
            F = F.copy()
        elif self.copy:
            F = F[:]
        else:
            for _ in row_blocks(F, "checking"):  # a value that is not finite is found now
                pass
        if objective == "encoder":
            self._fit_encoder(X, F)
        else:
            for name in ("encoder_", "_map", "_kept"):
                self.__dict__.pop(name, None)
        self._objective, self._n_neighbors = objective, n_neighbors
        self._keep_fields(layout)
        self.latents_, self.fields_, self.latent_scale_ = X.copy(), F, scale
        self._find_points()

    def _find_points(self):
        """The latents in their units, and the search among them."""
        self._points = self._in_units(self.latents_)
        self._index, self._surroundings = NeighborIndex(self._points), Surroundings(self.latents_)

    def _in_units(self, X):
        scale = getattr(self, "latent_scale_", None)
        return X if scale is None or (scale == 1).all() else in_units(X, scale)

    def with_n_neighbors(self, n_neighbors: int) -> KNNDecoder:
        """The decoder of the same data with another number of neighbours, without another fit.

        Parameters
        ----------
        n_neighbors : int
            At most the number of training points.

        Returns
        -------
        KNNDecoder
            Fitted; it shares the training data, the search and the distances with this one, which stays
            as it is.

        Raises
        ------
        sklearn.exceptions.NotFittedError
            Before `fit`.
        ValueError, TypeError
            If n_neighbors is no such number.

        Examples
        --------
        >>> from randsmap import KNNDecoder
        >>> decoder = KNNDecoder(1).fit([[0.0], [1.0], [3.0]], [[1.0], [2.0], [3.0]])
        >>> decoder.with_n_neighbors(2).predict([[2.0]])
        array([[2.5]])
        """
        check_fitted(self, "fields_")
        other = copy.copy(self)
        other.n_neighbors = n_neighbors
        other._surroundings = copy.copy(self._surroundings)
        other._n_neighbors = check_count(n_neighbors, "n_neighbors", high=len(self.latents_), high_name="n_samples")
        return other

    def _fit_encoder(self, X, F):
        if self.encoder is None:
            raise ValueError(
                'objective="encoder" needs an encoder, got None: give a '
                "DiffusionMaps, or use the decoder in a ManifoldModel"
            )
        encoder = _unwrapped(self.encoder)
        if not _is_diffusion_map(encoder):
            raise TypeError(f'objective="encoder" needs a DiffusionMaps encoder, got {type(self.encoder).__name__}')
        if not _is_fitted(encoder):
            encoder = clone(encoder).fit(F.array if isinstance(F, Snapshots) else F)
        if encoder.n_features_in_ != F.shape[1]:
            raise ValueError(
                f"y must have as many columns as the encoder's fields, {encoder.n_features_in_}, got {F.shape[1]}"
            )
        self._prepare_encoder(encoder, F)
        if len(self._map.values) != X.shape[1]:
            raise ValueError(
                f"X must have as many columns as the encoder has coordinates, {len(self._map.values)}, got {X.shape[1]}"
            )
        self.encoder_ = encoder

    def _prepare_encoder(self, encoder, F):
        self._map, self._kept = NystroemMap(encoder), None
        if len(F) * self._map.n_training <= KEPT_DISTANCES:
            self._kept = _exponents(encoder, F)

    @property
    def _n_outputs(self):
        return self.fields_.shape[1]

    def _restore(self):
        super()._restore()
        if self._n_neighbors > len(self.latents_):
            raise ValueError(f"{self._n_neighbors} neighbours among {len(self.latents_)} points")
        self._find_points()
        if self._objective == "encoder":
            if not _is_diffusion_map(self.encoder_):
                raise ValueError(f"the encoder is of class {type(self.encoder_).__name__}")
            # up to 256 MB that a file need not hold; the same bits from the same BLAS
            self._prepare_encoder(self.encoder_, self.fields_)

    def predict(
        self,
        X: ArrayLike,
        *,
        cells: ArrayLike | None = None,
        out: NDArray[np.float64] | None = None,
        exclude: ArrayLike | None = None,
    ) -> NDArray[np.float64]:
        """Decode latent points.

        Parameters
        ----------
        X : array-like (n, d)
            Latent coordinates.
        cells : array-like of int (k,) or of bool (M,), or None
            Only these cells of the fields, at their cost: indices in the flattened field (negative ones count from
            the end) or a mask, of the field's shape too.
        out : ndarray (n, M), float64, C-contiguous, or None
            Where to put the fields, in their shape or as rows; (n, k) for k cells.
        exclude : array-like of int (n,) or None
            For each row the index of a training point that must not be its neighbour, or -1. With
            ``exclude=range(n)`` the training points are decoded without themselves.

        Returns
        -------
        fields : ndarray (n, M), float64
            `out` if given. (n, k) for k cells; otherwise (n, *field_shape_), (n,) if y was one-dimensional and a
            DataArray if it was one. Does not depend on the number of threads, nor a row on the others.

        Warns
        -----
        ExtrapolationWarning
            If a row is far from the training points, compared with their distances from each other (without
            `exclude`).
        sklearn.exceptions.ConvergenceWarning
            If the search for the weights of a row, which is named, was stopped before it converged.

        Raises
        ------
        sklearn.exceptions.NotFittedError
            Before `fit`.
        ValueError, TypeError
            If X is not a finite array (n, d) with n >= 1, out has the wrong shape, type or layout
            or shares memory with X, cells are no such array or out of range, or exclude is not such
            an array or leaves too few points.
        """
        check_fitted(self, "fields_")
        X = validate_data(self, X, reset=False)
        fields = self._decoded(X, cells, out, exclude)
        if exclude is None:
            self._surroundings.trust.check(self, X)
        return fields

    def _decoded(self, X, cells=None, out=None, exclude=None):
        F = self.fields_
        if cells is not None:
            cells = check_cells(cells, F.shape[1], self.field_shape_)
        result, fields = self._output(out, X, len(X), cells)
        neighbors, weights = self._weights(X, exclude)
        if isinstance(F, Snapshots):
            step = max(1, BLOCK // (self._n_neighbors * max(1, fields.shape[1])))
        elif cells is not None:
            kept = self.__dict__.setdefault("_kept_cells", CellSubsetCache())
            F = kept.get(F, cells, lambda cells: np.ascontiguousarray(self.fields_[:, cells]))

        def task(start, stop):
            if not isinstance(F, Snapshots):
                _mix(F, neighbors[start:stop], weights[start:stop], fields[start:stop])
                return
            for a in range(start, stop, step):
                part = slice(a, min(a + step, stop))
                used, rows = np.unique(neighbors[part], return_inverse=True)
                _mix(F.cells(used, cells), rows.reshape(-1, self._n_neighbors), weights[part], fields[part])

        filled(task, fields)
        return self._labelled(result, cells, out)

    # -- Leverage ----------------------------------------------------------------------------------
    def _training_points(self):
        check_fitted(self, "fields_")
        return self.latents_

    def _leverage_cost(self):
        return 0.0

    def _make_leverage(self):
        """Mean distance to the k nearest points over their own mean distance to their k nearest others."""
        check_fitted(self, "fields_")
        k, n, index = self._n_neighbors, len(self.latents_), self._index
        # of a point, and never that to its twins alone: at least d + 1 others
        around = min(max(k, self.n_features_in_ + 1), n - 1)
        distances, indices = index.query(self._in_units(self.latents_), min(max(k, around) + 1, n))
        own = distances[:, 1 : around + 1].mean(axis=1) if around else np.full(1, np.inf)

        def ratio(distances: NDArray[np.float64], indices: NDArray[np.intp]) -> NDArray[np.float64]:
            theirs, distance = own[indices].mean(axis=1), distances.mean(axis=1)
            return np.divide(distance, theirs, out=np.where(distance > 0, np.inf, 0.0), where=theirs > 0)

        def at(X: NDArray[np.float64]) -> NDArray[np.float64]:
            return ratio(*index.query(self._in_units(X), k))

        held_out = slice(1, k + 1) if k < n else slice(0, k)
        training = ratio(distances[:, :k], indices[:, :k])
        others = np.maximum(ratio(distances[:, held_out], indices[:, held_out]), 1)  # of twins 0
        return Leverage(at, self.latents_, training, others, factor=DISTANCE_FACTOR)

    def neighbor_weights(
        self, X: ArrayLike, *, exclude: ArrayLike | None = None
    ) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
        """Neighbours of latent points and their weights in the decoded fields.

        Parameters
        ----------
        X : array-like (n, d)
        exclude : array-like of int (n,) or None
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

        Examples
        --------
        >>> from randsmap import KNNDecoder
        >>> decoder = KNNDecoder(2).fit([[0.0], [1.0], [3.0]], [[1.0], [2.0], [3.0]])
        >>> decoder.neighbor_weights([[1.5]])
        (array([[1, 0]]), array([[1., 0.]]))
        """
        check_fitted(self, "fields_")
        return self._weights(validate_data(self, X, reset=False), exclude)

    def _weights(self, X, exclude):
        if "_points" not in self.__dict__:  # in a pickle of before
            self._find_points()
        points = self._in_units(X)
        neighbors, stopped = self._neighbors(points, exclude), _Stopped()
        weights = np.empty(neighbors.shape)
        if self._objective == "encoder":
            self._encoder_weights(X, neighbors, weights, stopped)
        else:
            step = 256
            parallel_for(
                lambda i: stopped.add(
                    _kernel.latent(
                        self._points,
                        points[i * step : (i + 1) * step],
                        neighbors[i * step : (i + 1) * step],
                        weights[i * step : (i + 1) * step],
                    ),
                    i * step,
                ),
                -(-len(X) // step),
            )
        stopped.warn()
        return neighbors, weights

    def _neighbors(self, X, exclude):
        k = self._n_neighbors
        if exclude is None:
            return self._index.query(X, k)[1]
        n = len(self.fields_)
        exclude = np.asarray(exclude)
        if exclude.dtype.kind not in "iu" or exclude.shape != (len(X),):
            raise ValueError(
                f"exclude must hold {len(X)} integers, one a row of X, got shape {exclude.shape} of {exclude.dtype}"
            )
        if len(X) and not (-1 <= exclude.min() and exclude.max() < n):
            raise ValueError(
                f"exclude must hold indices of training points (or -1), below {n}, "
                f"got {exclude.min()} to {exclude.max()}"
            )
        if k == n:
            raise ValueError(f"exclude leaves {n - 1} training points, fewer than n_neighbors = {k}")
        candidates = self._index.query(X, k + 1)[1]
        kept = candidates != exclude[:, None]
        kept[kept.all(axis=1), -1] = False
        return candidates[kept].reshape(len(X), k)

    def _encoder_weights(self, X, neighbors, weights, stopped):
        if self._kept is not None:
            self._encoder_block(X, neighbors, neighbors, self._kept, weights, 0, stopped)
            return
        step = max(1, BLOCK_DISTANCES // (self._n_neighbors * self._map.n_training))
        for i in range(0, len(X), step):
            block = slice(i, i + step)
            used, rows = np.unique(neighbors[block], return_inverse=True)
            rows, F = rows.reshape(neighbors[block].shape), self.fields_
            self._encoder_block(
                X[block], neighbors[block], rows, _exponents(self.encoder_, F[used]), weights[block], i, stopped
            )

    def _encoder_block(self, X, neighbors, rows, exponents, weights, start, stopped):
        step = 16
        parallel_for(
            lambda i: stopped.add(
                _kernel.encoder(
                    exponents,
                    self._map.offset,
                    self._map.values,
                    self.latents_,
                    X[i * step : (i + 1) * step],
                    neighbors[i * step : (i + 1) * step],
                    rows[i * step : (i + 1) * step],
                    weights[i * step : (i + 1) * step],
                ),
                start + i * step,
            ),
            -(-len(X) // step),
        )


def _mix(F, neighbors, weights, out):
    """Mixtures of the fields F with these neighbours and weights (n, k) into out (n, M)."""
    step = 64

    def task(i):
        part = slice(i * step, (i + 1) * step)
        _kernel.mix(F, neighbors[part], weights[part], out[part])

    parallel_for(task, -(-len(out) // step))


class _Stopped:
    """Rows whose search for convex weights was stopped; what it had found is used: convex weights all the same."""

    def __init__(self) -> None:
        self._rows: list[int] = []

    def add(self, row: int, start: int) -> None:
        """Note what a kernel says of the rows from `start` on: the first that it stopped at, or -1."""
        if row >= 0:
            self._rows.append(start + row)

    def warn(self) -> None:
        if self._rows:
            warnings.warn(
                f"the search for the convex weights of row {min(self._rows)} of X was stopped before it converged, so "
                "another mixture of its neighbours may come nearer to it. Use fewer neighbours",
                ConvergenceWarning,
                stacklevel=4,
            )


class NystroemMap:
    """A diffusion map's Nystroem extension at mixtures z = sum_k a_k f_k, sum a = 1.

    Since |z - f_i|^2 = sum_k a_k |f_k - f_i|^2 - (1/2) sum_kl a_k a_l |f_k - f_l|^2, where the last
    term is common to all i, the transition probabilities from z are
    p_i ~ exp(offset_i + sum_k a_k E_ki), E_ki = -|f_k - f_i|^2 / epsilon^2 (`exponents`), and its
    coordinates sum_i p_i values_i. Paper, App. C, the Nystroem extension.
    """

    def __init__(self, encoder: Any) -> None:
        density, values = encoder.nystroem_weights()
        self.offset, self.values = np.log(density), np.ascontiguousarray(values)
        self.n_training = len(density)


def _exponents(encoder, F):
    """E (len(F), n_training) of the fields F, see `NystroemMap`."""
    E = np.concatenate([encoder.squared_distances(block) for _, block in row_blocks(F, "distances")])
    E /= -(encoder.epsilon_**2)
    return E


def _is_diffusion_map(encoder):
    """Whether it has what the search needs of a diffusion map, see `NystroemMap`."""
    return all(hasattr(encoder, name) for name in ("transform", "nystroem_weights", "squared_distances"))


def _unwrapped(encoder):
    return getattr(encoder, "estimator", encoder)  # of a FrozenEstimator


def _is_fitted(encoder):
    if encoder is None:
        return False
    try:
        check_is_fitted(encoder)
    except (NotFittedError, TypeError):
        return False
    return True

"""The k-NN decoder (paper App. B): convex mixtures of the fields of the nearest latent points."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from randsmap._interface.arrays import check_cells, validate_data
from randsmap._interface.callers import extrapolation_is_ignored, warn_caller
from randsmap._interface.fields import FIELD_STATE
from randsmap._interface.parameters import check_choice, check_count, check_flag, estimator, parameter
from randsmap._interface.state import NOT_SAVED, Array, Count, Part
from randsmap._kernels import simplex as _kernel
from randsmap._linalg.neighbors import NeighborIndex
from randsmap._linalg.rows import BLOCK, MappedRows, Rows, fill_by_blocks
from randsmap._parallel import parallel_for
from randsmap.decoders._base import (
    COMPUTED_STATE,
    Fit,
    HoldsFit,
    check_fields,
    fitted_scale,
    holding,
    is_fitted,
    of_fit,
)
from randsmap.maps.bases import in_units
from randsmap.maps.extrapolation import DISTANCE_FACTOR, Leverage
from randsmap.maps.linear_map import cell_subsets

# Distances between all training fields are kept up to this many (256 MB), so that decoding one
# row costs microseconds; beyond, those that a block of rows needs are computed with it.
KEPT_DISTANCES = 2**25
BLOCK_DISTANCES = 2**22
_COMPUTED = ("points", "index", "nystroem", "exponents", "columns")  # of a fit, whatever the number of neighbours


@dataclass(frozen=True, eq=False)
class KNNFit(Fit):
    """A fit of a k-NN decoder: its training data, and what is computed from them once."""

    latents: NDArray[np.float64]  # (n, d)
    fields: Any  # (n, M), or rows of a mapped file
    latent_scale: NDArray[np.float64]  # (d,)
    encoder: Any  # a diffusion map, of objective="encoder"
    n_neighbors: int

    _state = {
        "latents": Array("n", "d"),
        "fields": Array("n", "M"),
        "latent_scale": Array("d", low=np.finfo(float).smallest_subnormal),
        "encoder": Part("transform", n_in="M", n_out="d", optional=True),
        "n_neighbors": Count("k"),
        **COMPUTED_STATE,
        **dict.fromkeys(_COMPUTED, NOT_SAVED),
    }

    def _restore(self) -> None:
        if self.n_neighbors > len(self.latents):
            raise ValueError(f"{self.n_neighbors} neighbours among {len(self.latents)} points")
        if self.encoder is not None and not _is_diffusion_map(self.encoder):
            raise ValueError(f"the encoder is of class {type(self.encoder).__name__}")
        self.prepare()

    def prepare(self) -> tuple[Any, Any]:
        """Compute what the first decoded row would wait for."""
        return self.index, None if self.encoder is None else self.exponents

    @cached_property
    def points(self) -> NDArray[np.float64]:
        """The latents in their units."""
        return self.in_units(self.latents)

    @cached_property
    def index(self) -> NeighborIndex:
        """The search among the points."""
        return NeighborIndex(self.points)

    @cached_property
    def nystroem(self) -> NystroemMap:
        """The encoder at mixtures."""
        return NystroemMap(self.encoder)

    @cached_property
    def exponents(self) -> NDArray[np.float64] | None:
        """Distances between all fields, as `NystroemMap` takes them; None if they are too many."""
        few = len(self.fields) * self.nystroem.n_training <= KEPT_DISTANCES
        return _exponents(self.encoder, self.fields) if few else None

    @cached_property
    def columns(self) -> Callable[[NDArray[np.intp]], NDArray[np.float64]]:
        """Cells of the fields that were asked for."""
        fields = self.fields
        return cell_subsets(lambda cells: np.ascontiguousarray(fields[:, cells]))

    def in_units(self, X: NDArray[np.float64]) -> NDArray[np.float64]:
        return X if (self.latent_scale == 1).all() else in_units(X, self.latent_scale)

    def _neighbors(self, points, exclude):
        """The nearest training points (n, k) of each point, the nearest first."""
        k, n = self.n_neighbors, len(self.latents)
        if exclude is None:
            return self.index.query(points, k)[1]
        exclude = np.asarray(exclude)
        if exclude.dtype.kind not in "iu" or exclude.shape != (len(points),):
            raise ValueError(
                f"exclude must hold {len(points)} integers, one for each row of X, got shape {exclude.shape} of "
                f"{exclude.dtype}"
            )
        if len(points) and not (-1 <= exclude.min() and exclude.max() < n):
            raise ValueError(
                f"exclude must hold indices of training points (or -1), below {n}, "
                f"got {exclude.min()} to {exclude.max()}"
            )
        if k == n:
            raise ValueError(f"exclude leaves {n - 1} training points, fewer than n_neighbors = {k}")
        candidates = self.index.query(points, k + 1)[1]
        kept = candidates != exclude[:, None]
        kept[kept.all(axis=1), -1] = False
        return candidates[kept].reshape(len(points), k)

    def weights(self, X: NDArray[np.float64], exclude: Any = None) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
        """Neighbours of latents X (n, d) and their weights (n, k)."""
        points, k = self.in_units(X), self.n_neighbors
        neighbors, stopped = self._neighbors(points, exclude), list[int]()
        weights = np.empty(neighbors.shape)
        if self.encoder is None:
            _by_rows(256, stopped, 0, _kernel.latent, (self.points,), points, neighbors, weights)
        elif self.exponents is not None:
            self._encoder_weights(self.exponents, X, neighbors, neighbors, weights, 0, stopped)
        else:
            step = max(1, BLOCK_DISTANCES // (k * self.nystroem.n_training))
            for i in range(0, len(X), step):
                part = slice(i, i + step)
                used, rows = np.unique(neighbors[part], return_inverse=True)
                exponents, rows = _exponents(self.encoder, self.fields[used]), rows.reshape(-1, k)
                self._encoder_weights(exponents, X[part], neighbors[part], rows, weights[part], i, stopped)
        if stopped:
            warn_caller(
                f"the search for the convex weights of row {min(stopped)} of X was stopped before it converged, so "
                "another mixture of its neighbours may come nearer to it. Use fewer neighbours",
                ConvergenceWarning,
            )
        return neighbors, weights

    def _encoder_weights(self, exponents, X, neighbors, rows, weights, first, stopped):
        shared = exponents, self.nystroem.offset, self.nystroem.values, self.latents
        _by_rows(16, stopped, first, _kernel.encoder, shared, X, neighbors, rows, weights)

    def decode(
        self,
        X: NDArray[np.float64],
        cells: NDArray[np.intp] | None = None,
        out: NDArray[np.float64] | None = None,
        exclude: Any = None,
    ) -> NDArray[np.float64]:
        """Fields (n, M), or some of their cells (n, c), at checked latents X (n, d)."""
        F: Any = self.fields
        k = self.n_neighbors
        if out is None:
            out = np.empty((len(X), F.shape[1] if cells is None else len(cells)))
        fields = out
        neighbors, weights = self.weights(X, exclude)
        if isinstance(F, MappedRows):
            step = max(1, BLOCK // (k * max(1, fields.shape[1])))
        elif cells is not None:
            F = self.columns(cells)

        def task(start: int, stop: int) -> None:
            if not isinstance(F, MappedRows):
                _mix(F, neighbors[start:stop], weights[start:stop], fields[start:stop])
                return
            for a in range(start, stop, step):
                part = slice(a, min(a + step, stop))
                used, rows = np.unique(neighbors[part], return_inverse=True)
                _mix(
                    F.read(used, slice(None) if cells is None else cells),
                    rows.reshape(-1, k),
                    weights[part],
                    fields[part],
                )

        fill_by_blocks(task, fields)
        return fields

    def with_n_neighbors(self, k: int) -> KNNFit:
        """The fit with another number of neighbours, which shares what is computed."""
        other = replace(self, n_neighbors=k)
        vars(other).update({name: value for name, value in vars(self).items() if name in _COMPUTED})
        return other

    @property
    def training_points(self) -> NDArray[np.float64]:
        return self.latents

    @property
    def leverage_cost(self) -> float:
        return 0.0

    @cached_property
    def leverage(self) -> Leverage:
        """Mean distance to the k nearest points over their own mean distance to their k nearest others."""
        k, (n, d) = self.n_neighbors, self.latents.shape
        # of a point, and never that to its twins alone: at least d + 1 others
        around = min(max(k, d + 1), n - 1)
        distances, indices = self.index.query(self.points, min(max(k, around) + 1, n))
        own = distances[:, 1 : around + 1].mean(axis=1) if around else np.full(1, np.inf)

        def ratio(distances: NDArray[np.float64], indices: NDArray[np.intp]) -> NDArray[np.float64]:
            theirs, distance = own[indices].mean(axis=1), distances.mean(axis=1)
            return np.divide(distance, theirs, out=np.where(distance > 0, np.inf, 0.0), where=theirs > 0)

        def at(X: NDArray[np.float64]) -> NDArray[np.float64]:
            return ratio(*self.index.query(self.in_units(X), k))

        held_out = slice(1, k + 1) if k < n else slice(0, k)
        training = ratio(distances[:, :k], indices[:, :k])
        others = np.maximum(ratio(distances[:, held_out], indices[:, held_out]), 1)  # of twins 0
        return Leverage(at, self.latents, training, others, factor=DISTANCE_FACTOR)


def _by_rows(step, stopped, first, kernel, shared, *arrays):
    """kernel(*shared, *some rows of the arrays) in tasks of `step` rows, the first of which has the number `first`.

    A task takes some 0.1 ms, compared with which its start costs nothing.

    The kernel returns the first row whose search was stopped, or -1: it is noted in `stopped`.
    """

    def task(i):
        part = slice(i * step, (i + 1) * step)
        row = kernel(*shared, *(array[part] for array in arrays))
        if row >= 0:
            stopped.append(first + i * step + row)

    parallel_for(task, -(-len(arrays[0]) // step))


@estimator
class KNNDecoder(HoldsFit):
    """Convex mixtures of the training fields whose latent points are nearest.

    The weights are nonnegative and sum to 1, so every decoded field satisfies, to a few ulp, the linear invariants and
    the bounds that all training fields satisfy.

    Parameters
    ----------
    n_neighbors
        Number k of neighbours, at most the number of training points.
    objective
        The function that the weights a minimise over the simplex. "latent": |y - sum_k a_k y_k|, the projection of y on
        the convex hull of its neighbours. "encoder": |y - encode(sum_k a_k f_k)|, the paper's.
    encoder
        For objective="encoder". A fitted encoder is used without a copy, and `clone` keeps it. One that is not fitted
        is cloned and fitted to the fields. Inside a `ManifoldModel`, None means the model's encoder.
    latent_scale
        Units of the latents for distances and, with objective="latent", for the projection. "std": the standard
        deviation of each coordinate of the training latents. None: 1, as in the paper.
    copy
        False: large memory-mapped training fields (see Notes) stay in their file instead of being copied.

    Attributes
    ----------
    encoder_ : DiffusionMaps
        The fitted encoder; None with objective="latent".
    latents_ : ndarray (n, d)
        Training points.
    fields_ : ndarray (n, M)
        Training fields; (n, 1) if y was one-dimensional. With copy=False an object that reads memory-mapped fields:
        ``fields_[a:b]`` is a copy of some of them.
    latent_scale_ : ndarray (d,)
        Units used.
    n_features_in_ : int
        d, the number of latent coordinates.

    Notes
    -----
    Neighbours are exact; equal distances are ordered by index.

    Among several minimisers (k > d+1) the one with the least sum of a_k^2 is taken, which uses the neighbours evenly:
    decoded errors vary by factors among minimisers. With objective="latent" this is exact; coordinates that the
    neighbours span only by their rounding errors are ignored.

    objective="encoder" is not convex. The search starts from the latent weights along the linearised encoder, which
    leads to the zero of least sum of squares, to first order in the encoder's curvature. Unless it attains zero, Newton
    steps on the simplex follow, from there, from uniform weights and from each neighbour, and the best result is taken.
    Because the weights sum to 1, squared distances of a mixture are affine in them up to a term that cancels in the
    Nystroem ratio: an evaluation costs O(k n), not O(M n). For that, up to 2^25 distances between training fields are
    stored.

    `fit` copies the fields, large memory-mapped ones (`numpy.load` with mmap_mode) by blocks. With copy=False, mapped
    fields of 64 MB and more stay in their file: `fit` reads them once, to check them, and `predict` reads the
    neighbours of some latent points at a time, so the file must not change. A pickle holds the name of the file; a
    model file cannot hold such a decoder.

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

    lacks = {
        **dict.fromkeys(
            ("jacobian", "jvp", "vjp"), "a mixture of neighbours has kinks and jumps where the neighbours change"
        ),
        "smoother": "`neighbor_weights` has the weights, of the neighbours alone",
        "partial_fit": "the decoder is its training fields: it is fitted again to more of them",
    }

    _state = {"n_features_in_": Count("d"), "_fitted": Part(KNNFit, d="d", M="M"), **FIELD_STATE}

    n_neighbors: int = parameter(int, default=5, kw_only=False)
    objective: str = parameter(str, default="latent", words=("latent", "encoder"))
    encoder: Any = parameter(default=None, shown="DiffusionMaps or None")
    latent_scale: str | float | ArrayLike | None = parameter(default=None, shown='float, array (d,), "std" or None')
    copy: bool = parameter(bool, default=True)

    def __sklearn_clone__(self):
        new = super().__sklearn_clone__()
        if is_fitted(self.encoder):  # scikit-learn's clone takes the fit out of it
            new.encoder = self.encoder
        return new

    def fit_state(self, X, y):
        n_neighbors = check_count(self.n_neighbors, "n_neighbors")
        objective = check_choice(self.objective, "objective", ("latent", "encoder"))
        copied = check_flag(self.copy, "copy")
        X = validate_data(self, X, reset=True)
        F, _, layout = check_fields(y, len(X), blocks=True)
        scale = fitted_scale(self.latent_scale, X)
        if n_neighbors > len(X):
            raise ValueError(
                f"n_neighbors must be at most the number of training points (n_samples = {len(X)}), got {n_neighbors}"
            )
        if not isinstance(F, Rows):
            F = F.copy()
        elif copied:
            F = F.whole()
        else:
            for _ in F.blocks(what="checking"):  # a value that is not finite is found now
                pass
        encoder = self._fitted_encoder(F) if objective == "encoder" else None
        fit = KNNFit(X.copy(), F, scale, encoder, n_neighbors)
        if encoder is not None:
            if len(fit.nystroem.values) != X.shape[1]:
                raise ValueError(
                    f"X must have as many columns as the encoder has coordinates, {len(fit.nystroem.values)}, "
                    f"got {X.shape[1]}"
                )
        self._keep_fields(layout)
        return fit

    def _fitted_encoder(self, F):
        if self.encoder is None:
            raise ValueError(
                'objective="encoder" needs an encoder, got None: give a '
                "DiffusionMaps, or use the decoder in a ManifoldModel"
            )
        encoder = _unwrapped(self.encoder)
        if not _is_diffusion_map(encoder):
            raise TypeError(f'objective="encoder" needs a DiffusionMaps encoder, got {type(self.encoder).__name__}')
        if not is_fitted(encoder):
            encoder = clone(encoder).fit(F.array if isinstance(F, Rows) else F)
        if encoder.n_features_in_ != F.shape[1]:
            raise ValueError(
                f"y must have as many columns as the encoder's fields, {encoder.n_features_in_}, got {F.shape[1]}"
            )
        return encoder

    latents_ = of_fit("latents")
    fields_ = of_fit("fields")
    encoder_ = of_fit("encoder")

    def with_n_neighbors(self, n_neighbors: int) -> KNNDecoder:
        """The decoder of the same data with another number of neighbours, without another fit.

        Parameters
        ----------
        n_neighbors : int
            At most the number of training points.

        Returns
        -------
        KNNDecoder
            Fitted; it shares the training data, the search and the distances with this one.

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
        fit = self.fitted
        k = check_count(n_neighbors, "n_neighbors", high=len(fit.latents), high_name="n_samples")
        other: KNNDecoder = holding(self, fit.with_n_neighbors(k), n_neighbors=n_neighbors)
        return other

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
            Only these cells, at their cost: indices in the flattened field (negative ones count from the end) or a
            mask, which may have the field's shape.
        out : ndarray (n, M), float64, C-contiguous, or None
            Array to write to, in the fields' shape or as rows; (n, k) for k cells.
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
            If X is not a finite array (n, d) with n >= 1, another argument is not as described, out shares memory
            with X, or exclude leaves too few points.
        """
        fit = self.fitted
        X = validate_data(self, X, reset=False)
        if cells is not None:
            cells = check_cells(cells, self._n_outputs, self.field_shape_)
        result, fields = self._output(out, X, len(X), cells)
        fit.decode(X, cells, fields, exclude)
        if exclude is None and not extrapolation_is_ignored():
            fit.trust.warn(self, X)
        return self._labelled(result, cells, out)

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
        return self.fitted.weights(validate_data(self, X, reset=False), exclude)


def _mix(F, neighbors, weights, out):
    """Mixtures of the fields F with these neighbours and weights (n, k) into out (n, M)."""
    step = 64

    def task(i):
        part = slice(i * step, (i + 1) * step)
        _kernel.mix(F, neighbors[part], weights[part], out[part])

    parallel_for(task, -(-len(out) // step))


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
    blocks = (F if isinstance(F, Rows) else Rows(F)).blocks(what="distances")
    E = np.concatenate([encoder.squared_distances(block) for _, _, block in blocks])
    E /= -(encoder.epsilon_**2)
    return E


def _is_diffusion_map(encoder):
    """Whether it has the methods of a diffusion map that the search calls, see `NystroemMap`."""
    return all(hasattr(encoder, name) for name in ("transform", "nystroem_weights", "squared_distances"))


def _unwrapped(encoder):
    return getattr(encoder, "estimator", encoder)  # of a FrozenEstimator

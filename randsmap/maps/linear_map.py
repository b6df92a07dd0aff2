"""Fields f(y) = [1 | phi(y)] A, projected on their invariants, and their derivatives in closed form.

C evaluates the functions phi of a `Basis`, which is a few numbers and arrays (rk_image.h). Other functions are
evaluated here, and C gets their values; they are an object with

- ``values(X)``, (n, P): the functions at points X (n, d), and `rows`, the number of points to map at a time,
- ``tangents(X, V)``, (n, p, P): derivatives along one direction a point, V (n, 1, d), or with None the d coordinates,
- ``contract(X, H)``, (n, d): gradients of sum_k H_k phi_k,
- if C is to make other functions of these, ``of_values``, the `Basis` of those.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from randsmap._interface.arrays import as_array, check_beside, check_finite, check_out, finite_results
from randsmap._interface.callers import quiet
from randsmap._interface.fields import output
from randsmap._interface.state import Array, Part, immutable, saved
from randsmap._interface.texts import shared_texts
from randsmap._kernels import linear_map as _kernel
from randsmap._kernels.distances import DIRECT_DIM
from randsmap._linalg.rows import blocks_to_fill, feature_matrix
from randsmap._linalg.scales import in_norm
from randsmap._parallel import FEW, TILE_ENTRIES, blas_threads, for_tiles, parallel_rows, tile_rows
from randsmap.features import MonomialFeatures, polynomial_jacobian
from randsmap.invariants import AffineInvariants, values_of_rows

_CACHED = 4  # number of subsets of cells whose coefficients a map caches
_Values = NDArray[np.float64]
_SHARED = 1 << 19  # multiplications from which BLAS's threads need a limit, which costs 30 us


# -- Functions of the latent point -----------------------------------------------------------------
@dataclass(frozen=True, kw_only=True)
class Basis:
    """Functions that C evaluates: their kind, the number of their activation or kernel, arrays, and parts.

    A registration has n_own coordinates of its own, and n_cells functions, which are the field.
    """

    kind: int
    n_components: int
    function: int = 0
    scale: float = 0.0
    low: float = 0.0
    high: float = 0.0
    limit: float = math.inf
    smoothing: float = 0.0
    n_neighbors: int = 0
    n_own: int = 0
    n_cells: int = 0
    arrays: dict[str, NDArray[Any]] = field(default_factory=dict)
    parts: tuple[LinearMap, ...] = ()

    @property
    def not_frozen(self) -> str | None:
        """Why no image holds it; None: one does."""
        d, mixed = self.n_components, _kernel.MOST_MIXED
        most = min(_kernel.MOST_NEIGHBORS, mixed // min(d, math.isqrt(mixed)))
        most = _kernel.MOST_ENCODED if "exponents" in self.arrays else most
        if self.n_neighbors > most:
            return f"an image mixes at most {most} fields in {d} coordinates, and n_neighbors is {self.n_neighbors}"
        return next((reason for reason in (part.basis.not_frozen for part in self.parts) if reason), None)

    @property
    def smooth(self) -> bool:
        """False where neighbours are mixed, which change from point to point."""
        return not self.n_neighbors and all(part.basis.smooth for part in self.parts)


def identity_basis(size: int) -> Basis:
    """The coordinates themselves: phi(y) = y, of length `size`."""
    return Basis(kind=_kernel.IDENTITY, n_components=size)


def feature_basis(features: Any) -> Basis | TransformerBasis:
    """The basis of a fitted feature map, the package's own or any transformer."""
    scale, transformer = getattr(features, "scale", None), getattr(features, "transformer", features)
    if isinstance(transformer, MonomialFeatures):
        powers = transformer.powers_.astype(np.int64, copy=False)
        arrays: dict[str, Any] = {"powers": powers, "offsets": transformer.center_, "lengths": scale}
        return Basis(kind=_kernel.MONOMIALS, n_components=powers.shape[1], arrays=arrays)
    if isinstance(features, TransformerBasis):
        return features
    if not hasattr(features, "activation_parameters"):
        return TransformerBasis(features)
    activation, weights, offsets, scale = features.activation_parameters()
    return Basis(
        kind=_kernel.FEATURE_MAP,
        n_components=len(weights),
        function=activation,
        scale=scale,
        arrays={"weights": weights, "offsets": offsets},
    )


def kernel_basis(kernel: Any, points: _Values, lengths: _Values, centre: _Values | None = None) -> Basis:
    """A radial kernel g(|x - z|^2) at points z (n, d), x = y / lengths and z in these units.

    With a centre (d,) a linear tail follows, the coordinates (y - centre) / lengths. ``kernel.frozen()`` gives the
    kernel's entries of a `Basis`.
    """
    d = points.shape[1]
    arrays = {"columns": np.ascontiguousarray(points.T), "lengths": lengths}
    if d > DIRECT_DIM:
        arrays["points"] = points
    if centre is not None:
        arrays["tail_centre"] = centre
    return Basis(n_components=d, arrays=arrays, **kernel.frozen())


def mixture_basis(
    points: _Values, lengths: _Values, n_neighbors: int, exponents: Any = None, nystroem: Any = None
) -> Basis:
    """Convex weights of the nearest of these points (n, d), which the coefficients, one row a point, mix.

    They come nearest to the point itself or, with the `exponents` and offset and values of a Nystroem extension
    (rk_simplex.h), to what the encoder makes of the mixture.
    """
    units = in_units(points, lengths)
    order = np.argsort(units[:, 0], kind="stable")
    arrays = {"near_points": units[order], "near_order": order.astype(np.int64), "lengths": lengths}
    if nystroem is not None:
        arrays |= {"exponents": exponents, "nystroem": np.vstack(nystroem), "near_latents": points[order]}
    return Basis(kind=_kernel.MIXTURE, n_components=points.shape[1], n_neighbors=n_neighbors, arrays=arrays)


def in_blocks(kernel: Any, points: _Values, X: _Values, function: Callable[[_Values, slice], _Values]) -> _Values:
    """``function(K, rows)``, one number per row, of the kernel K (m, n_points) at rows of X (n, d), in its units."""
    out, step = np.empty(len(X)), max(32, TILE_ENTRIES // len(points))
    for a in range(0, len(X), step):
        rows = slice(a, a + step)
        out[rows] = function(kernel.values(X[rows], points), rows)
    return out


@immutable
class TransformerBasis:
    """Any other transformer, of points in units of `scale` (d,).

    Derivatives come from its ``jacobian(Z)``, or are known for PolynomialFeatures.
    """

    transformer: Any = saved(Part("transform", n_in="d", n_out="P"))
    scale: _Values | None = saved(Array("d", low=np.finfo(float).smallest_subnormal), default=None)

    rows = 8192  # rows per call of a transformer, for bounded memory

    @property
    def n_features_in_(self) -> int:
        return int(self.transformer.n_features_in_)

    @property
    def _n_features_out(self):
        return len(self.transformer.get_feature_names_out())

    def transform(self, X: _Values) -> Any:
        """Features of points X (n, d)."""
        return self.transformer.transform(self._in_units(X))

    def _in_units(self, X):
        return X if self.scale is None else in_units(X, self.scale)

    def values(self, X: _Values) -> _Values:
        return feature_matrix(self, X)

    def jacobian(self, X: _Values) -> _Values:
        """Derivatives (n, P, d) of the transform."""
        transformer, Y = self.transformer, self._in_units(X)
        if hasattr(transformer, "jacobian"):
            J = np.asarray(transformer.jacobian(Y), dtype=np.float64)
        else:
            from sklearn.preprocessing import PolynomialFeatures

            if not isinstance(transformer, PolynomialFeatures):
                raise TypeError(
                    f"the derivative of the features of {type(transformer).__name__} is not known: it "
                    "needs a method jacobian(Z) that gives the derivatives (n, P, d) of transform(Z)"
                )
            J = polynomial_jacobian(transformer.powers_, Y)
        if J.ndim != 3 or J.shape[0] != len(X) or J.shape[2] != X.shape[1]:
            raise ValueError(f"the features' jacobian(Z) must have shape ({len(X)}, P, {X.shape[1]}), got {J.shape}")
        return J if self.scale is None else J / self.scale

    def tangents(self, X: _Values, V: _Values | None) -> _Values:
        J = self.jacobian(X).transpose(0, 2, 1)
        T = J if V is None else V @ J
        check_finite(T, "the features' jacobian")
        return T

    def contract(self, X: _Values, H: _Values) -> _Values:
        return np.einsum("nkj,nk->nj", self.jacobian(X), H)

    @property
    def not_frozen(self) -> str:
        return (
            f"C does not support the features of {type(self.transformer).__name__}. Fit and freeze a decoder with "
            "random features, such as features=FourierFeatures(), or a KernelDecoder"
        )


def in_units(Y: _Values, lengths: _Values) -> _Values:
    """Y / lengths; no further than the largest number."""
    X = np.empty(Y.shape)
    _kernel.in_units(np.ascontiguousarray(Y), np.ascontiguousarray(lengths), X)
    return X


# -- Encoding by projection, for decoders unknown to C ---------------------------------------------
@quiet
def nearest_latents(
    decode: Any, jacobian: Any, F: _Values, Y: _Values, n_steps: int, weights: _Values | None, values: Any = None
) -> _Values:
    """What rk_nearest of rk_image.h does: points (n, d), from Y on, whose fields are nearer to F (n, M).

    ``decode(Y, values)`` and ``jacobian(Z)`` (n, M, d), whose ValueError is of a row that overflows.
    """
    Y, trial, n = Y.copy(), Y, Y.shape[1] + 1
    G, damping = np.full((len(Y), n, n), np.inf), np.full(len(Y), _kernel.DAMPING)
    for _ in range(n_steps + 1):
        new = _misfit_products(decode, jacobian, weights, F, trial, values)
        closer = new[:, 0, 0] < G[:, 0, 0]
        G[closer], Y[closer] = new[closer], trial[closer]
        damping = np.maximum(damping * np.where(closer, 0.1, 10), _kernel.LEAST_DAMPING)
        trial = Y + _damped_steps(G[:, 1:, 1:], G[:, 1:, 0], damping[:, None])
    return Y


def _misfit_products(decode, jacobian, weights, F, Y, values):
    """Products (n, 1 + d, 1 + d) of the misfit of each field and its derivatives; infinite if one is not finite."""
    try:
        misfit, J = F - np.reshape(decode(Y, values), F.shape), np.reshape(jacobian(Y), (*F.shape, -1))
    except ValueError:
        if len(Y) == 1:
            return np.full((1, Y.shape[1] + 1, Y.shape[1] + 1), np.inf)
        each = zip(F[:, None], Y[:, None], [None] * len(Y) if values is None else values[:, None])
        return np.concatenate([_misfit_products(decode, jacobian, weights, *row) for row in each])
    E = in_norm(np.concatenate([misfit[:, None], J.transpose(0, 2, 1)], axis=1), weights)
    G = E @ E.transpose(0, 2, 1)
    return np.where(np.isfinite(G).all(axis=(1, 2), keepdims=True), G, np.inf)


def _damped_steps(A, g, damping):
    """(A + damping diag(A))^-1 g for each of A (n, d, d); 0 where the result is not finite."""
    diagonal = np.einsum("njj->nj", A)
    unit = np.where(diagonal > 0, np.sqrt(diagonal), 1)
    scaled = A / unit[:, :, None] / unit[:, None, :] + damping[:, :, None] * np.eye(A.shape[1])
    steps = np.linalg.solve(scaled, (g / unit)[:, :, None])[:, :, 0] / unit
    return np.where(np.isfinite(steps).all(axis=1, keepdims=True), steps, 0)


# -- The map ---------------------------------------------------------------------------------------
def cell_subsets(gather: Callable[[NDArray[np.intp]], Any]) -> Callable[[NDArray[np.intp]], Any]:
    """``gather(cells)``, of which the results for the last few sets of cells (k,) are kept."""
    by_bytes = lru_cache(_CACHED)(lambda key: gather(np.frombuffer(key, np.intp)))
    return lambda cells: by_bytes(cells.tobytes())


def map_arrays(
    basis: Basis,
    coefficients: dict[str, NDArray[Any]],
    invariants: AffineInvariants | None = None,
    *,
    kind: int = _kernel.FEATURES,
    precision: int = 64,
    single: bool = False,
    encoder: dict[str, Any] | None = None,
) -> dict[str, NDArray[Any]]:
    """The arrays of a map by the names of their sections in rk_image.h: what C decodes with, and an image holds.

    `encoder` has those of an encoder and, as numbers, "encoder_width", "encoder_neighbors", "projection" and
    "distilled", an error; or "input", the map that decodes the points of this one.
    """
    arrays: dict[str, Any] = {**basis.arrays, **coefficients, **(encoder or {})}
    maps = {name: given for name, given in (("parts", basis.parts), ("input", arrays.pop("input", None))) if given}
    q = 0
    if invariants is not None:
        arrays.update((name, array) for name, array in invariants.frozen().items() if array is not None)
        q = invariants.matrix.shape[1]
    parameters = {
        "n_components": basis.n_components,
        "n_cells": basis.n_cells or len(coefficients["bias"]),
        "n_invariants": q,
        "basis": basis.kind,
        "function": basis.function,
        "kind": kind,
        "precision": precision,
        "projected": invariants is not None,
        "single": single,
        "projection": arrays.pop("projection", 0),
        "neighbors": basis.n_neighbors,
        "encoder_neighbors": arrays.pop("encoder_neighbors", 0),
        "own": basis.n_own,
    }
    arrays["parameters"] = np.array([parameters[name] for name in _kernel.PARAMETERS], dtype=np.int64)
    width, distilled = arrays.pop("encoder_width", 0.0), arrays.pop("distilled", 0.0)
    arrays["scalars"] = np.array([basis.scale, basis.low, basis.high, width, basis.limit, basis.smoothing, distilled])
    found = {name: np.require(array, None, ["C", "A"]) for name, array in arrays.items() if array is not None}
    return found | maps


def _map_of_cells(basis, A, invariants, combinations, bias, cells):
    """The map to these cells (k,)."""
    if A.dtype != np.float64:
        A = A.astype(np.float64)
        A[0] = bias
    if invariants is None:
        return LinearMap(basis, np.ascontiguousarray(A[:, cells]), None, combinations)
    # the projection is a correction of A
    return LinearMap(basis, invariants.gather_coefficients(A, cells), None, combinations)


@quiet
def _by_rows(call, first, *arrays):
    """``call(*arrays)``; its ValueError names the first row that fails alone, of numbers from `first` on, unless all
    fail in other words: then it is of the shape, say."""

    def text(rows):
        try:
            call(*(None if array is None else array[rows] for array in arrays))
        except ValueError as error:
            return str(error).removeprefix("row 0 of X: ")

    try:
        return call(*arrays)
    except ValueError:
        whole, texts = text(slice(None)), [text(slice(i, i + 1)) for i in range(len(arrays[0]))]
        failed = [i for i, said in enumerate(texts) if said is not None]
        if not failed or (len(failed) == len(texts) and texts[0] != whole):
            raise
        raise ValueError(f"row {first + failed[0]} of X: {texts[failed[0]]}") from None


def _checked(method, arrays, first=0):
    """task(start, stop): a method of the kernel with these rows of the arrays; ValueError names a row that fails."""

    def call(*rows):
        failed = method(*rows)
        if failed:
            raise ValueError(_kernel.message(failed))

    def task(start, stop):
        _by_rows(call, first + start, *(None if array is None else array[start:stop] for array in arrays))

    return task


class LinearMap:
    """Fields [1 | phi(y)] A, each projected on its invariants: every ridge and kernel decoder, and POD.

    `basis` is a `Basis` or what the module describes, the first row of A (P+1, M) the bias, which mixtures do without.
    With `combinations` B (P+1, r) fields are [1 | [1 | phi(y)] B] A of A (r+1, M): B gives their coordinates in few
    modes. If A is in single precision, so are products with it, but not their sums and the `bias` (M,). The C structure
    of rk_image.h does the work and checks the shapes; `of` opens the same structure in the memory of an image.
    """

    # None for the map of an image, whose arrays only C reads
    basis: Any = None
    A: Any = None
    invariants: AffineInvariants | None = None
    _evaluate: Any = None
    is_single, _varying, _whole = False, False, True

    def __init__(
        self,
        basis: Any,
        A: NDArray[Any],
        invariants: AffineInvariants | None = None,
        combinations: NDArray[Any] | None = None,
        bias: _Values | None = None,
    ) -> None:
        # a view, so that reshaping the caller's array cannot change this one
        A = np.require(A, np.float32 if A.dtype == np.float32 else np.float64, ["C", "A"]).view()
        B, self.is_single = combinations, A.dtype == np.float32
        self.basis, self.A, self.invariants, self.combinations = basis, A, invariants, B
        if bias is None:
            bias = A[0].astype(np.float64, copy=False)
        # bias and coefficients, or two factors of them, of the fields
        self.coefficients = {"bias": bias, "coefficients": A[1:]}
        if getattr(basis, "kind", None) == _kernel.MIXTURE:
            self.coefficients = {"bias": np.zeros(A.shape[1]), "coefficients": A}
        if B is not None:
            start = B[0].astype(np.float64, copy=False)
            self.coefficients = {"bias": bias, "start": start, "factor": np.ascontiguousarray(B[1:]), "modes": A[1:]}
        # the values of functions that are unknown to C are passed to it
        self._evaluate = None if isinstance(basis, Basis) else basis.values
        evaluated = basis
        if self._evaluate is not None:
            evaluated = getattr(basis, "of_values", None) or identity_basis(len(A if B is None else B) - 1)
        self.open_kernel(_kernel.Map(map_arrays(evaluated, self.coefficients, invariants)))
        # fields and derivatives within bounds depend on all cells
        self._whole = invariants is not None and invariants.lower is not None
        self._varying = invariants is not None and invariants.varying
        # the maps to subsets of cells. The partial has no reference to self: A may be large, and is freed at once
        self.gather = cell_subsets(partial(_map_of_cells, basis, A, invariants, B, bias))

    @classmethod
    def of(cls, source: Any) -> Self:
        """The map of an image, or of `map_arrays`; neither is copied."""
        linear = cls.__new__(cls)
        linear.open_kernel(_kernel.Map(source))
        return linear

    def open_kernel(self, kernel: Any) -> None:
        """Decode with a structure of the kernel module."""
        self.kernel, self.n_cells = kernel, kernel.n_cells
        self.width = max(kernel.n_cells, kernel.n_features)
        self.is_affine = self._evaluate is None and kernel.is_affine

    def checked(self, X: ArrayLike, **others: Any) -> _Values:
        """X as points (n, d) for the other methods, of a map that C evaluates; `others` are for these rows."""
        if others:
            check_beside(X, others)
        return as_array(X, "X", (None, self.kernel.n_components), min_rows=0)

    # -- Fields ------------------------------------------------------------------------------------
    def fields(
        self,
        X: _Values,
        invariant_values: ArrayLike | None = None,
        cells: NDArray[np.intp] | None = None,
        out: _Values | None = None,
        shape: tuple[int, ...] | None = None,
    ) -> _Values:
        """Fields at checked latent points X (n, d), as `predict` returns them; shape: of a field, None: (M,)."""
        n, M = len(X), self.n_cells
        values = None
        if invariant_values is not None or self._varying:
            values = self._invariant_values(invariant_values, n)
        if cells is None:
            out = output(out, X, (n, M) if shape is None else (n, *shape))
            self.decode(X, out if out.ndim == 2 else out.reshape(n, M), values)
            return out
        out = output(out, X, (n, len(cells)))
        if len(cells) and values is None and not self._whole:
            self.gather(cells).decode(X, out)
            return out
        rows = max(1, min(n, max(256, (1 << 22) // M)))  # of whole fields in memory
        memory = np.empty((rows, M))
        for a in range(0, n, rows):
            b = min(a + rows, n)
            self.decode(X[a:b], memory[: b - a], None if values is None else values[a:b], a)
            out[a:b] = memory[: b - a, cells]
        return out

    def _invariant_values(self, values, n):
        """Values of the invariants for each of n rows, as `decode` takes them."""
        if self.invariants is not None:
            return self.invariants.row_values(values, n)
        if not self.kernel.n_invariants:
            raise ValueError("invariant_values given, but this decoder does not project its fields on invariants")
        return values_of_rows(values, n, self.kernel.n_invariants)  # of an image: C checks and selects them

    def decode(self, X: _Values, out: _Values, values: _Values | None = None, first: int = 0) -> None:
        """Whole fields into out (n, M), each projected; values (n, rank): of the independent invariants. ValueError
        names a row that overflows, of numbers from `first` on."""
        if not out.size:
            return
        if values is None and self._evaluate is None and len(X) <= FEW:  # fast path: one row takes microseconds
            status = self.kernel.row(X, out)
            if status == 0:
                return
        selected = values is None or self.invariants is not None
        method = self.kernel.decode if selected else self.kernel.decode_values
        for start, stop in blocks_to_fill(out):
            step = stop - start if self._evaluate is None else self.basis.rows
            for a in range(start, stop, step):
                b = min(a + step, stop)
                Z = X[a:b] if self._evaluate is None else self._evaluated(X[a:b], first + a)
                task = _checked(method, (Z, None if values is None else values[a:b], out[a:b]), first + a)
                for_tiles(task, b - a)

    def _evaluated(self, X, first):
        """The values of functions that are unknown to C, at rows from number `first` on."""
        Z = np.ascontiguousarray(_by_rows(self._evaluate, first, X))
        if Z.shape[1] != self.kernel.n_components:
            raise ValueError(f"{self.kernel.n_components} functions of the latents are expected, got {Z.shape[1]}")
        return Z

    def encode(self, F: _Values, n_steps: int) -> _Values:
        """Latent points (n, d) of fields F (n, M), of an image with an encoder, after steps of `nearest`; -1: its own
        number."""
        out = np.empty((len(F), self.kernel.n_components))
        for_tiles(_checked(lambda F, out: self.kernel.encode(F, n_steps, out), (F, out)), len(F))
        return out

    def registered(self, F: _Values) -> _Values:
        """Points (n, own + cells) of fields F (n, M), of a registration without a part that decodes what it carries."""
        out = np.empty((len(F), self.kernel.n_components))
        for_tiles(_checked(self.kernel.registered, (F, out)), len(F))
        return out

    def nearest(self, F: _Values, Y: _Values, n_steps: int, weights: _Values | None, values: Any = None) -> _Values:
        """Points (n, d) after so many steps from Y, whose fields are nearer to F (n, M) in the norm of the weights.

        `values` are those of the invariants where they vary; C finds them itself.
        """
        if self._evaluate is not None:
            return nearest_latents(self.fields, self.jacobian, F, Y, n_steps, weights, values)
        Y, few = Y.copy(), 8  # rows per task: each takes as long as several decoded fields
        parallel_rows(lambda rows: self.kernel.nearest(F[rows], weights, n_steps, Y[rows]), len(Y), few)
        return Y

    # -- Derivatives -------------------------------------------------------------------------------
    def _part(self, cells, shape):
        """The map whose derivatives are wanted, which of its cells, and the shape of a field of these."""
        if cells is None:
            return self, slice(None), (self.n_cells,) if shape is None else shape
        if self._whole or not len(cells):
            return self, cells, cells.shape
        return self.gather(cells), slice(None), cells.shape

    def tangents(self, X: _Values, V: _Values | None, first: int) -> _Values:
        """Derivatives (n, p, M) at rows from number `first` on, along V (n, p, d), None: along the coordinates."""
        n, p = len(X), X.shape[1] if V is None else V.shape[1]
        T = np.empty((n, p, self.n_cells))
        if self._evaluate is not None:
            V = np.ascontiguousarray(_by_rows(self.basis.tangents, first, X, V))
            if V.shape[2] != self.kernel.n_components:
                P = self.kernel.n_components
                raise ValueError(f"the derivatives of {P} functions are wanted, got those of {V.shape[2]}")
            X = self._evaluated_for_derivatives(X, first)
        with blas_threads() if T.size * self.width > _SHARED else nullcontext():
            _checked(self.kernel.tangents, (X, V, T), first)(0, n)
        return T

    def _evaluated_for_derivatives(self, X, first):
        """As `_evaluated`, if derivatives depend on the values, because of bounds or of a basis that uses them."""
        curved = self._whole or hasattr(self.basis, "of_values")
        return self._evaluated(X, first) if curved else np.zeros((len(X), self.kernel.n_components))

    def jacobian(
        self,
        X: _Values,
        cells: NDArray[np.intp] | None = None,
        out: _Values | None = None,
        shape: tuple[int, ...] | None = None,
    ) -> _Values:
        """Derivatives df/dy (L, M, d), or (L, *shape, d), at checked points X (L, d)."""
        part, pick, shape = self._part(cells, shape)
        (L, d), out = X.shape, jacobian_output(out, X, shape, X.shape[1])
        J = out.reshape(L, math.prod(shape), d)

        def task(a, b):
            J[a:b] = part.tangents(X[a:b], None, a)[:, :, pick].transpose(0, 2, 1)

        if L and part.is_affine:
            task(0, 1)
            J[1:] = J[0]
        else:
            for_tiles(task, L, tile_rows(d * part.width))
        return out

    def jvp(
        self,
        X: _Values,
        V: ArrayLike,
        cells: NDArray[np.intp] | None = None,
        out: _Values | None = None,
        shape: tuple[int, ...] | None = None,
    ) -> _Values:
        """Products J v (L, M), or (L, *shape), at checked points X (L, d), for V (L, d) or (d,)."""
        part, pick, shape = self._part(cells, shape)
        V = np.ascontiguousarray(as_array(V, "V", X.shape, repeat=True))[:, None]
        out = output(out, X, (len(X), *shape))
        T = out.reshape(len(X), math.prod(shape))

        def task(a, b):
            T[a:b] = part.tangents(X[a:b], V[a:b], a)[:, 0, pick]

        for_tiles(task, len(X), tile_rows(part.width))
        return out

    def vjp(
        self,
        X: _Values,
        U: ArrayLike,
        cells: NDArray[np.intp] | None = None,
        out: _Values | None = None,
        shape: tuple[int, ...] | None = None,
    ) -> _Values:
        """Products J^T u (L, d) at checked points X (L, d), for U (L, M) or (M,); (L,) where shape is ()."""
        part, pick, shape = self._part(cells, shape)
        if not shape:
            U = np.asarray(U)[..., None] if np.ndim(U) else U
        wanted = U = as_array(U, "U", (len(X), math.prod(shape)), repeat=True)
        out = check_out(out, X.shape, apart=X, U=U)
        if part is self and cells is not None:
            U = np.zeros((len(X), self.n_cells))
            np.add.at(U.T, pick, wanted.T)

        def task(a, b):
            out[a:b] = part.cotangents(X[a:b], U[a:b], a)

        for_tiles(task, len(X), tile_rows(part.width))
        return out

    def cotangents(self, X: _Values, U: _Values, first: int) -> _Values:
        Z = X if self._evaluate is None else self._evaluated_for_derivatives(X, first)
        H = np.empty(Z.shape)
        # a few rows are limited by the bandwidth of reading A, which more threads hardly speed up
        with blas_threads(1) if len(X) * self.kernel.n_features * self.n_cells > _SHARED else nullcontext():
            _checked(self.kernel.cotangents, (Z, U, H), first)(0, len(X))
        if self._evaluate is None:
            return H
        return _by_rows(lambda *rows: finite_results(self.basis.contract(*rows)), first, X, H)


class ProjectedMap(LinearMap):
    """A `LinearMap` to the fields of another one, projected on invariants: for its derivatives, and to be frozen."""

    invariants: AffineInvariants
    is_affine, _whole = False, True
    not_frozen = "C supports one projection only: use a regressor without bounds and without a projection"

    def __init__(self, inner: LinearMap, invariants: AffineInvariants) -> None:
        self.inner, self.invariants, self.n_cells, self.width = inner, invariants, inner.n_cells, inner.width
        self.is_single = inner.is_single
        # the coefficients of another `ProjectedMap` do not have its projection
        nested = isinstance(inner, ProjectedMap)
        if not nested and isinstance(inner.basis, Basis) and getattr(inner.invariants, "lower", None) is None:
            self.A, self.coefficients, self.combinations = inner.A, inner.coefficients, inner.combinations
        # without bounds, coefficients preserve the invariants, so that no other projection is needed
        self.basis = inner.basis if self.A is not None else self

    def nearest(self, F: _Values, Y: _Values, n_steps: int, weights: _Values | None, values: Any = None) -> _Values:
        def decode(Y, values):
            return self.invariants.project(self.inner.fields(Y), self.invariants.row_values(values, len(Y)))

        return nearest_latents(decode, self.jacobian, F, Y, n_steps, weights, values)

    def tangents(self, X: _Values, V: _Values | None, first: int) -> _Values:
        T = self.inner.tangents(X, V, first)
        # without bounds the derivatives of the projection are the same at any field
        F = T[:, 0] if self.invariants.lower is None else self._bounded(X)
        self.invariants.projection.push(np.ascontiguousarray(F), T)
        return finite_results(T)

    def cotangents(self, X: _Values, U: _Values, first: int) -> _Values:
        if self.invariants.lower is None:
            U = self.invariants.adjoint(U)
        else:
            self.invariants.projection.pull(self._bounded(X), U := U.copy())
        return self.inner.cotangents(X, U, first)

    def _bounded(self, X):
        """The fields, on whose active bounds derivatives depend; ValueError if the invariants vary."""
        return self.invariants.project(self.inner.fields(X), self.invariants.row_values(None, len(X)))


def jacobian_output(out: _Values | None, X: _Values, shape: tuple[int, ...], d: int) -> _Values:
    """`out`, or a new array, for derivatives (n, *shape, d), or (n, k, d), in d coordinates at the points X."""
    if len(shape) > 1 and getattr(out, "ndim", 0) == 3:
        shape = (math.prod(shape),)
    return check_out(out, (len(X), *shape, d), apart=X)


# -- Derivatives of estimators ---------------------------------------------------------------------
# methods of those that decode by a `linear_map`, whose `checked_latents` are as those of `LinearMap.checked`
@shared_texts
def jacobian(
    self: Any, X: ArrayLike, *, cells: ArrayLike | None = None, out: NDArray[np.float64] | None = None
) -> NDArray[np.float64]:
    """Derivatives of the decoded fields with respect to the latent coordinates.

    {latents} {cells} {out} {returns_jacobian} {raises}

    Notes
    -----
    A feature map that is not the package's own needs a method ``jacobian(Z)`` that gives (n, P, d), the derivatives
    of its ``transform(Z)``; PolynomialFeatures of scikit-learn needs nothing, and for others TypeError is raised.
    `jvp` and `vjp` multiply by J without forming it, at about the cost of `predict`.
    """
    X, cells = self.checked_latents(X), self._checked_cells(cells)
    return self.linear_map.jacobian(X, cells, out, self.field_shape_)


@shared_texts
def jvp(
    self: Any, X: ArrayLike, V: ArrayLike, *, cells: ArrayLike | None = None, out: NDArray[np.float64] | None = None
) -> NDArray[np.float64]:
    """Products J v of the Jacobians with vectors: how fields change as the latents move along v.

    {latents} {directions} {cells} {out} {returns_jvp} {raises}
    """
    X, cells = self.checked_latents(X, V=V), self._checked_cells(cells)
    return self.linear_map.jvp(X, V, cells, out, self.field_shape_)


@shared_texts
def vjp(
    self: Any, X: ArrayLike, U: ArrayLike, *, cells: ArrayLike | None = None, out: NDArray[np.float64] | None = None
) -> NDArray[np.float64]:
    """Products J^T u of the transposed Jacobians with vectors: the gradient of u . f in the latents.

    {latents} {functionals} {cells} {out} {returns_vjp} {raises}
    """
    X, cells = self.checked_latents(X, U=U), self._checked_cells(cells)
    return self.linear_map.vjp(X, self._field_shape.vectors(U, "U", cells), cells, out, self.field_shape_)

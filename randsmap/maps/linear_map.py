"""Fields f(y) = [1 | phi(y)] A, projected on their invariants, and their derivatives in closed form."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from contextlib import nullcontext, suppress
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from randsmap._interface.fields import output
from randsmap._interface.validation import check_cells, check_out, check_vectors
from randsmap._kernels import gradients as _kernel
from randsmap._linalg.rows import filled
from randsmap._parallel import FEW, blas_threads, for_tiles, tile_rows
from randsmap.invariants import AffineInvariants
from randsmap.invariants._bounds import STALLED
from randsmap.maps.active_bounds import ActiveBounds
from randsmap.maps.extrapolation import NoLeverage, Surroundings
from randsmap.maps.frozen import MAX_BYTES, FrozenDecoder, FrozenEncoder, FrozenModel, image_of

__all__ = ["KeptCells", "LinearMap", "LinearMapHolder"]

_KEPT = 4  # subsets of cells whose coefficients a map keeps
_SHARED = 1 << 19  # multiplications from which BLAS's threads need a limit, which costs 30 us


class KeptCells:
    """What was gathered from an array for the last few sets of cells; empty in a pickle or a copy."""

    _array: Any
    _parts: OrderedDict[bytes, Any]

    def __init__(self) -> None:
        self._array, self._parts, self._lock = None, OrderedDict(), threading.Lock()

    def __len__(self):
        return len(self._parts)

    def __reduce__(self):
        return KeptCells, ()

    def get(self, A: NDArray[np.float64], cells: NDArray[np.intp], gather: Callable[[NDArray[np.intp]], Any]) -> Any:
        """``gather(cells)``, as long as it is asked for the same array A and cells (k,)."""
        key = cells.tobytes()
        with self._lock:
            if self._array is not A:
                self._array, self._parts = A, OrderedDict()
            parts = self._parts
            if key in parts:
                parts.move_to_end(key)
                return parts[key]
        part = gather(cells)
        with self._lock:
            parts[key] = part
            while len(parts) > _KEPT:
                parts.popitem(last=False)
        return part


class LinearMap:
    """Fields [1 | phi(y)] A, each projected on its invariants: every ridge and kernel decoder, and POD.

    Parameters
    ----------
    basis : as in `randsmap.maps.bases`
        phi.
    A : ndarray (P+1, M)
        Coefficients, the first row the bias.
    invariants : AffineInvariants or None
        What every field is projected on; None: fields are left as they are.

    Raises
    ------
    ValueError
        If the shapes do not fit: no kernel may read beyond an array.
    """

    def __init__(self, basis: Any, A: NDArray[np.float64], invariants: AffineInvariants | None = None) -> None:
        # a view: what becomes of the shape of the caller's array is nothing to the kernels
        A = np.require(A, np.float64, ["C", "A"]).view()
        wanted = basis.size and basis.size + 1, None if invariants is None else len(invariants.constant)
        if A.ndim != 2 or not len(A) or any(w is not None and w != s for w, s in zip(wanted, A.shape)):
            names = ["any" if w is None else str(w) for w in wanted]
            raise ValueError(
                f"the decoder's coefficients must be an array ({', '.join(names)}), as after fit, got shape {A.shape}"
            )
        self.basis, self.A, self.invariants = basis, A, invariants
        self.projection = None if invariants is None else invariants.projection
        self._bounded = invariants is not None and invariants.lower is not None
        self.kept = KeptCells()
        self.surroundings: Surroundings | None = None  # set by a decoder that knows its training points

    def gather(self, cells: NDArray[np.intp]) -> LinearMap:
        """The map to these cells (k,), as parts of the whole projected fields; the last few are kept.

        Not for fields with bounds, whose cells depend on all others.
        """
        return self.kept.get(self.A, cells, self._gather)

    def _gather(self, cells):
        if self.invariants is None:
            A = np.ascontiguousarray(self.A[:, cells])
        else:  # the projection is a correction of A
            A = self.invariants.gather_coefficients(self.A, cells)
        return LinearMap(self.basis, A)

    # -- Fields ------------------------------------------------------------------------------------
    def fields(
        self,
        X: NDArray[np.float64],
        invariant_values: ArrayLike | None = None,
        cells: ArrayLike | None = None,
        out: NDArray[np.float64] | None = None,
        shape: tuple[int, ...] | None = None,
    ) -> NDArray[np.float64]:
        """What `predict` returns for checked latent points X (n, d); shape: of a field, None: (M,)."""
        n, M = len(X), self.A.shape[1]
        if cells is None and invariant_values is None:  # one row must cost microseconds
            out = output(out, X, (n, M) if shape is None else (n, *shape))
            self.decode(X, out if shape is None else out.reshape(n, M))
            return out
        values = None
        if invariant_values is not None:
            if self.invariants is None:
                raise ValueError("invariant_values given, but this decoder does not project its fields on invariants")
            values = self.invariants.row_values(invariant_values, n)
        if cells is None:
            out = output(out, X, (n, M) if shape is None else (n, *shape))
            self.decode(X, out.reshape(n, M), values)
            return out
        cells = check_cells(cells, M, shape)
        out = output(out, X, (n, len(cells)))
        if values is None and not self._bounded:
            self.gather(cells).decode(X, out)
            return out
        rows = max(1, min(n, max(256, (1 << 22) // M)))  # of whole fields in memory
        memory = np.empty((rows, M))
        for a in range(0, n, rows):
            b = min(a + rows, n)
            self.decode(X[a:b], memory[: b - a], None if values is None else values[a:b], a)
            out[a:b] = memory[: b - a, cells]
        return out

    def decode(
        self,
        X: NDArray[np.float64],
        out: NDArray[np.float64],
        values: NDArray[np.float64] | None = None,
        first: int = 0,
    ) -> None:
        """Whole fields into out (n, M), each projected; values (n, rank): of the invariants, a row each.

        ValueError if a row is so far away that it overflows: it cannot satisfy its invariants. It is
        named as number `first` and following.
        """
        if not out.size:
            return
        if values is None and len(X) <= FEW:
            self.basis.decode(X, self.A, self.projection, out, first)
            return

        def block(a, b):
            self.basis.decode(X[a:b], self.A, self.projection if values is None else None, out[a:b], first + a)
            if values is not None:
                self.invariants.project(out[a:b], values[a:b], first=first + a)

        filled(block, out)

    # -- Derivatives -------------------------------------------------------------------------------
    def _tangents_at(self, X, cells, given):
        """The map whose derivatives are wanted, the bounds that are active in the fields at X (None: the
        map has none), and the shape of a field."""
        whole = cells is None
        if not whole:
            cells = check_cells(cells, self.A.shape[1], given)
        if self._bounded:
            F = np.empty((len(X), self.A.shape[1]))
            self.decode(X, F)
            part, active = LinearMap(self.basis, self.A), ActiveBounds(self.invariants, F, cells)
            k = active.n_cells
        else:
            part, active = self if whole else self.gather(cells), None
            k = part.A.shape[1]
        return part, active, (k,) if given is None or not whole else given

    def jacobian(
        self,
        X: NDArray[np.float64],
        cells: ArrayLike | None = None,
        out: NDArray[np.float64] | None = None,
        shape: tuple[int, ...] | None = None,
    ) -> NDArray[np.float64]:
        """Derivatives df/dy (L, M, d), or (L, *shape, d), at checked points X (L, d)."""
        part, active, shape = self._tangents_at(X, cells, shape)
        (L, d), M = X.shape, part.A.shape[1]
        if len(shape) > 1 and getattr(out, "ndim", 0) == 3:
            shape = (M,)
        out = check_out(out, (L, *shape, d), apart=X)
        J = out.reshape(L, M, d) if active is None else np.empty((L, M, d))
        tangents = part._tangents()

        def task(a, b):
            T = tangents(part.basis.gradients(X[a:b]), a, d)
            J[a:b] = T.reshape(b - a, d, M).transpose(0, 2, 1)

        if part.basis.constant_gradients and L:
            task(0, 1)
            J[1:] = J[0]
        else:
            for_tiles(task, L, tile_rows(d * max(part.A.shape)))
        if active is not None:
            out[:] = active.push(J).reshape(out.shape)
        return out

    def jvp(
        self, X: NDArray[np.float64], V: ArrayLike, cells: ArrayLike | None = None, shape: tuple[int, ...] | None = None
    ) -> NDArray[np.float64]:
        """Products J v (L, M), or (L, *shape), at checked points X (L, d), for V (L, d) or (d,)."""
        part, active, shape = self._tangents_at(X, cells, shape)
        V = check_vectors(V, "V", *X.shape)
        out, tangents = np.empty((len(X), part.A.shape[1])), part._tangents()

        def task(a, b):
            out[a:b] = tangents(part.basis.directional(X[a:b], V[a:b]), a)

        for_tiles(task, len(X), tile_rows(max(part.A.shape)))
        if active is not None:
            out = active.push(out)
        return out.reshape(len(X), *shape)

    def vjp(
        self, X: NDArray[np.float64], U: ArrayLike, cells: ArrayLike | None = None, shape: tuple[int, ...] | None = None
    ) -> NDArray[np.float64]:
        """Products J^T u (L, d) at checked points X (L, d), for U (L, M) or (M,); (L,) where shape is ()."""
        part, active, shape = self._tangents_at(X, cells, shape)
        if not shape:
            U = np.asarray(U)[..., None] if np.ndim(U) else U
        U = check_vectors(U, "U", len(X), part.A.shape[1] if active is None else active.n_cells)
        if active is not None:
            U = active.pull(U)
        A, invariants, out = part.A, part.invariants, np.empty(X.shape)

        def task(a, b):
            T = U[a:b] if invariants is None else invariants.projector.adjoint(U[a:b])
            # a few rows are bound by the read of A, which more threads hardly speed up
            with blas_threads(1) if len(T) * A.size > _SHARED else nullcontext():
                H = T @ A[1:].T
            out[a:b] = part.basis.contract(X[a:b], H)

        for_tiles(task, len(X), tile_rows(max(A.shape)))
        return out

    def _tangents(self):
        """A function of derivatives G (n, P) of phi: the tangents [0 | G] A (n, M), projected on C^T g = 0.

        Row i of G belongs to the latent point start + i // d, which an error names.
        """
        A, projection = self.A, None if self.invariants is None else self.invariants.tangent_projection()

        def tangents(G, start=0, d=1):
            if G.shape[1] != len(A) - 1:
                raise ValueError(f"the derivatives of {len(A) - 1} functions are wanted, got those of {G.shape[1]}")
            T = np.empty((len(G), A.shape[1]))
            with blas_threads() if len(G) * A.size > _SHARED else nullcontext():
                _kernel.product(np.ascontiguousarray(G), A, T)
            bad = -1 if projection is None else projection.project(T)
            if bad < -1:
                raise ValueError(
                    f"the projection of the derivative at row {start - (2 + bad) // d} of X on the invariants {STALLED}"
                )
            if bad >= 0:
                raise ValueError(
                    f"the derivative at row {start + bad // d} of X is too large for "
                    "floating-point numbers, so it cannot satisfy the invariants"
                )
            return T

        return tangents


class LinearMapHolder:
    """An estimator that decodes by a `LinearMap`, made from its fitted attributes.

    A subclass has `_make_linear_map()`, which raises NotFittedError before `fit`, and names in `_map_sources`
    the attributes that the map is made of. The map is made anew when one of them is set, and is in no
    pickle and no model file.
    """

    _make_linear_map: Callable[[], Any]
    _map_sources: tuple[str, ...] = ("coef_", "features_", "invariants_")

    @cached_property
    def _linear_map(self) -> Any:
        linear = self._make_linear_map()
        if linear.surroundings is None and hasattr(self, "_training_points"):
            with suppress(NoLeverage):
                linear.surroundings = Surroundings(self._training_points())
        return linear

    def freeze(
        self,
        *,
        precision: str = "float64",
        tol: float | None = None,
        kind: str = "features",
        latents: ArrayLike | None = None,
        max_bytes: int = MAX_BYTES,
        encoder: FrozenEncoder | None = None,
    ) -> FrozenDecoder:
        """The decoder as one immutable block of memory, which decodes without Python: in C, or here with less overhead.

        Parameters
        ----------
        precision : {"float64", "float32"}, default="float64"
            Of the coefficients that are stored. "float32" decodes to 5e-6 of a field's norm. Sums have double
            precision, and invariants, constant cells and bounds hold as exactly, in both.
        tol : float or None
            kind="features": relative L2 error at `latents` that fields may have for a product of two smaller matrices
            in place of the coefficients, of as few modes as that needs; None: the coefficients themselves. Smooth
            fields have few modes, shocks many. kind="table": that of the table at the centres of its cells; None: 1e-7.
        kind : {"features", "table"}, default="features"
            "table", for one or two latent coordinates: tensor B-splines of degree 7 on a uniform grid over the
            bounding box of `latents`, refined until `tol` holds: the cost does not depend on the number of features.
            Outside the box, and before bounds and invariants, the decoder itself.
        latents : array-like (n, d) or None
            Points such as those that will be decoded. None: the box of the training points, where the decoder knows
            it (POD and decoders of older files do not).
        max_bytes : int
            Largest table.
        encoder : FrozenEncoder or None
            What `ManifoldModel.freeze` puts beside it.

        Returns
        -------
        FrozenDecoder, with an encoder FrozenModel
            In float64, without `tol` and table, it decodes what `predict` does to 1e-13 of the coefficients.

        Raises
        ------
        sklearn.exceptions.NotFittedError
            Before `fit`.
        TypeError
            If what is decoded with is not the package's own: another transformer's features, a blend.
        ValueError
            If an argument is out of range, a table needs more than max_bytes, coefficients cancel too much for
            float32, or latents are needed and not given.

        Examples
        --------
        >>> import numpy as np, randsmap
        >>> latents = np.linspace(0, 1, 20)[:, None]
        >>> fields = np.hstack([latents**2, 1 - latents**2])
        >>> decoder = randsmap.RANDSMAPDecoder(random_state=0).fit(latents, fields)
        >>> table = decoder.freeze(kind="table")
        >>> bool(abs(table.predict([[0.3]]) - decoder.predict([[0.3]])).max() < 1e-7)
        True
        """
        image = image_of(
            self._linear_map,
            precision=precision,
            tol=tol,
            kind=kind,
            latents=latents,
            box=self._training_box(),
            max_bytes=max_bytes,
            single=self.field_shape_ == (),
            field_shape=self.field_shape_ if len(self.field_shape_) > 1 else None,
            encoder=encoder,
        )
        return FrozenDecoder(image) if encoder is None else FrozenModel(image)

    def _training_box(self) -> NDArray[np.float64] | None:
        """Smallest and largest latent coordinates (2, d) of the training points, if known."""
        return None

    def __setattr__(self, name, value):
        super().__setattr__(name, value)
        if name in self._map_sources:
            self.__dict__.pop("_linear_map", None)

    def __getstate__(self):
        state = super().__getstate__()
        return {name: value for name, value in state.items() if name != "_linear_map"}

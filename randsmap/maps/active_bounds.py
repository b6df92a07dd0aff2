"""Derivatives of fields projected on bounds."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from randsmap.invariants import AffineInvariants

__all__ = ["ActiveBounds", "free_tangents", "free_tangents_adjoint"]


def free_tangents(
    T: NDArray[np.float64],
    free: NDArray[np.bool_],
    normal: NDArray[np.float64] | None = None,
    weights: NDArray[np.float64] | None = None,
) -> NDArray[np.float64]:
    """Tangents of fields between bounds: T projected on w . g = 0 over the free cells, others 0.

    Where the bounds are active, f = clip(z + t w/v, lower, upper) with t such that w . f = m: only
    the cells strictly between their bounds move, and t so that w . df = 0.

    Parameters
    ----------
    T : ndarray (..., M)
        Tangents of the field before the projection on the bounds.
    free : ndarray of bool, broadcastable against T
        Cells strictly between their bounds, of each row.
    normal : ndarray (M,) or None
        w, the one invariant that comes with bounds; None: no invariant, a plain clip.
    weights : ndarray (M,) or None
        v, the cell weights; None: ones.

    Returns
    -------
    ndarray (..., M)
        Without a free cell that w weighs, 0.
    """
    T = np.where(free, T, 0.0)
    if normal is None:
        return T
    step, square = _free_normal(free, normal, weights)
    for _ in range(2):  # once leaves the round-off of a large correction
        T -= _over(np.einsum("...m,m->...", T, normal)[..., None], square) * step
    return np.where(_alone(step), 0.0, T)


def free_tangents_adjoint(
    U: NDArray[np.float64],
    free: NDArray[np.bool_],
    normal: NDArray[np.float64] | None = None,
    weights: NDArray[np.float64] | None = None,
) -> NDArray[np.float64]:
    """The transpose of `free_tangents`, applied to U (..., M)."""
    U = np.where(free, U, 0.0)
    if normal is None:
        return U
    step, square = _free_normal(free, normal, weights)
    t = _over(np.einsum("...m,...m->...", U, step)[..., None], square)
    return np.where(_alone(step), 0.0, U - t * np.where(free, normal, 0.0))


def _alone(step):
    """The weighed free cell of each row that has no other: nothing may change there."""
    weighed = step != 0
    return weighed & (np.count_nonzero(weighed, axis=-1)[..., None] == 1)


def _free_normal(free, normal, weights):
    """w/v on the free cells, and w . w/v over them."""
    step = np.where(free, normal if weights is None else normal / weights, 0.0)
    return step, np.einsum("...m,m->...", step, normal)[..., None]


def _over(a, b):
    return np.divide(a, b, out=np.zeros(np.broadcast_shapes(a.shape, b.shape)), where=b != 0)


class ActiveBounds:
    """Derivatives of fields projected on bounds: 0 in cells on their bound or constant, C^T g = 0.

    f = clip(z + t d) has the derivative dz + d dt in the free cells, and dt = -w . dz / w . d over them.

    Parameters
    ----------
    invariants : AffineInvariants
    F : ndarray (n, M)
        The projected fields.
    cells : ndarray (k,) of int, or None
        Only these cells are wanted.
    """

    def __init__(
        self, invariants: AffineInvariants, F: NDArray[np.float64], cells: NDArray[np.intp] | None = None
    ) -> None:
        self.free = invariants.free_cells(F)
        self.cells, self.n_cells = cells, F.shape[1] if cells is None else len(cells)
        kept = invariants.independent
        self._normal = (invariants.matrix[:, kept[0]] if len(kept) else None), invariants.cell_weights

    def push(self, T: NDArray[np.float64]) -> NDArray[np.float64]:
        """Tangents of the projected fields, of those T (n, M) or (n, M, d) of the fields before it."""
        if T.ndim == 2:
            T = free_tangents(T, self.free, *self._normal)
        else:
            T = free_tangents(T.swapaxes(1, 2), self.free[:, None], *self._normal).swapaxes(1, 2)
        return T if self.cells is None else T[:, self.cells]

    def pull(self, U: NDArray[np.float64]) -> NDArray[np.float64]:
        """The transpose: U (n, k) on the wanted cells to (n, M)."""
        if self.cells is not None:
            whole = np.zeros(self.free.shape)
            columns: Any = (slice(None), self.cells)
            np.add.at(whole, columns, U)
            U = whole
        return free_tangents_adjoint(U, self.free, *self._normal)

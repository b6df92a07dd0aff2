"""Tangents of decoded fields: derivatives of features times A, projected, and the adjoint."""

from contextlib import nullcontext

import numpy as np

from randsmap._kernels import gradients as _kernel
from randsmap._parallel import blas_threads
from randsmap._tiles import for_tiles
from randsmap._validation import check_matrix

__all__ = ["check_vectors", "push", "pull", "jacobian_in_tiles", "free_tangents",
           "free_tangents_adjoint"]

_SHARED = 1 << 19  # multiplications from which BLAS's threads need a limit, which costs 30 us
_TILE_ENTRIES = 1 << 21  # of the largest temporary of a tile (16 MB)


def check_vectors(V, name, n, width):
    """V as contiguous float64 (n, width); one vector (width,) stands for all rows."""
    if np.ndim(V) == 1:
        V = check_matrix(np.asarray(V)[None, :], name, n_columns=width, min_columns=0)
        return np.ascontiguousarray(np.broadcast_to(V, (n, width)))
    V = check_matrix(V, name, n_columns=width, min_rows=0, min_columns=0)
    if len(V) != n:
        raise ValueError(f"{name} must have one row for each row of X, {n}, or be one vector "
                         f"({width},), got shape {V.shape}")
    return V


def push(G, A, projection, start=0, d=1):
    """Tangents [0 | G] A (n, M) of the fields [1 | phi] A, for derivatives G (n, P) of phi.

    Each is projected on C^T g = 0 (projection None: not). Row i of G belongs to the latent point
    start + i // d, which an error names.
    """
    T = np.empty((len(G), A.shape[1]))
    with blas_threads() if len(G) * A.size > _SHARED else nullcontext():
        _kernel.product(G, A, T)
    bad = -1 if projection is None else projection.project(T)
    if bad >= 0:
        raise ValueError(f"the derivative at row {start + bad // d} of X is too large for "
                         "floating-point numbers, so it cannot satisfy the invariants")
    return T


def pull(U, A, invariants):
    """The adjoint of `push`: H (n, P) = (U projected) A^T, without the bias row."""
    if invariants is not None:
        U = invariants.project_adjoint(U)
    # a few rows are bound by the read of A, which more threads hardly speed up
    with blas_threads(1) if len(U) * A.size > _SHARED else nullcontext():
        return U @ A[1:].T


def jacobian_in_tiles(gradients, A, projection, n, d, out):
    """Derivatives J (n, M, d) of n decoded fields into out.

    ``gradients(a, b)`` are the derivatives ((b - a) d, P) of the features at the latent points a..b, d
    rows a point.
    """
    M = A.shape[1]

    def task(a, b):
        T = push(gradients(a, b), A, projection, a, d)
        out[a:b] = T.reshape(b - a, d, M).transpose(0, 2, 1)

    for_tiles(task, n, tile_rows(d * max(M, len(A))))


def tile_rows(entries):
    """Rows of a tile that needs so many numbers a row."""
    return max(1, _TILE_ENTRIES // entries)


def free_tangents(T, free, normal=None, weights=None):
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


def free_tangents_adjoint(U, free, normal=None, weights=None):
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

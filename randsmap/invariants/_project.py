"""Projection of any fields on bounds and totals: { lower <= f <= upper, w_j . f = m_j }.

Of one total a continuous quadratic knapsack problem; with lower = 0, no upper and w = v the projection on the simplex.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from randsmap._interface.arrays import as_array, check_domain, check_out, check_samples
from randsmap._interface.fields import flattened
from randsmap._interface.labels import Labels
from randsmap._kernels import decode as _kernel
from randsmap._linalg.scales import check_cell_weights
from randsmap.invariants._affine import AffineInvariants
from randsmap.invariants._bounds import attainable_range, check_attainable, check_bounds, dual_direction, project_rows


def project_bounds(
    F: ArrayLike,
    *,
    lower: ArrayLike | None = 0.0,
    upper: ArrayLike | None = None,
    weights: ArrayLike | None = None,
    total: ArrayLike | None = 1.0,
    cell_weights: ArrayLike | None = None,
    out: NDArray[np.float64] | None = None,
) -> NDArray[np.float64]:
    """The nearest fields with lower <= f <= upper and weights . f = total, of one total or of several.

    Parameters
    ----------
    F : array-like (n, M) or (M,)
        Fields, one per row; not changed. There may be no rows. (n, *shape) are fields of a shape of two axes or more,
        which bounds and weights may have as well.
    lower, upper : float, array (M,) or None
        Bounds of each cell; None: no bound.
    weights : array (M,), (M, q) or None
        w, such as cell volumes, one total per column; None: ones. A cell of weight 0 is clipped. At most 8 columns
        may share cells, of at most 64.
    total : float, array (n,) or None
        w . f of the result, one for all rows or one per row. With weights (M, q): (q,), or (n, q) for each row. None:
        no condition; the fields are clipped.
    cell_weights : array (M,) or None
        v > 0: the distance is measured in the norm sum_i v_i f_i^2. None: ones.
    out : ndarray of the shape of F, float64, C-contiguous, or None
        Where to put the fields. May be F.

    Returns
    -------
    ndarray of the shape of F, float64
        `out` if given. The bounds hold exactly, and |w . f - total| <= 1e-14 (w . |f| + |total|). A field that
        satisfies both to 8 eps is not changed. The same bits for any number of threads and instruction level.

    Raises
    ------
    ValueError, TypeError
        If an argument has the wrong shape or is not finite (bounds may be infinite), a lower bound exceeds the upper
        one, no field within the bounds has the total (the message names the row), or a number is neither 0 nor of
        magnitude 1e-140 to 1e140 (in F and bounds: the largest).

    Notes
    -----
    f_i = clip(z_i + t w_i / v_i, lower_i, upper_i) for a number t that makes the total right, found by Newton's method
    on the convex dual, with a bracketing search behind it: expected O(M) (L. Condat, Math. Program. 158, 2016). Totals
    that share no cells are so many problems of this kind. Totals that do have one multiplier each: a semismooth Newton
    method whose line search is the problem of one total (J. Sun, J. Optim. Theory Appl. 94, 1997).

    Examples
    --------
    >>> import randsmap
    >>> randsmap.project_bounds([0.5, 1.0, -0.5])
    array([0.25, 0.75, 0.  ])
    >>> randsmap.project_bounds([[0.5, 1.0, -0.5]], upper=0.6, total=[0.9])
    array([[0.3, 0.6, 0. ]])
    """
    check_samples(F=F, total=total)
    single = np.ndim(F) == 1
    labels = Labels.of(F, samples=False) if single else None
    F, layout = flattened(np.asanyarray(F)[None] if single else F, "F")
    layout.metadata = labels or layout.metadata
    given = as_array(F, "F", min_rows=0)
    check_domain(given, "F")
    n, M = given.shape
    named = {"lower": lower, "upper": upper, "weights": weights, "cell_weights": cell_weights}
    lower, upper, weights, cell_weights = (
        layout.values(values, name, columns=name == "weights") for name, values in named.items()
    )
    limits = check_bounds((lower, upper), M, "project_bounds")
    lower, upper = limits or (np.full(M, -np.inf), np.full(M, np.inf))
    several = np.ndim(weights) > 1
    w = np.ones(M) if weights is None else as_array(weights, "weights", (M, None) if several else (M,))
    v = check_cell_weights(cell_weights, (M,))
    check_domain(w, "weights", each=True)
    values = None
    if total is not None:
        q = w.shape[1:]
        if several and np.shape(total) not in (q, (n, *q)):
            raise ValueError(f"total must have shape {q} or {(n, *q)}, got {np.shape(total)}")
        total = total if np.ndim(total) else np.full(n, total)
        values = as_array(total, "total", np.shape(total) if several else (n,))
        check_domain(values, "total", each=True)
    C = np.ascontiguousarray(w.reshape(M, -1)[:, : None if total is not None else 0].T)
    if several and values is not None:
        inside = np.clip(np.zeros(M), lower, upper)
        kept = AffineInvariants.of(C.T, C @ inside, np.zeros(M, dtype=bool), np.zeros(0), v, (lower, upper))
        projection, values = kept.projection, kept.row_values(values, n)
    else:
        if values is not None:
            check_attainable(values, attainable_range(w, lower, upper), "the total {} (row {})", "weights . f")
            values = values[:, None]
        direction = np.array([dual_direction(abs(w), v)] * len(C)).reshape(C.shape)
        none, q = np.zeros(0), len(C)
        bounds = direction, lower, upper, v  # which take the place of W and R
        projection = _kernel.Projection(
            C, np.zeros(q), np.zeros((q, M)), np.ones((q, q)), none.astype(np.intp), none, bounds
        )
    result = check_out(out, (M,) if single else (n, *layout.shape))
    rows = result.reshape(n, M)
    source = None if out is not None and rows.ctypes.data == given.ctypes.data else given
    if out is not None and source is not None and np.shares_memory(rows, given):
        source = given.copy()
    project_rows(projection, rows, values, source=source)
    return result

"""Projection of fields on bounds and one invariant: { lower <= f <= upper, w . f = m }.

The nearest field in the norm weighted by v is f_i = clip(z_i + t w_i / v_i, lower_i, upper_i) with
the one number t for which w . f = m (a continuous quadratic knapsack problem; with lower = 0, no
upper and w = v the projection on the simplex).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from randsmap._interface.fields import cellwise, flattened
from randsmap._interface.validation import check_matrix, check_out, check_vector
from randsmap._kernels import decode as _kernel
from randsmap._linalg.rows import Snapshots
from randsmap._parallel import parallel_for
from randsmap.invariants._values import invariant_values

__all__ = [
    "Reach",
    "check_bounds",
    "check_cell_weights",
    "check_within",
    "dual_direction",
    "outside",
    "project_bounds",
    "project_rows",
]

_TASK = 1 << 16  # cells a task takes
# what a message says of a row that a kernel reports as -2 - row
STALLED = (
    "does not converge: they are nearly dependent, or no field satisfies them all. Leave out the invariant "
    "that follows from the others, or check the values given"
)
# |w . f - m| <= _PROMISE (|w| . |f| + |m|) after a projection
_PROMISE = 1e-14
# how far outside its bounds round-off can put a value, of the largest of its field, by number type
_ROUND_OFF = {np.dtype(np.float16): 1e-2, np.dtype(np.float32): 1e-5}


def check_cell_weights(weights: ArrayLike, M: int, name: str = "cell_weights") -> NDArray[np.float64]:
    """Volumes of M cells as float64, positive and finite."""
    weights = check_vector(weights, name, length=M)
    if not (weights > 0).all():
        i = int(np.argmin(weights))
        raise ValueError(f"{name} must be positive, got {weights[i]} for cell {i}")
    return weights


def check_bounds(
    bounds: Any, n_cells: int, name: str = "bounds"
) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
    """Arrays lower, upper (n_cells,), infinite where there is no bound; None without any.

    Parameters
    ----------
    bounds : (lower, upper), "nonnegative" or None
        Each bound a number, one value a cell, or None.
    n_cells : int
    name : str
        How messages call it.

    Raises
    ------
    ValueError
        If it is no such pair, a value is NaN or a lower bound exceeds the upper one; the message
        names the cell.
    """
    if bounds is None:
        return None
    if isinstance(bounds, str):
        if bounds != "nonnegative":
            raise ValueError(f"{name} must be (lower, upper), 'nonnegative' or None, got {bounds!r}")
        bounds = 0.0, None
    if not isinstance(bounds, (tuple, list)) or len(bounds) != 2:
        raise ValueError(f"{name} must be a pair (lower, upper), 'nonnegative' or None, got {bounds!r}")
    if bounds[0] is None and bounds[1] is None:
        return None
    lower = _one_bound(bounds[0], -np.inf, n_cells, f"the lower bound of {name}")
    upper = _one_bound(bounds[1], np.inf, n_cells, f"the upper bound of {name}")
    for i in np.flatnonzero(~(lower <= upper))[:1]:
        raise ValueError(f"{name}: the lower bound {lower[i]} of cell {i} exceeds its upper bound {upper[i]}")
    return lower, upper


def _one_bound(bound: Any, none: float, n_cells: int, name: str) -> NDArray[np.float64]:
    if bound is None:
        return np.full(n_cells, none)
    try:
        bound = np.asarray(bound)
        if bound.dtype.kind not in "biuf" or bound.ndim > 1:
            raise ValueError(f"got {bound.dtype} of shape {bound.shape}")
        bound = bound.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be a number, one number a cell or None: {error}") from None
    if bound.ndim and len(bound) != n_cells:
        raise ValueError(f"{name} must be a number or have length {n_cells}, got {len(bound)}")
    for i in np.flatnonzero(np.isnan(bound) | (bound == -none))[:1]:
        raise ValueError(f"{name} is {bound.flat[i]} for cell {i}")
    return np.full(n_cells, bound + 0.0)  # never -0.0


def check_within(
    F: NDArray[np.float64] | Snapshots,
    lower: NDArray[np.float64],
    upper: NDArray[np.float64],
    dtype: DTypeLike = np.float64,
) -> None:
    """ValueError that names the worst value if fields F (n, M) are not within the bounds.

    A value may be outside by 1e-12 of the largest magnitude of its field (1e-5 for fields that
    came as float32, 1e-2 as float16), which is round-off.
    """
    worst, rows = None, max(1, (1 << 18) // max(1, F.shape[1]))
    for start in range(0, len(F), rows):
        block = F[start : start + rows]
        excess = outside(block, lower, upper)
        slack = _ROUND_OFF.get(np.dtype(dtype), 1e-12) * np.abs(block).max(axis=1, keepdims=True)
        excess[excess <= slack] = 0
        i, j = np.unravel_index(int(np.argmax(excess)), excess.shape)
        if excess[i, j] > 0 and (worst is None or excess[i, j] > worst[0]):
            worst = excess[i, j], start + i, j
    if worst is not None:
        _, i, j = worst
        raise ValueError(
            f"the training fields are not within the bounds: field {i} is {F[i : i + 1][0, j]} in cell {j}, "
            f"whose bounds are [{lower[j]}, {upper[j]}]. Use wider bounds; bounds=None decodes without "
            "them, and randsmap.project_bounds applies them to any fields"
        )


def outside(F: NDArray[np.float64], lower: NDArray[np.float64], upper: NDArray[np.float64]) -> NDArray[np.float64]:
    """By how much values of fields F (n, M) are outside bounds (M,): 0 for those within."""
    return np.maximum(np.maximum(lower - F, F - upper), 0)


class Reach:
    """The totals w . f, w >= 0, of the fields within bounds, but for round-off."""

    def __init__(self, w: NDArray[np.float64], lower: NDArray[np.float64], upper: NDArray[np.float64]) -> None:
        self.low, self.low_size = _total(w, lower)
        self.high, self.high_size = _total(w, upper)

    def missed(self, totals: ArrayLike) -> NDArray[np.float64]:
        """By how much totals (n,) are out of reach: 0 for those within."""
        totals = np.asarray(totals, dtype=float)
        below = self.low - totals
        below[below <= _PROMISE * (self.low_size + np.abs(totals))] = 0
        above = totals - self.high
        above[above <= _PROMISE * (self.high_size + np.abs(totals))] = 0
        return np.maximum(np.maximum(below, above), 0)

    def __str__(self) -> str:
        return f"[{self.low}, {self.high}]"


def dual_direction(w: NDArray[np.float64], v: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
    """w / v for w >= 0 and v > 0, in units of its largest entry: only its direction matters.

    Quotients of numbers far apart would overflow; those that vanish beside the largest are raised to
    the smallest normal number, so that no cell that has weight stands still.
    """
    if v is None:
        if (w == 1).all():  # usual, and a fifth of the time of what follows
            return w
        v = np.ones(len(w))
    if not (w > 0).any():
        return np.zeros(len(w))
    (mw, ew), (mv, ev) = np.frexp(w), np.frexp(v)
    exponent = np.where(w > 0, ew.astype(np.int64) - ev, np.iinfo(np.int64).min)
    exponent = np.where(w > 0, np.maximum(exponent - exponent.max(), -1100), 0).astype(np.intc)
    return np.where(w > 0, np.maximum(np.ldexp(mw / mv, exponent), np.finfo(float).tiny), 0.0)


def _total(w: NDArray[np.float64], bound: NDArray[np.float64]) -> tuple[float, float]:
    """w . bound and |w| . |bound| (w of either sign where the bound is finite)."""
    if not bound.any():
        return 0.0, 0.0
    bound = np.where(w == 0, 0.0, bound)
    if not np.isfinite(bound).all():
        return (-np.inf if (bound == -np.inf).any() else np.inf), 0.0
    value, size = invariant_values(np.ascontiguousarray(w)[:, None], bound[None])
    if not np.isfinite(size[0, 0]):  # the terms or their sum overflow: as good as unbounded
        with np.errstate(over="ignore"):
            return float(np.sum(w * 2.0**-60 * (bound * 2.0**-60)) * 2.0**120), np.inf
    return float(value[0, 0]), float(size[0, 0])


def project_rows(
    projection: Any,
    F: NDArray[np.float64],
    values: NDArray[np.float64] | None = None,
    first: int = 0,
    source: NDArray[np.float64] | None = None,
) -> NDArray[np.float64]:
    """Apply a compiled projection to the rows of F (n, M), in place; values (n, q): m of each row.

    With `source` (n, M), its rows are copied to F and checked first, each just before it is projected: memory is
    read once.

    Raises
    ------
    ValueError
        If a row is too large for it, or it does not converge; the message names it, counted from
        `first`.
    """

    tile = max(1, min(256, _TASK // max(1, F.shape[1])))

    def task(i):
        part = slice(i * tile, (i + 1) * tile)
        if source is not None:
            F[part] = source[part]
        bad = projection.project(F[part], None if values is None else values[part])
        if bad >= 0:
            raise ValueError(
                f"field {first + i * tile + bad} is too large for floating-point "
                "numbers, so it cannot satisfy its invariants"
            )
        if bad < -1:
            raise ValueError(
                f"the projection of field {first + i * tile - 2 - bad} on its invariants and bounds {STALLED}"
            )

    parallel_for(task, -(-len(F) // tile))
    return F


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
    """The nearest fields with lower <= f <= upper and weights . f = total.

    Parameters
    ----------
    F : array-like (n, M) or (M,)
        Fields, one a row; not changed. There may be no rows. (n, *shape) are fields of a shape of two axes or more,
        which bounds and weights may have, too.
    lower, upper : float, array (M,) or None
        Bounds of each cell; None: no bound.
    weights : array (M,) or None
        w >= 0, such as cell volumes; None: ones. A cell of weight 0 is clipped.
    total : float, array (n,) or None
        w . f of the result, one for all rows or one a row. None: no condition; the fields are
        clipped.
    cell_weights : array (M,) or None
        v > 0: the distance is that of the norm sum_i v_i f_i^2. None: ones.
    out : ndarray of the shape of F, float64, C-contiguous, or None
        Where to put the fields. May be F.

    Returns
    -------
    ndarray of the shape of F, float64
        `out` if given. The bounds hold exactly, and |w . f - total| <= 1e-14 (w . |f| + |total|). A
        field that satisfies both to 8 eps comes back as it is. The same bits for any number of
        threads and instruction level.

    Raises
    ------
    ValueError, TypeError
        If an argument has the wrong shape or is not finite (bounds may be infinite), a weight is
        negative, a lower bound exceeds the upper one, no field within the bounds has the total (the
        message says by how much), or numbers so large or small that the result cannot be represented.

    Notes
    -----
    f_i = clip(z_i + t w_i / v_i, lower_i, upper_i) for a number t that makes the total right, found
    by Newton's method on the convex dual with a bracketing search behind it: expected O(M).

    References
    ----------
    L. Condat, Fast projection onto the simplex and the l1 ball, Math. Program. 158 (2016).

    Examples
    --------
    >>> import randsmap
    >>> randsmap.project_bounds([0.5, 1.0, -0.5])
    array([0.25, 0.75, 0.  ])
    >>> randsmap.project_bounds([[0.5, 1.0, -0.5]], upper=0.6, total=[0.9])
    array([[0.3, 0.6, 0. ]])
    """
    single = np.ndim(F) == 1
    F, layout = flattened(np.asanyarray(F)[None] if single else F, "F")
    given = check_matrix(F, "F", min_rows=0)
    n, M = given.shape
    shape = layout.shape
    lower, upper = (cellwise(bound, shape, name=name) for bound, name in ((lower, "lower"), (upper, "upper")))
    weights, cell_weights = (
        cellwise(given_weights, shape, name=name)
        for given_weights, name in ((weights, "weights"), (cell_weights, "cell_weights"))
    )
    limits = check_bounds((lower, upper), M, "project_bounds")
    lower, upper = limits or (np.full(M, -np.inf), np.full(M, np.inf))
    w = np.ones(M) if weights is None else check_vector(weights, "weights", length=M)
    v = None if cell_weights is None else check_cell_weights(cell_weights, M)
    for i in np.flatnonzero(w < 0)[:1]:
        raise ValueError(f"weights must not be negative, got {w[i]} for cell {i}")
    values = np.zeros(0)
    if total is not None:
        values = check_vector(np.full(n, total) if np.ndim(total) == 0 else total, "total", length=n)
        reach = Reach(w, lower, upper)
        missed = reach.missed(values)
        for i in np.flatnonzero(missed)[:1]:
            raise ValueError(
                f"the total {values[i]} (row {i}) is out of reach by {missed[i]:.3g}: within the "
                f"bounds weights . f is in {reach}"
            )
    result = check_out(out, (M,) if single else (n, *shape))
    rows = result.reshape(n, M)
    source = None if out is not None and rows.ctypes.data == given.ctypes.data else given
    if out is not None and source is not None and np.shares_memory(rows, given):
        source = given.copy()
    q = int(total is not None)
    extreme = q and _is_extreme(w, values)
    if extreme:
        if source is not None:
            rows[:], source = source, None
        at_lowest = (values == reach.low) & w.any()  # one field only; a sum of tiny terms need not tell
        rows[at_lowest] = np.where(w > 0, lower, rows[at_lowest])
        w, values = _in_range(w, values)
    projection = _kernel.Projection(
        w[None].copy() if q else np.zeros((0, M)),
        np.zeros(q),
        np.zeros((q, M)),
        np.ones((q, q)),
        np.zeros(0, np.intp),
        np.zeros(0),
        (dual_direction(w, v), lower, upper),
    )
    project_rows(projection, rows, values[:, None] if q else None, source=source)
    if extreme:
        got, size = invariant_values(w[:, None], rows)
        unit = M * 5e-324  # round-off of denormal numbers
        if (w == 1).all():
            missing = values - got[:, 0]
            for i in np.flatnonzero((missing != 0) & (np.abs(missing) <= unit)):
                _settle_denormal(rows[i], missing[i], lower, upper)
            got, size = invariant_values(w[:, None], rows)
        kept = np.abs(got[:, 0] - values) <= _PROMISE * (size[:, 0] + np.abs(values)) + unit
        kept &= (np.abs(values) > 1e9 * unit) | (values == got[:, 0])
        for i in np.flatnonzero(~kept)[:1]:
            raise ValueError(_unrepresentable(i))
    return result


def _is_extreme(w: NDArray[np.float64], totals: NDArray[np.float64]) -> bool:
    """Whether products of weights, fields and totals may under- or overflow."""
    used, sizes = w if w.all() else w[w > 0], np.abs(totals[totals != 0])
    return bool(len(used) and not 1e-100 < used.min() <= used.max() < 1e100) or bool(
        len(sizes) and sizes.min() < 1e-290
    )


def _in_range(w: NDArray[np.float64], totals: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Weights and totals times one power of two, which rounds nothing: about 1 at most, where the smallest
    weight allows it.
    """
    used = w[w > 0]
    if not len(used) or (used.min() > 1e-100 and used.max() < 1e100):
        return w, totals
    low, high = int(np.frexp(used.min())[1]), int(np.frexp(used.max())[1])
    unit = min(330, max(0, high - low - 900)) - high
    with np.errstate(over="ignore"):
        scaled = np.ldexp(totals, unit)
    for i in np.flatnonzero(np.ldexp(scaled, -unit) != totals)[:1]:
        raise ValueError(_unrepresentable(i))
    return np.ldexp(w, unit), scaled


def _settle_denormal(
    f: NDArray[np.float64], missing: float, lower: NDArray[np.float64], upper: NDArray[np.float64]
) -> None:
    """Give the cells, one unit 5e-324 each and the largest first, what their rounding took from the sum of f."""
    unit = np.copysign(np.finfo(float).smallest_subnormal, missing)
    movable = np.flatnonzero((lower <= f + unit) & (f + unit <= upper))
    largest = movable[np.argsort(-f[movable], kind="stable")]
    f[largest[: int(missing / unit)]] += unit


def _unrepresentable(row: int) -> str:
    return (
        f"no field of floating-point numbers has the total of row {row} to round-off: it, or the weights beside it, "
        "are too large or too small. Use units in which they are nearer to 1"
    )

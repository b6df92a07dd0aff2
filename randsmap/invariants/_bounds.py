"""Values of linear invariants, bounds of fields, what is attainable within them, and the projection of rows on both."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from randsmap._interface.arrays import as_array, check_domain, real_numbers
from randsmap._interface.fields import flattened
from randsmap._kernels import decode as _kernel
from randsmap._linalg.rows import Rows
from randsmap._parallel import parallel_rows

_Values = NDArray[np.float64]


def round_off(dtype: DTypeLike) -> float:
    """How far outside its bounds round-off can put a value, of the largest of its field, by number type."""
    return {np.dtype(np.float16): 1e-2, np.dtype(np.float32): 1e-5}.get(np.dtype(dtype), 1e-12)


def invariant_values(C: _Values, F: _Values, minus: _Values | None = None) -> tuple[_Values, _Values]:
    """C_j^T f_i and |C_j|^T |f_i| for fields F (n, M) and invariants C (M, q), each (n, q).

    The first is a compensated dot product (Ogita, Rump & Oishi 2005): as if computed in twice the
    working precision and rounded; a zero is 0.0, never -0.0. With `minus` (n, q), C_j^T f_i - minus_ij, rounded
    once, which is accurate where the two nearly cancel.
    """
    rows = np.ascontiguousarray(C.T)
    if minus is not None:
        rows = np.hstack([rows, -np.eye(len(rows))])
    value, scale = np.zeros((len(F), len(rows))), np.zeros((len(F), len(rows)))

    def task(part):
        fields = F[part] if minus is None else np.hstack([F[part], minus[part]])
        fields = np.ascontiguousarray(fields)  # hstack keeps the order of columns where both have it
        _kernel.dots(rows, fields, value[part], scale[part])

    parallel_rows(task, len(F), 256)  # 2 MB of fields of 1000 cells
    value += 0.0
    return value, scale


def decoding_part(model: Any) -> Any:
    """The decoder of a fitted model, or the encoder that decodes by itself; of other estimators themselves."""
    # the model within a `QuantileRegistration` has quantiles as fields
    while hasattr(model, "model_") and not hasattr(model, "invariants_"):
        model = model.model_
    if not hasattr(model, "decoder_"):
        return model
    return model.encoder_ if model.decoder_ is None else model.decoder_


def own_values(model: Any, F: Any) -> dict[str, _Values]:
    """The argument `invariant_values` for decoding the fields F, of any shape, where those of a fit vary; else none.
    `model` is a fitted decoder, or has one. Fields in a file are read by blocks."""
    kept = getattr(decoding_part(model), "invariants_", None)
    if kept is None or not kept.varying:
        return {}
    rows = flattened(F, "the fields")[0]
    blocks = Rows.of(rows if np.ndim(rows) > 1 else np.reshape(rows, (-1, 1)), "the fields").blocks(what="invariants")
    return {"invariant_values": np.concatenate([invariant_values(kept.matrix, block)[0] for *_, block in blocks])}


def values_of_rows(values: ArrayLike, n: int, q: int) -> _Values:
    """`invariant_values` of n fields as an array (n, q): a number, (q,), (n, q), or with one invariant (n,)."""
    values = real_numbers(values, "invariant_values")
    shape = values.shape
    if shape not in {(q,), (n, q)} | ({(), (n,)} if q == 1 else set()):
        one, each = (" or be a number", f" ({n},) or") if q == 1 else ("", "")
        raise ValueError(
            f"invariant_values must have shape ({q},) for all rows{one}, or{each} ({n}, {q}) for each, got {shape}"
        )
    values = values[:, None] if shape == (n,) and q == 1 and n != 1 else np.atleast_2d(values)
    return np.ascontiguousarray(np.broadcast_to(as_array(values, "invariant_values", min_rows=0), (n, q)))


def check_bounds(bounds: Any, n_cells: int, name: str = "bounds") -> tuple[_Values, _Values] | None:
    """Arrays lower, upper (n_cells,) of (lower, upper), "nonnegative" or None; infinite for a cell without bound. A
    bound is a number, one value per cell, or None. ValueError, which names the cell, if a value is NaN or a lower bound
    exceeds the upper one."""
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


def _one_bound(bound: Any, none: float, n_cells: int, name: str) -> _Values:
    if bound is None:
        return np.full(n_cells, none)
    bound = real_numbers(bound, name).astype(np.float64)
    if bound.shape not in ((), (n_cells,)):
        given = len(bound) if bound.ndim == 1 else f"shape {bound.shape}"
        raise ValueError(f"{name} must be None, a number or have length {n_cells}, got {given}")
    for i in np.flatnonzero(np.isnan(bound) | (bound == -none))[:1]:
        raise ValueError(f"{name} is {bound.flat[i]} for cell {i}")
    check_domain(bound[np.isfinite(bound)], name)
    return np.full(n_cells, bound + 0.0)  # never -0.0


def check_within(F: _Values, lower: _Values, upper: _Values, dtype: DTypeLike = np.float64, first: int = 0) -> None:
    """ValueError that names the worst value if fields F (n, M), from number `first` on, violate the bounds. A value may
    be outside by round-off: `round_off` of the largest of its field."""
    excess = np.maximum(np.maximum(lower - F, F - upper), 0)
    excess[excess <= round_off(dtype) * np.abs(F).max(axis=1, keepdims=True)] = 0
    i, j = np.unravel_index(int(np.argmax(excess)), excess.shape)
    if excess[i, j] > 0:
        raise ValueError(
            f"the training fields are not within the bounds: field {first + i} is {F[i, j]} in cell {j}, "
            f"whose bounds are [{lower[j]}, {upper[j]}]. Use wider bounds; bounds=None decodes without "
            "them, and randsmap.project_bounds applies them to any fields"
        )


def check_attainable(totals: _Values, w: _Values, lower: _Values, upper: _Values, what: str, name: str) -> None:
    """ValueError about the first of the totals (n,) that no f within the bounds has as w . f, up to round-off."""
    tol = 1e-14  # the documented accuracy of a projection
    low, low_size = _total(w, np.where(w < 0, upper, lower))
    high, high_size = _total(w, np.where(w < 0, lower, upper))
    below, above = low - totals, totals - high
    below[below <= tol * (low_size + np.abs(totals))] = 0
    above[above <= tol * (high_size + np.abs(totals))] = 0
    missed = np.maximum(np.maximum(below, above), 0)
    for i in np.flatnonzero(missed)[:1]:
        raise ValueError(
            f"{what.format(totals[i], i)} is out of reach by {missed[i]:.3g}: within the bounds {name} is in "
            f"[{low}, {high}]"
        )


def dual_direction(w: _Values, v: _Values | None = None) -> _Values:
    """w / v for w >= 0 and v > 0, over a power of 2 near its largest entry: only its direction matters. Entries that
    vanish compared with the largest are raised to the smallest normal number, so that every cell that has weight
    moves."""
    if v is None:
        if (w == 1).all():  # the usual case, in a fifth of the time of the general one
            return w
        v = np.ones(len(w))
    if not (w > 0).any():
        return np.zeros(len(w))
    direction = w / v
    direction /= 2.0 ** np.ceil(np.log2(direction.max()))
    return np.where(w > 0, np.maximum(direction, np.finfo(float).tiny), 0.0)


def _total(w, bound):
    """w . bound and |w| . |bound|; infinite terms have one sign."""
    if not bound.any():
        return 0.0, 0.0
    bound = np.where(w == 0, 0.0, bound)
    if not np.isfinite(bound).all():
        return float((np.sign(w) * bound)[np.isinf(bound)][0]), 0.0
    value, size = invariant_values(np.ascontiguousarray(w)[:, None], bound[None])
    return float(value[0, 0]), float(size[0, 0])


def project_rows(projection: Any, F: _Values, values: _Values | None = None) -> _Values:
    """Apply a compiled projection to the rows of F (n, M), in place; values (n, q): m of each row. ValueError, which
    names the row, if it is too large or the projection does not converge."""

    def task(part):
        bad = projection.project(F[part], None if values is None else values[part])
        if bad >= 0:
            raise ValueError(
                f"field {part.start + bad} is too large for floating-point numbers, so it cannot satisfy its invariants"
            )
        if bad < -1:
            raise ValueError(
                f"the projection of field {part.start - 2 - bad} on its invariants and bounds does not converge: "
                "they are nearly dependent, or no field satisfies them all. Leave out the invariant that follows from "
                "the others, or check the values given"
            )

    tile = max(1, min(256, (1 << 16) // max(1, F.shape[1])))  # 0.5 MB stay in the second-level cache
    parallel_rows(task, len(F), tile)
    return F

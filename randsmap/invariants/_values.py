"""Values of linear invariants, summed in twice the working precision."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from randsmap._interface.arrays import as_array, real_numbers
from randsmap._interface.fields import flattened
from randsmap._kernels import decode as _kernel
from randsmap._linalg.rows import Rows
from randsmap._parallel import parallel_for


def invariant_values(
    C: NDArray[np.float64], F: NDArray[np.float64], minus: NDArray[np.float64] | None = None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """C_j^T f_i and |C_j|^T |f_i| for fields F (n, M) and invariants C (M, q), each (n, q).

    The first is a compensated dot product (Ogita, Rump & Oishi 2005): as if computed in twice the
    working precision and rounded; a zero is 0.0, never -0.0. With `minus` (n, q), C_j^T f_i - minus_ij, rounded
    once, which is accurate where the two nearly cancel.
    """
    rows = np.ascontiguousarray(C.T)
    if minus is not None:
        rows = np.hstack([rows, -np.eye(len(rows))])
    value, scale = np.zeros((len(F), len(rows))), np.zeros((len(F), len(rows)))

    tile = 256  # fields of a task: 2 MB of fields of 1000 cells

    def task(i):
        part = slice(i * tile, (i + 1) * tile)
        fields = F[part] if minus is None else np.hstack([F[part], minus[part]])
        fields = np.ascontiguousarray(fields)  # hstack keeps the order of columns where both have it
        _kernel.dots(rows, fields, value[part], scale[part])

    parallel_for(task, -(-len(F) // tile))
    value += 0.0
    return value, scale


def own_values(model: Any, F: Any) -> dict[str, NDArray[np.float64]]:
    """The argument `invariant_values` for decoding the fields F, of any shape, where those of a fit vary; else none.

    `model` is a fitted decoder, or has one. Fields in a file are read by blocks.
    """
    while hasattr(model, "model_"):
        model = model.model_
    if hasattr(model, "encoder_"):
        model = model.encoder_ if getattr(model, "decoder_", None) is None else model.decoder_
    kept = getattr(model, "invariants_", None)
    if kept is None or not kept.varying:
        return {}
    rows = flattened(F, "the fields")[0]
    blocks = Rows.of(rows if np.ndim(rows) > 1 else np.reshape(rows, (-1, 1)), "the fields").blocks(what="invariants")
    return {"invariant_values": np.concatenate([invariant_values(kept.matrix, block)[0] for *_, block in blocks])}


def values_of_rows(values: ArrayLike, n: int, q: int) -> NDArray[np.float64]:
    """`invariant_values` of n fields as an array (n, q): a number, (q,), (n, q), or with one invariant (n,)."""
    values = real_numbers(values, "invariant_values")
    shape = values.shape
    if shape not in {(), (q,), (n, q)} | ({(n,)} if q == 1 else set()) or (shape == () and q > 1):
        raise ValueError(
            f"invariant_values must have shape ({q},) for all rows"
            + (" or be a number" if q == 1 else "")
            + (f", or ({n},) or" if q == 1 else ", or")
            + f" ({n}, {q}) for each, got {shape}"
        )
    values = values[:, None] if shape == (n,) and q == 1 and n != 1 else np.atleast_2d(values)
    return np.ascontiguousarray(np.broadcast_to(as_array(values, "invariant_values", min_rows=0), (n, q)))

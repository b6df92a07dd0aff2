"""Values of linear invariants, summed in twice the working precision."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from randsmap._kernels import decode as _kernel
from randsmap._parallel import parallel_for

__all__ = ["invariant_values"]

_TILE = 256  # fields of a task: 2 MB of a field of 1000 cells


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

    def task(i):
        part = slice(i * _TILE, (i + 1) * _TILE)
        fields = F[part] if minus is None else np.hstack([F[part], minus[part]])
        fields = np.ascontiguousarray(fields)  # hstack keeps the order of columns where both have it
        _kernel.dots(rows, fields, value[part], scale[part])

    parallel_for(task, -(-len(F) // _TILE))
    value += 0.0
    return value, scale

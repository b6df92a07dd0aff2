"""Products of matrices by SciPy's BLAS, the one of the kernels: NumPy's own would leave workers spinning."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import dgemm

from randsmap._kernels import ridge as _kernel

__all__ = ["cross", "multiply", "times_transposed"]


def multiply(
    A: NDArray[np.float64], B: NDArray[np.float64], out: NDArray[np.float64] | None = None
) -> NDArray[np.float64]:
    """A B."""
    if out is None:
        out = np.empty((len(A), B.shape[1]))
    dgemm(1.0, B.T, A.T, c=out.T, overwrite_c=True)
    return out


def times_transposed(
    A: NDArray[np.float64], B: NDArray[np.float64], out: NDArray[np.float64] | None = None
) -> NDArray[np.float64]:
    """A B^T."""
    if out is None:
        out = np.empty((len(A), len(B)))
    dgemm(1.0, B.T, A.T, trans_a=1, c=out.T, overwrite_c=1)
    return out


def cross(A: NDArray[np.float64], B: NDArray[np.float64]) -> NDArray[np.float64]:
    """A^T B."""
    out = np.empty((A.shape[1], B.shape[1]))
    _kernel.cross(A, B, False, out)
    return out

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
    """A B for a C-contiguous A; B may be the transpose of one, and is not copied then."""
    if out is None:
        out = np.empty((len(A), B.shape[1]))
    if B.flags.f_contiguous and not B.flags.c_contiguous:
        dgemm(1.0, B, A.T, trans_a=1, c=out.T, overwrite_c=1)
    else:
        dgemm(1.0, B.T, A.T, c=out.T, overwrite_c=1)
    return out


def times_transposed(
    A: NDArray[np.float64], B: NDArray[np.float64], out: NDArray[np.float64] | None = None
) -> NDArray[np.float64]:
    """A B^T."""
    return multiply(A, B.T, out)


def cross(A: NDArray[np.float64], B: NDArray[np.float64]) -> NDArray[np.float64]:
    """A^T B."""
    out = np.empty((A.shape[1], B.shape[1]))
    _kernel.cross(A, B, False, out)
    return out

"""Radial kernels, and the functions of a linear trend beside them."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from randsmap._kernels import distances as _kernels
from randsmap._kernels import linear_map as _map_kernel
from randsmap._linalg.distances import fill_pairs

_Values = NDArray[np.float64]


class Radial:
    """A kernel g(scale |x - z|^2), by the number that `_kernels.distances` has for g."""

    def __init__(self, kernel: int, scale: float) -> None:
        self._kernel, self.scale = kernel, scale

    @classmethod
    def gaussian(cls, scale: float) -> Self:
        """exp(-scale |x - z|^2)."""
        return cls(_kernels.GAUSSIAN, scale)

    @classmethod
    def matern(cls, nu: float) -> Self:
        """The Matern kernel of smoothness nu = 0.5, 1.5 or 2.5 between points in units of the length scale.

        With s = sqrt(2 nu) |x - z|: exp(-s), (1 + s) exp(-s), (1 + s + s^2 / 3) exp(-s).
        """
        return cls({0.5: _kernels.MATERN_12, 1.5: _kernels.MATERN_32, 2.5: _kernels.MATERN_52}[nu], 2 * nu)

    @classmethod
    def thin_plate(cls) -> Self:
        """The thin-plate spline |x - z|^2 log |x - z|: conditionally positive definite, for tails of degree 1."""
        return cls(_kernels.THIN_PLATE, 1.0)

    def values(self, X: _Values, Z: _Values | None = None) -> _Values:
        """The kernel between points X and Z (None: X)."""
        out = np.empty((len(X), len(X if Z is None else Z)))
        return fill_pairs(X, Z, self.scale, out, self._kernel)

    def slopes(self, X: _Values, Z: _Values) -> _Values:
        """Twice the kernel's derivative in |x - z|^2; 0 where there is none, at the points themselves."""
        return fill_pairs(X, Z, self.scale, np.empty((len(X), len(Z))), self._kernel, slopes=True)

    def frozen(self) -> dict[str, Any]:
        """How an image of a frozen decoder names the kernel."""
        kernel = self._kernel if self.scale else _kernels.SQUARED_DISTANCE
        return {"kind": _map_kernel.RADIAL_KERNEL, "function": kernel, "scale": self.scale}


def polynomial_tail(X: _Values, degree: int) -> _Values:
    """The tail's functions [1] or [1 | x] at points X (n, d)."""
    return np.ones((len(X), 1)) if degree == 0 else np.column_stack([np.ones(len(X)), X])

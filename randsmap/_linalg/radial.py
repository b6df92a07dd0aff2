"""Radial kernels, and the functions of a linear trend beside them."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from randsmap._kernels import distances as _kernels
from randsmap._kernels import linear_map as _map_kernel
from randsmap._linalg.distances import fill_pairs, multi_gaussian_in_place

_Values = NDArray[np.float64]


class Radial:
    """A kernel g(scale |x - z|^2), by the number that `_kernels.distances` has for g, or a mean of Gaussians."""

    def __init__(self, kernel: int, scale: float, frequencies: tuple[float, float] | None = None) -> None:
        self._kernel, self.scale, self._frequencies = kernel, scale, frequencies

    @classmethod
    def named(cls, name: str, nu: Any, frequencies: Any) -> Self:
        """The kernel of a `KernelDecoder`, between points in units of its length scale.

        nu is read for "matern", frequencies (2,) for "multi-gaussian".
        """
        if name == "matern":
            return cls.matern(nu)
        if name == "multi-gaussian":
            return cls.multi_gaussian(*frequencies)
        return cls.thin_plate() if name == "thin-plate" else cls.gaussian(0.5)

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

    @classmethod
    def multi_gaussian(cls, low: float, high: float) -> Self:
        """The mean of exp(-s^2 |x - z|^2 / 2) over s in [low, high] (paper, Theorem 1)."""
        return cls(_kernels.GAUSSIAN, 0.0, (low, high))

    def values(self, X: _Values, Z: _Values | None = None) -> _Values:
        """The kernel between points X and Z (None: X)."""
        out = np.empty((len(X), len(X if Z is None else Z)))
        fill_pairs(X, Z, self.scale, out, self._kernel)
        if self._frequencies is not None:  # of the squared distances, which are the Gaussian of scale 0
            multi_gaussian_in_place(out, *self._frequencies)
        return out

    def frozen(self) -> dict[str, Any]:
        """Name of the kernel in an image."""
        if self._frequencies is not None:
            low, high = self._frequencies
            return {"kind": _map_kernel.MULTI_GAUSSIAN, "low": low, "high": high}
        kernel = self._kernel if self.scale else _kernels.SQUARED_DISTANCE
        return {"kind": _map_kernel.RADIAL_KERNEL, "function": kernel, "scale": self.scale}


def polynomial_tail(X: _Values, degree: int) -> _Values:
    """The tail's functions [1] or [1 | x] at points X (n, d)."""
    return np.ones((len(X), 1)) if degree == 0 else np.column_stack([np.ones(len(X)), X])

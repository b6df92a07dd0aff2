"""The numbers that the package computes with: 0, or a largest magnitude from 1e-140 to 1e140."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["LARGEST", "SMALLEST", "check_domain"]

# Squares of such numbers, and sums of 1e27 squares, neither over- nor underflow: below the public methods no
# formula needs a safeguard against the ends of the floating-point range.
SMALLEST, LARGEST = 1e-140, 1e140


def check_domain(X: NDArray[np.float64], name: str, *, each: bool = False) -> None:
    """Raise ValueError unless the largest magnitude of X is 0 or within [1e-140, 1e140].

    Smaller values beside it are no error: they vanish, as the tail of a Gaussian does. With `each`, every
    value must be 0 or in the domain: for weights, by which is divided.
    """
    if not X.size:
        return
    largest = smallest = max(float(X.max()), -float(X.min()))
    if each and largest:
        smallest = float(np.abs(X[X != 0]).min())
    if largest == 0 or SMALLEST <= smallest <= largest <= LARGEST:
        return
    wrong = largest if largest > LARGEST else smallest
    raise ValueError(
        f"{name} must be 0 or of magnitude {SMALLEST:g} to {LARGEST:g}, got {wrong:.3g}: use a unit in which the "
        "numbers are nearer to 1"
    )

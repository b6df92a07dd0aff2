"""Output times of the solvers: whole steps of dt, and the part of a step that is left."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from randsmap._interface import validation

_EPS = np.finfo(np.float64).eps


def check_times(times: ArrayLike, t_end: float) -> NDArray[np.float64]:
    """times as an ascending vector within [0, t_end], a copy."""
    times = validation.check_vector(times, "times").copy()
    if not len(times):
        raise ValueError("times must not be empty")
    if times[0] < 0:
        raise ValueError(f"times must not be negative, got {float(times[0])!r}")
    if (np.diff(times) < 0).any():
        k = int(np.argmax(np.diff(times) < 0))
        raise ValueError(f"times must be ascending, got {float(times[k + 1])!r} after {float(times[k])!r}")
    if times[-1] > t_end:
        raise ValueError(f"times must not exceed t_end = {t_end!r}, got {float(times[-1])!r}")
    return times


def steps_to(times: NDArray[np.float64], dt: float) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """Whole steps to each time, and the part of one more step that is left (0: none)."""
    with np.errstate(over="ignore"):
        count = times / dt
    if count[-1] > 2**53:
        raise ValueError(f"t_end = {times[-1]:g} takes more than 2**53 steps of dt = {dt:g}")
    whole = np.rint(count)
    # 3 * 0.1 and 0.3 are the same time: a difference of rounding is not a step
    whole = np.where(np.abs(times - whole * dt) <= 4 * _EPS * times, whole, np.floor(count))
    rest = times - whole * dt
    fractions = np.where(rest > 4 * _EPS * times, rest / dt, 0.0)
    return whole.astype(np.intp), fractions

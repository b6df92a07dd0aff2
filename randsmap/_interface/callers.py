"""Warnings that name the caller's line, however many functions of the package are between."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_ignored: ContextVar[bool] = ContextVar("extrapolation_ignored", default=False)
# Whether `predict` need not look for points far away: a built-in method, since one decoded row takes microseconds
extrapolation_is_ignored = _ignored.get


@contextmanager
def extrapolation_ignored() -> Iterator[None]:
    """While open, `predict` gives no `ExtrapolationWarning`: searches and reports decode held-out points."""
    token = _ignored.set(True)
    try:
        yield
    finally:
        _ignored.reset(token)


def warn_caller(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the line outside of the package that led to this call."""
    frame, level = inspect.currentframe(), 1
    while frame is not None and frame.f_back is not None and _is_ours(frame.f_globals.get("__name__", "")):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


def _is_ours(module):
    return module.partition(".")[0] == "randsmap"

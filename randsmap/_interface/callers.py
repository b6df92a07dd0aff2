"""Warnings that name the caller's line, however many functions of the package are between."""

from __future__ import annotations

import inspect
import warnings


def warn_caller(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the line outside of the package that led to this call."""
    frame, level = inspect.currentframe(), 1
    while frame is not None and frame.f_back is not None and _is_ours(frame.f_globals.get("__name__", "")):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


def _is_ours(module):
    return module.partition(".")[0] == "randsmap"

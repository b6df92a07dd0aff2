"""What a caller's settings change in the package, and warnings that name the caller's line."""

from __future__ import annotations

import inspect
import sys
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager
from contextvars import ContextVar
from functools import wraps
from importlib import import_module
from typing import Any, TypeVar

import numpy as np

from randsmap._io.progress import set_while_open

_Function = TypeVar("_Function", bound=Callable[..., Any])

_ignored: ContextVar[bool] = ContextVar("extrapolation_ignored", default=False)
# True while `predict` omits the check for extrapolation. A built-in method is fast: one decoded row takes microseconds
extrapolation_is_ignored = _ignored.get


def extrapolation_ignored() -> AbstractContextManager[None]:
    """While open, `predict` gives no `ExtrapolationWarning`: searches and reports decode held-out points."""
    return set_while_open(_ignored, True)


def warn_caller(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the line outside of the package and of scikit-learn that led to this call."""
    frame, level = inspect.currentframe(), 1
    inside = ("randsmap", "sklearn")  # its mixins call `fit`
    while frame and frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] in inside:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


def installed(package: str, what: Any, extra: str = "") -> Any:
    """A package that only `what` needs; ImportError with the remedy. PyInstaller does not follow this import."""
    try:
        return import_module(package)
    except ImportError as error:  # the package is missing or broken
        remedy = f"'randsmap[{extra}]', or {package} alone" if extra else package
        raise ImportError(f"{what} needs the package {package}: pip install {remedy} ({error})") from None


def quiet(function: _Function) -> _Function:
    """Let a function's own arithmetic, whose underflow and overflow are expected, neither raise nor warn."""

    @wraps(function)
    def quietly(*args: Any, **kwargs: Any) -> Any:
        with np.errstate(all="ignore"):
            return function(*args, **kwargs)

    return compiled(quietly)  # type: ignore[return-value]


def compiled(function: _Function) -> _Function:
    """Mark a function that `public` leaves as it is: one row takes microseconds, in C without NumPy's arithmetic."""
    vars(function)["_is_quiet"] = True
    return function


def public(module: dict[str, Any]) -> None:
    """Make all functions in a module's `__all__` `quiet`, and the methods of its classes and their bases."""
    for name in module["__all__"]:
        thing = module[name]
        if inspect.isfunction(thing):
            module[name] = _quiet_in(sys.modules[thing.__module__], name)
        for base in inspect.getmro(thing) if inspect.isclass(thing) else ():
            if base.__module__.partition(".")[0] == "randsmap":
                for method in [*vars(base)]:
                    _quiet_in(base, method)


def _quiet_in(owner: Any, name: str) -> Any:
    """The attribute of `owner` with this name; a public function is replaced by its quiet form."""
    thing = vars(owner)[name]
    inner = getattr(thing, "__func__", getattr(thing, "fn", thing))  # class methods, scikit-learn's available_if
    if name.startswith("_") or not inspect.isfunction(inner) or hasattr(inner, "_is_quiet"):
        return thing
    made = quiet(inner)
    if hasattr(thing, "fn"):
        thing.fn = made
    else:
        setattr(owner, name, made if inner is thing else type(thing)(made))
    return made

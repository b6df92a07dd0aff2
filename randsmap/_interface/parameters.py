"""Parameters declared once: their validation, documentation, command-line option and check in model files.

A class with declared parameters has a dictionary ``_parameters`` from name to `Parameter`, and ``__init__`` with the
same names, which stores them. `documented` writes the Parameters section of its docstring, `check_parameters` returns
the valid values, `option` describes an option of the command line, and `randsmap.persistence` checks the values of a
file. `Parameter` also declares the plain values among fitted attributes (see `randsmap._interface.state`).
"""

from __future__ import annotations

import inspect
import math
import numbers
import re
import textwrap
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

_Class = TypeVar("_Class")


@dataclass(frozen=True)
class Parameter:
    """One parameter: what values it has and what they mean.

    Attributes
    ----------
    kind : float, int, bool, str or object
        Type of a value; `object`: anything, checked where it is used. `str`: one of the words.
    text : str
        Sentences for the documentation.
    low, high : float
        Bounds of a number.
    strict : bool
        Whether a number must be larger than `low`.
    words : tuple of str or None
        Other values that are accepted.
    shown : str
        The type in the documentation; "": made from the other attributes.
    """

    kind: type
    text: str = ""
    low: float = -math.inf
    high: float = math.inf
    strict: bool = False
    words: tuple[str | None, ...] = ()
    shown: str = ""

    @property
    def optional(self) -> bool:
        """Whether None is accepted."""
        return None in self.words

    def check(self, value: Any, name: str) -> Any:
        """value, as a Python number if it is one; TypeError or ValueError if it is none of the values declared."""
        if self.kind is object or (value is None and self.optional):
            return value
        if self.kind is str or (any(self.words) and isinstance(value, str)):
            return check_choice(value, name, [word for word in self.words if word is not None])
        if self.kind is bool:
            return check_flag(value, name)
        if self.kind is int:
            return check_count(value, name, low=self.low, high=self.high)
        return check_number(value, name, low=self.low, high=self.high, strict_low=self.strict)

    @property
    def type(self) -> str:
        """The type as the documentation shows it: ``"auto", float > 0 or None``."""
        if self.shown:
            return self.shown
        words = [f'"{word}"' for word in self.words if word is not None]
        if self.kind is not str:
            words.append(self.kind.__name__ + self._range())
        if self.optional:
            words.append("None")
        return " or ".join(filter(None, [", ".join(words[:-1]), words[-1]]))

    def _range(self) -> str:
        if self.kind is bool or self.low == -math.inf:
            return ""
        if self.high == math.inf:
            return f" {'>' if self.strict else '>='} {self.low:g}"
        return f" in {'(' if self.strict else '['}{self.low:g}, {self.high:g}]"

    def entry(self, name: str, default: Any = inspect.Parameter.empty) -> str:
        """The lines of the parameter in a section Parameters."""
        shown = "" if default is inspect.Parameter.empty else f", default={_literal(default)}"
        return f"{name} : {self.type}{shown}\n{textwrap.indent(inspect.cleandoc(self.text), '    ')}"

    def option(self, default: Any = None) -> dict[str, Any]:
        """Arguments of `argparse.ArgumentParser.add_argument`: type, choices, default and help."""
        sentence = re.split(r"(?<=\.)\s", " ".join(self.text.split()), maxsplit=1)[0]
        known: dict[str, Any] = {"default": default, "help": sentence.replace("%", "%%")}
        if self.kind is str:
            return {**known, "choices": [word for word in self.words if word is not None]}
        return {**known, "type": self.kind} if self.kind in (int, float) and not self.words else known


def _literal(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)


def check_parameters(estimator: Any) -> dict[str, Any]:
    """The values of all declared parameters of an estimator, by name, after `Parameter.check`."""
    return {name: declared.check(getattr(estimator, name), name) for name, declared in estimator._parameters.items()}


def option_of(cls: type, name: str) -> dict[str, Any]:
    """`Parameter.option` of a parameter of a class, with the default of its constructor."""
    return cls._parameters[name].option(inspect.signature(cls).parameters[name].default)  # type: ignore[attr-defined]


# -- Documentation ---------------------------------------------------------------------------------
def documented(cls: _Class) -> _Class:
    """Replace the line {parameters} of a class's docstring by the entries of its declared parameters."""
    declared: Mapping[str, Parameter] = cls._parameters  # type: ignore[attr-defined]
    signature = inspect.signature(cls).parameters  # type: ignore[arg-type]
    entries = [declared[name].entry(name, parameter.default) for name, parameter in signature.items()]
    return document(cls, {"parameters": "\n".join(entries)})


def document(cls: _Class, texts: Mapping[str, str]) -> _Class:
    """Replace lines {name} of a class's docstring by texts[name], with the indentation of the line."""
    if cls.__doc__:  # not under python -OO
        cls.__doc__ = re.sub(
            r"^( *)\{(" + "|".join(texts) + r")\}$",
            lambda found: textwrap.indent(texts[found[2]], found[1]),
            cls.__doc__,
            flags=re.M,
        )
    return cls


# -- Values ----------------------------------------------------------------------------------------
# scikit-learn's `check_scalar` accepts NaN, infinity, True and integers beyond the range of floats
def check_number(
    value: Any, name: str, *, low: float = -np.inf, high: float = np.inf, strict_low: bool = False
) -> float:
    """value as a float with low <= value <= high (low < value with strict_low), never NaN or infinite."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name} must be a real number, got {value!r}")
    try:
        number = float(value)
    except OverflowError:  # an integer beyond the range of floats
        number = np.inf
    if not (low <= number <= high) or (strict_low and number == low) or np.isinf(number):
        bound = f"{'>' if strict_low else '>='} {low:g}" + (f" and <= {high:g}" if high < np.inf else "")
        raise ValueError(f"{name} must be finite and {bound}, got {value!r}")
    return number


def check_count(
    value: Any, name: str, *, low: float = 1, high: float | None = None, high_name: str | None = None
) -> int:
    """value as an int with low <= value <= high."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, numbers.Integral):
        raise TypeError(f"{name} must be an integer, got {value!r}")
    value = int(value)
    if value < low:
        raise ValueError(f"{name} must be at least {low}, got {value}")
    if high is not None and value > high:
        raise ValueError(
            f"{name} must be at most {high_name or high}, got {value}"
            + (f" ({high_name} is {high})" if high_name else "")
        )
    return value


def check_choice(value: Any, name: str, choices: Collection[str]) -> str:
    """value if it is one of the strings in choices."""
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}")
    return value


def check_flag(value: Any, name: str) -> bool:
    """value as a bool."""
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{name} must be a bool, got {value!r}")
    return bool(value)


def check_random_state(
    random_state: int | np.random.RandomState | np.random.Generator | None,
) -> np.random.RandomState | np.random.Generator:
    """A NumPy generator of random numbers: None, an int, a RandomState or a Generator."""
    if isinstance(random_state, np.random.Generator):
        return random_state
    from sklearn.utils import check_random_state as sklearn_check

    return sklearn_check(random_state)

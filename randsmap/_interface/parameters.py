"""Parameters declared once: constructor, validation, documentation, command-line option and check in model files.

The body of an estimator declares each parameter as an annotated attribute, such as ``alpha: float = parameter(float,
default=1.0, low=0, high=1)``, and its docstring has an entry ``alpha`` without a type that says what it means.
`estimator` makes ``__init__`` of them, which stores the values, and completes the docstring with types and defaults,
and with the parameters and attributes of base classes. `check_parameters` returns the valid values, `option_of`
describes an option of the command line, and `randsmap.persistence` checks the values of a file. `Parameter` also
declares the plain values among fitted attributes (see `randsmap._interface.state`).
"""

from __future__ import annotations

import inspect
import math
import numbers
import re
import textwrap
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, make_dataclass, replace
from typing import Any, TypeVar, dataclass_transform

import numpy as np
from sklearn.base import BaseEstimator

_Class = TypeVar("_Class")
_Documented = TypeVar("_Documented")
_REQUIRED = inspect.Parameter.empty


@dataclass(frozen=True)
class Parameter:
    """One parameter: what values it has and what they mean."""

    kind: type = object  # float, int, bool, str (one of the words) or object: anything, checked where it is used
    low: float = -math.inf  # bounds of a number
    high: float = math.inf
    strict: bool = False  # a number must be larger than `low`
    words: tuple[str | None, ...] = ()  # other values that are accepted
    shown: str = ""  # the type in the documentation; "": made from the attributes above
    default: Any = _REQUIRED
    kw_only: bool = True  # the constructor takes it by name alone
    of_columns: bool = False  # it has an entry for each column of X, or holds estimators for these columns
    text: str = ""  # what it means: sentences, which `estimator` takes from the docstring

    @property
    def optional(self) -> bool:
        """True if None is accepted."""
        return None in self.words

    def check(self, value: Any, name: str) -> Any:
        """value, as a Python number if it is one; TypeError or ValueError if it is none of the values declared."""
        if isinstance(value, Iterator):  # a second fit would find it empty
            raise TypeError(f"{name} must be a list, a tuple or an array, got the iterator {value!r}: give list(...)")
        if self.kind is object or (value is None and self.optional):
            return value
        if self.kind is str or (any(self.words) and isinstance(value, str)):
            return check_choice(value, name, [word for word in self.words if word is not None])
        if self.kind is bool:
            if not isinstance(value, (bool, np.bool_)):
                raise TypeError(f"{name} must be a bool, got {value!r}")
            return bool(value)
        if self.kind is int:
            return check_count(value, name, low=self.low, high=self.high)
        return check_number(value, name, low=self.low, high=self.high, strict_low=self.strict)

    @property
    def type(self) -> str:
        """The type as the documentation shows it: ``"auto", float > 0 or None``."""
        if self.shown:
            return self.shown
        numbers = ""
        if self.kind is not bool and self.low > -math.inf:
            numbers = f" {'>' if self.strict else '>='} {self.low:g}"
            if self.high < math.inf:
                numbers = f" in {'(' if self.strict else '['}{self.low:g}, {self.high:g}]"
        words = [f'"{word}"' for word in self.words if word is not None]
        words += [self.kind.__name__ + numbers] * (self.kind is not str) + ["None"] * self.optional
        return " or ".join(filter(None, [", ".join(words[:-1]), words[-1]]))

    def entry(self, name: str) -> str:
        """The lines of the parameter in a section Parameters."""
        shown = f'"{self.default}"' if isinstance(self.default, str) else repr(self.default)
        return f"{name} : {self.type}{'' if self.default is _REQUIRED else f', default={shown}'}\n{self.text}"


def parameter(kind: type = object, *, default: Any = _REQUIRED, **limits: Any) -> Any:
    """Declare a parameter in the body of an `estimator`; a default alone replaces that of an inherited one."""
    return Parameter(kind, default=default, **limits)


@dataclass_transform(kw_only_default=True, field_specifiers=(parameter,))
def estimator(cls: type[_Class]) -> type[_Class]:
    """Give a class ``__init__``, ``_parameters`` and a whole docstring from what it and its bases declare.

    A class attribute that is no `parameter` takes the one of its name away.
    """
    head, *found = re.split(r"\n\n(?=[A-Z][A-Za-z ]+\n-{3,})", inspect.cleandoc(vars(cls).get("__doc__") or ""))
    sections = {"": head, **{section.partition("\n")[0]: section for section in found}}
    texts, attributes = _entries(sections.get("Parameters", "")), _entries(sections.get("Attributes", ""))
    declared = {name: value for name, value in vars(cls).items() if isinstance(value, Parameter)}
    for name in declared:
        delattr(cls, name)  # an instance attribute
    for base in cls.__mro__[1:]:  # the nearest bases first
        for name, inherited in vars(base).get("_parameters", {}).items():
            if hasattr(cls, name):
                continue
            if declared.setdefault(name, inherited) == Parameter(default=declared[name].default):
                declared[name] = replace(inherited, default=declared[name].default)
            texts.setdefault(name, ("", inherited.text))
        for name, lines in vars(base).get("_attributes", {}).items():
            attributes.setdefault(name, lines)
    ordered = sorted(declared.items(), key=lambda item: item[1].kw_only)
    cls._parameters = {name: replace(value, text=texts.get(name, ("", ""))[1]) for name, value in ordered}  # type: ignore[attr-defined]
    cls._attributes = attributes  # type: ignore[attr-defined]
    _make_constructor(cls)
    if head:  # not under python -OO
        _complete_docstring(cls, sections)
    return cls


def _make_constructor(cls: Any) -> None:
    fields = []
    for name, declared in cls._parameters.items():
        annotations = filter(None, (inspect.get_annotations(base).get(name) for base in cls.__mro__))
        default = {} if declared.default is _REQUIRED else {"default": declared.default}
        fields.append((name, next(annotations), field(kw_only=declared.kw_only, **default)))
    made: Any = make_dataclass(cls.__name__, fields, repr=False, eq=False)  # only its constructor is used
    cls.__init__ = made.__init__
    cls.__init__.__module__ = cls.__module__
    cls.__repr__ = _in_short


def _in_short(self: Any) -> str:
    """Scikit-learn's text of an estimator, with three numbers of each array."""
    with np.printoptions(threshold=3, edgeitems=1, precision=3):
        return str(BaseEstimator.__repr__(self))


def check_parameters(estimator: Any) -> dict[str, Any]:
    """The values of all declared parameters of an estimator, by name, after `Parameter.check`."""
    cls: Any = type(estimator)
    return {name: declared.check(getattr(estimator, name), name) for name, declared in cls._parameters.items()}


def option_of(cls: Any, name: str) -> dict[str, Any]:
    """Arguments of `argparse.ArgumentParser.add_argument` of a parameter: type, choices, default and help."""
    declared: Parameter = cls._parameters[name]
    sentence = re.split(r"(?<=\.)\s", " ".join(declared.text.split()), maxsplit=1)[0]
    known: dict[str, Any] = {"default": declared.default, "help": sentence.replace("%", "%%")}
    if declared.kind is str:
        return {**known, "choices": [word for word in declared.words if word is not None]}
    return {**known, "type": declared.kind} if declared.kind in (int, float) and not declared.words else known


# -- Documentation ---------------------------------------------------------------------------------
def _entries(section: str) -> dict[str, tuple[str, str]]:
    """{name: (rest of the line with the name, lines below)} of the entries of a section."""
    found = re.findall(r"^(\w+)(.*)\n((?:(?: .*)?\n)*)", section.partition("-\n")[2] + "\n", re.M)
    return {name: (rest, lines.rstrip()) for name, rest, lines in found}


def _complete_docstring(cls: Any, sections: dict[str, str]) -> None:
    entries = [declared.entry(name) for name, declared in cls._parameters.items()]
    attributes = [f"{name}{rest}\n{lines}" for name, (rest, lines) in cls._attributes.items()]
    made = {
        "": sections[""],
        "Parameters": "\n".join(["Parameters", "-" * 10, *entries]),
        "Attributes": "\n".join(["Attributes", "-" * 10, *attributes]) if attributes else "",
    }
    cls.__doc__ = "\n\n".join(filter(None, (made | sections | made).values())) + "\n"


def document(thing: _Documented, texts: Mapping[str, str]) -> _Documented:
    """Replace lines {name} in the docstring of a function, or of a class and its methods, by texts[name], indented.

    A name that begins with returns, raises or example is that of a section. A line of several, {X} {out} {raises},
    stands for a section Parameters of the entries and the sections among them.
    """
    things: list[Any] = [thing]
    if isinstance(thing, type):
        members = list(vars(thing).values())
        things += filter(inspect.isfunction, [*members, *map(inspect.unwrap, members)])  # and functions in decorators
    lines = re.compile(r"^( *)((?:\{(?:" + "|".join(texts) + r")\} ?)+)$", re.M)

    def filled(line: re.Match[str]) -> str:
        found = [_with_title(name, texts[name]) for name in re.findall(r"\w+", line[2])]
        sections = [text for text in found if re.match(r".*\n---", text)]
        entries = [text for text in found if text not in sections]
        if entries and len(found) > 1:
            entries = ["\n".join(["Parameters", "-" * 10, *entries])]
        return textwrap.indent("\n\n".join(entries + sections), line[1])

    for one in things:
        if one.__doc__:  # not under python -OO
            one.__doc__ = lines.sub(filled, one.__doc__)
    return thing


def _with_title(name: str, text: str) -> str:
    title = {"returns": "Returns", "raises": "Raises", "example": "Examples"}.get(name.partition("_")[0])
    return text if title is None else f"{title}\n{'-' * len(title)}\n{text}"


# -- Values ----------------------------------------------------------------------------------------
# scikit-learn's `check_scalar` accepts NaN, infinity, True and integers beyond the range of floats
_NO_NUMBERS = (bool, np.bool_, np.timedelta64)  # a duration is an integer for NumPy, without its unit


def check_number(
    value: Any, name: str, *, low: float = -np.inf, high: float = np.inf, strict_low: bool = False
) -> float:
    """value as a float with low <= value <= high (low < value with strict_low), never NaN or infinite."""
    if isinstance(value, _NO_NUMBERS) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name} must be a real number, got {value!r}")
    try:
        number = float(value)
    except OverflowError:  # an integer beyond the range of floats
        number = np.inf
    if not (low <= number <= high) or (strict_low and number == low) or np.isinf(number):
        bound = f"{'>' if strict_low else '>='} {low:g}" + (f" and <= {high:g}" if high < np.inf else "")
        raise ValueError(f"{name} must be finite and {bound}, got {value!r}")
    return number


def check_count(value: Any, name: str, *, low: float = 1, high: float = math.inf, high_name: str = "") -> int:
    """value as an int with low <= value <= high."""
    if isinstance(value, _NO_NUMBERS) or not isinstance(value, numbers.Integral):
        raise TypeError(f"{name} must be an integer, got {value!r}")
    value = int(value)
    if value < low:
        raise ValueError(f"{name} must be at least {low}, got {value}")
    if value > high:
        which = f" ({high_name} is {high})" if high_name else ""
        raise ValueError(f"{name} must be at most {high_name or high}, got {value}{which}")
    return value


def check_choice(value: Any, name: str, choices: Collection[str]) -> str:
    """value if it is one of the strings in choices."""
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}")
    return value


def check_random_state(random_state: Any) -> np.random.RandomState | np.random.Generator:
    """The NumPy generator of random numbers that None, an int, a RandomState or a Generator stands for."""
    if isinstance(random_state, np.random.Generator):
        return random_state
    from sklearn.utils import check_random_state as sklearn_check

    return sklearn_check(random_state)

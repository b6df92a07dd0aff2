"""Declared fitted state, and fits that fail safely.

A class that can be stored in a model file has a dictionary ``_state`` from fitted attribute to one of the kinds below,
or to a `Parameter` for a plain value. Lengths are given by name ("M" cells, "d" latents, "P" features, ...): one name
means one number within a class, and "P+1" one more. An optional attribute may be None or missing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, TypeVar, dataclass_transform

import numpy as np
from numpy.typing import DTypeLike

from randsmap._interface.parameters import Parameter

_Kind = TypeVar("_Kind", bound=type)
_Lengths = dict[str, int]

# The attribute is not stored: the class's `_restore` makes it from the others.
NOT_SAVED = "not saved"


def _bind(lengths: _Lengths, name: str | int, value: int, smallest: int = 1) -> None:
    """Check a length against the others, or note it if it is the first of its name."""
    base, _, added = str(name).partition("+")
    more = int(added or 0)
    expected = name if isinstance(name, int) else lengths.setdefault(base, value - more) + more
    if value != expected or value < smallest:
        raise ValueError(f"length {name} is {value}, not {max(expected, smallest)}")


class Array:
    """A contiguous float64 (finite unless `infinite`; `single`: float32), np.intp or bool array, from low to high."""

    def __init__(
        self,
        *shape: str | int,
        dtype: DTypeLike = np.float64,
        low: float | str | None = None,
        high: float | str | None = None,
        infinite: bool = False,
        empty: bool = False,
        optional: bool = False,
        single: bool = False,
    ) -> None:
        self.shape, self.dtype, self.low, self.high = shape, np.dtype(dtype), low, high
        self.infinite, self.empty, self.optional, self.single = infinite, empty, optional, single

    def check(self, value: Any, lengths: _Lengths) -> None:
        if type(value) is not np.ndarray or value.dtype not in (self.dtype, np.float32 if self.single else self.dtype):
            given = getattr(value, "dtype", type(value).__name__)
            raise ValueError(f"it must be an array of {self.dtype}, got {given}")
        if value.ndim != len(self.shape):
            raise ValueError(f"it must have {len(self.shape)} dimension(s), got shape {value.shape}")
        for name, length in zip(self.shape, value.shape):
            _bind(lengths, name, length, smallest=0 if self.empty else 1)
        if self.dtype == bool or not value.size:
            return
        smallest, largest = value.min(), value.max()
        broken = np.isnan if self.infinite else lambda x: not np.isfinite(x)
        if self.dtype.kind == "f" and (broken(smallest) or broken(largest)):
            raise ValueError("its values must be finite" + " or infinite" * self.infinite)
        low, high = (lengths[bound] if isinstance(bound, str) else bound for bound in (self.low, self.high))
        if (low is not None and smallest < low) or (high is not None and largest > high):
            raise ValueError(f"its values must be in [{low}, {high}], got {smallest} to {largest}")


@dataclass(frozen=True)
class Count:
    """A positive int: the length `name`."""

    name: str

    def check(self, value: Any, lengths: _Lengths) -> None:
        if type(value) is not int:
            raise ValueError(f"it must be an int, got {value!r}")
        _bind(lengths, self.name, value)


# methods of fitted estimators -> attribute that holds the length of a row of results
_RESULTS = {"transform": "_n_features_out", "predict": "_n_outputs"}


class Part:
    """A stored object of a class, or a fitted estimator with this method; `many`: a list of them.

    Its lengths agree with the others: ``Part(AffineInvariants, M="M")``, ``Part("predict", n_in="d", n_out="M")``.
    """

    def __init__(self, kind: type | str, *, optional: bool = False, many: bool = False, **lengths: str) -> None:
        self.kind, self.optional, self.many, self.lengths = kind, optional, many, lengths

    def check(self, value: Any, lengths: _Lengths) -> None:
        if self.many and (type(value) is not list or not value):
            raise ValueError(f"it must be a list of objects, got {value!r:.80}")
        for part in value if self.many else [value]:
            theirs = self._lengths_of(part)
            for name, ours in self.lengths.items():
                _bind(lengths, ours, theirs[name])

    def _lengths_of(self, value: Any) -> _Lengths:
        if isinstance(self.kind, type):
            if type(value) is not self.kind:
                raise ValueError(f"it must be of class {self.kind.__name__}, got {type(value).__name__}")
            return check_state(value)
        n_in, n_out = getattr(value, "n_features_in_", None), getattr(value, _RESULTS[self.kind], None)
        if not callable(getattr(value, self.kind, None)) or n_in is None or n_out is None:
            raise ValueError(f"it must be a fitted estimator with {self.kind}, got {type(value).__name__}")
        return {"n_in": n_in, "n_out": n_out}


def saved(kind: Any, **options: Any) -> Any:
    """A field of an `immutable` class that a model file holds as this kind, or NOT_SAVED."""
    return field(metadata={"kind": kind}, **options)


@dataclass_transform(frozen_default=True, field_specifiers=(saved,))
def immutable(cls: _Kind) -> _Kind:
    """Make a class a frozen dataclass, whose fields are its ``_state``."""
    dataclass(frozen=True, eq=False)(cls)
    cls._state = {each.name: each.metadata["kind"] for each in fields(cls)}  # type: ignore[attr-defined]
    return cls


def is_computed(cls: type, name: str) -> bool:
    """True if an attribute is computed from the others when it is first read, so that no file has it."""
    return isinstance(getattr(cls, name, None), cached_property)


def declared_state(cls: Any) -> dict[str, Any]:
    """The declared fitted attributes of a class, ``_state``."""
    return {**cls._state}


def is_optional(kind: Any) -> bool:
    """True if the attribute may be None or missing."""
    return getattr(kind, "optional", False)


def check_state(value: Any) -> _Lengths:
    """Raise ValueError unless an object has all its declared attributes; returns the lengths by name."""
    lengths: _Lengths = {}
    for name, kind in declared_state(type(value)).items():
        if kind is NOT_SAVED or (is_optional(kind) and vars(value).get(name) is None):
            continue
        if not hasattr(value, name):
            raise ValueError(f"{type(value).__name__}.{name} is missing")
        try:
            kind.check(getattr(value, name), "it" if isinstance(kind, Parameter) else lengths)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{type(value).__name__}.{name}: {error}") from None
    return lengths


@contextmanager
def restored_on_error(estimator: Any) -> Iterator[None]:
    """A fit that fails leaves the estimator as it was."""
    before = dict(estimator.__dict__)
    try:
        yield
    except BaseException:
        estimator.__dict__.clear()
        estimator.__dict__.update(before)
        raise


def not_frozen(reason: str) -> Any:
    """A method `freeze` of estimators that C cannot decode."""

    def freeze(self: Any, *args: Any, **options: Any) -> Any:
        """Raise TypeError with the reason why there is no `freeze`, and what can be frozen instead.

        Parameters
        ----------
        *args, **options
            Ignored.

        Returns
        -------
        NoReturn

        Raises
        ------
        TypeError
            Always.
        """
        raise TypeError(f"{type(self).__name__} cannot be frozen: {reason}")

    return freeze


def check_fitted(estimator: Any, attribute: str) -> None:
    """Raise NotFittedError if the estimator lacks the attribute; costs nothing if it has it."""
    if not hasattr(estimator, attribute):
        from sklearn.utils.validation import check_is_fitted

        check_is_fitted(estimator, attribute)

"""What the estimators share: declared attributes, fits that fail safely, documentation written once.

A class that can be stored in a model file has a dictionary ``_state``: fitted attribute -> one of
the kinds below. Lengths are given by name ("M" cells, "d" latents, "P" features, ...); one name
means one number within a class, "P+1" is one more, and a length is at least 1 unless the array is
declared `empty`. What is `optional` may be None or missing. See `randsmap.persistence`.
"""

from __future__ import annotations

import functools
import re
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import MethodType
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import DTypeLike, NDArray

from randsmap._interface.validation import (
    aligned,
    check_finite,
    clearly_finite,
    refuse_dask,
    refuse_masked,
    refuse_missing,
    refuse_other_dimensions,
)

__all__ = [
    "Array",
    "Choice",
    "Count",
    "DERIVED",
    "Flag",
    "Integer",
    "Part",
    "Real",
    "Regressor",
    "Regressors",
    "Transformer",
    "available_unless",
    "check_fitted",
    "check_state",
    "document",
    "is_optional",
    "restored_on_error",
    "validate_data",
]


_Class = TypeVar("_Class", bound=type)
_Method = TypeVar("_Method", bound=Callable[..., Any])
_Lengths = dict[str, int]


def document(cls: _Class, texts: dict[str, str]) -> _Class:
    """Replace lines {name} of a class's docstring by texts[name], indented as they are."""
    if cls.__doc__:  # not under python -OO
        cls.__doc__ = re.sub(
            r"^( *)\{(" + "|".join(texts) + r")\}$",
            lambda found: textwrap.indent(texts[found[2]], found[1]),
            cls.__doc__,
            flags=re.M,
        )
    return cls


# The attribute is not stored: the class's `_restore` makes it from the others.
DERIVED = "derived"


def _bind(lengths: _Lengths, name: str | int, value: int, smallest: int = 1) -> None:
    """Check a length against the others, or note it if it is the first of its name."""
    if isinstance(name, int):
        expected = name
    else:
        base, _, added = name.partition("+")
        more = int(added or 0)
        expected = lengths.setdefault(base, value - more) + more
    if value != expected:
        raise ValueError(f"length {name} is {value}, not {expected}")
    if value < smallest:
        raise ValueError(f"length {name} is {value}")


def _within(smallest: float, largest: float, low: float | None, high: float | None) -> bool:
    # a NaN fails here
    return (low is None or smallest >= low) and (high is None or largest <= high)


class Array:
    """A contiguous array of float64 (finite, unless `infinite`), np.intp or bool.

    low, high: bounds of its values, numbers or names of lengths.
    """

    def __init__(
        self,
        *shape: str | int,
        dtype: DTypeLike = np.float64,
        low: float | str | None = None,
        high: float | str | None = None,
        infinite: bool = False,
        empty: bool = False,
        optional: bool = False,
    ) -> None:
        self.shape, self.dtype, self.low, self.high = shape, np.dtype(dtype), low, high
        self.infinite, self.empty, self.optional = infinite, empty, optional

    def check(self, value: Any, lengths: _Lengths) -> None:
        if value is None and self.optional:
            return
        if type(value) is not np.ndarray or value.dtype != self.dtype:
            raise ValueError(
                f"it must be an array of {self.dtype}, got {getattr(value, 'dtype', type(value).__name__)}"
            )
        if value.ndim != len(self.shape):
            raise ValueError(f"it must have {len(self.shape)} dimension(s), got shape {value.shape}")
        for name, length in zip(self.shape, value.shape):
            _bind(lengths, name, length, smallest=0 if self.empty else 1)
        if self.dtype == bool or not value.size:
            return
        with np.errstate(invalid="ignore"):  # a signalling NaN
            smallest, largest = value.min(), value.max()
        broken = np.isnan if self.infinite else lambda x: not np.isfinite(x)
        if self.dtype.kind == "f" and (broken(smallest) or broken(largest)):
            raise ValueError("its values must be finite" + " or infinite" * self.infinite)
        low, high = (lengths[bound] if isinstance(bound, str) else bound for bound in (self.low, self.high))
        if not _within(smallest, largest, low, high):
            raise ValueError(f"its values must be in [{low}, {high}], got {smallest} to {largest}")


class Count:
    """A positive int: the length `name`."""

    def __init__(self, name: str) -> None:
        self.name = name

    def check(self, value: Any, lengths: _Lengths) -> None:
        if type(value) is not int:
            raise ValueError(f"it must be an int, got {value!r}")
        _bind(lengths, self.name, value)


class Real:
    """A finite float between two bounds."""

    def __init__(self, low: float, high: float, *, optional: bool = False) -> None:
        self.low, self.high, self.optional = low, high, optional

    def check(self, value: Any, lengths: _Lengths) -> None:
        if value is None and self.optional:
            return
        if not isinstance(value, float) or not _within(value, value, self.low, self.high):
            raise ValueError(f"it must be a float in [{self.low:g}, {self.high:g}], got {value!r}")


class Integer:
    """An int that is no length, at least `low`."""

    def __init__(self, *, low: int, optional: bool = False) -> None:
        self.low, self.optional = low, optional

    def check(self, value: Any, lengths: _Lengths) -> None:
        if value is None and self.optional:
            return
        if type(value) is not int or value < self.low:
            raise ValueError(f"it must be an int >= {self.low}, got {value!r}")


class Flag:
    """A bool."""

    def __init__(self, *, optional: bool = False) -> None:
        self.optional = optional

    def check(self, value: Any, lengths: _Lengths) -> None:
        if value is None and self.optional:
            return
        if type(value) is not bool:
            raise ValueError(f"it must be True or False, got {value!r}")


class Choice:
    """One of the strings given."""

    def __init__(self, *choices: str, optional: bool = False) -> None:
        self.choices, self.optional = choices, optional

    def check(self, value: Any, lengths: _Lengths) -> None:
        if value is None and self.optional:
            return
        if type(value) is not str or value not in self.choices:
            raise ValueError(f"it must be one of {', '.join(map(repr, self.choices))}, got {value!r}")


class Part:
    """An object of that class; its lengths agree as given: Part(AffineInvariants, M="M")."""

    def __init__(self, kind: type, *, optional: bool = False, **lengths: str) -> None:
        self.kind, self.optional, self.lengths = kind, optional, lengths

    def check(self, value: Any, lengths: _Lengths) -> None:
        if value is None and self.optional:
            return
        if type(value) is not self.kind:
            raise ValueError(f"it must be of class {self.kind.__name__}, got {type(value).__name__}")
        theirs = check_state(value)
        for name, ours in self.lengths.items():
            _bind(lengths, ours, theirs[name])


class _Map:
    """A fitted estimator that maps rows of length n_in to rows of length n_out."""

    _method: str
    _n_out: str

    def __init__(self, n_in: str, n_out: str, *, optional: bool = False) -> None:
        self.n_in, self.n_out, self.optional = n_in, n_out, optional

    def check(self, value: Any, lengths: _Lengths) -> None:
        if value is None and self.optional:
            return
        n_in, n_out = getattr(value, "n_features_in_", None), getattr(value, self._n_out, None)
        if not callable(getattr(value, self._method, None)) or n_in is None or n_out is None:
            raise ValueError(f"it must be a fitted {type(self).__name__.lower()}, got {type(value).__name__}")
        _bind(lengths, self.n_in, n_in)
        _bind(lengths, self.n_out, n_out)


class Regressors:
    """A list of fitted estimators that all map rows of length n_in to rows of length n_out."""

    def __init__(self, n_in: str, n_out: str) -> None:
        self._each = Regressor(n_in, n_out)

    def check(self, value: Any, lengths: _Lengths) -> None:
        if type(value) is not list or not value:
            raise ValueError(f"it must be a list of fitted regressors, got {value!r}")
        for part in value:
            self._each.check(part, lengths)


class Transformer(_Map):
    _method, _n_out = "transform", "_n_features_out"


class Regressor(_Map):
    _method, _n_out = "predict", "_n_outputs"


def is_optional(kind: Any) -> bool:
    """Whether the attribute may be None or missing."""
    return getattr(kind, "optional", False)


def check_state(value: Any) -> _Lengths:
    """Check all the declared attributes of an object; returns the lengths by name.

    Raises
    ------
    ValueError
        If an attribute is missing or not as declared.
    """
    lengths: _Lengths = {}
    for name, kind in type(value)._state.items():
        if kind is DERIVED:
            continue
        if is_optional(kind) and name not in vars(value):  # what the class has in its place is not from a file
            continue
        if not hasattr(value, name):
            raise ValueError(f"{type(value).__name__}.{name} is missing")
        try:
            kind.check(getattr(value, name), lengths)
        except ValueError as error:
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


class NotFrozen:
    """`freeze` of a class of which C can make nothing; `_not_frozen` tells why, and what can be frozen in its place."""

    _not_frozen: str

    def freeze(self, *args: Any, **options: Any) -> Any:
        """Raise TypeError, which says why this cannot be frozen and what can.

        Parameters
        ----------
        *args, **options
            Of no effect.

        Returns
        -------
        NoReturn

        Raises
        ------
        TypeError
            Always.
        """
        raise TypeError(f"{type(self).__name__} cannot be frozen: {self._not_frozen}")


class _Unless:
    """A method that is there only while `why` finds nothing against it."""

    def __init__(self, method: Callable[..., Any], why: Callable[[Any], str | None]) -> None:
        self._method, self._why = method, why
        functools.update_wrapper(cast(Any, self), method)

    def __get__(self, estimator: Any, owner: Any = None) -> Any:
        if estimator is None:
            return self._method
        reason = self._why(estimator)
        if reason is not None:
            raise AttributeError(reason)
        return MethodType(self._method, estimator)


def available_unless(why: Callable[[Any], str | None]) -> Callable[[_Method], _Method]:
    """As scikit-learn's `available_if`, but the error says `why(estimator)`, not the method's name alone."""

    def decorate(method: _Method) -> _Method:
        return cast(_Method, _Unless(method, why))

    return decorate


def check_fitted(estimator: Any, attribute: str) -> None:
    """Raise NotFittedError if the estimator lacks the attribute; costs nothing if it has it."""
    if not hasattr(estimator, attribute):
        from sklearn.utils.validation import check_is_fitted

        check_is_fitted(estimator, attribute)


def _shape(X):
    try:
        return np.shape(X)
    except ValueError:  # rows of different lengths: two dimensions of a sort
        return len(X), -1


def validate_data(estimator: Any, X: Any, *, reset: bool, min_samples: int | None = None) -> NDArray[np.float64]:
    """An estimator's input as a C-contiguous, aligned float64 array (n_samples, n_features), finite.

    scikit-learn's `validate_data`, with its bookkeeping (n_features_in_ and feature_names_in_ are set on
    reset, compared otherwise) and its messages (a value that is not finite is named with its place),
    behind a short path for the array that needs nothing: a one-row `predict` must cost microseconds.

    min_samples : fewest rows; None: 1 on reset, else 0, so that what is fitted takes an empty batch
    """
    if min_samples is None:
        min_samples = int(reset)
    if (
        type(X) is np.ndarray
        and X.ndim == 2
        and X.dtype == np.float64
        and X.flags.c_contiguous
        and X.flags.aligned
        and X.shape[0] >= min_samples
        and X.shape[1] == (max(X.shape[1], 1) if reset else getattr(estimator, "n_features_in_", 0))
        and not hasattr(estimator, "feature_names_in_")
        and clearly_finite(X)
    ):
        if reset:
            estimator.n_features_in_ = X.shape[1]
        return X
    from sklearn.utils.validation import validate_data as sklearn_validate

    refuse_masked(X, "X")
    refuse_dask(X, "X")
    try:
        valid = sklearn_validate(
            estimator,
            X,
            reset=reset,
            dtype=np.float64,
            order="C",
            ensure_min_samples=min_samples,
            ensure_all_finite=False,
        )
        check_finite(valid, "X")
    except (TypeError, ValueError) as error:
        if not hasattr(X, "toarray"):
            if np.iscomplexobj(X):  # scikit-learn prints the whole array
                raise ValueError(
                    f"X must be an array of real numbers, got {np.asarray(X).dtype} (Complex data not supported)"
                ) from None
            refuse_missing(X, "X")
            refuse_other_dimensions(_shape(X), "X")
        expected = None if reset else getattr(estimator, "n_features_in_", None)
        if len(_shape(X)) == 2 and _shape(X)[0] == expected != _shape(X)[1]:
            raise ValueError(f"{error} X has {expected} rows: if its columns are the samples, give X.T") from None
        raise
    return aligned(valid)

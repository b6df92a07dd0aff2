"""Capabilities of estimators besides `predict`, and reasons why one lacks them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from randsmap.decoders._base import available_if

_PARTIAL_FIT = "batches are added to random features alone (RANDSMAPDecoder, RFNNDecoder): other fits need all samples"


def why_not(part: Any, method: str) -> str | None:
    """Reason why an estimator lacks a method; None if it has it.

    The check of `available_if` raises the reason; of methods that a class of the package does not define, its
    dictionary `lacks` has it.
    """
    try:
        getattr(part, method)
    except AttributeError as error:
        unknown = f"the {method} of a {type(part).__name__} is not known: decoders of this package have one"
        reasons = getattr(part, "lacks", {"partial_fit": _PARTIAL_FIT})
        return str(error.__cause__ or reasons.get(method, unknown))
    return None


def require(part: Any, method: str) -> bool:
    """True if the estimator has the method, else AttributeError with the reason."""
    reason = why_not(part, method)
    if reason is not None:
        raise AttributeError(reason)
    return True


def available_from(part_of: Callable[[Any], tuple[Any, str]]) -> Callable[[Any], Any]:
    """`available_if` the part of an estimator has a method: `part_of(estimator)` returns both."""
    return available_if(lambda estimator: require(*part_of(estimator)))

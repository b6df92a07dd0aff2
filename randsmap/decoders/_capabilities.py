"""What an estimator can do with latents besides `predict`, and why one of them cannot."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numpy.typing import ArrayLike, NDArray

from randsmap._interface.state import check_fitted
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


class LeverageOfPart:
    """`leverage` of an estimator that decodes by one of its parts.

    Attributes
    ----------
    judge : str
        Name of the parameter that is this part.
    without_judge : str
        Why there is no leverage if the parameter is None, a format with the estimator as {0}; "" if `fit` then uses a
        part that has a leverage.
    """

    judge: str
    without_judge = ""

    def judged(self, X: Any) -> Any:
        """X as the part's `leverage` takes it.

        Parameters
        ----------
        X : array-like
            As for `leverage`.

        Returns
        -------
        array-like

        Raises
        ------
        ValueError, TypeError
            If X has the wrong shape.
        """
        return X

    def _check_leverage(self) -> bool:
        part = getattr(self, self.judge)
        if part is not None:
            return require(part, "leverage")
        if self.without_judge:
            raise AttributeError(self.without_judge.format(self))
        return True

    def _leverage_part(self) -> Any:
        self._check_leverage()
        check_fitted(self, f"{self.judge}_")
        return getattr(self, f"{self.judge}_")

    @available_if(lambda self: self._check_leverage())
    def leverage(self, X: ArrayLike) -> NDArray[Any]:
        """How far points are from those of the training fields, as the part that is asked for it measures it.

        `ManifoldModel` asks its decoder, `ShiftRegistration` its model (for any theta), `ConservativeRegressor` its
        estimator. `ParametricModel` asks its regressor how far parameters are from those of the snapshots; whether the
        model has seen such fields is ``model_.leverage(latents(parameters))``.

        Parameters
        ----------
        X : array-like of shape (n, d)
            As for `predict` or `inverse_transform`.

        Returns
        -------
        ndarray (n,)
            To be compared with `leverage_limit_`.

        Raises
        ------
        AttributeError
            If the part has no `leverage`.
        sklearn.exceptions.NotFittedError, ValueError, TypeError
            Before `fit`, and as the part's `leverage`.
        """
        part = self._leverage_part()
        result: NDArray[Any] = part.leverage(self.judged(X))
        return result

    @property
    def leverage_(self) -> float:
        """The part's `leverage_`: the largest of the training points; AttributeError as `leverage`."""
        return float(self._leverage_part().leverage_)

    @property
    def leverage_limit_(self) -> float:
        """The part's `leverage_limit_`, above which decoded fields may be far off."""
        return float(self._leverage_part().leverage_limit_)

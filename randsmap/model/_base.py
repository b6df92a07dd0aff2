"""Base of the models: leverage of a part, model files, and texts of the documentation."""

from __future__ import annotations

import os
from typing import Any, TypeVar

from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator

from randsmap._interface.parameters import document
from randsmap._interface.state import check_fitted
from randsmap._interface.texts import shared_texts
from randsmap.decoders._base import available_if
from randsmap.decoders._capabilities import require
from randsmap.persistence import save

_Class = TypeVar("_Class", bound=type)

_TEXTS = {
    "of_fields": "Parameters\n----------\n{fields}",
    "at_latents": "Parameters\n----------\n{latents}",
    "parameters": """\
Parameters
----------
parameters : array-like of shape (n, p) or (n,)""",
    "raises_derivative": """\
Raises
------
AttributeError
    If the part that decodes has no derivatives.
sklearn.exceptions.NotFittedError, ValueError, TypeError
    As `inverse_transform`.""",
    "score": "Parameters\n----------\n{fields}\ny : ignored\n\nReturns\n-------\nfloat\n\n{raises}",
}


def model_texts(cls: _Class) -> _Class:
    """Fill the lines {score}, {parameters}, ... and those of `shared_texts` in the docstrings of a class's methods."""
    return shared_texts(document(cls, _TEXTS))


class Model(BaseEstimator):
    """A model of fields: it has the leverage of a part, and is written to a file.

    `leverage_from` names the parameter that is this part. `no_leverage` is the reason, a format with the model as {0},
    why there is no leverage if the parameter is None; "" if `fit` then uses a part that has one.
    """

    leverage_from: str
    no_leverage = ""
    lacks = {
        "smoother": "the training fields have weights at given latents: ask the decoder (decoder_) for them",
        "partial_fit": "latents change with the encoder: fit that once, and add batches to the decoder at its latents, "
        "or call distributed.fit_model",
    }

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model to a file, which `randsmap.load` reads.

        Parameters
        ----------
        path : str or path-like
            Taken as it is; ``.npz`` is customary. The file is written whole or not at all.

        Raises
        ------
        sklearn.exceptions.NotFittedError
            Before `fit`.
        TypeError
            If a part cannot be stored without a pickle (scikit-learn's or your own).
        OSError
            If the file cannot be written.
        """
        save(self, path)

    def leverage_points(self, X: Any) -> Any:
        """X as the part's `leverage` takes it."""
        return X

    def _check_leverage(self) -> bool:
        part = getattr(self, self.leverage_from)
        if part is None and self.no_leverage:
            raise AttributeError(self.no_leverage.format(self))
        return part is None or require(part, "leverage")

    def _leverage_part(self) -> Any:
        self._check_leverage()
        check_fitted(self, f"{self.leverage_from}_")
        return getattr(self, f"{self.leverage_from}_")

    @available_if(lambda self: self._check_leverage())
    def leverage(self, X: ArrayLike) -> NDArray[Any]:
        """Leverage of points: their distance from those of the training fields, as a part of the model measures it.

        `ManifoldModel` asks its decoder, `ShiftRegistration` its model (for any theta). `ParametricModel` asks its
        regressor how far parameters are from those of the snapshots; whether the model has seen such fields is
        ``model_.leverage(latents(parameters))``.

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
        sklearn.exceptions.NotFittedError, ValueError, TypeError, AttributeError
            Before `fit`, as the part's `leverage`, or if it has none.
        """
        part = self._leverage_part()
        result: NDArray[Any] = part.leverage(self.leverage_points(X))
        return result

    @property
    def leverage_(self) -> float:
        """The part's `leverage_`: the largest of the training points; AttributeError as `leverage`."""
        return float(self._leverage_part().leverage_)

    @property
    def leverage_limit_(self) -> float:
        """The part's `leverage_limit_`, above which decoded fields may be far off."""
        return float(self._leverage_part().leverage_limit_)

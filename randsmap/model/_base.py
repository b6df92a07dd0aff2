"""Base of the models: leverage of a part, model files, and texts of the documentation."""

from __future__ import annotations

import os
from typing import TypeVar

from sklearn.base import BaseEstimator

from randsmap._interface.parameters import document
from randsmap._interface.texts import shared_texts
from randsmap.decoders._base import LeverageOfPart
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


class Model(LeverageOfPart, BaseEstimator):
    """A model of fields: it has the leverage of a part, and is written to a file."""

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

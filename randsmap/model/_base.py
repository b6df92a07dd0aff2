"""What the models share: leverage of a part, model files, and texts of the documentation."""

from __future__ import annotations

import os
from typing import TypeVar

from sklearn.base import BaseEstimator

from randsmap._interface.parameters import document
from randsmap.decoders._capabilities import LeverageOfPart
from randsmap.persistence import save

_Documented = TypeVar("_Documented")

_TEXTS = {
    "constructor": """\
Raises
------
ValueError, TypeError
    From `fit`: the constructor stores its arguments as they are.""",
    "fields": """\
X : array-like of shape (n, M) or (n, *field_shape_)
    Fields.""",
    "latents": """\
X : array-like of shape (n, d)
    Latents.""",
    "parameters": """\
parameters : array-like of shape (n, p) or (n,)""",
    "raises": """\
Raises
------
sklearn.exceptions.NotFittedError
    Before `fit`.
ValueError, TypeError
    If an array is not finite or has the wrong shape, or as the parts of the model raise.""",
    "raises_derivative": """\
Raises
------
AttributeError
    If the part that decodes has no derivatives.
sklearn.exceptions.NotFittedError, ValueError, TypeError
    As `inverse_transform`.""",
}


def shared_texts(thing: _Documented) -> _Documented:
    """Fill {constructor}, {fields}, {latents}, {parameters}, {raises} and {raises_derivative} in a docstring."""
    return document(thing, _TEXTS)


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

        See Also
        --------
        randsmap.persistence : What a model file can hold.
        """
        save(self, path)

"""What the models share: leverage of a part, fields that are encoded and decoded, and model files."""

from __future__ import annotations

import os

from sklearn.base import BaseEstimator

from randsmap.decoders._capabilities import LeverageOfPart
from randsmap.persistence import save

__all__ = ["Model"]


class Model(LeverageOfPart, BaseEstimator):
    """A model of fields: it has the leverage of a part, and is written to a file."""

    lacks = {
        "smoother": "the training fields have weights at given latents: ask the decoder (decoder_) for them",
        "partial_fit": "latents change with the encoder: fit that once, and add batches to the decoder at its latents, "
        "or call distributed.fit_model",
    }

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model to the file `path`, whole or not at all; `randsmap.load` reads it.

        Parameters
        ----------
        path : str or path-like
            Taken as it is; ``.npz`` is customary.

        Raises
        ------
        sklearn.exceptions.NotFittedError
            Before `fit`.
        TypeError
            If a part cannot be stored without a pickle (scikit-learn's or your own); nothing is written.
        OSError
            If the file cannot be written.

        See Also
        --------
        randsmap.persistence : What a model file can hold.
        """
        save(self, path)

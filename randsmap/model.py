"""Encoder and decoder as one model of a solution manifold."""

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin, clone

from randsmap._state import Count, Regressor, Transformer
from randsmap._validation import check_fitted, validate_data
from randsmap.metrics import relative_l2

__all__ = ["ManifoldModel"]


class ManifoldModel(TransformerMixin, BaseEstimator):
    """Fields to latent coordinates and back.

    Parameters
    ----------
    encoder : transformer
        From fields (n_samples, n_cells) to latents (n_samples, n_components): `DiffusionMaps`, or any
        scikit-learn transformer.
    decoder : regressor, optional
        From latents to fields: `RANDSMAPDecoder`, `RFNNDecoder`, or any multi-output scikit-learn
        regressor. None uses the encoder's own `inverse_transform`.

    Attributes
    ----------
    encoder_, decoder_ : fitted copies of the two (decoder_ is None without a decoder)
    n_features_in_ : int
        Number of cells of a field.

    Notes
    -----
    What holds for decoded fields is what the decoder guarantees; with `RANDSMAPDecoder` every field
    satisfies its invariants to round-off, wherever the latent point lies.

    References
    ----------
    Paper, Sec. 2: the encoder Psi_N and the decoder Psi_N^-1.

    Examples
    --------
    >>> import numpy as np, randsmap
    >>> x = np.linspace(0, 1, 50)
    >>> bumps = np.exp(-((x - np.linspace(0.3, 0.7, 40)[:, None]) / 0.1) ** 2)
    >>> bumps /= bumps.sum(axis=1, keepdims=True)
    >>> encoder = randsmap.DiffusionMaps(n_components=1)
    >>> decoder = randsmap.RANDSMAPDecoder(random_state=0)
    >>> model = randsmap.ManifoldModel(encoder, decoder).fit(bumps)
    >>> fields = model.inverse_transform([[0.1], [50.0]])
    >>> bool(abs(fields.sum(axis=1) - 1).max() < 1e-14)
    True
    """

    _state = {
        "n_features_in_": Count("M"),
        "encoder_": Transformer("M", "d"),
        "decoder_": Regressor("d", "M", optional=True),
    }

    def __init__(self, encoder, decoder=None):
        self.encoder = encoder
        self.decoder = decoder

    def fit(self, X, y=None):
        """Fit the encoder on the fields, then the decoder on their latents.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_cells)
            Fields, one a row.
        y : ignored

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If the fields are not finite, or as the encoder and the decoder raise; the model is then
            left as it was.
        TypeError
            If there is no decoder and the encoder has no `inverse_transform`.
        """
        self._fit(X)
        return self

    def fit_transform(self, X, y=None):
        """`fit`, then the latents (n_samples, n_components) of the same fields."""
        return self._fit(X)

    def _fit(self, X):
        encoder, latents = self._fit_encoder(X)
        decoder = self._new_decoder(encoder)
        if decoder is not None:
            decoder.fit(np.asarray(latents), X)
        self._assemble(X, encoder, decoder)
        return latents

    def _fit_encoder(self, X):
        """A fitted copy of the encoder, and the latents of X."""
        for name, part, method in (("encoder", self.encoder, "fit_transform"),
                                   ("decoder", self.decoder, "predict")):
            if part is not None and (isinstance(part, type) or not hasattr(part, method)):
                raise TypeError(f"{name} must be an estimator with {method}, got {part!r}")
        if self.decoder is None and not hasattr(self.encoder, "inverse_transform"):
            raise TypeError(
                f"decoder is None and {type(self.encoder).__name__} has no inverse_transform; "
                "give a decoder such as RANDSMAPDecoder()"
            )
        encoder = clone(self.encoder)
        return encoder, encoder.fit_transform(X)

    def _new_decoder(self, encoder):
        """The decoder to fit on the latents of a fitted encoder."""
        decoder = None if self.decoder is None else clone(self.decoder)
        if getattr(decoder, "encoder", encoder) is None:  # KNNDecoder takes the model's
            decoder.encoder = encoder
        return decoder

    def _assemble(self, X, encoder, decoder):
        """Become the model of a fitted encoder and a fitted decoder of the fields X."""
        validate_data(self, X, reset=True, min_samples=2)
        self.encoder_, self.decoder_ = encoder, decoder
        return self

    def transform(self, X):
        """Latents (n_samples, n_components) of fields X (n_samples, n_cells)."""
        check_fitted(self, "encoder_")
        return self.encoder_.transform(X)

    def inverse_transform(self, X, *, invariant_values=None, cells=None, out=None):
        """Fields at latents.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_components)
        invariant_values, cells, out : optional
            Handed to the decoder's `predict` (or the encoder's `inverse_transform`), if given: values
            of the invariants for these rows, only these cells of the fields, and where to put them.

        Returns
        -------
        ndarray of shape (n_samples, n_cells)
            (n_samples, k) for k cells.

        Raises
        ------
        sklearn.exceptions.NotFittedError
            Before `fit`.
        ValueError, TypeError
            As the decoder raises.
        """
        check_fitted(self, "encoder_")
        options = {"invariant_values": invariant_values, "cells": cells, "out": out}
        options = {name: value for name, value in options.items() if value is not None}
        if self.decoder_ is None:
            return self.encoder_.inverse_transform(X, **options)
        # the decoder was fitted on latents without names, whatever the encoder's output is set to
        return self.decoder_.predict(np.asarray(X) if hasattr(X, "columns") else X, **options)

    def reconstruct(self, X):
        """Fields X (n_samples, n_cells) encoded and decoded: what the model makes of them."""
        return self.inverse_transform(self.transform(X))

    def score(self, X, y=None):
        """Minus the mean relative L2 error of the reconstructed fields (higher is better, 0 at best)."""
        return -float(relative_l2(X, self.reconstruct(X)).mean())

    def save(self, path):
        """Write the fitted model to the file `path`, whole or not at all; `randsmap.load` reads it.

        Parameters
        ----------
        path : path
            Taken as it is; ``.npz`` is customary.

        Raises
        ------
        sklearn.exceptions.NotFittedError
            Before `fit`.
        TypeError
            If a part cannot be stored without a pickle (scikit-learn's or your own); nothing is
            written.
        OSError
            If the file cannot be written.

        See Also
        --------
        randsmap.persistence : What a model file can hold.
        """
        from randsmap.persistence import save

        save(self, path)

    def _restore(self):
        if self.decoder_ is None and not hasattr(self.encoder_, "inverse_transform"):
            raise ValueError(f"no decoder, and {type(self.encoder_).__name__} has no inverse_transform")

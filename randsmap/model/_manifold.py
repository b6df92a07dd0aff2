"""Encoder and decoder as one model of a solution manifold."""

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import _num_samples

from randsmap._estimator import Count, Regressor, Transformer, check_fitted, validate_data
from randsmap._mmap import Snapshots, is_large, mapped_rows, row_blocks
from randsmap._validation import check_count
from randsmap.encoders import DiffusionMaps
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
    encoder_samples : int, optional
        Fit the encoder to that many of the fields only, chosen with a fixed seed; `transform` then
        gives the latents of all, to which the decoder is fitted. None, or as many as there are fields
        and more: all. For `DiffusionMaps`, which keeps its training fields and works with all pairs of
        them, the way to many fields.

    Attributes
    ----------
    encoder_, decoder_ : fitted copies of the two (decoder_ is None without a decoder)
    n_features_in_ : int
        Number of cells of a field.

    Notes
    -----
    What holds for decoded fields is what the decoder guarantees; with `RANDSMAPDecoder` every field
    satisfies its invariants to round-off, wherever the latent point lies.

    Fields may be a memory-mapped array larger than memory (`numpy.load` with mmap_mode="r"). From 64
    MB, `RANDSMAPDecoder` and `RFNNDecoder` read it by blocks, as do `transform`, `score` and the metrics; `out`
    may be one too. `DiffusionMaps` needs `encoder_samples`, or, for few fields of many cells, leaves
    the fields in their file. Other encoders and decoders take it as they take any array.

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

    def __init__(self, encoder, decoder=None, *, encoder_samples=None):
        self.encoder = encoder
        self.decoder = decoder
        self.encoder_samples = encoder_samples

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
        for name, part, method in (("encoder", self.encoder, "fit_transform"), ("decoder", self.decoder, "predict")):
            if part is not None and (isinstance(part, type) or not hasattr(part, method)):
                raise TypeError(f"{name} must be an estimator with {method}, got {part!r}")
        if self.decoder is None and not hasattr(self.encoder, "inverse_transform"):
            raise TypeError(
                f"decoder is None and {type(self.encoder).__name__} has no inverse_transform; "
                "give a decoder such as RANDSMAPDecoder()"
            )
        encoder = clone(self.encoder)
        return encoder, self._fit_part(encoder, X)

    def _new_decoder(self, encoder):
        """The decoder to fit on the latents of a fitted encoder."""
        decoder = None if self.decoder is None else clone(self.decoder)
        if getattr(decoder, "encoder", encoder) is None:  # KNNDecoder takes the model's
            decoder.encoder = encoder
        return decoder

    def _assemble(self, X, encoder, decoder):
        """Become the model of a fitted encoder and a fitted decoder of the fields X."""
        if is_large(X):  # its values have been checked by those who read them
            validate_data(self, X[:2], reset=True)
        else:
            validate_data(self, X, reset=True, min_samples=2)
        self.encoder_, self.decoder_ = encoder, decoder
        return self

    def _fit_part(self, encoder, X):
        """Fit the encoder, to a part of the fields if so asked; latents of all fields."""
        if self.encoder_samples is None:
            return encoder.fit_transform(X)
        count = check_count(self.encoder_samples, "encoder_samples", low=2)
        n = _num_samples(X)
        if count >= n:
            return encoder.fit_transform(X)
        chosen = np.sort(np.random.default_rng(0).choice(n, count, replace=False))
        encoder.fit(Snapshots(X, "X").take(chosen) if is_large(X) else _safe_indexing(X, chosen))
        return _encoded(encoder, X)

    def transform(self, X):
        """Latents (n_samples, n_components) of fields X (n_samples, n_cells)."""
        check_fitted(self, "encoder_")
        return _encoded(self.encoder_, X)

    def inverse_transform(self, X, *, invariant_values=None, cells=None, out=None):
        """Fields at latents.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_components)
        invariant_values, cells, out : optional
            Handed to the decoder's `predict` (or the encoder's `inverse_transform`), if given: values
            of the invariants for these rows, only these cells of the fields, and where to put them:
            `numpy.lib.format.open_memmap` makes an array that is larger than memory.

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

    def reconstruct(self, X, *, out=None):
        """Fields X (n_samples, n_cells) encoded and decoded: what the model makes of them.

        `out` as in `inverse_transform`.
        """
        return self.inverse_transform(self.transform(X), out=out)

    def score(self, X, y=None):
        """Minus the mean relative L2 error of the reconstructed fields (higher is better, 0 at best)."""
        if is_large(X):
            latents = self.transform(X)
            errors = [
                relative_l2(F, self.inverse_transform(latents[a : a + len(F)]))
                for a, F in row_blocks(Snapshots(X, "X"), "errors")
            ]
            return -float(np.concatenate(errors).mean())
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
        from randsmap.persistence._model_files import save

        save(self, path)

    def _restore(self):
        if self.decoder_ is None and not hasattr(self.encoder_, "inverse_transform"):
            raise ValueError(f"no decoder, and {type(self.encoder_).__name__} has no inverse_transform")


def _encoded(encoder, X):
    if isinstance(encoder, DiffusionMaps):  # reads by blocks itself
        return encoder.transform(X)
    return mapped_rows(encoder.transform, X)

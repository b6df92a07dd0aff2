"""Encoder and decoder as one model of a solution manifold."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.utils.metaestimators import available_if

from randsmap._interface.fields import (
    FIELD_STATE,
    FieldInputMixin,
    field_rows,
    flattened,
    output,
    reshape_for,
    with_coordinates_of,
)
from randsmap._interface.state import Count, Parameter, Part, available_unless, check_fitted, validate_data
from randsmap._interface.validation import (
    check_cells,
    check_choice,
    check_count,
    check_matrix,
    check_number,
    refuse_dask,
    refuse_missing,
)
from randsmap._linalg.rows import Snapshots, is_large, mapped_rows, row_blocks
from randsmap.decoders import MAX_BYTES, FrozenModel, RFNNDecoder
from randsmap.encoders import DiffusionMaps
from randsmap.maps.extrapolation import why_no_leverage
from randsmap.metrics import field_norms, median_norm, scaled_l2

__all__ = ["ManifoldModel"]


def _inverse_has(method: str, inverse: str) -> Callable[[ManifoldModel], bool]:
    """Whether the part that decodes has the method: the decoder, or the encoder, where it is called `inverse`."""

    def check(model: ManifoldModel) -> bool:
        if model.decoder is not None:
            return hasattr(model.decoder, method)
        return hasattr(model.encoder, inverse)

    return check


_decodes = available_if(_inverse_has("predict", "inverse_transform"))


class ManifoldModel(FieldInputMixin, TransformerMixin, BaseEstimator):
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
    consistency : int, default=0
        Steps of `inverse_transform` towards a field whose own latents are those asked for, unless it is told
        otherwise; `autotune(consistency="auto")` chooses it. Derivatives are those of the decoder, without steps.

    Attributes
    ----------
    encoder_, decoder_ : fitted copies of the two (decoder_ is None without a decoder)
    n_features_in_ : int
        Number of cells of a field.
    field_shape_ : tuple of int
        Shape of a field: (n_cells,) of rows.

    Raises
    ------
    ValueError, TypeError
        From `fit`: the constructor stores its arguments as they are.

    Notes
    -----
    What holds for decoded fields is what the decoder guarantees; with `RANDSMAPDecoder` every field
    satisfies its invariants to round-off, wherever the latent point lies.

    Fields may be a memory-mapped array larger than memory (`numpy.load` with mmap_mode="r"). From 64
    MB, `POD` and the package's decoders read it by blocks, as do `transform`, `score` and the metrics; `out`
    may be one too. `DiffusionMaps` and `KNNDecoder` copy them unless they are told not to
    (`copy=False`), `DiffusionMaps` also unless it gets `encoder_samples`. Encoders and decoders of others take it as
    they take any array.

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
    >>> decoder = randsmap.RANDSMAPDecoder(randsmap.SigmoidFeatures(), random_state=0)
    >>> model = randsmap.ManifoldModel(encoder, decoder).fit(bumps)
    >>> fields = model.inverse_transform([[0.1], [50.0]])
    >>> bool(abs(fields.sum(axis=1) - 1).max() < 1e-14)
    True
    """

    _state = {
        "n_features_in_": Count("M"),
        "encoder_": Part("transform", n_in="M", n_out="d"),
        "decoder_": Part("predict", n_in="d", n_out="M", optional=True),
        "_consistency": Parameter(int, low=0, words=(None,)),
        **FIELD_STATE,
    }

    _former_parameters = {"consistency": 0}
    consistency = _consistency = 0  # in pickles of before

    encoder_: Any
    decoder_: Any
    n_features_in_: int

    def __init__(
        self, encoder: Any, decoder: Any = None, *, encoder_samples: int | None = None, consistency: int = 0
    ) -> None:
        self.encoder = encoder
        self.decoder = decoder
        self.encoder_samples = encoder_samples
        self.consistency = consistency

    def fit(self, X: ArrayLike, y: Any = None) -> ManifoldModel:
        """Fit the encoder on the fields, then the decoder on their latents.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_cells) or (n_samples, *shape)
            Fields, one a row, or of any shape, in which they come back: the package's own encoder and decoder are
            fitted to them as they are, others to rows. Of an xarray DataArray, whose first axis counts samples,
            they come back with its names and coordinates.
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

    def fit_transform(self, X: ArrayLike, y: Any = None) -> NDArray[np.float64]:
        """`fit`, then the latents of the same fields.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_cells)
            Fields, one a row.
        y : ignored

        Returns
        -------
        ndarray (n_samples, n_components)

        Raises
        ------
        ValueError, TypeError
            As `fit`.
        """
        return self._fit(X)

    def _fit(self, X):
        encoder, latents = self._fit_encoder(X)
        decoder = self._new_decoder(encoder)
        if decoder is not None:
            decoder.fit(np.asarray(latents), reshape_for(decoder, *flattened(X, "X")))
        self._assemble(X, encoder, decoder)
        return latents

    def _fit_encoder(self, X):
        """A fitted copy of the encoder, and the latents of X."""
        refuse_dask(X, "X")
        check_count(self.consistency, "consistency", low=0)
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
        X, layout = flattened(X, "X")
        if is_large(X):  # its values have been checked by those who read them
            validate_data(self, X[:2], reset=True)
        else:
            validate_data(self, X, reset=True, min_samples=2)
        self._keep_layout(layout)
        self.encoder_, self.decoder_ = encoder, decoder
        self._consistency = check_count(self.consistency, "consistency", low=0)
        return self

    def _fit_part(self, encoder, X):
        """Fit the encoder, to a part of the fields if so asked; latents of all fields."""
        X, layout = flattened(X, "X")
        if self.encoder_samples is None:
            return encoder.fit_transform(reshape_for(encoder, X, layout))
        count = check_count(self.encoder_samples, "encoder_samples", low=2)
        n = X.shape[0] if hasattr(X, "shape") else len(X)
        if count >= n:
            return encoder.fit_transform(reshape_for(encoder, X, layout))
        chosen = np.sort(np.random.default_rng(0).choice(n, count, replace=False))
        encoder.fit(reshape_for(encoder, Snapshots(X, "X")[chosen] if is_large(X) else _rows(X, chosen), layout))
        return _encoded(encoder, X)

    def transform(self, X: ArrayLike) -> NDArray[np.float64]:
        """Latents of fields.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_cells) or (n_samples, *field_shape_)
            Fields; there may be no rows.

        Returns
        -------
        ndarray (n_samples, n_components)

        Raises
        ------
        sklearn.exceptions.NotFittedError
            Before `fit`.
        ValueError, TypeError
            If X is not finite, of another width or a dask array, or as the encoder raises.
        """
        check_fitted(self, "encoder_")
        refuse_dask(X, "X")
        X = field_rows(self, X)
        if _has_no_rows(X) and self._n_features_out is not None:  # scikit-learn's encoders want some
            return np.empty((len(validate_data(self, X, reset=False)), self._n_features_out))
        return _encoded(self.encoder_, X)

    @property
    def _n_features_out(self) -> int | None:
        return getattr(self.decoder_, "n_features_in_", getattr(self.encoder_, "_n_features_out", None))

    @available_if(lambda model: hasattr(model.encoder, "get_feature_names_out"))
    def get_feature_names_out(self, input_features: ArrayLike | None = None) -> NDArray[np.object_]:
        """Names of the latents, as the encoder has them; `set_output` puts them into data frames.

        Parameters
        ----------
        input_features : array-like of str, or None
            Handed to the encoder.

        Returns
        -------
        ndarray of str (n_components,)

        Raises
        ------
        sklearn.exceptions.NotFittedError
            Before `fit`.
        AttributeError
            If the encoder names nothing.
        """
        check_fitted(self, "encoder_")
        return self.encoder_.get_feature_names_out(input_features)

    @_decodes
    def inverse_transform(
        self,
        X: ArrayLike,
        *,
        consistency: int | None = None,
        invariant_values: ArrayLike | None = None,
        cells: ArrayLike | None = None,
        out: NDArray[np.float64] | None = None,
    ) -> NDArray[np.float64]:
        """Fields at latents.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_components)
            May have no rows.
        consistency : int or None
            Steps towards a field whose own latents are X: decode, encode, and move the point that is decoded by what
            the latents miss (see Notes). Each costs a decoding and an encoding; 1 to 3 are worth trying. None: those
            of the model, 0 unless it was given others.
        invariant_values, cells, out : optional
            Handed to the decoder's `predict` (or the encoder's `inverse_transform`), if given: values
            of the invariants for these rows, only these cells of the fields, and where to put them:
            `numpy.lib.format.open_memmap` makes an array that is larger than memory.

        Returns
        -------
        ndarray of shape (n_samples, n_cells)
            (n_samples, k) for k cells; otherwise (n_samples, *field_shape_), as a DataArray if the fields of `fit` were
            one. `out` if given.

        Raises
        ------
        sklearn.exceptions.NotFittedError
            Before `fit`.
        ValueError, TypeError
            If consistency is no integer >= 0, if invariant_values are given and the decoder has no invariants, if it
            does not take one of the other options, or as it raises.

        Notes
        -----
        A decoder fitted to (X, y) need not return a field that the encoder maps to X again. The fixed-point
        iteration y_0 = x, y_{j+1} = y_j + t (x - encode(decode(y_j))) looks for the point where it does; a row's
        step is taken only if its residual |x - encode(decode(y))| falls, else its t, at first 1, is halved. Every
        iterate is an output of the decoder, so its invariants and bounds hold.
        """
        options = {"invariant_values": invariant_values, "cells": cells, "out": out}
        given = {name: value for name, value in options.items() if value is not None}
        X, decode = _latents(X), self._decoding("predict", "inverse_transform", given)
        consistency = self._consistency if consistency is None else check_count(consistency, "consistency", low=0)
        if _has_no_rows(X) and self._n_features_out is not None:  # nor do scikit-learn's regressors take none
            check_matrix(X, "X", n_columns=self._n_features_out, min_rows=0)
            M, shape = self.n_features_in_, self.field_shape_
            shape = shape if cells is None else (len(check_cells(cells, M, shape)),)
            return self._labelled(output(out, None, (0, *shape)), cells, out)
        if consistency:
            values = {name: given[name] for name in ("invariant_values",) if name in given}
            X = self._consistent(check_matrix(X, "X"), lambda Y: decode(Y, **values), consistency)
        fields = decode(X, **given)
        return self._labelled(self._as_given(fields), cells, out) if cells is None and out is None else fields

    def _as_given(self, fields: Any) -> Any:
        """Whole fields, or their tangents, in the shape of those of `fit`: what is not ours decodes to rows."""
        shape = self.field_shape_
        return fields if shape is None else np.asarray(fields).reshape(len(fields), *shape)

    def _consistent(
        self, X: NDArray[np.float64], decode: Callable[[Any], NDArray[np.float64]], steps: int
    ) -> NDArray[np.float64]:
        """The points y (n, d) that decode to fields whose latents are nearest X, after so many steps."""

        def missed(Y: NDArray[np.float64]) -> NDArray[np.float64]:
            return X - np.asarray(_encoded(self.encoder_, flattened(decode(Y), "the fields")[0]))

        Y, step = X, np.ones((len(X), 1))
        residuals = missed(Y)
        for _ in range(steps):
            trial = Y + step * residuals
            new = missed(trial)
            closer = np.linalg.norm(new, axis=1) < np.linalg.norm(residuals, axis=1)
            Y = np.where(closer[:, None], trial, Y)
            residuals = np.where(closer[:, None], new, residuals)
            step = np.where(closer[:, None], step, step / 2)
        return Y

    def freeze(
        self,
        *,
        precision: str = "float64",
        tol: float | None = None,
        kind: str = "features",
        latents: ArrayLike | None = None,
        max_bytes: int = MAX_BYTES,
    ) -> FrozenModel:
        """Encoder and decoder as one immutable block of memory, which works without Python.

        Parameters
        ----------
        precision : {"float64", "float32"}, default="float64"
            Of what is stored: coefficients, and the training fields that `DiffusionMaps` measures distances to.
        tol : float or None
            Of the decoder as in its own `freeze`. `DiffusionMaps`, too: distances in as few principal components of
            the training fields as give the latents of these to `tol` of the largest. None: nothing is left out.
        kind, latents, max_bytes
            As in the decoder's own `freeze`.

        Returns
        -------
        FrozenModel

        Raises
        ------
        sklearn.exceptions.NotFittedError
            Before `fit`.
        TypeError
            If the encoder is not a `POD` or a `DiffusionMaps` of all pairs, or the decoder cannot be frozen.
        ValueError
            As the decoder's own `freeze`.

        Examples
        --------
        >>> import numpy as np, randsmap
        >>> x = np.linspace(0, 1, 50)
        >>> bumps = np.exp(-((x - np.linspace(0.3, 0.7, 40)[:, None]) / 0.1) ** 2)
        >>> model = randsmap.ManifoldModel(randsmap.DiffusionMaps(1), randsmap.KernelDecoder()).fit(bumps)
        >>> model.freeze(precision="float32", tol=1e-4)
        FrozenModel(n_components=1, n_cells=50, kind='features', precision='float32')
        """
        check_fitted(self, "encoder_")
        parts = self.encoder_, self.encoder_ if self.decoder_ is None else self.decoder_
        for part, method in zip(parts, ("frozen_encoder", "freeze")):
            if not hasattr(part, method):
                raise TypeError(
                    f"a model with a {type(part).__name__} cannot be frozen: C knows DiffusionMaps, POD, and "
                    "decoders that are linear in feature maps and kernels of the package's own"
                )
        check_choice(precision, "precision", ("float64", "float32"))
        if tol is not None:
            check_number(tol, "tol", low=0, strict_low=True)
        encoder = parts[0].frozen_encoder(precision, tol)
        return parts[1].freeze(
            precision=precision, tol=tol, kind=kind, latents=latents, max_bytes=max_bytes, encoder=encoder
        )

    @available_if(_inverse_has("jacobian", "inverse_jacobian"))
    def jacobian(self, X: ArrayLike, *, cells: ArrayLike | None = None) -> NDArray[np.float64]:
        """Derivatives of `inverse_transform` with respect to the latents.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_components)
            Latents.
        cells : array-like of int (k,) or of bool (n_cells,), or None
            Only these cells, as in `inverse_transform`.

        Returns
        -------
        ndarray (n_samples, *field_shape_, n_components)
            (n_samples, k, n_components) of k cells.

        Raises
        ------
        sklearn.exceptions.NotFittedError, ValueError, TypeError
            As the decoder's `jacobian` (POD: `inverse_jacobian`).
        AttributeError
            If it has no derivatives.
        """
        J = self._derivative("jacobian", cells)(_latents(X))
        shape = self.field_shape_
        return J if shape is None or cells is not None else J.reshape(len(J), *shape, J.shape[-1])

    @available_if(_inverse_has("jvp", "inverse_jvp"))
    def jvp(self, X: ArrayLike, V: ArrayLike, *, cells: ArrayLike | None = None) -> NDArray[np.float64]:
        """Products J v of the Jacobians of `inverse_transform` at latents X with vectors of latents.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_components)
        V : array-like of shape (n_samples, n_components) or (n_components,)
            A vector for each row, or one for all.
        cells : optional
            As for `inverse_transform`.

        Returns
        -------
        ndarray of shape (n_samples, n_cells)
            How the fields change as the latents move along v; (n_samples, k) for k cells.

        Raises
        ------
        As the decoder's `jvp` (POD: `inverse_jvp`).

        See Also
        --------
        DiffusionMaps.jvp : The other direction, from tangents of the fields to those of the latents
            (``model.encoder_.jvp``).
        """
        tangents = self._derivative("jvp", cells)(_latents(X), V)
        return tangents if cells is not None else self._as_given(tangents)

    @available_if(_inverse_has("vjp", "inverse_vjp"))
    def vjp(self, X: ArrayLike, U: ArrayLike, *, cells: ArrayLike | None = None) -> NDArray[np.float64]:
        """Products J^T u of the transposed Jacobians of `inverse_transform` at latents X with vectors of fields.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_components)
        U : array-like of shape (n_samples, n_cells) or (n_cells,)
            A vector for each row, or one for all; k in place of n_cells for k cells.
        cells : optional
            As for `inverse_transform`.

        Returns
        -------
        ndarray of shape (n_samples, n_components)
            The gradients of u . f in the latents.

        Raises
        ------
        As the decoder's `vjp` (POD: `inverse_vjp`).
        """
        return self._derivative("vjp", cells)(_latents(X), self._vectors(U))

    def _why_no_leverage(self) -> str | None:
        if self.decoder is not None:
            return why_no_leverage(self.decoder)
        name = type(self.encoder).__name__
        return (
            f"the model has no decoder, whose leverage it would be: {name} decodes by itself. Give it a KernelDecoder()"
        )

    def _known_leverage(self) -> Any:
        """The decoder, which has a leverage."""
        check_fitted(self, "encoder_")
        reason = self._why_no_leverage()
        if reason is not None:
            raise AttributeError(reason)
        return self.decoder_

    @available_unless(_why_no_leverage)
    def leverage(self, X: ArrayLike) -> NDArray[np.float64]:
        """How far latents are from those of the training fields: the decoder's `leverage`.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_components)
            Latents.

        Returns
        -------
        ndarray (n_samples,)
            To be compared with ``leverage_limit_``.

        Raises
        ------
        sklearn.exceptions.NotFittedError, ValueError, TypeError
            As the decoder's `leverage`.
        AttributeError
            If the decoder has none.
        """
        return self._known_leverage().leverage(_latents(X))

    @property
    def leverage_(self) -> float:
        """The decoder's `leverage_`: the largest at the training fields."""
        return self._known_leverage().leverage_

    @property
    def leverage_limit_(self) -> float:
        """The decoder's `leverage_limit_`: beyond it fields may be far off."""
        return self._known_leverage().leverage_limit_

    def _derivative(self, method: str, cells: ArrayLike | None) -> Callable[..., NDArray[np.float64]]:
        given = {} if cells is None else {"cells": cells}
        return functools.partial(self._decoding(method, f"inverse_{method}", given), **given)

    def _decoding(self, method: str, inverse: str, given: dict[str, Any]) -> Callable[..., NDArray[np.float64]]:
        """The decoder's method, or the encoder's for the inverse, if it takes the options given."""
        check_fitted(self, "encoder_")
        part, name = (self.encoder_, inverse) if self.decoder_ is None else (self.decoder_, method)
        function = getattr(part, name)
        if given:
            taken = _keywords(getattr(function, "__func__", function))
            for option in given:
                if option not in taken and "**" not in taken:
                    error = ValueError if option == "invariant_values" else TypeError
                    raise error(f"{option} given, but {type(part).__name__}.{name} has no such argument")
            if "invariant_values" in given and _without_invariants(part):
                raise ValueError(
                    f"invariant_values given, but this {type(part).__name__} has no invariants; "
                    "RANDSMAPDecoder has, and so have others fitted with invariants="
                )
        return function

    @_decodes
    def reconstruct(self, X: ArrayLike, *, out: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
        """Fields encoded and decoded: what the model makes of them.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_cells)
            Fields.
        out : ndarray of shape (n_samples, n_cells), float64, or None
            As in `inverse_transform`.

        Returns
        -------
        ndarray (n_samples, n_cells)
            (n_samples, *field_shape_) of fields of a shape. A DataArray comes back with its own coordinates, those of
            the samples too.

        Raises
        ------
        sklearn.exceptions.NotFittedError, ValueError, TypeError
            As `transform` and `inverse_transform`.
        """
        fields = self.inverse_transform(self.transform(X), out=out)
        return with_coordinates_of(X, fields) if out is None else fields

    @_decodes
    def score(self, X: ArrayLike, y: Any = None) -> float:
        """Minus the mean of `metrics.scaled_l2` over the reconstructed fields (higher is better, 0 at best).

        That is their relative L2 error, but for empty and tiny fields. A decoder's own `score` is another measure:
        scikit-learn's R^2 of the fields at given latents.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_cells)
            Fields.
        y : ignored

        Returns
        -------
        float

        Raises
        ------
        sklearn.exceptions.NotFittedError, ValueError, TypeError
            As `reconstruct`.
        """
        X = field_rows(self, X)
        if is_large(X):
            latents, usual = self.transform(X), median_norm(field_norms(X))
            errors = [
                scaled_l2(F, self.inverse_transform(latents[a : a + len(F)]), reference=usual)
                for a, F in row_blocks(Snapshots(X, "X"), "errors")
            ]
            return -float(np.concatenate(errors).mean())
        return -float(scaled_l2(X, self.reconstruct(X)).mean())

    def save(self, path: str | os.PathLike[str]) -> None:
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


def _latents(X):
    """Latents as an array: parts are fitted on latents without names, whatever the output is set to."""
    if hasattr(X, "columns"):
        X = np.asarray(X)
        refuse_missing(X, "X")
    return X


def _has_no_rows(X):
    shape = getattr(X, "shape", ())
    return len(shape) == 2 and shape[0] == 0


def _rows(X, chosen):
    if hasattr(X, "iloc"):
        return X.iloc[chosen]
    return (X if hasattr(X, "shape") else np.asarray(X))[chosen]


@functools.lru_cache(maxsize=64)  # a signature takes longer than a row of fields
def _keywords(function):
    """Names of the arguments of a function; "**" if it takes any."""
    parameters = inspect.signature(function).parameters.values()
    return {"**" if p.kind is p.VAR_KEYWORD else p.name for p in parameters}


def _without_invariants(part):
    matrix = getattr(part, "invariant_matrix_", None)
    return isinstance(part, RFNNDecoder) if matrix is None else not matrix.shape[1]

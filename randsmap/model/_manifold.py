"""Encoder and decoder as one model of a solution manifold."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.utils.validation import has_fit_parameter

from randsmap._interface import arrays
from randsmap._interface.callers import warn_caller
from randsmap._interface.fields import FIELD_STATE, FieldOutputMixin, field_rows, flattened, named, output, reshape_for
from randsmap._interface.parameters import check_count, check_parameters, estimator, parameter
from randsmap._interface.state import Array, Count, Part, check_fitted
from randsmap._kernels.linear_map import MOST_STEPS
from randsmap._linalg.rows import Rows, by_blocks, taken
from randsmap._parallel import tile_rows
from randsmap.decoders import MAX_BYTES, FrozenModel, KNNDecoder, RFNNDecoder
from randsmap.decoders._base import available_if, require, why_not
from randsmap.invariants import norm_weights, own_values
from randsmap.maps.error_bar import ErrorBar, with_error
from randsmap.maps.frozen import OTHERWISE, freeze
from randsmap.maps.linear_map import nearest_latents
from randsmap.model._base import HeldOutErrors, Model, ReconstructionMixin, model_texts

_Values = NDArray[np.float64]


def _decoding_part(model: ManifoldModel, method: str, *, fitted: bool = False) -> tuple[Any, str]:
    """The part that decodes, and what it calls the method: an encoder that decodes has `inverse_jacobian` ..."""
    encoder, decoder = (model.encoder_, model.decoder_) if fitted else (model.encoder, model.decoder)
    if decoder is not None:
        return decoder, method
    return encoder, "inverse_transform" if method == "predict" else f"inverse_{method}"


def _available(method: str) -> Callable[[Any], Any]:
    return available_if(lambda model: require(*_decoding_part(model, method)))


@model_texts
@estimator
class ManifoldModel(ReconstructionMixin, Model):
    """Encoder and decoder together: fields to latent coordinates and back.

    Use it to fit, save and freeze both together; `autotune` selects them. `ShiftRegistration` and
    `QuantileRegistration` wrap it for fields that move, and `ParametricModel` for fields at parameters or times.

    Parameters
    ----------
    encoder
        From fields (n, M) to latents (n, d): `DiffusionMaps`, `Isomap`, `POD` or any scikit-learn transformer. Both are
        cloned.
    decoder
        From latents to fields: `RANDSMAPDecoder`, `AutoDecoder` or any multi-output scikit-learn regressor. None uses
        the encoder's own `inverse_transform`.
    encoder_samples
        Fit the encoder to a random subset of this many fields, drawn with a fixed seed (None: to all), and the decoder
        to all fields. Use it for many fields, because `DiffusionMaps` needs all pairs of its training fields.
    consistency
        Default number of consistency steps of `inverse_transform`. `autotune(consistency="auto")` chooses it. The
        derivatives are those of the decoder, without steps.
    projection
        Default number of steps of `transform` to the latents whose decoded field is nearest. Steps need derivatives of
        the decoder, which is fitted to latents without steps. `autotune(projection="auto")` chooses it.

    Attributes
    ----------
    encoder_, decoder_ : estimator
        The fitted copies; decoder_ is None without a decoder.
    n_features_in_ : int
        Number M of cells of a field.
    field_shape_ : tuple of int
        Shape of a field: (M,) for rows.
    held_out_ : HeldOutErrors or None
        Cross-validation errors of `autotune` or `randsmap fit`: `rows`, `errors`, `mean`, `standard_error`, `in_words`,
        and their origin (`groups`, `n_snapshots`, `n_turns`, `n_groups`, `along_trajectories`). None after `fit`.
    training_latents_ : ndarray (n, d) or None
        Latents of the training fields; None with a decoder, which stores them.

    Notes
    -----
    A model has one norm of fields: `cell_weights` of its decoder or its encoder hold for the other part, for `score`,
    and for the functions that measure errors of a model.

    Fields and `out` may be memory-mapped arrays larger than memory (docs/large.md), which the package's own parts read
    by blocks. `DiffusionMaps` without `encoder_samples` and `KNNDecoder` copy them unless `copy=False`.

    References
    ----------
    Paper, Sec. 2: the encoder Psi_N and the decoder Psi_N^-1.

    Examples
    --------
    {bumps}
    >>> encoder = randsmap.DiffusionMaps(n_components=1)
    >>> decoder = randsmap.RANDSMAPDecoder(randsmap.SigmoidFeatures(), random_state=0)
    >>> model = randsmap.ManifoldModel(encoder, decoder).fit(bumps)
    >>> fields = model.inverse_transform([[0.1], [50.0]])
    >>> bool(abs(fields.sum(axis=1) - 1).max() < 1e-14)
    True
    """

    encoder: Any = parameter(kw_only=False, shown="transformer")
    decoder: Any = parameter(default=None, kw_only=False, shown="regressor or None")
    encoder_samples: int | None = parameter(int, default=None, low=2, words=(None,))
    consistency: int = parameter(int, default=0, low=0, high=MOST_STEPS)
    projection: int = parameter(int, default=0, low=0, high=MOST_STEPS)

    _state = {
        "n_features_in_": Count("M"),
        "encoder_": Part("transform", n_in="M", n_out="d"),
        "decoder_": Part("predict", n_in="d", n_out="M", optional=True),
        "training_latents_": Array("n", "d", optional=True),
        "held_out_": Part(HeldOutErrors, optional=True),
        "calibrated_": Part(ErrorBar, optional=True),
        **FIELD_STATE,
    }

    leverage_from = "decoder"
    no_leverage = (
        "leverage is that of a decoder, and the model has none: {0.encoder.__class__.__name__} decodes by itself. "
        "Give it a KernelDecoder()"
    )

    def fit(self, X: ArrayLike, y: Any = None) -> ManifoldModel:
        """Fit the encoder on the fields, then the decoder on their latents.

        {snapshots} {result_of_fit}
        """
        fitted_parts(self, X)
        return self

    def fit_transform(self, X: ArrayLike, y: Any = None) -> _Values:
        """`fit`, then the latents of the same fields.

        {snapshots} {returns_latents} {raises}
        """
        latents = fitted_parts(self, X)
        return self._projected(field_rows(self, X), latents, self.projection) if self.projection else latents

    @available_if(lambda model: model.check_available("partial_fit"))
    def partial_fit(self, X: ArrayLike, y: Any = None) -> ManifoldModel:
        """Fit to one more batch of fields: the encoder to the first batch alone, the decoder to all.

        Parameters
        ----------
        X : array-like (n, M) or (n, *shape)
            The first batch should be like all fields, such as a random sample: its latents fix the decoder's features.
        y : ignored

        {result_of_fit}

        Warns
        -----
        UserWarning
            After `fit`, and of a model from a file, whose decoder keeps no sums: it starts anew.
        """
        if not hasattr(self, "encoder_") or starts_anew(self):
            encoder, latents = fitted_encoder(self, X)
            decoder = decoder_for(self, encoder)
            if hasattr(decoder, "fit_features"):
                decoder.fit_features(np.asarray(latents))
            require(decoder, "partial_fit")
            decoder.partial_fit(np.asarray(latents), reshape_for(decoder, *flattened(X, "X")))
            return assembled(self, X, encoder, decoder)
        rows = field_rows(self, X)
        latents = np.asarray(encoded(self.encoder_, rows))
        self.decoder_.partial_fit(latents, reshape_for(self.decoder_, rows, self._field_shape))
        self.held_out_: HeldOutErrors | None = None
        self.calibrated_ = None
        return self

    def check_available(self, method: str) -> bool:
        """True; AttributeError with the reason if the model cannot have the method."""
        if self.decoder is None:
            raise AttributeError("the encoder, which decodes itself, needs all fields at once")
        return hasattr(self.decoder, "fit_features") or require(self.decoder, method)

    def transform(self, X: ArrayLike, *, projection: int | None = None) -> _Values:
        """Latents of fields.

        {fields} {projection} {returns_latents} {raises}

        Warns
        -----
        UserWarning
            If most fields have about 1000 times the usual mass of the training fields, or a thousandth: they may be in
            other units.

        Notes
        -----
        The encoder need not give the latents whose decoded field is nearest to the given one. Gauss-Newton steps with
        Levenberg's and Marquardt's damping look for them; a row's step is accepted only if its misfit falls.
        """
        check_fitted(self, "encoder_")
        n_steps = self.projection if projection is None else projection
        n_steps = check_count(n_steps, "projection", low=0, high=MOST_STEPS)
        X = field_rows(self, X)
        if self._lacks_rows(X):
            return np.empty((len(arrays.validate_data(self, X, reset=False)), self._n_features_out))
        if not hasattr(self.encoder_, "invariants_"):  # an encoder with invariants warns itself
            self._field_shape.warn_of_units(X)
        latents = encoded(self.encoder_, X)
        return self._projected(X, latents, n_steps) if n_steps else latents

    # the latents that are angles, which no decoder may take for numbers
    angles = property(lambda self: getattr(self.encoder, "angles", ()))

    def _projected(self, X: Any, latents: Any, n_steps: int) -> _Values:
        """Points z (n, d), after projection steps from the latents of X: the decoded fields are nearer to X."""
        (part, decode), (_, jacobian) = (_decoding_part(self, name, fitted=True) for name in ("predict", "jacobian"))
        reason = why_not(part, jacobian)
        if reason is not None:
            raise TypeError(f"projection={n_steps} needs the derivatives of a {type(part).__name__}: {reason}")
        if hasattr(part, "linear_map"):
            nearest = part.linear_map.nearest
        else:
            nearest = functools.partial(nearest_latents, lambda Y, _: getattr(part, decode)(Y), getattr(part, jacobian))
        weights, Y = norm_weights(self.field_shape_, self), np.array(latents, dtype=np.float64, order="C")
        rows = Rows.validated(self, X, reset=False)
        for start, stop, F in rows.blocks(tile_rows((Y.shape[1] + 1) * rows.width), "projection"):
            Y[start:stop] = nearest(F, Y[start:stop], n_steps, weights, *own_values(self, F).values())
        return Y

    @property
    def _n_features_out(self) -> Any:
        return getattr(self.decoder_, "n_features_in_", getattr(self.encoder_, "_n_features_out", None))

    def _lacks_rows(self, X: Any) -> bool:
        """True for a matrix without rows, for which scikit-learn's encoders and regressors raise."""
        shape: tuple[int, ...] = getattr(X, "shape", ())
        return len(shape) == 2 and shape[0] == 0 and self._n_features_out is not None

    @available_if(lambda model: hasattr(model.encoder, "get_feature_names_out"))
    def get_feature_names_out(self, input_features: ArrayLike | None = None) -> NDArray[np.object_]:
        """The encoder's names of the latents, which `set_output` writes into data frames.

        Parameters
        ----------
        input_features : array-like of str, or None
            Passed to the encoder.

        Returns
        -------
        ndarray of str (d,)

        Raises
        ------
        sklearn.exceptions.NotFittedError, AttributeError
            Before `fit`, or if the encoder has no such names.
        """
        check_fitted(self, "encoder_")
        return self.encoder_.get_feature_names_out(input_features)

    @_available("predict")
    def inverse_transform(
        self,
        X: ArrayLike,
        *,
        consistency: int | None = None,
        invariant_values: ArrayLike | None = None,
        cells: ArrayLike | None = None,
        out: _Values | None = None,
        return_error: bool | str = False,
        coverage: float = 0.9,
    ) -> Any:
        """Fields at latents.

        {latents} {consistency} {invariant_values} {cells} {out} {return_error} {returns_fields} {raises}

        Notes
        -----
        The encoder need not map a decoded field to X again. Steps z += t (x - encode(decode(z))) from z = x look for a
        point where it does. A row's step is accepted only if its residual |x - encode(decode(z))| falls; otherwise its
        t, at first 1, is halved.
        """
        arrays.check_samples(X=X, invariant_values=invariant_values)
        decode, given = self._decoding("predict", invariant_values=invariant_values, cells=cells, out=out)
        X = given_latents = arrays.latents_of(X, self.encoder_)
        consistency = self.consistency if consistency is None else consistency
        consistency = check_count(consistency, "consistency", low=0, high=MOST_STEPS)
        if self._lacks_rows(X):
            arrays.as_array(X, "X", (None, self._n_features_out), min_rows=0)
            shape = self.field_shape_ if cells is None else (len(given["cells"]),)
            fields = self._field_shape.labelled(output(out, None, (0, *shape)), cells, out)
            return with_error(fields, self, X, return_error, coverage)
        if consistency:
            # the encoder needs whole fields: `cells` and `out` are for the last decoding
            values = {} if invariant_values is None else {"invariant_values": invariant_values}
            X = self._consistent(arrays.as_array(X, "X"), functools.partial(decode, **values), consistency)
        fields = decode(X, **given)
        if cells is None and out is None:
            fields = self._field_shape.labelled(self._as_given(fields))
        return with_error(fields, self, given_latents, return_error, coverage)

    def _as_given(self, fields: Any) -> Any:
        """Whole fields, or their tangents, in the shape of those of `fit`; other packages' decoders return rows."""
        return np.asarray(fields).reshape(len(fields), *self.field_shape_)

    def _consistent(self, X: _Values, decode: Callable[[Any], _Values], steps: int) -> _Values:
        """Points z (n, d) after consistency steps: the latents of the decoded fields are nearer to X."""

        def missed(Y: _Values) -> _Values:
            F = flattened(decode(Y), "the fields")[0]
            return X - np.asarray(encoded(self.encoder_, named(self.encoder_, F)))

        # one step length for each row: rows far from the manifold do not slow down the others
        Y, step = X, np.ones((len(X), 1))
        residuals = missed(Y)
        for _ in range(steps):
            trial = Y + step * residuals
            new = missed(trial)
            closer = (np.linalg.norm(new, axis=1) < np.linalg.norm(residuals, axis=1))[:, None]
            Y, residuals = np.where(closer, trial, Y), np.where(closer, new, residuals)
            step = np.where(closer, step, step / 2)
        return Y

    def freeze(
        self,
        *,
        precision: str = "float64",
        tol: float | None = None,
        kind: str = "features",
        latents: ArrayLike | None = None,
        max_bytes: int = MAX_BYTES,
        error_bar: bool = False,
        distil: Any = None,
    ) -> FrozenModel:
        """Encoder and decoder as one immutable block of memory, which works without Python; see `FrozenModel`.

        Parameters
        ----------
        precision, tol, kind, latents, max_bytes, error_bar, distil
            As in the decoder's own `freeze`. `precision` is also that of the training fields of `DiffusionMaps` and
            of the fields and path lengths of `Isomap`. For `DiffusionMaps`, the image holds as few principal
            components of the training fields as give the latents to `tol` of the largest.

        Returns
        -------
        FrozenModel

        Raises
        ------
        sklearn.exceptions.NotFittedError, ValueError, TypeError
            As the decoder's own `freeze`, or if the encoder is not a `POD`, an `Isomap` or a `DiffusionMaps` of all
            pairs.
        """
        check_fitted(self, "encoder_")
        parts = self.encoder_, self.encoder_ if self.decoder_ is None else self.decoder_
        for part, method in zip(parts, ("frozen_encoder", "freeze")):
            if not hasattr(part, method) and (distil is None or method != "freeze"):
                alone = ". Its decoder is frozen without the model by decoder_.freeze()"
                raise TypeError(
                    f"a model with a {type(part).__name__} cannot be frozen: C supports DiffusionMaps, Isomap, POD and "
                    "the package's decoders. Models of randsmap fit have only these"
                    f"{alone if hasattr(self.decoder_, 'freeze') else ''}"
                    f"{f'. {OTHERWISE}' if method == 'freeze' else ''}"
                )
        options = {"kind": kind, "latents": latents, "max_bytes": max_bytes, "error_bar": error_bar, "distil": distil}
        found: Any = freeze(parts[1], precision=precision, tol=tol, **options, encoder=self)
        return found

    def frozen_encoder(self, precision: str, tol: float | None) -> dict[str, Any]:
        """The encoder's sections of an image, and what its latents are projected with."""
        norm = {"cell_weights": norm_weights(self.field_shape_, self)}
        return {**self.encoder_.frozen_encoder(precision, tol), **norm, "projection": self.projection}

    @_available("jacobian")
    def jacobian(self, X: ArrayLike, *, cells: ArrayLike | None = None, out: _Values | None = None) -> _Values:
        """Derivatives of `inverse_transform` with respect to the latents.

        {latents} {cells} {out} {returns_jacobian} {raises_derivative}
        """
        derivative, given = self._decoding("jacobian", cells=cells, out=out)
        J = derivative(arrays.latents_of(X, self.encoder_), **given)
        return J if given else J.reshape(len(J), *self.field_shape_, J.shape[-1])

    @_available("jvp")
    def jvp(self, X: ArrayLike, V: ArrayLike, *, cells: ArrayLike | None = None, out: _Values | None = None) -> _Values:
        """Products J v of the Jacobians of `inverse_transform` at latents X with vectors of latents.

        The other direction, tangents of latents from those of fields, is ``model.encoder_.jvp`` of `DiffusionMaps`.

        {latents} {directions} {cells} {out} {returns_jvp} {raises_derivative}
        """
        derivative, given = self._decoding("jvp", cells=cells, out=out)
        arrays.check_beside(X, {"V": V})
        tangents = derivative(arrays.latents_of(X, self.encoder_), arrays.latents_of(V, self.encoder_, "V"), **given)
        return tangents if given else self._as_given(tangents)

    @_available("vjp")
    def vjp(self, X: ArrayLike, U: ArrayLike, *, cells: ArrayLike | None = None, out: _Values | None = None) -> _Values:
        """Products J^T u of the transposed Jacobians of `inverse_transform` at latents X with vectors of fields.

        {latents} {functionals} {cells} {out} {returns_vjp} {raises_derivative}
        """
        derivative, given = self._decoding("vjp", cells=cells, out=out)
        arrays.check_samples(X=X, U=U)
        return derivative(arrays.latents_of(X, self.encoder_), self._field_shape.vectors(U, "U", cells), **given)

    def leverage_points(self, X: Any) -> Any:
        return arrays.latents_of(X, self.encoder_)

    def _decoding(self, method: str, **options: Any) -> tuple[Callable[..., Any], dict[str, Any]]:
        """The method of the part that decodes, and the given options, if the method takes them."""
        check_fitted(self, "encoder_")
        options["cells"] = self._checked_cells(options["cells"])
        part, name = _decoding_part(self, method, fitted=True)
        # estimators of other packages may lack these options
        function, given = getattr(part, name), {key: value for key, value in options.items() if value is not None}
        taken = _keywords(getattr(function, "__func__", function)) if given else set()
        # the part decodes all cells: the chosen ones are copied to `out`
        ours = {"predict": {"cells", "out"}, "vjp": set()}.get(method, {"cells"}) - taken
        for option in given:
            if option not in taken | ours and "**" not in taken:
                error = ValueError if option == "invariant_values" else TypeError
                raise error(f"{option} given, but {type(part).__name__}.{name} has no such argument")
        matrix = getattr(part, "invariant_matrix_", None)
        without_any = isinstance(part, RFNNDecoder) if matrix is None else not matrix.shape[1]
        if "invariant_values" in given and without_any:
            raise ValueError(
                f"invariant_values given, but this {type(part).__name__} has no invariants: fit it with some"
            )
        if isinstance(part, FieldOutputMixin):
            return function, given

        def checked(*rows: Any, **options: Any) -> Any:
            cells, out = (options.pop(name, None) if name in ours else None for name in ("cells", "out"))
            found = arrays.finite_results(
                np.asarray(function(*(arrays.real_numbers(each, "X") for each in rows), **options))
            )
            if cells is not None:
                found = found.reshape(len(found), self._field_shape.n_cells, *found.shape[2:])[:, cells]
            if out is None:
                return found
            out = output(out, rows[0], (len(found), *(self.field_shape_ if cells is None else cells.shape)))
            out[:] = found.reshape(out.shape)
            return out

        return checked, given

    def _restore(self):
        if self.decoder_ is None and not hasattr(self.encoder_, "inverse_transform"):
            raise ValueError(f"no decoder, and {type(self.encoder_).__name__} has no inverse_transform")


def starts_anew(model: ManifoldModel) -> bool:
    """True, with a warning, if a fitted model has no sums to which `partial_fit` could add a batch."""
    if getattr(model.decoder_, "stream", model) is not None:
        return False
    warn_caller("this model's decoder comes from fit or a file, without sums of batches: partial_fit discards it")
    return True


def fitted_parts(model: ManifoldModel, X: Any, groups: ArrayLike | None = None) -> Any:
    """The latents of the fields X, to which the model is fitted; groups are for the search of an `AutoDecoder`."""
    encoder, latents = fitted_encoder(model, X)
    decoder = decoder_for(model, encoder)
    if decoder is not None:
        options = {"groups": groups} if groups is not None and has_fit_parameter(decoder, "groups") else {}
        decoder.fit(np.asarray(latents), reshape_for(decoder, *flattened(X, "X")), **options)
    assembled(model, X, encoder, decoder)
    if decoder is None:
        model.training_latents_ = np.array(latents, dtype=np.float64, order="C")
    return latents


def fitted_encoder(model: ManifoldModel, X: Any) -> tuple[Any, Any]:
    """A copy of the model's encoder that is fitted to the fields X, or to some of them, and the latents of all."""
    count = check_parameters(model)["encoder_samples"]
    for name, part, method in (("encoder", model.encoder, "fit_transform"), ("decoder", model.decoder, "predict")):
        if part is not None and (isinstance(part, type) or not hasattr(part, method)):
            raise TypeError(f"{name} must be an estimator with {method}, got {part!r}")
        if hasattr(part, "_parameters"):  # before it is cloned
            check_parameters(part)
    if model.decoder is None and not hasattr(model.encoder, "inverse_transform"):
        raise TypeError(f"decoder is None and {type(model.encoder).__name__} has no inverse_transform: give a decoder")
    _refuse_angles(model)
    encoder = in_one_norm(clone(model.encoder), model.decoder)
    X, layout = flattened(X, "X")
    if count is None or count >= np.shape(X)[0]:
        return encoder, encoder.fit_transform(reshape_for(encoder, X, layout))
    # the decoder gets the latents of all fields, also those of the subset, as new ones
    encoder.fit(reshape_for(encoder, taken(X, sample_rows(np.shape(X)[0], count), "X"), layout))
    return encoder, encoded(encoder, X)


def sample_rows(n: int, count: int, random_state: int = 0) -> NDArray[np.intp]:
    """Ascending indices of `count` of n rows, at random."""
    return np.sort(np.random.default_rng(random_state).choice(n, count, replace=False))


def sampled(snapshots: Any, count: int, random_state: int = 0) -> tuple[NDArray[np.intp], Any]:
    """The indices of `sample_rows`, to which a model fits its encoder, and these snapshots in their number type."""
    rows, layout = flattened(snapshots, "snapshots")
    chosen = sample_rows(len(rows), count, random_state)
    return chosen, layout.restored(taken(rows, chosen, "snapshots").astype(rows.dtype, copy=False))


def _refuse_angles(model: ManifoldModel) -> None:
    """TypeError if a decoder would take an angle among the latents for a number."""
    if model.decoder is not None and getattr(model.encoder, "angles", None):
        raise TypeError(
            "the first latent of a ShiftRegistration is an angle, but a decoder expects a number: give the "
            "decoder to the model inside, ShiftRegistration(ManifoldModel(encoder, decoder)), which is a model itself"
        )


def decoder_for(model: ManifoldModel, encoder: Any) -> Any:
    """A copy of the model's decoder, not fitted yet: a `KNNDecoder` without an encoder gets this one."""
    _refuse_angles(model)
    decoder = None if model.decoder is None else in_one_norm(clone(model.decoder), encoder)
    arrays.check_parameters_of_columns(
        decoder, arrays.latent_names(encoder), "the latents"
    )  # it is fitted to latents without labels
    if isinstance(decoder, KNNDecoder) and decoder.encoder is None:
        decoder.encoder = encoder
    return decoder


def in_one_norm(part: Any, other: Any) -> Any:
    """An encoder or decoder, with the cell weights of the other if it takes weights and has none."""
    weights = getattr(other, "cell_weights", None)
    if weights is not None and getattr(part, "cell_weights", weights) is None:
        part.cell_weights = weights
    return part


def assembled(model: ManifoldModel, X: Any, encoder: Any, decoder: Any) -> ManifoldModel:
    """The model itself, with an encoder and a decoder that are fitted to the fields X already."""
    rows = field_rows(model, X, reset=True)
    Rows.validated(model, rows, reset=True)  # the parts check the values of large arrays
    model.encoder_, model.decoder_ = encoder, decoder
    for part in (encoder, decoder, getattr(decoder, "best_decoder_", None)):
        if isinstance(part, FieldOutputMixin):  # the part may be fitted to rows
            part._field_shape.metadata = model._field_shape.metadata
    model.held_out_ = model.training_latents_ = model.calibrated_ = None
    return model


def encoded(encoder: Any, X: Any) -> Any:
    """Latents of the fields X, read by blocks where they are in a large file."""
    ours = isinstance(encoder, FieldOutputMixin)  # such encoders read by blocks and check their results
    if ours:
        return encoder.transform(X)
    arrays.real_numbers(X, "X")  # before scikit-learn casts text, dates and values below a mask
    latents = by_blocks(encoder.transform, X)
    arrays.finite_results(np.asarray(latents))
    return latents


@functools.lru_cache(maxsize=64)  # a signature takes longer than a row of fields
def _keywords(function):
    """Names of the arguments of a function; "**" if it takes any."""
    parameters = inspect.signature(function).parameters.values()
    return {"**" if p.kind is p.VAR_KEYWORD else p.name for p in parameters}

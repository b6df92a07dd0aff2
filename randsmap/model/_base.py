"""Bases of the models: errors, leverage of a part, model files, and texts of the documentation."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, TransformerMixin

from randsmap._interface.arrays import as_array, check_beside, check_out, check_samples, latents_of, real_numbers
from randsmap._interface.fields import FieldOutputMixin, field_rows, output
from randsmap._interface.parameters import Parameter
from randsmap._interface.state import Array, immutable, saved
from randsmap._interface.texts import shared_texts
from randsmap._linalg.rows import Rows
from randsmap._linalg.scales import median_norm
from randsmap.decoders._base import available_if, require
from randsmap.decoders._conservative import LeverageOfPart
from randsmap.invariants import norm_weights, own_values
from randsmap.maps.error_bar import ErrorBar, judged_rows
from randsmap.maps.linear_map import jacobian_output
from randsmap.metrics import field_norms, scaled_l2
from randsmap.persistence import save

_Values = NDArray[np.float64]
Errors = Callable[[_Values, _Values], _Values]

_TEXTS = {
    "snapshots": """\
X : array-like (n, M) or (n, *shape)
    Fields, of any shape. Decoded fields have the shape of these and, if X is an xarray DataArray whose first
    axis counts samples, its names and coordinates.
y : ignored""",
    "parameters": """\
parameters : array-like (n, p) or (n,)
    Parameters or times, a row for each field.""",
    "consistency": """\
consistency : int or None
    Number of consistency steps (see Notes); each costs a decoding and an encoding. 1 to 3 are worth trying.
    None: the model's own `consistency`.""",
    "ignored": "y : ignored",
    "raises_derivatives": """\
sklearn.exceptions.NotFittedError, TypeError, ValueError
    If the decoder is not fitted or has no derivatives, or an argument is not as described.""",
    "raises_derivative": """\
AttributeError
    If the part that decodes has no derivatives.
sklearn.exceptions.NotFittedError, ValueError, TypeError
    As `inverse_transform`.""",
}


model_texts = partial(shared_texts, more=_TEXTS)


def relative_errors(fields: Rows, shape: tuple[int, ...], *weights_of: Any) -> partial[_Values]:
    """`metrics.scaled_l2` relative to the usual norm of these fields, in a norm as `norm_weights` finds it."""
    weights = norm_weights(shape, *weights_of)
    return partial(scaled_l2, reference=median_norm(field_norms(fields, cell_weights=weights)), cell_weights=weights)


def decoded_errors(model: Any, latents: Any, fields: Rows, measures: Mapping[str, Errors]) -> dict[str, _Values]:
    """Errors, by each of the measures, of the fields at latents; the true fields (n, M) are read by blocks."""
    Y, parts, decode = np.asarray(latents), [], getattr(model, "inverse_transform", None) or model.predict
    if len(Y) != len(fields):
        raise ValueError(f"parameters must have a row for each of {len(fields)} snapshots, got {len(Y)}")
    for start, stop, F in fields.blocks(what="errors"):
        decoded = np.asarray(decode(Y[start:stop], **own_values(model, F))).reshape(F.shape)
        parts.append([errors(F, decoded) for errors in measures.values()])
    return dict(zip(measures, map(np.concatenate, zip(*parts))))


@immutable
class HeldOutErrors:
    """Relative L2 errors of snapshots that were left out when the model was fitted to the others."""

    rows: NDArray[np.intp] = saved(Array("k", dtype=np.intp, low=0, empty=True))  # row numbers in the fit
    errors: _Values = saved(Array("k", low=0, infinite=True, empty=True))  # as of `metrics.scaled_l2`
    groups: NDArray[np.intp] = saved(Array("k", dtype=np.intp, low=0, empty=True))  # in order, as equal snapshots
    n_snapshots: int = saved(Parameter(int, low=1))  # of the fit
    n_turns: int = saved(Parameter(int, low=0))  # fits without a part of the snapshots
    n_groups: int = saved(Parameter(int, low=0))  # groups that were left out as a whole; 0: random snapshots
    at_parameters: bool = saved(Parameter(bool))  # True: errors of fields predicted at parameters
    along_trajectories: bool = saved(Parameter(bool))  # without groups, though snapshots follow each other in time
    # latents of the rows, or parameters, and the norms of their fields: for the error bar
    points: _Values | None = saved(Array("k", "d", optional=True, empty=True), default=None)
    norms: _Values | None = saved(Array("k", low=0, optional=True, empty=True), default=None)
    # the fit without each
    turns: Any = saved(Array("k", dtype=np.intp, low=0, optional=True, empty=True), default=None)

    @property
    def error_bar(self) -> ErrorBar | None:
        """The error bar of these errors; None if there are too few, or those of one group alone."""
        some = judged_rows(len(self.rows))
        if self.points is None or self.norms is None or len(some) < 3 or np.ptp(self.groups[some]) == 0:
            return None
        errors = np.minimum(self.errors, 1e100)  # failed fits have infinite errors
        apart = self.groups if self.turns is None or np.ptp(self.turns[some]) == 0 else self.turns
        parts = self.points[some], errors[some], self.norms[some], apart[some]
        return ErrorBar(*parts, np.array([1.0, 0.0]), self.along_trajectories)

    @property
    def mean(self) -> float:
        """Mean of the errors; NaN if there are none."""
        return float(self.errors.mean()) if len(self.errors) else np.nan

    @property
    def standard_error(self) -> float:
        """Standard error of the mean over the groups, or snapshots, that were left out; NaN of fewer than two."""
        names, numbers = np.unique(self.groups, return_inverse=True)
        if len(names) < 2 or not np.isfinite(self.mean):
            return np.nan
        sums = np.bincount(numbers, self.errors - self.mean)
        return float(np.sqrt(sums @ sums * len(names) / (len(names) - 1)) / len(self.errors))

    @property
    def in_short(self) -> str:
        """The error in percent, and how it was found."""
        if not self.n_turns:
            return "none, since fits to a part of the snapshots fail"
        mean, median, worst = (f"{100 * x:.3g} %" for x in (self.mean, np.median(self.errors), self.errors.max()))
        known = not self.along_trajectories and np.isfinite(self.standard_error)
        mean += f" +- {100 * self.standard_error:.1g} %" if known else ""
        what = "whole groups" if self.n_groups else "neighbours in time" if self.along_trajectories else "snapshots"
        row, of = self.rows[int(np.argmax(self.errors))], " of fields at parameters" if self.at_parameters else ""
        of += f", {len(self.rows)} of {self.n_snapshots}" if len(self.rows) < self.n_snapshots else ""
        return f"{mean} in cross-validation by {what}{of}; median {median}, largest {worst} (row {row})"

    @property
    def in_words(self) -> str:
        """The error and how it was found."""
        if not self.n_turns:
            return "no cross-validation error: fits to a part of the snapshots fail"
        parts = f"whole groups, of {self.n_groups}" if self.n_groups else "single snapshots at random"
        if self.along_trajectories:
            parts += ", with neighbours in time in the fit: new trajectories may have larger errors, groups are needed"
        known = self.in_short.replace(" in cross-validation", "")
        return (
            f"cross-validation error (relative L2): {known}; each of {len(self.rows)} snapshots was left out of one of "
            f"{self.n_turns} fits ({parts})"
        )


@model_texts
class TangentDerivatives:
    """Derivatives of a model by tangents of its fields along each of its coordinates: latents, or parameters.
    ``tangents_at(X)`` gives a function from directions (n, d) to tangents (n, M), and X checked, (n, d)."""

    tangents_at: Callable[..., Any]
    check_available: Callable[..., bool]

    def _along(self: Any, X: Any, cells: Any) -> tuple[Callable[[_Values], _Values], _Values, tuple[int, ...]]:
        """A function from directions to tangents (n, k) of the cells, the points, and the shape of such a field."""
        (tangents, X), picked = self.tangents_at(X), self._checked_cells(cells)
        if picked is None:
            return tangents, X, self.field_shape_
        return lambda V: tangents(V)[:, picked], X, picked.shape

    @available_if(lambda self: self.check_available("jacobian"))
    def jacobian(self, X: ArrayLike, *, cells: ArrayLike | None = None, out: _Values | None = None) -> _Values:
        """Derivatives of the fields with respect to the latents, or parameters: `jvp` along each of these.

        {latents} {cells} {out} {returns_jacobian} {raises_derivative}
        """
        along, points, shape = self._along(X, cells)
        out = jacobian_output(out, np.asarray(X), shape, points.shape[1])
        for j, unit in enumerate(np.eye(points.shape[1])):
            out[..., j] = along(np.broadcast_to(unit, points.shape)).reshape(out.shape[:-1])
        return out

    @available_if(lambda self: self.check_available("jvp"))
    def jvp(self, X: ArrayLike, V: ArrayLike, *, cells: ArrayLike | None = None, out: _Values | None = None) -> _Values:
        """Products J v of the Jacobians with directions of the latents, or parameters.

        {latents} {directions} {cells} {out} {returns_jvp} {raises_derivative}
        """
        # of a model with latents the names of fit are those of the fields
        known = None if hasattr(self, "transform") else getattr(self, "feature_names_in_", None)
        check_beside(X, {"V": V}, known)
        along, points, shape = self._along(X, cells)
        if points.shape[1] == 1 and np.shape(V) == (len(points),):  # a single parameter without its axis
            V = real_numbers(V, "V")[:, None]
        out = output(out, np.asarray(X), (len(points), *shape))
        out[:] = along(as_array(latents_of(V, self, "V"), "V", points.shape, repeat=True)).reshape(out.shape)
        return out

    @available_if(lambda self: self.check_available("vjp"))
    def vjp(self, X: ArrayLike, U: ArrayLike, *, cells: ArrayLike | None = None, out: _Values | None = None) -> _Values:
        """Products J^T u of the transposed Jacobians with vectors of fields, at the cost of `jacobian`.

        {latents} {functionals} {cells} {out} {returns_vjp} {raises_derivative}
        """
        check_samples(X=X, U=U)
        along, points, shape = self._along(X, cells)
        vectors: Any = self._field_shape.vectors(U, "U", cells)  # type: ignore[attr-defined]
        U = as_array(vectors, "U", (len(points), math.prod(shape)), repeat=True)
        out = check_out(out, points.shape, apart=np.asarray(X), U=U)
        for j, unit in enumerate(np.eye(points.shape[1])):
            out[:, j] = np.einsum("nk,nk->n", along(np.broadcast_to(unit, points.shape)), U)
        return out


class Model(LeverageOfPart, BaseEstimator):
    """A model of fields: it has the leverage of a part, and is written to a file."""

    lacks = {
        "smoother": "the weights of training fields are those of the decoder (decoder_), at latents",
        "partial_fit": "phases are unwrapped and latents interpolated over all parameters: only model_ has batches",
    }

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model to a file by `persistence.save`.

        Parameters
        ----------
        path : str or path-like
            Taken as it is; ``.npz`` is customary.

        Raises
        ------
        sklearn.exceptions.NotFittedError, TypeError, OSError
            As `persistence.save`.
        """
        save(self, path)


@model_texts
class ReconstructionMixin(FieldOutputMixin, TransformerMixin):
    """Errors of a model that encodes and decodes fields."""

    @available_if(lambda self: require(self, "inverse_transform"))
    def reconstruct(self, X: ArrayLike, *, out: _Values | None = None) -> _Values:
        """Fields encoded and decoded, with their own values of the invariants if those of the training fields vary.

        {fields} {out} {returns_fields} {raises}
        """
        given: Any = X
        fields = self.inverse_transform(self.transform(X), out=out, **own_values(self, X))
        if out is None and hasattr(given, "sizes") and given.shape == np.shape(fields):
            return given.copy(data=np.asarray(fields))  # also with the samples' labels
        return fields

    @available_if(lambda self: require(self, "inverse_transform"))
    def score(self, X: ArrayLike, y: Any = None) -> float:
        """Minus the mean of `metrics.scaled_l2` over the reconstructed fields (higher is better, 0 at best).

        This is the relative L2 error, except for empty and tiny fields. The `score` of a decoder is the same for
        fields at given latents.

        {fields} {ignored} {returns_float} {raises}
        """
        latents, F = self.transform(X), Rows.of(field_rows(self, X), "X")
        errors = decoded_errors(self, latents, F, {"l2": relative_errors(F, self.field_shape_, self)})
        return -float(errors["l2"].mean())

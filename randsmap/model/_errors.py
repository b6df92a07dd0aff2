"""Errors of a model's fields on snapshots."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from randsmap import metrics
from randsmap._interface.fields import flattened
from randsmap._linalg.rows import Rows
from randsmap._linalg.scales import median_norm
from randsmap.invariants import norm_weights

_Errors = Callable[[NDArray[np.float64], NDArray[np.float64]], NDArray[np.float64]]


def reconstruction_errors(
    model: Any, snapshots: ArrayLike, *, parameters: ArrayLike | None = None
) -> dict[str, NDArray[np.float64]]:
    """Errors of each snapshot's reconstruction, or of the field that is predicted at its parameters.

    Parameters
    ----------
    model : ManifoldModel or ParametricModel
        A fitted model; with `parameters` a ParametricModel.
    snapshots : array-like of shape (n, M) or (n, *shape)
        A large memory-mapped array is read by blocks.
    parameters : array-like of shape (n, p) or None
        Parameters of the snapshots, at which the model predicts. None: the snapshots are encoded and decoded.

    Returns
    -------
    dict of str to ndarray (n,)
        "relative_l2" and "relative_linf", scaled as by `metrics.scaled_l2`; "conservation_error", absolute, of the
        invariants of the model's decoder (of the mass if it has none); and if the decoder has bounds "outside_bounds",
        the largest distance of a cell from them.

    Raises
    ------
    ValueError
        If there are no snapshots, or they do not fit the model.

    Examples
    --------
    >>> import numpy as np, randsmap
    >>> F = np.random.default_rng(0).uniform(size=(30, 8))
    >>> model = randsmap.ManifoldModel(randsmap.POD(3)).fit(F)
    >>> errors = randsmap.model.reconstruction_errors(model, F)
    >>> sorted(errors), errors["relative_l2"].shape
    (['conservation_error', 'relative_l2', 'relative_linf'], (30,))
    """
    F, _ = flattened(snapshots, "snapshots")
    rows = Rows.of(F, "snapshots", min_rows=0)
    if not len(rows):
        raise ValueError("there are no snapshots to evaluate the model on")
    # blocks must not differ in what their errors are relative to
    fitted = model if parameters is None else model.model_
    errors_of = _measures(getattr(fitted, "decoder_", None), F, norm_weights(fitted.field_shape_, fitted))
    parts = []
    for start, stop, block in rows.blocks(what="evaluating"):
        found = model.reconstruct(block) if parameters is None else model.predict(np.asarray(parameters)[start:stop])
        fields = np.asarray(found).reshape(len(block), -1)
        parts.append([errors(block, fields) for errors in errors_of.values()])
    return dict(zip(errors_of, map(np.concatenate, zip(*parts, strict=True)), strict=True))


def _measures(decoder: Any, F: Any, weights: NDArray[np.float64] | None) -> dict[str, _Errors]:
    """Functions of fields and decoded fields; the norms they are relative to are those of all snapshots F."""
    C, kept = getattr(decoder, "invariant_matrix_", None), getattr(decoder, "invariants_", None)
    l2 = median_norm(metrics.field_norms(F, cell_weights=weights))
    linf = median_norm(metrics.field_norms(F, "linf"))
    mass = "mass" if weights is None else weights
    measures: dict[str, _Errors] = {
        "relative_l2": partial(metrics.scaled_l2, reference=l2, cell_weights=weights),
        "relative_linf": partial(metrics.scaled_linf, reference=linf),
        "conservation_error": partial(
            metrics.conservation_error, invariants=mass if C is None or C.shape[1] == 0 else C
        ),
    }
    if kept is not None and kept.lower is not None:
        measures["outside_bounds"] = lambda _, F: abs(F - F.clip(kept.lower, kept.upper)).max(axis=1)
    return measures

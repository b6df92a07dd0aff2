"""Fields on many machines: fit, encode, decode and score dask arrays, chunk by chunk (extra ``dask``).

A decoder is fitted to each part of the rows where it lies, and the decoders are merged (`RANDSMAPDecoder.merge`).
"""

from __future__ import annotations

import copy
import math
import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from randsmap._interface.callers import public
from randsmap._interface.fields import flattened, reshape_for
from randsmap._interface.parameters import check_count, check_parameters, document
from randsmap._interface.state import restored_on_error
from randsmap._linalg.gram import sum_rows
from randsmap._linalg.rows import load_npy
from randsmap._linalg.scales import median_norm
from randsmap.decoders._auto import AutoDecoder, for_batches, mergeable_families
from randsmap.decoders._base import why_not
from randsmap.invariants import norm_weights, own_values
from randsmap.metrics import field_norms, scaled_distances
from randsmap.model import ManifoldModel
from randsmap.model._manifold import assembled, decoder_for, in_one_norm

__all__ = ["fit", "fit_model", "from_npy", "inverse_transform", "score", "transform"]

_BYTES = 1 << 27  # size of a part in bytes, as documented; a worker holds several
_FEWEST_ROWS = 8192  # fewest rows of a part: smaller ones are not worth a merge


_TEXTS = {
    "latents": """\
Y : dask array or array-like (n, d)
    Latents, which must fit in memory here and on the workers.""",
    "fields": """\
F : dask array (n, M) or (n, *shape)
    Fields in chunks of any shape; (n,) for a single cell.""",
    "raises": """\
ImportError, TypeError, ValueError
    If dask is missing, fields are no dask array, or lengths of chunks are unknown; otherwise as the estimator.""",
    "example": """\
>>> import numpy as np, dask.array as da
>>> from randsmap import POD, ManifoldModel, RANDSMAPDecoder, SigmoidFeatures, distributed
>>> x = np.linspace(0, 1, 2000)[:, None]
>>> fields = da.from_array(np.hstack([x**2, 1 - x**2]), chunks=(600, 2))
>>> decoder = RANDSMAPDecoder(SigmoidFeatures(3.0, n_features=20), random_state=0)
>>> distributed.fit(decoder, x, fields).predict([[0.5]]).round(2)
array([[0.25, 0.75]])
>>> model = distributed.fit_model(ManifoldModel(POD(1), decoder), fields)
>>> latents = distributed.transform(model, fields)
>>> distributed.inverse_transform(model, latents).shape, distributed.score(model, fields) > -1e-2
((2000, 2), True)""",
}
_documented = partial(document, texts=_TEXTS)


@_documented
def fit(decoder: Any, Y: Any, F: Any) -> Any:
    """Fit a decoder to latents and fields that are dask arrays.

    Parameters
    ----------
    decoder : RANDSMAPDecoder, RFNNDecoder or AutoDecoder
        It is fitted in place, and accepts `partial_fit` afterwards. Its solver must be "auto" or "cholesky". An
        `AutoDecoder` searches among 2000 rows for a decoder that takes batches (random features), which is fitted to
        all.
    {latents}
    {fields}

    Returns
    -------
    decoder

    {raises}
        The decoder then keeps its state.

    Notes
    -----
    `coef_` has the bits of `decoder.fit` for any chunks and workers, on the conditions of docs/distributed.md. If
    `regularization` is no number, lambda is 1e-3. The coefficients are solved for here, when they are first used, or by
    ``decoder.solve()``. A worker needs memory for a few parts of 128 MB and for sums of P (P + M) pairs of numbers.

    {example}
    """
    from dask.delayed import delayed

    if isinstance(decoder, AutoDecoder):
        return _searched(decoder, Y, F)
    if not hasattr(decoder, "merge"):
        mergeable = "a decoder that can be merged, RANDSMAPDecoder, RFNNDecoder, or AutoDecoder, which finds one"
        raise TypeError(f"distributed.fit needs {mergeable}, got {decoder!r}")
    with restored_on_error(decoder):
        Y, F = _in_parts(Y, F, "Y and F")
        # all parts need the same features, drawn from all latents as `decoder.fit` draws them
        decoder.fit_features(Y.compute())
        reason = why_not(decoder, "partial_fit")
        if reason is not None:
            raise ValueError(f"distributed.fit adds up parts: {reason}")
        parts = _tasks(_fitted, decoder, Y, F, range(0, len(F), F.chunks[0][0]))
        # the result of a task must not change
        merge = delayed(lambda one, other: copy.copy(one).merge(other), pure=False)
        # in pairs: workers merge side by side, and no worker receives the sums of all parts
        while len(parts) > 1:
            merged = [merge(*pair) for pair in zip(parts[::2], parts[1::2])]
            parts = merged + parts[len(merged) * 2 :]
        vars(decoder).update(vars(parts[0].compute()))
    return decoder


def _searched(decoder, Y, F):
    """The AutoDecoder itself, as `fit` says."""
    Y, F = _in_parts(Y, F, "Y and F")
    some = one_of_each(len(F))
    found = clone(decoder).set_params(families=mergeable_families(decoder.families))
    found.fit(Y[some].compute(), F[some].compute())
    kept = {name: getattr(decoder, name) for name in ("invariant_values", "invariant_tol", "cell_weights", "bounds")}
    best = for_batches(found.best_decoder_, len(F) / len(some), {**kept, "invariants": found.chosen_invariants_})
    found.best_decoder_ = fit(best, Y, F)
    found._restore()
    vars(decoder).update({**vars(found), "families": decoder.families})
    return decoder


def one_of_each(n: int, count: int | None = None) -> NDArray[np.intp]:
    """A row at random of each of `count` equal stretches of n rows, of n at most: of trajectories one after the other
    all, whatever the chunks."""
    count = min(n, count or 2000)  # documented: all pairs of the sample are one matrix of 32 MB
    edges = np.arange(count + 1) * n // count
    return np.random.default_rng(0).integers(edges[:-1], edges[1:])


@_documented
def fit_model(model: ManifoldModel, F: Any) -> ManifoldModel:
    """Fit an encoder to some of the fields of a dask array, and a decoder to all of them.

    Parameters
    ----------
    model : ManifoldModel
        It is fitted in place. Its encoder is fitted to `encoder_samples` fields (None: 2000): the rows are divided into
        this many equal stretches, and each gives a random field. Its decoder is as for `fit`, or None.
    {fields}

    Returns
    -------
    model

    {raises} {example}
    """
    if not isinstance(model, ManifoldModel):
        raise TypeError(f"model must be a ManifoldModel, got {model!r}: registrations take batches by partial_fit")
    F = dask_fields(F)
    sample = F[one_of_each(len(F), check_parameters(model)["encoder_samples"])].compute()
    encoder = in_one_norm(clone(model.encoder), model.decoder)
    encoder.fit(reshape_for(encoder, *flattened(sample, "F")))
    return with_encoder(model, encoder, sample, F)


def with_encoder(model: ManifoldModel, encoder: Any, sample: Any, F: Any) -> ManifoldModel:
    """The model itself, with an encoder that is fitted to a sample of the fields F, and a decoder fitted to all."""
    decoder = decoder_for(model, encoder)
    if decoder is not None:
        fit(decoder, transform(encoder, F).persist(), F)
    return assembled(model, sample, encoder, decoder)


@_documented
def transform(encoder: Any, F: Any) -> Any:
    """Latents of the fields of a dask array.

    Parameters
    ----------
    encoder : fitted encoder or ManifoldModel
    {fields}

    Returns
    -------
    dask array (n, d)
        Not computed yet, in the row chunks of F; ``.persist()`` keeps it on the workers.

    {raises} {example}
    """
    F = dask_fields(F)
    return _map(encoder.transform, F.reshape((len(F), math.prod(F.shape[1:]))) if F.ndim > 2 else F)


@_documented
def inverse_transform(decoder: Any, Y: Any) -> Any:
    """Fields at the latents of a dask array.

    Parameters
    ----------
    decoder : fitted decoder or ManifoldModel
    {latents}

    Returns
    -------
    dask array (n, M)
        Not computed yet, in chunks of at most 128 MB: ``.to_zarr(...)`` stores it. (n, *shape) as in `fit`, (n,) for a
        single cell.

    {raises} {example}
    """
    decode = getattr(decoder, "inverse_transform", None) or decoder.predict
    Y = _latents(Y)
    sample = np.asarray(decode(Y[:1].compute()))
    rows = max(1, min(_BYTES // (8 * sample.size), max(Y.chunks[0])))
    return _map(decode, Y.rechunk({0: rows}), sample)


@_documented
def score(model: Any, X: Any, y: Any = None) -> float:
    """The `score` of a model or a decoder on fields of a dask array.

    Parameters
    ----------
    model : fitted ManifoldModel or decoder
    X : dask array
        Fields (n, M) of a model, latents (n, d) of a decoder (an array will do).
    y : dask array (n, M), default=None
        Fields, of a decoder.

    Returns
    -------
    float
        The `score` of the model or decoder, up to round-off.

    {raises} {example}
    """
    from dask.base import compute

    Y, F = _in_parts(None, X) if y is None else _in_parts(X, y, "X and y")
    given = [F] if Y is None else [F, Y]
    # coefficients are solved for here, if they are not yet known, not by each worker
    _norms(model, *(each[:1].compute() for each in given))
    distances, sizes = np.concatenate(compute(*_tasks(_norms, model, *given)), axis=1)
    return -float(scaled_distances(distances, sizes, median_norm(sizes)).mean())


def from_npy(paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]], *, rows: int | None = None) -> Any:
    """The dask array of fields in one or several .npy files, each read where it is needed, and only its rows.

    ``dask.array.from_array(numpy.load(path, mmap_mode="r"))`` would send the data themselves to the workers.

    Parameters
    ----------
    paths : path, or sequence of paths
        Files of arrays (n, M), or (n, *shape), that every worker can read under the same path; they are stacked.
    rows : int, default=None
        Rows of a chunk; None: about 128 MB.

    Returns
    -------
    dask array (n, M)

    Raises
    ------
    ImportError, ValueError, OSError
        Without dask, or if a file is no .npy file of numbers in two dimensions or more.

    Examples
    --------
    >>> import os, tempfile, numpy as np
    >>> from randsmap import distributed
    >>> path = os.path.join(tempfile.mkdtemp(), "fields.npy")
    >>> np.save(path, np.ones((5000, 3)))
    >>> distributed.from_npy(path, rows=1024).numblocks
    (5, 1)
    """
    import dask.array as da
    from dask.delayed import delayed

    arrays = []
    for path in [paths] if isinstance(paths, (str, os.PathLike)) else paths:
        path = os.path.abspath(os.path.expanduser(path))
        file = load_npy(path)
        if file.ndim < 2:
            raise ValueError(f"{path} must hold an array (n_samples, n_cells), or of more axes, got shape {file.shape}")
        n, *shape = file.shape
        unit = sum_rows(0, math.prod(shape))
        size = max(unit, _BYTES // max(1, math.prod(shape) * file.itemsize) // unit * unit)
        size = size if rows is None else check_count(rows, "rows")
        for a in range(0, n, size):
            b = min(a + size, n)
            arrays.append(da.from_delayed(delayed(_read)(path, a, b), (b - a, *shape), file.dtype))
    return da.concatenate(arrays)


def _read(path, start, stop):
    return np.array(load_npy(path)[start:stop])


def dask_fields(F):
    import dask.array as da

    if not isinstance(F, da.Array):
        others = "the estimators' own methods take arrays in memory and memory-mapped ones"
        what = f"fields as a dask array, got {type(F).__name__}: {others}"
        raise TypeError(f"randsmap.distributed takes {what}; from_npy and dask.array.from_zarr open files")
    return _known(F, "the fields")


def _known(X, name):
    """X in chunks of whole rows."""
    if np.isnan(X.shape[0]):
        raise ValueError(f"the lengths of the chunks of {name} are not known: call its compute_chunk_sizes() before")
    return X.rechunk(dict.fromkeys(range(1, X.ndim), -1))


def _latents(Y):
    """Latents as a dask array in chunks of whole rows."""
    import dask.array as da

    if isinstance(Y, da.Array):
        Y = _known(Y, "the latents").persist()  # computed once, since they are read several times
    else:
        Y = da.from_array(np.asarray(Y), chunks=-1)
    if Y.ndim != 2:
        raise ValueError(f"latents must have 2 dimensions (rows, coordinates), got shape {Y.shape}")
    return Y


def _in_parts(Y: Any, F: Any, names: str = "") -> tuple[Any, Any]:
    """Latents, if any, and fields in the same parts: about the chunks of F, but of useful size."""
    F = dask_fields(F)
    cells = math.prod(F.shape[1:])
    unit = sum_rows(0, cells)  # rows of one sum: the sums then do not depend on the parts
    rows = max(unit, min(max(_FEWEST_ROWS, *F.chunks[0]), _BYTES // max(1, 8 * cells)) // unit * unit)
    if Y is not None:
        Y = _latents(Y).rechunk({0: rows})
        if len(Y) != len(F):
            raise ValueError(f"{names} must have the same number of rows, got {len(Y)} and {len(F)}")
    return Y, F.rechunk({0: rows})


def _map(function: Callable[[Any], NDArray[np.float64]], X: Any, sample: Any = None) -> Any:
    """function(X), whose rows are those of X, chunk by chunk; `sample` is what it makes of one row."""
    from dask.delayed import delayed

    sample = np.asarray(function(X[:1].compute()) if sample is None else sample)
    shape = sample.shape[1:]
    return X.map_blocks(
        lambda block, function: np.asarray(function(block)),
        delayed(function, traverse=False),
        drop_axis=1,
        new_axis=list(range(1, sample.ndim)),
        chunks=(X.chunks[0], *((length,) for length in shape)),
        dtype=sample.dtype,
        meta=np.empty((0,) * sample.ndim),
    )


def _tasks(task: Callable[..., Any], estimator: Any, *arrays: Any) -> list[Any]:
    """task(estimator, chunk of each array) of all chunks, delayed; iterables stand for their items."""
    import dask.array as da
    from dask.delayed import delayed

    # traverse=False: the estimator holds no tasks; pure=False: no hash of the estimator and all fields
    estimator = delayed(estimator, traverse=False)
    chunks = [X.to_delayed().ravel() if isinstance(X, da.Array) else X for X in arrays]
    return [delayed(task, pure=False)(estimator, *parts) for parts in zip(*chunks)]


def _fitted(start, X, F, first):
    decoder = copy.deepcopy(start)
    try:
        return decoder.partial_fit(X, F)
    except ValueError as error:
        raise ValueError(f"rows {first} to {first + len(F) - 1} of the fields: {error}") from None


def _norms(model, F, X=None):
    F = F[:, None] if F.ndim == 1 else F
    weights = norm_weights(F.shape[1:], model)
    decoded = model.reconstruct(F) if X is None else model.predict(X, **own_values(model, F))
    missed = np.asarray(decoded).reshape(F.shape) - F
    return np.array([field_norms(each, cell_weights=weights) for each in (missed, F)])


public(globals())

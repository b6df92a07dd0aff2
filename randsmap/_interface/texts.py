"""Entries, sections and example data of docstrings that decoders, models and frozen decoders share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from randsmap._interface.parameters import document

_Documented = TypeVar("_Documented")

_TEXTS = {
    "curve": """\
>>> import numpy as np, randsmap
>>> latents = np.linspace(0, 1, 20)[:, None]
>>> fields = np.hstack([latents**2, 1 - latents**2])""",
    "bumps": """\
>>> import numpy as np, randsmap
>>> x = np.linspace(0, 1, 50)
>>> bumps = np.exp(-((x - np.linspace(0.3, 0.7, 40)[:, None]) / 0.1) ** 2)
>>> bumps /= bumps.sum(axis=1, keepdims=True)""",
    "training": """\
X : array-like (n, d)
    Latent coordinates, n >= 2.
y : array-like (n, M) or (n, *shape)
    Fields, one per row, of any shape, (n,) for a single cell; `predict` returns this shape, and a DataArray if y is
    one. Large memory-mapped fields (`numpy.load` with mmap_mode, from 64 MB) are read by blocks, except with
    solver="krylov", constraint="training" or weights.""",
    "result_of_fit": """\
Returns
-------
self

Raises
------
ValueError, TypeError
    If X or y is not a finite array of numbers of these shapes, a parameter is out of range, the fields do not satisfy
    the invariants or determine the coordinates, or (numpy.linalg.LinAlgError) a factorisation fails. The estimator then
    keeps its state.""",
    "raises_as_fit": """\
ValueError, TypeError
    As `fit`, of what does not concern the fields.""",
    "latents": """\
X : array-like (n, d)
    Latent points; there may be no rows.""",
    "fields": """\
X : array-like (n, M) or (n, *field_shape_)
    Fields; there may be no rows.""",
    "projection": """\
projection : int or None
    Number of steps from the encoder's latents to those whose decoded field is nearest to the given one, in the norm
    of the cells' weights; a step costs a decoding and its derivatives. Try 5. None: the `projection` of the model.""",
    "invariant_values": """\
invariant_values : float, array (q,), (n,) if q is 1, or (n, q), or None
    Values m for these rows instead of the fitted values (in- and outflow): one value per invariant, or one row of
    values per field. Values of dependent columns must agree with the other values.""",
    "cells": """\
cells : array-like of int (k,) or of bool (M,), or None
    Decode only these cells: indices in the flattened field (negative ones count from the end) or a mask, which may
    have the field's shape. With bounds or invariant_values, or frozen, they cost as much as whole fields.""",
    "out": """\
out : ndarray of the shape of the result, float64, C-contiguous, or None
    Array for the result; fields, and products J v, also as rows (n, M).""",
    "return_error": """\
return_error : bool or "absolute"
    Return a tuple of the fields and their error bars (n,): bounds of the relative L2 error (in the norm of the cells'
    weights) that hold with probability `coverage`. "absolute": of the L2 error, for fields of the size of the training
    fields. They are infinite, with a warning, if there are too few training fields, and at most 1 + |f| / |y| for whole
    fields f, with the smallest training field y. See docs/errors.md.
coverage : float
    The probability, for points distributed like the training points; above 0, at most 1.""",
    "directions": """\
V : array-like (n, d) or (d,)
    A direction for each point, or one for all.""",
    "functionals": """\
U : array-like (n, M), (n, *field_shape_) or (M,)
    A functional of the field for each point, or one for all; (n, k) or (k,) for k cells.""",
    "returns_float": "float",
    "returns_leverage": """\
ndarray (n,), float64
    At least 0; to be compared with `leverage_limit_`.""",
    "returns_fields": """\
fields : ndarray (n, M), float64
    `out` if given. (n, k) for k cells; otherwise (n, *field_shape_), (n,) if the decoder was fitted to one-dimensional
    y, and a DataArray if it was fitted to one. A row depends on the other rows only by round-off.""",
    "returns_latents": """\
ndarray (n, d), float64
    A row does not depend on the others beyond round-off.""",
    "returns_jacobian": """\
ndarray (n, M, d), float64
    J = df/dz of each row; `out` if given. (n, k, d) for k cells; otherwise (n, *field_shape_, d), (n, d) if the decoder
    was fitted to one-dimensional y. With invariants C^T J = 0 to a few ulp of |C|^T |J|, and J is 0 on the constant
    cells. With bounds, J is 0 in cells at a bound, and C^T J = 0 over the others.""",
    "returns_jvp": """\
ndarray (n, M), float64
    J v; (n, k) for k cells, otherwise of the shape of the fields. C^T J v = 0 with invariants.""",
    "returns_vjp": """\
ndarray (n, d), float64
    J^T u.""",
    "host_function": """\
Parameters
----------
decoder : fitted decoder or model with derivatives, `FrozenDecoder` or `POD`
cells : array-like of int (k,), or of bool (M,), default=None
    Decode these cells only.

Returns
-------
callable
    ``decode(z)`` of latents (d,) or (n, d) returns fields (*shape) or (n, *shape), with `cells` (k,) or (n, k), of the
    type of z. A single row is bit-identical to `predict`.

Raises
------
ImportError, sklearn.exceptions.NotFittedError, TypeError, ValueError
    Without the package, or if the decoder is not fitted or has no derivatives, or `cells` or the latents are not as
    described.""",
    "raises": """\
sklearn.exceptions.NotFittedError
    Before `fit`.
ValueError, TypeError
    If an array is not finite or does not have the shape described, `out` has another type or layout or shares memory
    with X, invariant_values contradict each other or the bounds, or a field with invariants overflows.""",
}


def shared_texts(thing: _Documented, more: Mapping[str, str] | None = None) -> _Documented:
    """Fill the lines {latents}, {fields} {raises}, ... in the docstrings of a function, or of a class's methods."""
    return document(thing, {**_TEXTS, **(more or {})})

"""Decoders as functions of JAX, which it compiles, batches and differentiates. Needs the package jax."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from randsmap._interface.callers import installed, public
from randsmap.model import latent_map

__all__ = ["decoder"]


def decoder(decoder: Any, *, cells: ArrayLike | None = None) -> Callable[[Any], Any]:
    """A decoder as a function of JAX.

    Parameters
    ----------
    decoder : fitted decoder or model with `jacobian`, `FrozenDecoder` or `POD`
    cells : array-like of int (k,), or of bool (M,), default=None
        Decode these cells only.

    Returns
    -------
    callable
        ``decode(y)`` of latents (d,) or (n, d) gives fields (*shape) or (n, *shape), with `cells` (k,) or (n, k), of
        the type of y: float64 where JAX has it (``jax_enable_x64``). It works under jit, vmap, grad, jvp, jacfwd and
        jacrev.

    Raises
    ------
    ImportError
        Without the package jax.
    sklearn.exceptions.NotFittedError, TypeError, ValueError
        If the decoder is not fitted or has no derivatives, or `cells` or the shape of y are not as described. What
        decoding refuses, such as latents that are not finite, is an error of JAX's own with the same words.

    Notes
    -----
    JAX calls the decoder back on the host, for all rows of a batch at once; one row has the bits of `predict`.
    Derivatives, in both directions, are products with the Jacobian (n, M, d) in closed form, which satisfies the
    invariants: with d = 2 a gradient took as long as 4 fields. There are no second ones. Fields are decoded without the
    consistency steps of a model, of which there are no derivatives.

    Examples
    --------
    >>> import randsmap
    >>> fitted = randsmap.KernelDecoder().fit([[0.0], [0.5], [1.0]], [[1.0, 0], [0.5, 0.5], [0, 1.0]])
    >>> decode = randsmap.jax.decoder(fitted)  # doctest: +SKIP
    >>> jax.grad(lambda y: decode(y)[0])(jax.numpy.array([0.5]))  # doctest: +SKIP
    """
    jax = installed("jax", "randsmap.jax")
    predict, jacobian, d, _ = latent_map(decoder, "jacobian")
    options = {} if cells is None else {"cells": cells}
    shape = np.shape(predict(np.zeros((0, d)), **options))[1:]
    M = int(np.prod(shape))

    def call(method: Any, tail: tuple[int, ...], y: Any) -> Any:
        def on_host(y: Any) -> Any:
            rows = np.asarray(y, dtype=np.float64).reshape(-1, d)
            return np.asarray(method(rows, **options)).reshape(*y.shape[:-1], *tail).astype(y.dtype)

        result = jax.ShapeDtypeStruct((*y.shape[:-1], *tail), y.dtype)
        return jax.pure_callback(on_host, result, y, vmap_method="broadcast_all")

    @jax.custom_jvp
    def decode(y: Any) -> Any:
        return call(predict, (M,), y)

    @decode.defjvp
    def derivative(at: Any, along: Any) -> Any:
        J = call(jacobian, (M, d), at[0])  # JAX transposes the product, not the callback
        return decode(*at), jax.numpy.einsum("...kj,...j->...k", J, along[0], precision="highest")

    def function(y: Any) -> Any:
        y = jax.numpy.asarray(y)
        if y.ndim not in (1, 2) or y.shape[-1] != d:
            raise ValueError(f"latents must have shape ({d},) or (n, {d}), got {y.shape}")
        if not jax.numpy.issubdtype(y.dtype, jax.numpy.floating):
            y = y.astype(float)
        return decode(y).reshape((*y.shape[:-1], *shape))

    return function


public(globals())

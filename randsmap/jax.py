"""Decoders as functions of JAX, which it compiles, batches and differentiates. Needs the package jax."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from randsmap._interface.callers import installed, public
from randsmap._interface.texts import shared_texts
from randsmap.model import latent_map

__all__ = ["decoder"]


@shared_texts
def decoder(decoder: Any, *, cells: ArrayLike | None = None) -> Callable[[Any], Any]:
    """A decoder as a function of JAX.

    {host_function}

    Notes
    -----
    It works under jit, vmap, grad, jvp, jacfwd and jacrev, in float64 where JAX has it (``jax_enable_x64``). JAX calls
    the decoder back on the host, for all rows of a batch at once. An error of the decoder, such as for latents that are
    not finite, becomes an error of JAX with the same message. Derivatives, in both directions, are products with the
    Jacobian (n, M, d) in closed form, which satisfies the invariants: with d = 2 a gradient took as long as 4 fields.
    There are no second derivatives. Fields are decoded without the consistency steps of a model, of which there are no
    derivatives.

    Examples
    --------
    >>> import randsmap
    >>> fitted = randsmap.KernelDecoder().fit([[0.0], [0.5], [1.0]], [[1.0, 0], [0.5, 0.5], [0, 1.0]])
    >>> decode = randsmap.jax.decoder(fitted)  # doctest: +SKIP
    >>> jax.grad(lambda z: decode(z)[0])(jax.numpy.array([0.5]))  # doctest: +SKIP
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

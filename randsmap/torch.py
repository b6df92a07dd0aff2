"""Decoders as functions of PyTorch, through which gradients flow. Needs the package torch."""

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
    """A decoder as a function of PyTorch.

    {host_function}

    Notes
    -----
    It works under autograd, and vmap, jvp, vjp, jacfwd and jacrev of torch.func. The decoder runs on the CPU in
    float64; fields are on the device of z. Derivatives are `vjp` and `jvp` in closed form, at about the cost of a
    field, and satisfy the invariants. There are no second derivatives. Fields are decoded without the consistency steps
    of a model, of which there are no derivatives.

    Examples
    --------
    >>> import randsmap
    >>> fitted = randsmap.KernelDecoder().fit([[0.0], [0.5], [1.0]], [[1.0, 0], [0.5, 0.5], [0, 1.0]])
    >>> decode = randsmap.torch.decoder(fitted)  # doctest: +SKIP
    >>> z = torch.tensor([0.5], requires_grad=True)  # doctest: +SKIP
    >>> decode(z)[0].backward()  # doctest: +SKIP
    """
    torch = installed("torch", "randsmap.torch")
    predict, jvp, vjp, d, _ = latent_map(decoder, "jvp", "vjp")
    options = {} if cells is None else {"cells": cells}
    shape = np.shape(predict(np.zeros((0, d)), **options))[1:]
    M = int(np.prod(shape))

    base: Any = torch.autograd.Function

    def operation(method: Any, size: int, *derivatives: Any) -> Any:
        """The method, of rows of each argument, as a function that torch differentiates by jvp and vjp, if given."""

        class Operation(base):
            @staticmethod
            def forward(*given: Any) -> Any:
                y = given[0]
                rows = [x.detach().cpu().double().reshape(-1, x.shape[-1]).numpy() for x in given]
                results = np.array(method(*rows, **options)).reshape(*y.shape[:-1], size)
                return torch.from_numpy(results).to(y)

            @staticmethod
            def setup_context(ctx: Any, given: Any, result: Any) -> None:
                ctx.save_for_backward(*given)
                ctx.save_for_forward(*given)

            @staticmethod
            def derivative(number: int, *given: Any) -> Any:
                if not derivatives:
                    raise NotImplementedError("decoders have no second derivatives")
                return derivatives[number](*given)

            @staticmethod
            def jvp(ctx: Any, *along: Any) -> Any:
                return Operation.derivative(0, *ctx.saved_tensors, *along)

            @staticmethod
            def backward(ctx: Any, u: Any) -> Any:
                return Operation.derivative(1, *ctx.saved_tensors, u)

            @staticmethod
            def vmap(info: Any, axes: Any, *given: Any) -> Any:
                every = (x.expand(info.batch_size, *x.shape) if axis is None else x for x, axis in zip(given, axes))
                return Operation.apply(*(x.movedim(axis or 0, 0) for x, axis in zip(every, axes))), 0

        return Operation.apply

    pull = operation(lambda y, u, **options: vjp(y, u.reshape(-1, *shape), **options), d)
    decode = operation(predict, M, operation(jvp, M), pull)

    def function(y: Any) -> Any:
        y = torch.as_tensor(y)
        if y.ndim not in (1, 2) or y.shape[-1] != d:
            raise ValueError(f"latents must have shape ({d},) or (n, {d}), got {tuple(y.shape)}")
        y = y if y.is_floating_point() else y.to(torch.get_default_dtype())
        return decode(y).reshape((*y.shape[:-1], *shape))

    return function


public(globals())

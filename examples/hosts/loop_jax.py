"""A frozen decoder within JAX: a compiled loop calls it back, and gradients flow through it. Prints the last field, 16
hexadecimal digits of its bits a cell.

    python loop_jax.py decoder.rsm
"""

import sys

import jax
import jax.numpy as jnp
import numpy as np

import randsmap

jax.config.update("jax_enable_x64", True)


def main(path):
    decoder = randsmap.FrozenDecoder.load(path)
    decode = randsmap.jax.decoder(decoder)

    @jax.jit
    def last_field(z):
        def step(_, state):
            z, _ = state
            z = z + 1 / 1024  # the reduced model's step
            return z, decode(z)

        return jax.lax.fori_loop(0, 256, step, (z, jnp.zeros(decoder.n_cells)))

    z, field = last_field(jnp.full(decoder.n_components, 0.25))

    # the gradient of half the squared distance to another field, against differences
    target = np.asarray(decode(z + 0.1))
    misfit = jax.jit(lambda z: 0.5 * jnp.sum((decode(z) - target) ** 2))
    gradient, h = np.asarray(jax.grad(misfit)(z)), 1e-6
    differences = [(misfit(z + h * e) - misfit(z - h * e)) / (2 * h) for e in np.eye(len(z))]
    np.testing.assert_allclose(gradient, differences, rtol=1e-6, atol=1e-8 * np.abs(gradient).max())
    return np.asarray(field)


if __name__ == "__main__":
    for bits in main(sys.argv[1]).view(np.uint64):
        print(f"{bits:016x}")

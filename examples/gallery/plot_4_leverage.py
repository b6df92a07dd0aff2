"""
Leverage and extrapolation
==========================

A decoder returns a field at every point. ``leverage`` measures how far the training data support it.
"""

# sphinx_gallery_thumbnail_path = "_static/thumbnails/4.png"
import warnings

import matplotlib.pyplot as plt
import numpy as np

import randsmap

# %%
# Bumps of known position and width. The training points fill an annulus of the plane: none in its middle, none outside.

x = (np.arange(200) + 0.5) / 200


def bump(points):
    fields = np.exp(-(((x - 0.5 - 0.15 * points[:, :1]) / (0.08 + 0.03 * points[:, 1:])) ** 2))
    return fields / fields.sum(axis=1, keepdims=True)


rng = np.random.default_rng(0)
angle, radius = rng.uniform(0, 2 * np.pi, 250), rng.uniform(0.7, 1.1, 250)
latents = np.column_stack([radius * np.cos(angle), radius * np.sin(angle)])
decoder = randsmap.KernelDecoder("gaussian", regularization=1e-8, invariants="mass").fit(latents, bump(latents))

# %%
# Leverage and error over the plane. The contour is ``leverage_limit_``, beyond which fields may be inaccurate.

grid = np.linspace(-2, 2, 81)
plane = np.stack(np.meshgrid(grid, grid), axis=-1).reshape(-1, 2)
with warnings.catch_warnings():
    warnings.simplefilter("ignore", randsmap.ExtrapolationWarning)  # we look at them all
    error = randsmap.metrics.relative_l2(bump(plane), decoder.predict(plane))
leverage = decoder.leverage(plane)

figure, axes = plt.subplots(1, 2, figsize=(10, 4.4), layout="constrained", sharey=True)
for ax, values, label in zip(axes, (leverage, error), ("leverage", "relative L2 error")):
    logarithms = np.log10(np.maximum(values, 1e-8)).reshape(81, 81)
    picture = ax.pcolormesh(grid, grid, logarithms, cmap="viridis", rasterized=True)
    ax.contour(grid, grid, leverage.reshape(81, 81), [decoder.leverage_limit_], colors="w")
    ax.plot(*latents.T, "k.", ms=2)
    ax.set(xlabel="$z_1$", aspect="equal", title=label)
    figure.colorbar(picture, ax=ax, label=f"log10 of the {label}")
axes[0].set_ylabel("$z_2$")

# %%
# Leverage and error grow together. The mass is exact in every field.

beyond = leverage > decoder.leverage_limit_
print(f"limit {decoder.leverage_limit_:.2g}; points beyond it: {beyond.mean():.0%}")
print(f"median error within {np.median(error[~beyond]):.1e}, beyond {np.median(error[beyond]):.1e}")
figure, ax = plt.subplots(figsize=(6, 4), layout="constrained")
ax.loglog(leverage, error, ".", ms=2)
ax.axvline(decoder.leverage_limit_, color="C1", label="leverage_limit_")
ax.set(xlabel="leverage", ylabel="relative L2 error")
ax.legend()
plt.show()

"""
Fields that stay nonnegative
============================

Decoders overshoot near a front, and densities become negative. Bounds remove this and conserve the mass.
"""

# sphinx_gallery_thumbnail_path = "_static/thumbnails/3.png"
import matplotlib.pyplot as plt
import numpy as np
from sklearn.base import clone

import randsmap

# %%
# A block of density at 300 positions and widths: snapshots of 300 cells, each of mass 1.

x = (np.arange(300) + 0.5) / 300


def block(centre, width):
    sides = [np.tanh((x - centre + side) / 0.01) for side in (width, -width)]
    field = (sides[0] - sides[1]) / 2
    return field / field.sum()


latents = np.random.default_rng(0).uniform((0.3, 0.08), (0.7, 0.16), (300, 2))
fields = np.array([block(*point) for point in latents])

# %%
# One decoder without bounds, one with ``bounds="nonnegative"``. The bounded field is the nearest one that has no
# negative cell and mass 1.

free = randsmap.KernelDecoder("matern", degree=1, regularization=1e-6, invariants="mass").fit(latents, fields)
bounded = clone(free).set_params(bounds="nonnegative").fit(latents, fields)

point = np.array([[0.537, 0.115]])
truth = block(*point[0])
figure, ax = plt.subplots(figsize=(10, 4), layout="constrained")
ax.fill_between(x, truth, color="0.5", alpha=0.4, lw=0, label="reference")
for decoder, name, style in ((free, "without bounds", "C1--"), (bounded, "nonnegative", "C0-")):
    field = decoder.predict(point)[0]
    error = np.linalg.norm(field - truth) / np.linalg.norm(truth)
    print(f"{name:16} lowest value {field.min():9.1e}   mass - 1 = {field.sum() - 1:8.1e}   error {error:.2%}")
    ax.plot(x, field, style, label=f"{name}: error {error:.1%}", lw=1.5)
ax.axhline(0, color="0.5", lw=0.5)
ax.set(xlabel="x", ylabel="density")
ax.legend()

# %%
# At 500 new points the error never grows, because the reference lies within the bounds.

new = np.random.default_rng(1).uniform((0.3, 0.08), (0.7, 0.16), (500, 2))
truth = np.array([block(*point) for point in new])
errors = [randsmap.metrics.relative_l2(truth, decoder.predict(new)) for decoder in (free, bounded)]
larger = np.sum(errors[1] > errors[0] * (1 + 1e-12))
print(f"mean error {errors[0].mean():.2%} without bounds, {errors[1].mean():.2%} with; larger in {larger} of 500")
figure, ax = plt.subplots(figsize=(5, 4.5), layout="constrained")
ax.plot(100 * errors[0], 100 * errors[1], ".", ms=4)
ax.axline((0, 0), slope=1, color="0.6", lw=1)
ax.set(xlabel="error without bounds, %", ylabel="error with bounds, %")
plt.show()

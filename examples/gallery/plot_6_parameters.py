"""
Fields at new parameters
========================

`ParametricModel` interpolates the coordinates of a model over parameters or times, with the exact mass.
"""

# sphinx_gallery_thumbnail_path = "_static/thumbnails/6.png"
import matplotlib.pyplot as plt
import numpy as np
from scipy.interpolate import LinearNDInterpolator

import randsmap

# %%
# A pulse moves and spreads. The field is known at 120 pairs of the time t and the diffusivity.

x = (np.arange(400) + 0.5) / 400


def pulse(parameters):
    """Fields of mass 1 at (t, logarithm of the diffusivity), one per row."""
    t, diffusivity = parameters[:, :1], 10.0 ** parameters[:, 1:]
    fields = np.exp(-((x - 0.15 - 0.7 * t) ** 2) / (2 * (0.02**2 + 2 * diffusivity * t)))
    return fields / fields.sum(axis=1, keepdims=True)


low, high = np.array([0.0, -4.0]), np.array([1.0, -2.5])
corners = np.array(np.meshgrid(*zip(low, high))).reshape(2, -1).T
known = np.concatenate([corners, np.random.default_rng(0).uniform(low, high, (116, 2))])
snapshots = pulse(known)

# %%
# The model encodes the fields. A regressor (`AutoDecoder` by default) maps parameters to latent coordinates.

encoder = randsmap.POD(8, invariants="mass")
decoder = randsmap.AutoDecoder(families=("gaussian", "matern", "thin-plate"), n_trials=12, random_state=0)
parametric = randsmap.ParametricModel(randsmap.ManifoldModel(encoder, decoder)).fit(known, snapshots)

# %%
# Errors at 300 new pairs, compared with linear interpolation of the fields cell by cell.

new = np.random.default_rng(1).uniform(low, high, (300, 2))
truth = pulse(new)
predicted = parametric.predict(new)
linear = LinearNDInterpolator((known - low) / (high - low), snapshots)((new - low) / (high - low))
for name, fields in {"ParametricModel": predicted, "linear interpolation": linear}.items():
    errors = randsmap.metrics.relative_l2(truth, fields)
    print(f"{name:22} error {errors.mean():.2%}, worst {errors.max():.1%}")
print(f"largest mass error {abs(predicted.sum(axis=1) - 1).max():.0e}")

figure, axes = plt.subplots(1, 3, figsize=(11, 3.6), layout="constrained", sharex=True)
for ax, number in zip(axes, np.argsort(new[:, 0])[[60, 150, 240]]):
    ax.fill_between(x, truth[number], color="0.5", alpha=0.4, lw=0, label="reference")
    ax.plot(x, linear[number], "C1--", label="linear interpolation")
    ax.plot(x, predicted[number], "C0", label="ParametricModel")
    ax.set(
        xlabel="x",
        ylabel="field" if ax is axes[0] else "",
        title=f"t = {new[number, 0]:.2f}, diffusivity {10 ** new[number, 1]:.1e}",
    )
axes[0].legend(fontsize="small")

# %%
# Where in the plane of parameters the errors are: far from the known pairs (crosses) and where the pulse is narrow.

figure, ax = plt.subplots(figsize=(6.5, 4), layout="constrained")
errors = randsmap.metrics.relative_l2(truth, predicted)
picture = ax.scatter(*new.T, c=np.log10(errors), s=25)
ax.plot(*known.T, "x", color="0.5", ms=4)
ax.set(xlabel="t", ylabel="log10 of the diffusivity")
figure.colorbar(picture, ax=ax, label="log10 of the relative error")
plt.show()

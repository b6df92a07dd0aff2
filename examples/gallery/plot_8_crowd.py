"""
A crowd around an obstacle
==========================

Cells that are constant in all snapshots are exact: nobody appears inside the obstacle, and nobody is lost.
"""

# sphinx_gallery_thumbnail_path = "_static/thumbnails/8.png"
import matplotlib.pyplot as plt
import numpy as np

import randsmap
from randsmap.datasets import make_hughes
from randsmap.plotting import plot_embedding

# %%
# Fifteen crowds walk through a corridor of 80 x 20 cells. Every fifth is left out. Twelve crowds are few, so that the
# error of unseen ones is large.

shape = (80, 20)
crowd = make_hughes(15, 25, n_cells=shape, t_end=20.0, dt=0.05, random_state=0)
train = crowd.trajectories % 5 > 0
constant = np.ptp(crowd.data[train], axis=0) == 0
print(f"{train.sum()} fields, {constant.sum()} of {constant.size} cells constant")

# %%
# The mass is the only invariant: nobody leaves within this time. Bounds make the densities nonnegative.

encoder = randsmap.DiffusionMaps(3).fit(crowd.data[train])
decoder = randsmap.AutoDecoder(n_trials=8, bounds="nonnegative", random_state=0)
decoder.fit(encoder.transform(crowd.data[train]), crowd.data[train], groups=crowd.trajectories[train])
latents = encoder.transform(crowd.data[~train])
fields = decoder.predict(latents)
error = randsmap.metrics.relative_l2(crowd.data[~train], fields).mean()
print(f"error {error:.1%} for unseen crowds, lowest density {fields.min():.0e}")
print(f"in constant cells exactly the training value: {(fields[:, constant] == crowd.data[0, constant]).all()}")
print(f"largest mass error {abs(fields.sum(axis=1) - 1).max():.0e}")

# %%
figure, axes = plt.subplots(4, 2, figsize=(10, 6.2), layout="constrained", sharex=True, sharey=True)
solid = np.ma.masked_equal(constant.reshape(shape).T, False)
for line, row in zip(axes, (0, 8, 16, 24)):
    truth = crowd.data[~train][row]
    for ax, field, name in zip(line, (truth, fields[row]), ("reference", "decoded")):
        scale = {"vmin": 0, "vmax": crowd.data[~train][:25].max()}
        image = ax.imshow(field.reshape(shape).T, origin="lower", extent=(0, 20, 0, 5), **scale)
        ax.imshow(solid, origin="lower", extent=(0, 20, 0, 5), cmap="gray", vmin=0, vmax=2)
        ax.set_title(f"{name}, {crowd.times[~train][row]:.0f} s", fontsize="medium")
figure.colorbar(image, ax=axes, label="share of the crowd in a cell")
figure.supxlabel("x, m")
figure.supylabel("y, m")

# %%
# An unseen crowd in the latent space, over the training crowds.

figure, ax = plt.subplots(figsize=(6, 4.5), layout="constrained")
plot_embedding(encoder.transform(crowd.data[train])[:, :2], crowd.times[train], label="time, s", ax=ax)
ax.plot(*latents[:25, :2].T, "x", color="0.5", ms=6, label="unseen")
ax.legend()
plt.show()

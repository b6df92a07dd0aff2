"""
From snapshots to coordinates and back
======================================

Traffic on a ring road is encoded in three numbers per field and decoded again. The mass is exact.
"""

# sphinx_gallery_thumbnail_path = "_static/thumbnails/1.png"
import matplotlib.pyplot as plt
import numpy as np

import randsmap
from randsmap.datasets import make_lwr
from randsmap.plotting import plot_embedding, plot_space_time

# %%
# Sixteen trajectories of the traffic equation on 400 cells, one field per row. Every fifth trajectory is
# left out for the test, so that the test fields belong to unseen trajectories.

traffic = make_lwr(16, 40, random_state=0)
test = traffic.trajectories % 5 == 0
train, held_out = traffic.data[~test], traffic.data[test]
print(f"{len(train)} fields to train, {len(held_out)} to test, of {train.shape[1]} cells")

# %%
# An encoder and a decoder make a model. `AutoDecoder` selects a decoder by cross-validation. It enforces the mass if
# all snapshots have the same mass.

groups = traffic.trajectories[~test]
encoder = randsmap.DiffusionMaps(n_components=3, epsilon_scale=0.3).fit(train)
latents = encoder.transform(train)
decoder = randsmap.AutoDecoder(n_trials=8, random_state=0).fit(latents, train, groups=groups)

figure, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
axes[0].plot(traffic.cell_centers, train[[5, 15, 25]].T)
axes[0].set(xlabel="position on the ring", ylabel="density of cars", title="three training fields")
mean_place = np.angle(train @ np.exp(2j * np.pi * np.arange(400) / 400))
plot_embedding(latents[:, :2], mean_place, label="mean position of the cars, rad", cyclic=True, ax=axes[1])

# %%
# The first two latent coordinates (above, right) give the position of the cars on the ring. An unseen trajectory,
# encoded and decoded:

fields = decoder.predict(encoder.transform(held_out))
errors = randsmap.metrics.relative_l2(held_out, fields)
mass = abs(fields.sum(axis=1) - 1).max()
print(f"mean relative L2 error {errors.mean():.1%}; largest mass error {mass:.0e}")

one = traffic.trajectories[test] == 5
figure, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
for ax, values, title in zip(axes, (held_out[one], fields[one]), ("reference", "decoded from three numbers per field")):
    plot_space_time(values, traffic.times[test][one], ax=ax)
    ax.collections[0].set_clim(0, held_out[one].max())
    ax.set_title(title)
plt.show()

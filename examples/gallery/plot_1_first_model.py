"""
From snapshots to latents and back
==================================

Densities of cars on a ring road are encoded in two numbers a field and decoded again. Every decoded field holds as
many cars as the road does.
"""

import matplotlib.pyplot as plt
import numpy as np

import randsmap
from randsmap.datasets import make_lwr
from randsmap.plotting import plot_embedding, plot_space_time

# %%
# Sixteen trajectories of the traffic equation on 400 cells, one field a row. Every fifth trajectory is
# put aside for the test, so that test fields are of trajectories never seen.

traffic = make_lwr(16, 40, random_state=0)
test = traffic.trajectories % 5 == 0
train, held_out = traffic.data[~test], traffic.data[test]
print(f"{len(train)} fields to train, {len(held_out)} to test, of {train.shape[1]} cells")

# %%
# An encoder and a decoder make a model. `AutoDecoder` looks for a decoder by errors on fields that it leaves out, and
# keeps the mass if all snapshots have the same.

groups = traffic.trajectories[~test]
encoder = randsmap.DiffusionMaps(n_components=3, epsilon_scale=0.3).fit(train)
latents = encoder.transform(train)
decoder = randsmap.AutoDecoder(n_trials=8, random_state=0).fit(latents, train, groups=groups)

figure, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
plot_embedding(latents[:, :2], traffic.times[~test], label="time", ax=axes[0])
mean_place = np.angle(train @ np.exp(2j * np.pi * np.arange(400) / 400))
plot_embedding(latents[:, :2], mean_place, label="where the cars are", cyclic=True, ax=axes[1])

# %%
# The first two latent coordinates (above) are where on the ring the cars are. A trajectory that the model has not seen,
# encoded and decoded:

fields = decoder.predict(encoder.transform(held_out))
errors = randsmap.metrics.relative_l2(held_out, fields)
mass = abs(fields.sum(axis=1) - 1).max()
print(f"mean relative L2 error {errors.mean():.1%}; total mass is off by {mass:.0e} at most")

one = traffic.trajectories[test] == 5
figure, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
for ax, values, title in zip(axes, (held_out[one], fields[one]), ("computed", "decoded from three numbers a field")):
    plot_space_time(values, traffic.times[test][one], ax=ax)
    ax.collections[0].set_clim(0, held_out[one].max())
    ax.set_title(title)
plt.show()

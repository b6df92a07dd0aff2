"""
Fields that move
================

Waves need many coordinates. `ShiftRegistration` takes the shift out and puts it back, with the exact mass.
"""

# sphinx_gallery_thumbnail_path = "_static/thumbnails/5.png"
import matplotlib.pyplot as plt
import numpy as np

import randsmap
from randsmap.datasets import make_lwr
from randsmap.plotting import plot_space_time

traffic = make_lwr(16, 30, random_state=0)
test = traffic.trajectories % 5 == 0
train, held_out = traffic.data[~test], traffic.data[test]

# %%
# Three coordinates in all: three modes of the fields, compared with the shift and two coordinates of the shape.

decoder = randsmap.AutoDecoder(families=("gaussian", "matern", "thin-plate"), n_trials=8, random_state=0)
models = {
    "three coordinates": randsmap.ManifoldModel(randsmap.POD(3), decoder),
    "shift and two coordinates": randsmap.ShiftRegistration(randsmap.ManifoldModel(randsmap.POD(2), decoder)),
}
decoded = {}
for name, model in models.items():
    model.fit(train)
    decoded[name] = model.inverse_transform(model.transform(held_out))
    error = randsmap.metrics.relative_l2(held_out, decoded[name]).mean()
    mass = abs(decoded[name].sum(axis=1) - 1).max()
    print(f"{name:26} error {error:.1%} for unseen trajectories, largest mass error {mass:.0e}")

# %%
# An unseen trajectory, its two reconstructions, and the same fields with the shift taken out.

one = traffic.trajectories[test] == 5
times = traffic.times[test][one]
phases = models["shift and two coordinates"].transform(held_out[one])[:, 0]
cells = np.round(400 * phases / (2 * np.pi)).astype(int)
registered = np.array([np.roll(field, -shift) for field, shift in zip(held_out[one], cells)])
figure, axes = plt.subplots(2, 2, figsize=(10, 7), layout="constrained", sharex=True)
panels = {"reference": held_out[one], **{name: fields[one] for name, fields in decoded.items()}}
panels["reference, shift taken out"] = registered
for ax, (name, fields) in zip(axes.flat, panels.items()):
    plot_space_time(fields, times, ax=ax)
    ax.collections[0].set_clim(0, held_out[one].max())
    ax.set_title(name)
plt.show()

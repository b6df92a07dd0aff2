"""
A reduced model of a drop in a vortex
=====================================

Six coordinates and 200 of 14400 cells, without negative values and with the exact mass.

A vortex stirs a crowded drop, which moves more slowly where it is dense. The full model has 14400 cells. The reduced
model advances six latent coordinates and evaluates the equation in 200 cells.
"""

# sphinx_gallery_thumbnail_path = "_static/thumbnails/7.png"
import matplotlib.pyplot as plt
import numpy as np
from scipy.integrate import solve_ivp
from sklearn.base import clone

import randsmap

# %%
# The full model: df/dt = nu Laplace(f) - div(u f (1 - f / F)), in conservative differences on a periodic square.

N, NU, F = 120, 2e-3, 40.0
side = (np.arange(N) + 0.5) / N
X, Y = np.meshgrid(side, side, indexing="ij")
WIND = 0.5 * np.stack([np.sin(2 * np.pi * Y), -np.sin(2 * np.pi * X)])  # divergence-free
TIMES = np.linspace(0.0, 1.0, 16)


def rate(f, west, east, south, north, u, v):
    """df/dt from the values in a cell and its neighbours; u does not change along x, nor v along y."""

    def flux(f):
        return f * (1 - f / F)

    diffusion = west + east + south + north - 4 * f
    return NU * N**2 * diffusion - (u * (flux(east) - flux(west)) + v * (flux(north) - flux(south))) * (N / 2)


def full_rate(t, f):
    f = f.reshape(N, N)
    return rate(f, np.roll(f, 1, 0), np.roll(f, -1, 0), np.roll(f, 1, 1), np.roll(f, -1, 1), *WIND).ravel()


def drop(x, y):
    """A field of mean 1 whose centre is at (x, y)."""
    f = np.exp(-((X - x) ** 2 + (Y - y) ** 2) / (2 * 0.08**2)).ravel()
    return f / f.mean()


def solve(velocity, start, **options):
    solution = solve_ivp(velocity, (TIMES[0], TIMES[-1]), start, t_eval=TIMES, **options)
    return solution.y.T, solution.nfev


def solve_full(start):
    return solve(full_rate, start, method="RK23", rtol=1e-4, atol=1e-4)


# %%
# Training fields: drops from nine positions. Time stepping leaves slightly negative values. `project_bounds` removes
# them and preserves the mass, so that the training fields lie within the bounds of the decoder below.

starts = [(x, y) for x in (0.28, 0.32, 0.36) for y in (0.6, 0.64, 0.68)]
snapshots = np.concatenate([solve_full(drop(*start))[0] for start in starts])
print(f"{len(snapshots)} fields of {N * N} cells, lowest value {snapshots.min():.0e}")
snapshots = randsmap.project_bounds(snapshots, lower=0.0, total=float(N * N))

# %%
# Encoder and decoder. The time integration uses the decoder without bounds, in a few cells. The same decoder with
# bounds makes the output fields.

encoder = randsmap.POD(6, invariants="mass").fit(snapshots)
latents = encoder.transform(snapshots)
decoder = randsmap.KernelDecoder("matern", nu=2.5, length_scale=10.0, degree=1, regularization=1e-6, invariants="mass")
decoder.fit(latents, snapshots)
bounded = clone(decoder).set_params(bounds="nonnegative").fit(latents, snapshots)

cells = randsmap.sample_cells(decoder, latents, 200)
needed, beside = randsmap.stencil(cells, (N, N), [(0, 0), (-1, 0), (1, 0), (0, -1), (0, 1)])
wind = WIND.reshape(2, -1)[:, cells]
reduced = randsmap.SampledModel(decoder, lambda t, f: rate(*f[beside].T, *wind), cells, stencil=needed)

# %%
# A drop from a position that is not in the training set, computed by both models. Times are in the guide
# :doc:`/reduced-models`: they depend on the machine.

start = drop(0.335, 0.655)
truth, full_count = solve_full(start)
y = encoder.transform(start[None])[0]
path, count = solve(reduced.velocity, y, rtol=1e-3, atol=1e-4 * np.abs(latents).max())
fields = bounded.predict(path)
errors = randsmap.metrics.relative_l2(truth, fields)
best = randsmap.metrics.relative_l2(truth, bounded.predict(encoder.transform(truth)))
print(f"full model    {full_count} evaluations in {N * N} cells")
print(f"reduced model {count} evaluations in {len(cells)} cells")
print(f"error {errors.mean():.2%} on average, {errors[-1]:.2%} at the end; encoded and decoded {best.mean():.2%}")
print(f"largest mass error {abs(fields.mean(axis=1) - 1).max():.0e}, lowest value {fields.min():.0e}")
print(f"condition of the sampled equations {reduced.condition(path[-1]):.1f}")

# %%
# Fields of both, and the cells in which the equation was evaluated.

figure, axes = plt.subplots(2, 4, figsize=(11, 5.6), layout="constrained", sharex=True, sharey=True)
for line, values, name in zip(axes, (truth, fields), ("full", "reduced")):
    for ax, number in zip(line, (0, 5, 10, 15)):
        image = ax.imshow(values[number].reshape(N, N).T, origin="lower", extent=(0, 1, 0, 1), vmin=0, vmax=15)
        ax.set_title(f"{name}, t = {TIMES[number]:.2g}", fontsize="medium")
        ax.set_xticks([0, 0.5, 1])
figure.colorbar(image, ax=axes, label="density, relative to its mean", extend="max")
figure.supxlabel("x")
figure.supylabel("y")
axes[1, 3].plot(X.flat[cells], Y.flat[cells], "w.", ms=1.5)

# %%
# The error over time, compared with the error of encoding and decoding: a floor for reduced models on this manifold.

figure, ax = plt.subplots(figsize=(7, 3.5), layout="constrained")
ax.semilogy(TIMES, errors, label="reduced model")
ax.semilogy(TIMES, best, "--", label="encoded and decoded")
ax.set(xlabel="time", ylabel="relative L2 error")
ax.legend()
plt.show()

#!/usr/bin/env python3
"""Forecasts beside dynamic mode decomposition and persistence, on trajectories that nobody was fitted to.

    python benchmarks/peers/forecasts.py [NAME ...]            # about a minute of one core

`LatentForecast` is the same on all sets: a POD of 99.99 % of the energy, at most 40 modes, and its defaults. DMD and
EDMD (quadratic monomials of POD coordinates) are given the rank with the least error on the test trajectories
themselves; so is that of PyDMD, if it is installed. Persistence is the last field. Errors are means of the relative L2
error over test trajectories and all steps; the ratio is that of LatentForecast to the best of the others. Coverage is
the share of forecast fields within the error bar for 90 %, and mass the largest change of the mass where it is kept.
"""

import argparse
import time
import warnings

import numpy as np

import randsmap

warnings.simplefilter("ignore")
RANKS = (2, 3, 5, 8, 12, 20, 30, 50)


# -- Trajectories (n, steps, M) and whether the mass is kept -------------------------------------------
def traffic():
    """Cars on a ring road: a bump that steepens into a shock."""
    solver = randsmap.LWRSolver(200, dt=0.01)
    a, w, centre = np.random.default_rng(0).uniform([0.5, 0.4, -1.0], [1.5, 0.9, 1.0], (40, 3)).T[:, :, None]
    initial = np.exp(-(((solver.cell_centers - centre) / w) ** 2)) * 0.5 * a
    return solver.solve(initial + 0.1, 5.0, times=np.linspace(0, 5, 26)).fields, True


def kuramoto_sivashinsky():
    """u_t = -u u_x - u_xx - u_xxxx on a ring of length 22, which is chaotic, by ETDRK4 (Kassam and Trefethen, 2005)."""
    N, h, every = 64, 0.05, 10
    k = np.fft.rfftfreq(N, 1 / N) * 2 * np.pi / 22
    linear = k**2 - k**4
    z = h * linear[:, None] + np.exp(1j * np.pi * (np.arange(32) + 0.5) / 32)
    half = h * np.mean((np.exp(z / 2) - 1) / z, axis=1).real
    f1 = h * np.mean((-4 - z + np.exp(z) * (4 - 3 * z + z**2)) / z**3, axis=1).real
    f2 = h * np.mean((2 + z + np.exp(z) * (z - 2)) / z**3, axis=1).real
    f3 = h * np.mean((-4 - 3 * z - z**2 + np.exp(z) * (4 - z)) / z**3, axis=1).real
    E, E2 = np.exp(h * linear), np.exp(h * linear / 2)

    def rate(v):
        return -0.5j * k * np.fft.rfft(np.fft.irfft(v, N) ** 2)

    x = np.arange(N) / N * 2 * np.pi
    phase, size = np.random.default_rng(1).uniform([[0], [0.2]], [[2 * np.pi], [1.0]], (25, 2, 4)).transpose(1, 0, 2)
    v = np.fft.rfft(sum(size[:, [j]] * np.cos((j + 1) * x + phase[:, [j]]) for j in range(4)))
    fields = []
    for step in range(2000 + 50 * every):
        if step >= 2000 and step % every == 0:
            fields.append(np.fft.irfft(v, N))
        n0 = rate(v)
        a = E2 * v + half * n0
        n1 = rate(a)
        n2 = rate(E2 * v + half * n1)
        n3 = rate(E2 * a + half * (2 * n2 - n0))
        v = E * v + n0 * f1 + 2 * (n1 + n2) * f2 + n3 * f3
    return np.stack(fields, axis=1), False


def fitzhugh_nagumo():
    """An excitable medium on a ring, both of its fields: pulses that travel and annihilate each other."""
    N, dt = 100, 0.02
    x = np.arange(N) / N
    rng = np.random.default_rng(2)
    place, width, kick = rng.uniform([0, 0.08, 0.6], [1, 0.2, 1.2], (40, 3)).T[:, :, None]
    u = kick * np.exp(-(((x - place + 0.5) % 1 - 0.5) ** 2) / width**2)
    w, fields = np.zeros_like(u), []
    for step in range(300, 300 + 40 * 40):
        if step >= 600 and step % 40 == 0:
            fields.append(np.hstack([u, w]))
        spread = (np.roll(u, 1, axis=1) - 2 * u + np.roll(u, -1, axis=1)) * 4.0
        u, w = u + dt * (spread + u * (u - 0.1) * (1 - u) * 8 - w), w + dt * 0.1 * (0.8 * u - 0.5 * w + 0.02)
    return np.stack(fields, axis=1), False


def vortex():
    """A blob that a vortex winds up: turned by an angle that depends on the radius, and diffused."""
    n, side = 30, 24
    x = (np.arange(side) + 0.5) / side * 2 - 1
    x, y = np.meshgrid(x, x)
    radius = np.hypot(x, y)
    rng = np.random.default_rng(3)
    away, angle, width = rng.uniform([0.3, 0, 0.2], [0.6, 2 * np.pi, 0.3], (n, 3)).T[:, :, None, None, None]
    t = np.linspace(0, 4, 26)[:, None, None]
    turned = np.arctan2(y, x) - 1.5 * np.exp(-(radius**2)) * t
    distance = radius**2 + away**2 - 2 * radius * away * np.cos(turned - angle)
    fields = np.exp(-distance / width**2)
    return (fields / fields.sum(axis=(2, 3), keepdims=True)).reshape(n, 26, -1), True


def burgers():
    """u_t + (u^2 / 2)_x = 0.01 u_xx on a ring: waves that steepen, merge and decay."""
    N, dt = 128, 0.002
    x, dx = np.arange(N) / N, 1 / N
    size, phase = np.random.default_rng(4).uniform([[0.2], [0]], [[1.0], [2 * np.pi]], (40, 2, 3)).transpose(1, 0, 2)
    u = 0.5 + 0.4 * sum(size[:, [j]] * np.sin(2 * np.pi * (j + 1) * x + phase[:, [j]]) / (j + 1) for j in range(3))
    fields = []
    for step in range(40 * 12):
        if step % 12 == 0:
            fields.append(u)
        right = np.roll(u, -1, axis=1)
        flux = 0.25 * (u**2 + right**2) - 0.5 * np.maximum(abs(u), abs(right)) * (right - u) / 2
        flux = flux - 0.002 * (right - u) / dx
        u = u - dt / dx * (flux - np.roll(flux, 1, axis=1))
    return np.stack(fields, axis=1), True


SETS = {f.__name__: f for f in (traffic, kuramoto_sivashinsky, fitzhugh_nagumo, vortex, burgers)}


# -- Peers: of trajectories (n, steps, M) and present fields (k, M), forecasts (k, steps, M) -----------
def persistence(train, now, n_steps):
    yield np.repeat(now[:, None], n_steps, axis=1)


def linear_forecasts(train, now, n_steps, lift, ranks):
    """The linear map of least squares between lifted POD coordinates, of several ranks."""
    mean = train.mean(axis=(0, 1))
    rows = train.reshape(-1, train.shape[2]) - mean
    modes = np.linalg.svd(rows, full_matrices=False)[2]
    for rank in ranks:
        W = modes[:rank].T
        Z = lift((train - mean) @ W)
        before, after = Z[:, :-1].reshape(-1, Z.shape[2]), Z[:, 1:].reshape(-1, Z.shape[2])
        K = np.linalg.lstsq(before, after, rcond=1e-10)[0]
        z, found = lift((now - mean) @ W), []
        for _ in range(n_steps):
            z = np.clip(z @ K, -1e9, 1e9)
            found.append(mean + z[:, :rank] @ W.T)
        yield np.stack(found, axis=1)


def dmd(train, now, n_steps):
    return linear_forecasts(train, now, n_steps, lambda Z: Z, RANKS)


def edmd(train, now, n_steps):
    def lift(Z):
        i, j = np.triu_indices(Z.shape[-1])
        return np.concatenate([Z, Z[..., i] * Z[..., j], np.ones_like(Z[..., :1])], axis=-1)

    return linear_forecasts(train, now, n_steps, lift, RANKS[:-2])


def pydmd(train, now, n_steps):
    try:
        from pydmd import DMD
    except ImportError:
        return
    before, after = (part.reshape(-1, train.shape[2]).T for part in (train[:, :-1], train[:, 1:]))
    for rank in RANKS:
        model, found = DMD(svd_rank=rank).fit(before, after), [now.T]
        for _ in range(n_steps):
            found.append(model.predict(found[-1]).real)
        yield np.stack([f.T for f in found[1:]], axis=1)


def error(F, G):
    return float(np.mean(np.linalg.norm(F - G, axis=2) / np.linalg.norm(F, axis=2)))


def ours(train, test, conserved):
    """Forecasts of the test trajectories from their first fields, the share within the error bars, and a note."""
    n, steps, M = train.shape
    rows = train.reshape(-1, M)
    energy = randsmap.POD(0.9999).fit(rows).n_components_
    kept = {"invariants": "mass", "invariant_tol": 1.0} if conserved else {}  # each trajectory keeps its own mass
    model = randsmap.ManifoldModel(randsmap.POD(min(40, energy), **kept))
    forecast = randsmap.LatentForecast(model).fit(rows, groups=np.repeat(np.arange(n), steps))
    found = [forecast.forecast(path[:1], len(path) - 1, return_error=True) for path in test]
    G, bars = np.stack([fields for fields, _ in found]), np.stack([bars for _, bars in found])
    errors = np.linalg.norm(test[:, 1:] - G, axis=2) / np.linalg.norm(test[:, 1:], axis=2)
    return G, float(np.mean(errors <= bars)), forecast


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=list(SETS), metavar="NAME", help=", ".join(SETS))
    options = parser.parse_args()
    print("| set | persistence | DMD | EDMD | PyDMD | LatentForecast | ratio | coverage | mass | seconds |")
    print("|---" * 10 + "|")
    for name in options.names:
        fields, conserved = SETS[name]()
        train, test = fields[: -len(fields) // 5], fields[-len(fields) // 5 :]
        now, later = test[:, 0], test[:, 1:]
        peers = {}
        for peer in (persistence, dmd, edmd, pydmd):
            errors = [error(later, G) for G in peer(train, now, later.shape[1])]
            peers[peer.__name__] = min(errors, default=np.inf)
        start = time.process_time()
        G, coverage, forecast = ours(train, test, conserved)
        seconds, e = time.process_time() - start, error(later, G)
        mass = abs(G.sum(axis=2) - now.sum(axis=1)[:, None]).max() / abs(now).sum(axis=1).max() if conserved else np.nan
        cells = [
            *(f"{value:.1%}" if value < np.inf else "-" for value in peers.values()),
            f"**{e:.1%}**",
            f"{e / min(peers.values()):.2f}",
        ]
        print("|", " | ".join([name, *cells, f"{coverage:.2f}", f"{mass:.0e}", f"{seconds:.1f}"]), "|", flush=True)


if __name__ == "__main__":
    main()

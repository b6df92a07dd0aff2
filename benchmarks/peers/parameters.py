#!/usr/bin/env python3
"""Fields at parameters beside two lines of SciPy and scikit-learn, at random parameters that nobody has seen.

    python benchmarks/peers/parameters.py [NAME ...]            # some two minutes of one core

Ours is `tuning.choose_parametric` as `randsmap fit --parameters` calls it, with its defaults on all problems. The peers
are SciPy's RBFInterpolator (thin plate, cubic, linear) on parameters scaled to [0, 1], of the fields themselves, and a
Gaussian process of scikit-learn with a length scale for each parameter (RBF or Matern 5/2, with noise) on the POD
coefficients of 99.9999 % of the energy. Errors are means of the relative L2 error at 200 parameters; the ratio is that
of ours to the best peer, which is chosen by the test errors themselves.
"""

import argparse
import time
import warnings

import numpy as np
from scipy.interpolate import RBFInterpolator
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern, WhiteKernel

import randsmap

warnings.simplefilter("ignore")


# -- Problems: the box of parameters, the number of snapshots, and fields (n, M) at parameters (n, p) ---
def pulse(P, M=200):
    """A pulse of one mass that moves and widens."""
    x = (np.arange(M) + 0.5) / M
    F = np.exp(-(((x - P[:, :1]) / P[:, 1:]) ** 2))
    return F / F.sum(axis=1, keepdims=True)


def buckley_leverett(P, M=200):
    """Water that displaces oil: ratio of viscosities and time; the mass grows with the time."""
    edges, s = np.linspace(0, 1, M + 1), np.linspace(0, 1, 4001)
    F = []
    for ratio, t in P:
        flux = s**2 / (s**2 + (1 - s) ** 2 / ratio)
        front = np.argmax(flux[1:] / s[1:]) + 1  # the tangent from the origin
        slope = (2 * s * (1 - s) / ratio) / (s**2 + (1 - s) ** 2 / ratio) ** 2
        places, behind = t * slope[front:][::-1], s[front:][::-1]
        cumulative = np.concatenate([[0], np.cumsum(np.diff(places) * (behind[1:] + behind[:-1]) / 2)])
        F.append(np.diff(np.interp(edges, places, cumulative)) * M)
    return np.array(F)


def burgers(P, M=200):
    """A bump that steepens: viscosity and amplitude, by Hopf's and Cole's transformation."""
    x, y = (np.arange(M) + 0.5) / M, np.linspace(-1, 1.5, 1500)
    F = []
    for viscosity, size in P:
        potential = size * 0.1 * np.sqrt(np.pi) / 2 * np.vectorize(_erf)((y - 0.3) / 0.1)
        phase = -(potential[None] + (x[:, None] - y) ** 2 / (2 * 0.4)) / (2 * viscosity)
        weights = np.exp(phase - phase.max(axis=1, keepdims=True))
        F.append((weights @ y * -1 + x * weights.sum(axis=1)) / 0.4 / weights.sum(axis=1))
    return np.array(F)


def _erf(z):
    from math import erf

    return erf(z)


def heat(P, M=200):
    """A rod of four pieces with their own conductivities, warmed evenly."""
    piece = np.minimum((4 * (np.arange(M + 1)) / (M + 1)).astype(int), 3)
    F = []
    for kappa in P:
        resistance = 1 / kappa[piece] / (M + 1)
        s = np.cumsum(resistance)
        load = np.cumsum(resistance * (np.arange(M + 1) + 0.5) / (M + 1))
        flux = load[-1] / s[-1]
        F.append((flux * s - load)[:-1])
    return np.array(F)


def layer(P, M=200):
    """Steady advection and diffusion, with a boundary layer: diffusion and speed."""
    x = (np.arange(M) + 0.5) / M
    diffusion, speed = P[:, :1], P[:, 1:]
    return (
        x - (np.exp((x - 1) * speed / diffusion) - np.exp(-speed / diffusion)) / -np.expm1(-speed / diffusion)
    ) / speed


def resonance(P, M=200):
    """A damped string that is shaken: wave number and damping, five modes."""
    x, k = (np.arange(M) + 0.5) / M, np.pi * np.arange(1, 41)[:, None]
    response = 1 / ((k[:, 0] ** 2 - P[:, :1] ** 2) ** 2 + (P[:, 1:] * P[:, :1]) ** 2) ** 0.5
    return (response * np.sin(k[:, 0] * 0.3)) @ np.sin(k * x)


def vortices(P, M=40):
    """Vorticity of two cores on a plane: strength, distance and radius."""
    y, x = np.mgrid[0:M, 0:M].reshape(2, 1, -1) / (M - 1)
    strength, distance, radius = P.T[:, :, None]
    one = np.exp(-((x - 0.5 - distance / 2) ** 2 + (y - 0.5) ** 2) / radius**2)
    return one + strength * np.exp(-((x - 0.5 + distance / 2) ** 2 + (y - 0.5) ** 2) / radius**2)


def algebraic(P, M=150):
    """A formula with five parameters."""
    x = np.linspace(0, 1, M)
    a, b, c, d, e = P.T[:, :, None]
    return a * np.exp(-b * x) * np.sin(c * x + d) / (1 + e * x**2)


PROBLEMS = {
    "pulse": (pulse, 60, [(0.3, 0.7), (0.03, 0.08)]),
    "Buckley-Leverett": (buckley_leverett, 50, [(0.5, 4.0), (0.1, 0.4)]),
    "Burgers": (burgers, 60, [(0.003, 0.02), (0.5, 1.5)]),
    "heat": (heat, 100, [(0.2, 2.0)] * 4),
    "advection-diffusion": (layer, 30, [(0.02, 0.5), (0.5, 2.0)]),
    "resonance": (resonance, 80, [(2.0, 8.0), (0.3, 1.0)]),
    "vortices": (vortices, 80, [(0.3, 1.0), (0.2, 0.5), (0.06, 0.15)]),
    "algebraic": (algebraic, 100, [(0.5, 2.0), (0.0, 3.0), (1.0, 6.0), (0.0, 1.5), (0.0, 4.0)]),
}


def peers(P, F, new):
    """Fields at new parameters by the name of the peer."""
    low, size = P.min(axis=0), np.ptp(P, axis=0)
    scaled, there = (P - low) / size, (new - low) / size
    for kernel in ("thin_plate_spline", "cubic", "linear"):
        yield kernel.split("_")[0], lambda kernel=kernel: RBFInterpolator(scaled, F, kernel=kernel)(there)

    def process(kernel):
        mean = F.mean(axis=0)
        U, sigma, modes = np.linalg.svd(F - mean, full_matrices=False)
        kept = int(np.searchsorted(np.cumsum(sigma**2) / (sigma**2).sum(), 1 - 1e-6)) + 1
        coefficients = (U * sigma)[:, :kept]
        kernel = ConstantKernel(1.0) * kernel + WhiteKernel(1e-6, (1e-12, 1e-1))
        found = GaussianProcessRegressor(kernel, normalize_y=True, random_state=0).fit(scaled, coefficients)
        return mean + found.predict(there).reshape(len(there), -1) @ modes[:kept]

    ones = np.ones(P.shape[1])
    yield "GP RBF", lambda: process(RBF(ones, (1e-2, 1e2)))
    yield "GP Matern", lambda: process(Matern(ones, (1e-2, 1e2), nu=2.5))


def judge(fields, n, box, seed=0):
    """Names, errors and processor seconds: of ours, then of the peers."""
    low, high = np.array(box, float).T
    rng = np.random.default_rng(seed)
    P, new = rng.uniform(low, high, (n, len(low))), rng.uniform(low, high, (200, len(low)))
    F, truth = fields(P), fields(new)

    def ours():
        result = randsmap.tuning.choose_parametric(None, P, F)
        names.append(("POD", "quantiles")[result.best_index_])
        return result.best_model_.predict(new)

    names, rows = [], []
    for name, predict in (("", ours), *peers(P, F, new)):
        start = time.process_time()
        errors = randsmap.metrics.relative_l2(truth, predict())
        rows.append((name, float(errors.mean()), time.process_time() - start))
    return names[0], rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[[], *PROBLEMS], metavar="NAME", help=", ".join(PROBLEMS))
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    print("| problem | n | p | ours | chosen | best peer | ratio | ours, s | peer, s |")
    print("|---|---|---|---|---|---|---|---|---|")
    ratios = []
    for name in arguments.names or PROBLEMS:
        fields, n, box = PROBLEMS[name]
        chosen, ((_, ours, seconds), *others) = judge(fields, n, box, arguments.seed)
        best, error, theirs = min(others, key=lambda row: row[1])
        ratios.append(ours / error)
        print(
            f"| {name} | {n} | {len(box)} | {ours:.2e} | {chosen} | {error:.2e} ({best}) | {ours / error:.2f} | "
            f"{seconds:.1f} | {theirs:.1f} |",
            flush=True,
        )
    print(f"\nGeometric mean of the ratios: {np.exp(np.mean(np.log(ratios))):.2f}")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Held-out error of decoders on real snapshots, each tuned over as many candidates, on the same latents and rows.

    python benchmarks/peers/accuracy.py --data FOLDER [--seeds 3] [--d 2] [--blocks]

For every FOLDER/*.npz (array `data`, one field a row): 75 % of the rows train, a fifth of those choose among a method's
candidates, 25 % test; latents are diffusion maps of dimension d, fitted on the training rows. --blocks takes rows in
ten consecutive blocks instead of at random, so that test fields have no neighbour in time among the training fields.
Prints the mean relative L2 over the seeds, that over the best of the peers on the same latents (SciPy's RBF
interpolator, scikit-learn's neighbours and kernel ridge) and over the best of all peers, those with latents of their
own (PCA, kernel PCA) included (errors below 1e-6, with --blocks 1e-3, count as that), the worst error of the mass where
the data keep it, and processor seconds. Needs randsmap, scipy and scikit-learn.
"""

import argparse
import time
import warnings
from pathlib import Path

import numpy as np
from scipy.interpolate import RBFInterpolator
from sklearn.decomposition import PCA, KernelPCA
from sklearn.kernel_ridge import KernelRidge
from sklearn.neighbors import KNeighborsRegressor

import randsmap as rm

warnings.simplefilter("ignore")


def relative(F, G):
    return float(np.mean(np.linalg.norm(F - G, axis=1) / np.linalg.norm(F, axis=1)))


def methods(train, invariants, d, groups):
    """Name -> candidates; each maps (train fields, train latents, latents, fields) to decoded fields.

    groups: the block of each training row, or None.
    """
    width = 1 / np.median(np.linalg.norm(train[:150, None] - train[None, :150], axis=2)) ** 2

    def randsmap(slope, ridge):
        return lambda X, Y, Z, W: (
            rm.RANDSMAPDecoder(rm.SigmoidFeatures(slope), regularization=ridge, invariants=invariants, random_state=0)
            .fit(Y, X)
            .predict(Z)
        )

    def rbf(kernel, smoothing):
        return lambda X, Y, Z, W: RBFInterpolator(Y, X, kernel=kernel, smoothing=smoothing, epsilon=1.0)(Z)

    def neighbors(k, weights):
        return lambda X, Y, Z, W: KNeighborsRegressor(k, weights=weights).fit(Y, X).predict(Z)

    def ridge(gamma, alpha):
        return lambda X, Y, Z, W: KernelRidge(kernel="rbf", gamma=gamma, alpha=alpha).fit(Y, X).predict(Z)

    def kernel_pca(gamma, alpha):
        def run(X, Y, Z, W):
            model = KernelPCA(d, kernel="rbf", gamma=gamma * width, alpha=alpha, fit_inverse_transform=True).fit(X)
            return model.inverse_transform(model.transform(W))

        return run

    ours = {
        "randsmap, untuned": [
            lambda X, Y, Z, W: rm.RANDSMAPDecoder(invariants=invariants, random_state=0).fit(Y, X).predict(Z)
        ],
        "randsmap, 12 candidates": [randsmap(s, r) for s in (0.3, 1, 3, 10) for r in (1e-8, 1e-5, 1e-3)],
    }
    if hasattr(rm, "AutoDecoder"):
        ours["randsmap, AutoDecoder"] = [
            lambda X, Y, Z, W: rm.AutoDecoder(invariants=invariants, random_state=0).fit(Y, X, groups=groups).predict(Z)
        ]
    if hasattr(rm, "autotune"):  # chooses the encoder too

        def autotune(X, Y, Z, W):
            model = rm.autotune(X, n_components=d, groups=groups, random_state=0).best_model_
            return model.inverse_transform(model.transform(W))

        ours["randsmap, autotune"] = [autotune]
    peers = {
        "scipy RBFInterpolator": [
            rbf(k, s) for k in ("thin_plate_spline", "linear", "gaussian") for s in (1e-8, 1e-4, 1e-2, 1.0)
        ],
        "sklearn KNeighbors": [neighbors(k, w) for k in (2, 3, 4, 5, 8, 12) for w in ("uniform", "distance")],
        "sklearn KernelRidge": [ridge(g, a) for g in (0.1, 1, 10, 100) for a in (1e-8, 1e-5, 1e-2)],
        "sklearn KernelPCA": [kernel_pca(g, a) for g in (0.1, 0.5, 2, 10) for a in (1e-5, 1e-3, 1e-1)],
        "sklearn PCA": [lambda X, Y, Z, W: (lambda m: m.inverse_transform(m.transform(W)))(PCA(d).fit(X))],
    }
    return ours, peers


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--d", type=int, default=2)
    parser.add_argument("--blocks", action="store_true")
    options = parser.parse_args()
    for path in sorted(options.data.glob("*.npz")):
        F = np.ascontiguousarray(np.load(path)["data"], dtype=np.float64)
        results, peer_names = {}, []
        for seed in range(options.seeds):
            rng = np.random.default_rng(seed)
            if options.blocks:
                blocks = np.array_split(np.arange(len(F)), 10)
                order = rng.permutation(10)
                rows = np.concatenate([blocks[i] for i in order])
                block = np.concatenate([np.full(len(blocks[i]), i) for i in order])
            else:
                rows, block = rng.permutation(len(F)), None
            n = int(0.75 * len(F))
            train, test, k = F[rows[:n]], F[rows[n:]], int(0.8 * n)
            A, B = train[:k], train[k:]
            mass = np.ptp(train.sum(1)) <= 1e-9 * np.abs(train).sum(1).max()
            half, whole = rm.DiffusionMaps(options.d).fit(A), rm.DiffusionMaps(options.d).fit(train)
            YA, YB, Y, Z = half.transform(A), half.transform(B), whole.transform(train), whole.transform(test)
            ours, peers = methods(train, "mass" if mass else None, options.d, None if block is None else block[:n])
            peer_names = list(peers)
            for name, candidates in {**ours, **peers}.items():
                start, best = time.process_time(), 0
                if len(candidates) > 1:
                    errors = []
                    for candidate in candidates:
                        try:
                            error = relative(B, candidate(A, YA, YB, B))
                        except (ValueError, np.linalg.LinAlgError):
                            error = np.inf
                        errors.append(error if np.isfinite(error) else np.inf)
                    best = int(np.argmin(errors))
                G = candidates[best](train, Y, Z, test)
                lost = np.max(np.abs(test.sum(1) - G.sum(1)) / np.abs(test).sum(1)) if mass else np.nan
                results.setdefault(name, []).append((relative(test, G), lost, time.process_time() - start))
        mean = {name: float(np.mean([r[0] for r in rows])) for name, rows in results.items()}
        floor = 1e-3 if options.blocks else 1e-6  # below it fields repeat themselves, and ratios say nothing
        best_peer = max(floor, min(mean[name] for name in peer_names))
        same_latents = max(floor, min(mean[name] for name in peer_names if not name.endswith("PCA")))
        print(f"{path.stem} {F.shape}")
        for name, rows in results.items():
            print(
                f"  {name:26s} L2 {mean[name]:.2e}"
                f"  / best on these latents {max(floor, mean[name]) / same_latents:7.2f}"
                f"  / best of all {max(floor, mean[name]) / best_peer:7.2f}  mass {max(r[1] for r in rows):.0e}"
                f"  {np.mean([r[2] for r in rows]):.2f} s",
                flush=True,
            )


if __name__ == "__main__":
    main()

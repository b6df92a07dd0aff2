#!/usr/bin/env python3
"""Error bars of new fields: how often they hold, whether they tell large errors from small ones, and how wide they are.

    python benchmarks/peers/error_bars.py [FILE.npz ...]       # about a minute of one core; files with snapshots `data`

Random quarters of the snapshots are left out (`SPLITS`), a decoder or `autotune` is fitted to the others at d = 2
(diffusion maps), and the errors of the fields left out are compared with their bars for 90 %. The rank correlation is
Spearman's. The width is that of the geometric mean bar over the best constant: the errors' own 90 % quantile among the
training fields that were left out. Corners: of two parameters, one corner of four is left out in turn.
"""

import sys
import warnings

import numpy as np
from scipy.stats import spearmanr
from sklearn.base import clone

import randsmap
from randsmap.metrics import relative_l2

warnings.simplefilter("ignore")
SPLITS = 4
X = np.linspace(0, 1, 60)
MAPS = randsmap.DiffusionMaps(2)
DECODERS = {
    "AutoDecoder": randsmap.AutoDecoder(random_state=0),
    "kernel": randsmap.KernelDecoder("thin-plate", degree=1, regularization=1e-6),
    "features": randsmap.RFNNDecoder(random_state=0),
    "k-NN": randsmap.KNNDecoder(4),
}


def pulses(P):
    return np.exp(-(((X - 0.25 - 0.5 * P[:, :1]) / (0.08 + 0.12 * P[:, 1:])) ** 2))


def front(P):
    return 1 / (1 + np.exp((X - 0.2 - 0.6 * P[:, :1]) / (0.02 + 0.05 * P[:, 1:])))


def step(P):
    return (X < 0.2 + 0.6 * P[:, :1]) * (1 + P[:, 1:]) + 0.1


def judged(fields, decoded, bar, known):
    """Coverage, rank correlation and width; `known` is the fitted bar."""
    errors = relative_l2(fields, decoded)
    return (
        np.mean(errors <= bar),
        spearmanr(errors, bar)[0],
        np.exp(np.mean(np.log(bar / np.quantile(known.errors, 0.9)))),
    )


def random_rows(F):
    """Of each decoder and of `autotune` the figures of each split."""
    found = {name: [] for name in (*DECODERS, "autotune")}
    for seed in range(SPLITS):
        test = np.random.default_rng(seed).permutation(len(F)) < len(F) // 4
        latents = clone(MAPS).fit(F[~test])
        Y, new = latents.transform(F[~test]), latents.transform(F[test])
        for name, decoder in DECODERS.items():
            fitted = clone(decoder).fit(Y, F[~test])
            found[name].append(judged(F[test], *fitted.predict(new, return_error=True), fitted.error_bar_))
        model = randsmap.autotune(F[~test], model=randsmap.ManifoldModel(MAPS), n_trials=1, random_state=0).best_model_
        result = model.inverse_transform(model.transform(F[test]), return_error=True)
        found["autotune"].append(judged(F[test], *result, model.error_bar_))
    return found


def corners(make):
    """Shares of the fields of each corner within the bars of models that are fitted without it."""
    for seed in range(2):
        P, new = (np.random.default_rng(s).uniform(size=(n, 2)) for s, n in ((seed, 150), (seed + 50, 200)))
        for corner in ((0.7, 0.7), (0.0, 0.7), (0.7, 0.0), (0.0, 0.0)):
            rest = ~((corner <= P) & (np.add(corner, 0.3) >= P)).all(axis=1)
            there = np.array(corner) + 0.3 * new
            for name, encoder in (("all modes", randsmap.POD(1 - 1e-9)), ("6 modes", randsmap.POD(6))):
                model = randsmap.ParametricModel(encoder).fit(P[rest], make(P[rest]))
                decoded, bar = model.predict(there, return_error=True)
                yield name, np.mean(relative_l2(make(there), decoded) <= bar)


def main():
    print("| set | what | coverage | rank correlation | width |\n" + "|---" * 5 + "|")
    sets = {"pulses": pulses(np.random.default_rng(5).uniform(size=(240, 2)))}
    sets |= {path: np.load(path)["data"].astype(float) for path in sys.argv[1:]}
    for name, F in sets.items():
        for what, splits in random_rows(F).items():
            coverage, rank, width = np.mean(splits, axis=0)
            print(f"| {name} | {what} | {coverage:.2f} | {rank:.2f} | {width:.2f} |", flush=True)
    print("\n| corners of | model | mean | least |\n" + "|---" * 4 + "|")
    for make in (pulses, front, step):
        shares = list(corners(make))
        for what in dict.fromkeys(name for name, _ in shares):
            own = [share for name, share in shares if name == what]
            print(f"| {make.__name__} | {what} | {np.mean(own):.2f} | {min(own):.2f} |", flush=True)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""The decision table of docs/decoders.md: decoders on data that the package makes, on the same latents and rows.

    python benchmarks/peers/decoders.py            # half a minute of one core; prints Markdown

Half of the fields (traffic and crowd: of the trajectories) train, the others test. Latents are diffusion maps fitted to
the training fields, the same for all rows but those that name another encoder. "12 candidates" are compared on a fifth
of the training fields, held out with their whole trajectories where there are some. Errors are means of the relative L2
error. Seconds and microseconds are processor time, of the traffic: a fit with its tuning, and a one-row predict.
"""

import argparse
import time
import warnings
from itertools import product

import numpy as np
from scipy.interpolate import RBFInterpolator
from sklearn.base import clone
from sklearn.neighbors import KNeighborsRegressor

import randsmap as rm

warnings.simplefilter("ignore")


class RBF:
    """SciPy's interpolator as a regressor."""

    def __init__(self, kernel, smoothing):
        self.kernel, self.smoothing = kernel, smoothing

    def fit(self, Y, F):
        self.scale = Y.std(axis=0)
        self.interpolator = RBFInterpolator(
            Y / self.scale, F, kernel=self.kernel, smoothing=self.smoothing, epsilon=1.0
        )
        return self

    def predict(self, Y):
        return self.interpolator(Y / self.scale)


def data_sets():
    """Name -> (fields, group of each or None, encoder, mass or None)."""
    traffic = rm.datasets.make_lwr(40, 20, random_state=0)
    crowd = rm.datasets.make_hughes(24, 20, n_cells=(80, 20), t_end=20.0, dt=0.05, random_state=0)
    return {
        "traffic": (traffic.data, traffic.trajectories, rm.DiffusionMaps(3, epsilon_scale=0.3), "mass"),
        "crowd": (crowd.data, crowd.trajectories, rm.DiffusionMaps(4), "mass"),
        "images": (rm.datasets.make_rotated_images(360, shape=64).data, None, rm.DiffusionMaps(2), "mass"),
        "S-curve": (
            rm.datasets.make_s_curve(800, random_state=0).data,
            None,
            rm.DiffusionMaps(2, epsilon_scale=0.2, select="non-harmonic"),
            None,
        ),
    }


def error(F, G):
    return float(rm.metrics.relative_l2(F, G).mean())


def candidates(mass, encoder):
    """Name -> decoders to choose from."""
    lambdas = (1e-8, 1e-5, 1e-3)
    return {
        "`AutoDecoder()`": [rm.AutoDecoder(random_state=0)],
        "`KernelDecoder`, Matern with a tail, 12 candidates": [
            rm.KernelDecoder("matern", degree=1, length_scale=s, regularization=r, invariants=mass)
            for s, r in product((0.3, 1.0, 3.0, 10.0), lambdas)
        ],
        "`RANDSMAPDecoder()`, untuned": [rm.RANDSMAPDecoder(invariants=mass, random_state=0)],
        "`RANDSMAPDecoder`, sigmoids, 12 candidates": [
            rm.RANDSMAPDecoder(rm.SigmoidFeatures(s), regularization=r, invariants=mass, random_state=0)
            for s, r in product((0.3, 1.0, 3.0, 10.0), lambdas)
        ],
        "`DoubleDiffusionMapsDecoder`, 12 candidates": [
            rm.DoubleDiffusionMapsDecoder(epsilon_scale=s, rank=r, invariants=mass)
            for s, r in product((0.1, 0.2, 0.4, 0.8), (30, 100, "rule"))
        ],
        "`KNNDecoder`, nearest latents, k = 2 to 13": [rm.KNNDecoder(k) for k in range(2, 14)],
        '`KNNDecoder(objective="encoder")`, k = 5': [rm.KNNDecoder(5, objective="encoder", encoder=encoder)],
        "SciPy's `RBFInterpolator`, 12 candidates": [
            RBF(kernel, r)
            for kernel, r in product(("thin_plate_spline", "cubic", "gaussian", "linear"), (1e-10, 1e-6, 1e-3))
        ],
        "scikit-learn's k-NN, 12 candidates": [
            KNeighborsRegressor(k, weights=w) for k, w in product((1, 2, 3, 5, 8, 12), ("uniform", "distance"))
        ],
    }


def fitted(choice, Y, F, groups, rng):
    """The best of the candidates by cross-validation errors, fitted to all rows."""
    if len(choice) > 1:
        labels = np.arange(len(F)) if groups is None else groups
        held_out = np.isin(labels, rng.permutation(np.unique(labels))[: max(1, len(np.unique(labels)) // 5)])
        losses = []
        for decoder in choice:
            try:
                decoder.fit(Y[~held_out], F[~held_out])
                losses.append(error(F[held_out], decoder.predict(Y[held_out])))
            except (ValueError, np.linalg.LinAlgError):  # a candidate that cannot be fitted
                losses.append(np.inf)
        choice = [choice[int(np.argmin(losses))]]
    decoder = choice[0] if isinstance(choice[0], RBF) else clone(choice[0])
    if isinstance(decoder, rm.AutoDecoder):
        return decoder.fit(Y, F, groups=groups)
    return decoder.fit(Y, F)


def main(names):
    table, seconds, row = {}, {}, {}
    for name, (fields, groups, encoder, mass) in data_sets().items():
        if names and name not in names:
            continue
        labels = np.arange(len(fields)) if groups is None else groups
        train = labels % 2 == 0
        F, G = fields[train], fields[~train]
        trajectories = None if groups is None else groups[train]
        encoder.fit(F)
        Y, Z = encoder.transform(F), encoder.transform(G)
        whole = {
            "quadratic features of `POD`": lambda: rm.ManifoldModel(
                rm.POD(Y.shape[1], invariants=mass), rm.RANDSMAPDecoder(rm.MonomialFeatures(2), invariants=mass)
            ).fit(F)
        }
        if name == "traffic":
            whole["`ShiftRegistration` of `POD` and `AutoDecoder`"] = lambda: rm.ShiftRegistration(
                rm.ManifoldModel(rm.POD(Y.shape[1] - 1, invariants=mass), rm.AutoDecoder(random_state=0))
            ).fit(F)
        for label, choice in candidates(mass, encoder).items():
            began = time.process_time()
            decoder = fitted(choice, Y, F, trajectories, np.random.default_rng(0))
            took = time.process_time() - began
            table[label, name] = error(G, decoder.predict(Z))
            if name == "traffic":
                seconds[label], row[label] = took, one_row(decoder.predict, Z)
        for label, make in whole.items():
            began = time.process_time()
            model = make()
            took = time.process_time() - began
            latents = model.transform(G)
            table[label, name] = error(G, model.inverse_transform(latents))
            if name == "traffic":
                seconds[label], row[label] = took, one_row(model.inverse_transform, latents)
        print(f"{name}: {len(F)} training fields of {F.shape[1]} cells, d = {Y.shape[1]}", flush=True)
    columns = list(dict.fromkeys(name for _, name in table))
    print("\n| decoder | " + " | ".join(columns) + " | fit | one row |\n|---|" + "---|" * (len(columns) + 2))
    for label in dict.fromkeys(label for label, _ in table):
        errors = [f"{100 * table[label, name]:.2g} %" if (label, name) in table else "" for name in columns]
        times = [f"{seconds[label]:.2g} s", f"{row[label]:.0f} us"] if label in seconds else ["", ""]
        print(f"| {label} | " + " | ".join(errors + times) + " |")


def one_row(predict, Z):
    """Median microseconds of processor time of a one-row call."""
    took = []
    for i in range(40):
        z = Z[i % len(Z)][None]
        began = time.process_time()
        for _ in range(5):
            predict(z)
        took.append((time.process_time() - began) / 5)
    return 1e6 * float(np.median(took))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="only these data sets")
    main(parser.parse_args().names)

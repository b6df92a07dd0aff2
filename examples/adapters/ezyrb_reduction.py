"""Encoder and decoder of randsmap as a reduction of EZyRB, and a decoder as an approximation.

EZyRB has snapshots as columns in a `Reduction`; `ManifoldReduction` turns them over. `DecoderApproximation` makes any
decoder a map from parameters to latents. Both go into EZyRB's `ReducedOrderModel` instead of its own.

    pip install ezyrb               # brings torch
    python examples/adapters/ezyrb_reduction.py
"""

import numpy as np
from ezyrb import POD, RBF, Approximation, Database, ReducedOrderModel, Reduction

import randsmap


class ManifoldReduction(Reduction):
    """A `randsmap.ManifoldModel` as a reduction: decoded snapshots keep their mass."""

    def __init__(self, model):
        self.model = model

    def fit(self, snapshots):
        self.model.fit(np.ascontiguousarray(snapshots.T))
        return self

    def transform(self, snapshots):
        return self.model.transform(np.ascontiguousarray(snapshots.T)).T

    def inverse_transform(self, latents):
        return self.model.inverse_transform(np.ascontiguousarray(latents.T)).T

    reduce, expand = transform, inverse_transform


class DecoderApproximation(Approximation):
    """A decoder of randsmap (or any regressor) from parameters to latents."""

    def __init__(self, decoder):
        self.decoder = decoder

    def fit(self, points, values):
        self.decoder.fit(points, values)
        return self

    def predict(self, new_point):
        return self.decoder.predict(np.atleast_2d(new_point))


def main(n_components=6):
    x = (np.arange(300) + 0.5) / 300

    def pulse(parameters):
        """A pulse at time t for a diffusivity: it is carried along and spreads; mass 1."""
        t, diffusivity = parameters[:, :1], parameters[:, 1:]
        fields = np.exp(-((x - 0.2 - 0.6 * t) ** 2) / (2 * (0.03**2 + 2 * diffusivity * t)))
        return fields / fields.sum(axis=1, keepdims=True)

    known = np.random.default_rng(0).uniform((0.0, 1e-4), (1.0, 2e-3), (150, 2))
    new = np.random.default_rng(1).uniform((0.05, 2e-4), (0.95, 1.9e-3), (100, 2))
    truth = pulse(new)

    decoder = randsmap.AutoDecoder(families=("gaussian", "matern", "thin-plate"), n_trials=8, random_state=0)
    model = randsmap.ManifoldModel(randsmap.POD(n_components, invariants="mass"), decoder)
    splines = randsmap.KernelDecoder("thin-plate", degree=1, regularization=1e-10)
    roms = {
        "EZyRB's POD, RBF": (POD(rank=n_components), RBF()),
        "ManifoldReduction, RBF": (ManifoldReduction(model), RBF()),
        "ManifoldReduction, DecoderApproximation": (ManifoldReduction(model), DecoderApproximation(splines)),
    }
    results = {}
    for name, (reduction, approximation) in roms.items():
        rom = ReducedOrderModel(Database(known, pulse(known)), reduction, approximation).fit()
        fields = rom.predict(new)
        error = randsmap.metrics.relative_l2(truth, fields).mean()
        results[name] = float(error), float(abs(fields.sum(axis=1) - 1).max())
        print(f"{name:42} error {error:6.2%}, mass off by {results[name][1]:.0e}")
    return results


if __name__ == "__main__":
    main()

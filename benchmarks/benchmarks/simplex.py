"""Weights and fields of the k-NN decoder."""

import numpy as np

from randsmap import DiffusionMaps, KNNDecoder
from randsmap.metrics import relative_l2


def bumps(n, seed):
    rng = np.random.default_rng(seed)
    x = np.linspace(0, 1, 400)
    centre, width = rng.uniform(0.3, 0.7, (n, 1)), rng.uniform(0.05, 0.15, (n, 1))
    F = np.exp(-(((x - centre) / width) ** 2))
    return F / F.sum(axis=1, keepdims=True)


class Decoder:
    params = [["latent", "encoder"], [3, 6, 20]]
    param_names = ["objective", "k"]

    def setup(self, objective, k):
        self.F, self.G = bumps(2000, 0), bumps(500, 1)
        encoder = DiffusionMaps(2).fit(self.F)
        self.Y, self.Z = encoder.transform(self.F), encoder.transform(self.G)
        self.decoder = KNNDecoder(k, objective=objective, encoder=encoder).fit(self.Y, self.F)
        self.out = np.empty(self.G.shape)

    def time_fit(self, objective, k):
        self.decoder.fit(self.Y, self.F)

    def time_predict(self, objective, k):
        self.decoder.predict(self.Z, out=self.out)

    def time_predict_one(self, objective, k):
        self.decoder.predict(self.Z[:1])

    def peakmem_predict(self, objective, k):
        self.decoder.predict(self.Z, out=self.out)

    def track_mass_error(self, objective, k):
        return float(np.abs(self.decoder.predict(self.Z).sum(axis=1) - 1).max())

    def track_relative_l2(self, objective, k):
        return float(relative_l2(self.G, self.decoder.predict(self.Z)).mean())

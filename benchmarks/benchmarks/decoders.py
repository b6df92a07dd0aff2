"""Kernel decoders, double diffusion maps, nearest neighbours: fit, a batch, a single latent point."""

import numpy as np

from randsmap import DiffusionMaps, DoubleDiffusionMapsDecoder, KernelDecoder, KNNDecoder

from ._gemm import tracked

N, M = 1000, 400


def snapshots(n, seed=0):
    """Latents and moving bumps of mass 1."""
    rng = np.random.default_rng(seed)
    Y = rng.uniform(size=(n, 2))
    F = np.exp(-((np.linspace(0, 1, M) - Y[:, :1]) ** 2) / 0.02) * (1 + Y[:, 1:])
    return Y, F / F.sum(axis=1, keepdims=True)


DECODERS = {
    "double diffusion maps": lambda: DoubleDiffusionMapsDecoder(epsilon=0.35, invariants="mass"),
    "gaussian": lambda: KernelDecoder(length_scale=0.2, invariants="mass"),
    "multi-gaussian": lambda: KernelDecoder("multi-gaussian", max_frequency=10.0, invariants="mass"),
    "matern": lambda: KernelDecoder("matern", nu=1.5, length_scale=0.2, invariants="mass"),
    "thin-plate": lambda: KernelDecoder("thin-plate", degree=1, invariants="mass"),
}


@tracked
class Kernels:
    params = list(DECODERS)
    param_names = ["decoder"]

    def setup(self, name):
        self.Y, self.F = snapshots(N)
        self.decoder, self.other = DECODERS[name]().fit(self.Y, self.F), DECODERS[name]()
        self.X = snapshots(2000, seed=1)[0]
        self.out, self.one = np.empty((2000, M)), np.empty((1, M))

    def run_fit(self, name):
        self.other.fit(self.Y, self.F)

    def run_predict_2000(self, name):
        self.decoder.predict(self.X, out=self.out)

    def run_predict_one(self, name):
        self.decoder.predict(self.X[:1], out=self.one)


@tracked
class Neighbors:
    """Search, and weights on the simplex: in the latents, and through the encoder."""

    params = ["latent", "latent, ties", "latent, d = 10", "encoder"]
    param_names = ["objective"]

    def setup(self, kind):
        rng = np.random.default_rng(0)
        Y, F = snapshots(2000)
        objective, _, case = kind.partition(", ")
        encoder = None
        if case == "ties":  # a lattice: many points at the same distance
            Y = rng.integers(0, 45, (2000, 2)).astype(float)
        elif case:
            Y = rng.normal(size=(2000, 10))
        self.X = Y[rng.permutation(2000)[:500]] + 0.01 * rng.normal(size=(500, Y.shape[1]))
        if objective == "encoder":
            encoder = DiffusionMaps(2).fit(F)
            Y, self.X = encoder.transform(F), encoder.transform(snapshots(200, seed=1)[1])
        self.decoder = KNNDecoder(6, objective=objective, encoder=encoder).fit(Y, F)
        self.out = np.empty((len(self.X), M))

    def run_predict(self, kind):
        self.decoder.predict(self.X, out=self.out)

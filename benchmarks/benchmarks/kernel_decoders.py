"""Double diffusion maps and kernel decoders: fit, a batch, a single latent point."""

import numpy as np

from randsmap import ConservativeRegressor, DoubleDiffusionMapsDecoder, KernelDecoder, RFNNDecoder

N, M = 2000, 400


def snapshots(n=N, seed=0):
    """Latents and moving bumps of mass 1."""
    rng = np.random.default_rng(seed)
    Y = rng.uniform(size=(n, 2))
    F = np.exp(-((np.linspace(0, 1, M) - Y[:, :1]) ** 2) / 0.02) * (1 + Y[:, 1:])
    return Y, F / F.sum(axis=1, keepdims=True)


def make(name):
    return {
        "ddm": DoubleDiffusionMapsDecoder(epsilon=0.35),
        "ddm-mass": DoubleDiffusionMapsDecoder(epsilon=0.35, invariants="mass"),
        "ddm-full-rank": DoubleDiffusionMapsDecoder(epsilon=0.01, rank=N),
        "gaussian": KernelDecoder(length_scale=0.2, invariants="mass"),
        "multi-gaussian": KernelDecoder("multi-gaussian", max_frequency=10.0, invariants="mass"),
        "matern-1.5": KernelDecoder("matern", nu=1.5, length_scale=0.2, invariants="mass"),
        "matern-2.5": KernelDecoder("matern", nu=2.5, length_scale=0.2, invariants="mass"),
        "thin-plate": KernelDecoder("thin-plate", degree=1, invariants="mass"),
        "conservative": ConservativeRegressor(RFNNDecoder(random_state=0)),
    }[name]


NAMES = [
    "ddm",
    "ddm-mass",
    "ddm-full-rank",
    "gaussian",
    "multi-gaussian",
    "matern-1.5",
    "matern-2.5",
    "thin-plate",
    "conservative",
]


class Fit:
    params = [NAMES]
    param_names = ["decoder"]

    def setup(self, name):
        self.Y, self.F = snapshots()
        self.decoder = make(name)

    def time_fit(self, name):
        self.decoder.fit(self.Y, self.F)

    def peakmem_fit(self, name):
        self.decoder.fit(self.Y, self.F)


class Predict:
    params = [NAMES, [1, 12, 100, 4000]]
    param_names = ["decoder", "n_latents"]

    def setup_cache(self):
        Y, F = snapshots()
        return {name: make(name).fit(Y, F) for name in NAMES}

    def setup(self, fitted, name, n):
        self.decoder = fitted[name]
        self.X, self.F = snapshots(n, seed=1)
        self.out = np.empty((n, M))

    def time_predict(self, fitted, name, n):
        self.decoder.predict(self.X, out=self.out)

    def peakmem_predict(self, fitted, name, n):
        self.decoder.predict(self.X)

    def track_mass_error(self, fitted, name, n):
        return float(np.abs(self.decoder.predict(self.X).sum(axis=1) - 1).max())

    def track_l2_error(self, fitted, name, n):
        return float(
            (np.linalg.norm(self.decoder.predict(self.X) - self.F, axis=1) / np.linalg.norm(self.F, axis=1)).mean()
        )

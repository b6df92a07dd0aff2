"""Projection on bounds: decoder output and hostile input, and what bounds cost in a decode."""

import numpy as np

from randsmap import FourierFeatures, RANDSMAPDecoder, project_bounds

from ._gemm import tracked


def nearly_feasible(n, M, seed=0):
    """Bumps of mass 1 with errors like a decoder's: ripples about zero and noise."""
    rng = np.random.default_rng(seed)
    x = np.linspace(0, 1, M)
    centre = rng.uniform(0.3, 0.7, (n, 1))
    F = np.exp(-(((x - centre) / 0.1) ** 2)) + 0.01 * np.sin(40 * x) + 1e-4 * rng.normal(size=(n, M))
    return F / F.sum(axis=1, keepdims=True)


@tracked
class Projection:
    params = ["decoder", "uniform", "Newton"]
    param_names = ["fields"]

    def setup(self, kind):
        M, rng = 10000, np.random.default_rng(0)
        self.total = 1e60 if kind == "Newton" else 1.0
        self.F = {
            "decoder": lambda: nearly_feasible(20, M),
            "uniform": lambda: rng.random((20, M)),
            "Newton": lambda: np.tile(-(100.0 ** (np.arange(M) // 100 - 50.0)), (20, 1)),  # the worst for the method
        }[kind]()
        self.out = np.empty_like(self.F)
        self.v = 1 + np.arange(M) / 1e4

    def run_simplex(self, kind):
        project_bounds(self.F, total=self.total, out=self.out)

    def run_box_weighted(self, kind):
        project_bounds(self.F, upper=1.0, weights=self.v, cell_weights=self.v, total=0.5, out=self.out)


@tracked
class Decode:
    params = [None, "nonnegative"]
    param_names = ["bounds"]

    def setup(self, bounds):
        rng = np.random.default_rng(0)
        Y = rng.uniform(size=(200, 1))
        F = np.maximum(0, 1 - ((np.linspace(0, 1, 4000) - 0.6 * Y - 0.2) / 0.15) ** 2)
        F /= F.sum(axis=1, keepdims=True)
        self.decoder = RANDSMAPDecoder(FourierFeatures(0.3, n_features=300), random_state=0, bounds=bounds).fit(Y, F)
        self.Y = rng.uniform(size=(500, 1))
        self.out = np.empty((500, 4000))

    def run_predict(self, bounds):
        self.decoder.predict(self.Y, out=self.out)

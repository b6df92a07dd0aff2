"""Projection on bounds: decoder output and hostile input, and what bounds cost in a decode."""

import numpy as np

from randsmap import FourierFeatures, RANDSMAPDecoder, project_bounds


def nearly_feasible(n, M, seed=0):
    """Bumps of mass 1 with errors like a decoder's: ripples about zero and noise."""
    rng = np.random.default_rng(seed)
    x = np.linspace(0, 1, M)
    centre = rng.uniform(0.3, 0.7, (n, 1))
    F = np.exp(-(((x - centre) / 0.1) ** 2)) + 0.01 * np.sin(40 * x) + 1e-4 * rng.normal(size=(n, M))
    return F / F.sum(axis=1, keepdims=True)


class Projection:
    params = ["decoder", "uniform", "normal", "geometric", "equal", "Newton"]
    param_names = ["fields"]

    def setup(self, kind):
        M, rng = 10000, np.random.default_rng(0)
        self.total = 1e60 if kind == "Newton" else 1.0
        self.F = {
            "decoder": lambda: nearly_feasible(20, M),
            "uniform": lambda: rng.random((20, M)),
            "normal": lambda: rng.normal(size=(20, M)),
            "geometric": lambda: np.tile(0.99 ** np.arange(M), (20, 1)),
            "equal": lambda: np.full((20, M), 0.7),
            "Newton": lambda: np.tile(-(100.0 ** (np.arange(M) // 100 - 50.0)), (20, 1)),
        }[kind]()
        self.out = np.empty_like(self.F)

    def time_simplex(self, kind):
        project_bounds(self.F, total=self.total, out=self.out)

    def time_box_weighted(self, kind):
        v = 1 + np.arange(10000) / 1e4
        project_bounds(self.F, upper=1.0, weights=v, cell_weights=v, total=0.5, out=self.out)

    def track_mass_error(self, kind):
        F = project_bounds(self.F, total=self.total).astype(np.longdouble)
        return float(np.abs(F.sum(axis=1) / self.total - 1).max())


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
        self.values = rng.uniform(0.5, 2, 500)

    def time_predict(self, bounds):
        self.decoder.predict(self.Y)

    def time_predict_values_of_rows(self, bounds):
        self.decoder.predict(self.Y, invariant_values=self.values)

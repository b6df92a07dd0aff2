"""Diffusion maps and POD: fit and extension to new fields."""

import numpy as np

import randsmap
from randsmap import POD, DiffusionMaps

from ._gemm import tracked


def bumps(n, seed):
    """Fields of 400 cells on a two-parameter manifold."""
    rng = np.random.default_rng(seed)
    place, width = rng.uniform(0.2, 0.8, (n, 1)), rng.uniform(0.1, 0.2, (n, 1))
    return np.exp(-(((np.linspace(0, 1, 400) - place) / width) ** 2))


@tracked
class Fit:
    params = ["leading", "non-harmonic"]
    param_names = ["select"]

    def setup(self, select):
        self.X = bumps(1000, 0)
        self.encoder = DiffusionMaps(2, epsilon_scale=0.4, select=select)

    def run_fit(self, select):
        self.encoder.fit(self.X)

    def peakmem_fit(self, select):
        self.encoder.fit(self.X)


@tracked
class Sparse:
    """Nearest neighbours' kernel."""

    params = ["S-curve", "fields"]
    param_names = ["data"]

    def setup(self, data):
        self.X = randsmap.datasets.make_s_curve(5000, random_state=0).data if data == "S-curve" else bumps(8000, 0)
        self.encoder = DiffusionMaps(2, epsilon_scale=0.1, n_neighbors=30).fit(self.X)
        self.other = DiffusionMaps(2, epsilon_scale=0.1, n_neighbors=30)

    def run_fit(self, data):
        self.other.fit(self.X)

    def run_transform(self, data):
        self.encoder.transform(self.X[:1000])


@tracked
class Transform:
    params = [1, 8, 2000]
    param_names = ["n_rows"]

    def setup(self, n_rows):
        self.encoder = DiffusionMaps(2).fit(bumps(2000, 0))
        self.X = bumps(n_rows, 1)

    def run_transform(self, n_rows):
        self.encoder.transform(self.X)


@tracked
class Pod:
    params = [[(100, 16384), (1000, 400)]]
    param_names = ["shape"]

    def setup(self, shape):
        n, M = shape
        rng = np.random.default_rng(0)
        F = np.exp(-((np.linspace(0, 1, M) - rng.uniform(size=(n, 1))) ** 2) / 0.02)
        self.F = F / F.sum(axis=1, keepdims=True)
        self.pod, self.other = POD(10, invariants="mass").fit(self.F), POD(10, invariants="mass")

    def run_fit(self, shape):
        self.other.fit(self.F)

    def run_transform(self, shape):
        self.pod.transform(self.F)

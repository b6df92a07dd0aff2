"""Diffusion maps: fit and extension to new fields."""

import numpy as np

from randsmap import DiffusionMaps
from randsmap.datasets import make_s_curve


def bumps(n, seed):
    """Fields of 400 cells on a two-parameter manifold."""
    rng = np.random.default_rng(seed)
    place, width = rng.uniform(0.2, 0.8, (n, 1)), rng.uniform(0.1, 0.2, (n, 1))
    return np.exp(-(((np.linspace(0, 1, 400) - place) / width) ** 2))


class Fit:
    params = [0.12, 0.4, 1.0]
    param_names = ["epsilon_scale"]

    def setup(self, epsilon_scale):
        self.X = bumps(2000, 0)
        self.encoder = DiffusionMaps(2, epsilon_scale=epsilon_scale)

    def time_fit(self, epsilon_scale):
        self.encoder.fit(self.X)

    def peakmem_fit(self, epsilon_scale):
        self.encoder.fit(self.X)

    def track_extension_error(self, epsilon_scale):
        """Largest difference between transform and fit_transform of the training fields."""
        latents = self.encoder.fit_transform(self.X)
        return float(abs(self.encoder.transform(self.X) - latents).max())


class NonHarmonic:
    """The S-curve in 20 dimensions, whose width is about the ninth eigenvector."""

    def setup(self):
        self.curve = make_s_curve(2000, random_state=0)
        self.encoder = DiffusionMaps(2, epsilon_scale=0.15, select="non-harmonic")

    def time_fit(self):
        self.encoder.fit(self.curve.data)

    def track_second_mode(self):
        return int(self.encoder.fit(self.curve.data).selected_[1])


class Neighbors:
    """Sparse kernel of the S-curve."""

    params = [5000, 20000]
    param_names = ["n_samples"]

    def setup(self, n_samples):
        self.X = make_s_curve(n_samples, random_state=0).data
        self.encoder = DiffusionMaps(2, epsilon_scale=0.1, n_neighbors=30)
        self.fitted = DiffusionMaps(2, epsilon_scale=0.1, n_neighbors=30).fit(self.X)

    def time_fit(self, n_samples):
        self.encoder.fit(self.X)

    def peakmem_fit(self, n_samples):
        self.encoder.fit(self.X)

    def time_transform(self, n_samples):
        self.fitted.transform(self.X[:1000])

    def track_extension_error(self, n_samples):
        latents = self.fitted.eigenvectors_
        return float(abs(self.fitted.transform(self.X) - latents).max())


class Transform:
    params = [1, 8, 100, 8000]
    param_names = ["n_rows"]

    def setup(self, n_rows):
        self.encoder = DiffusionMaps(2).fit(bumps(2000, 0))
        self.X = bumps(n_rows, 1)

    def time_transform(self, n_rows):
        self.encoder.transform(self.X)

    def peakmem_transform(self, n_rows):
        self.encoder.transform(self.X)

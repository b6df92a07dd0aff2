"""Squared distances, radial kernels, weighted kernel sums, median."""

import numpy as np

from randsmap._kernels import distances as _kernels
from randsmap._linalg import distances as _distances


class Symmetric:
    """2000 fields of 400 cells against themselves."""

    params = ["float64", "float32"]
    param_names = ["dtype"]

    def setup(self, dtype):
        self.X = np.random.default_rng(0).random((2000, 400)).astype(dtype)
        self.out = np.empty((2000, 2000), dtype)
        self.epsilon = 8.0

    def time_squared_distances(self, dtype):
        _distances.squared_distances(self.X, out=self.out)

    def time_gaussian_kernel(self, dtype):
        _distances.gaussian_kernel(self.X, epsilon=self.epsilon, out=self.out)

    def peakmem_gaussian_kernel(self, dtype):
        _distances.gaussian_kernel(self.X, epsilon=self.epsilon, out=self.out)


class Rectangular:
    """Query fields against 2000 training fields of 400 cells; the kernel is not stored."""

    params = [1, 8, 8000]
    param_names = ["n_rows"]

    def setup(self, n_rows):
        rng = np.random.default_rng(0)
        Z, self.weights = rng.random((2000, 400)), rng.random((3, 2000))
        self.X = rng.random((n_rows, 400))
        centre = _distances.centre_of(Z)
        self.prepared = *_distances.centred_rows(Z, centre), centre

    def time_kernel_sums(self, n_rows):
        _distances.kernel_sums(self.X, *self.prepared, self.weights, 8.0)

    def peakmem_kernel_sums(self, n_rows):
        _distances.kernel_sums(self.X, *self.prepared, self.weights, 8.0)


class SmallDimension:
    params = [2, 10, 16, 17, 32]
    param_names = ["dim"]

    def setup(self, dim):
        self.X = np.random.default_rng(0).random((2000, dim))
        self.out = np.empty((2000, 2000))

    def time_squared_distances(self, dim):
        _distances.squared_distances(self.X, out=self.out)


class Radial:
    """Kernels of 2000 latents, and of 400 others, beside the Gaussian one; the scale is theirs at length 1."""

    params = [["GAUSSIAN", "MATERN_12", "MATERN_32", "MATERN_52", "THIN_PLATE"], [False, True]]
    param_names = ["kernel", "slopes"]
    SCALE = {"GAUSSIAN": 0.5, "MATERN_32": 3.0, "MATERN_52": 5.0}

    def setup(self, kernel, slopes):
        rng = np.random.default_rng(0)
        self.X, self.Z = 5 * rng.random((2000, 2)), 5 * rng.random((400, 2))
        self.square, self.out = np.empty((2000, 2000)), np.empty((2000, 400))
        self.options = self.SCALE.get(kernel, 1.0), getattr(_kernels, kernel), slopes

    def _fill(self, Z, out):
        scale, kernel, slopes = self.options
        _distances.fill_pairs(self.X, Z, scale, out, kernel, slopes)

    def time_symmetric(self, kernel, slopes):
        self._fill(None, self.square)

    def time_rectangular(self, kernel, slopes):
        self._fill(self.Z, self.out)


class Underflow:
    """Kernel values that would be subnormal cost no more than others."""

    params = [100.0, 720.0]
    param_names = ["exponent"]

    def setup(self, exponent):
        self.X = np.sqrt(exponent) * (np.arange(1000) % 2)[:, None] + np.zeros(2)

    def time_gaussian_kernel(self, exponent):
        _distances.gaussian_kernel(self.X, epsilon=2**0.5)


class Median:
    def setup(self):
        self.D = _distances.squared_distances(np.random.default_rng(0).random((2000, 10)))

    def time_median(self):
        _distances.median_of_squared(self.D)


def track_relative_error_far_from_the_origin():
    """Largest relative error of distances 1e6 times smaller than the points' norms."""
    X = 1e6 + np.random.default_rng(0).random((300, 50))
    D = _distances.squared_distances(X)
    exact = np.array([((x - X) ** 2).sum(axis=1) for x in X])
    return float((abs(D - exact)[exact > 0] / exact[exact > 0]).max())

"""Feature matrices: time, ratio to the NumPy expression, memory, accuracy."""

import time

import numpy as np

import randsmap
from randsmap._kernels import features as kernel
from randsmap._parallel import blas_threads

N = P = 2000
PLAIN = {"COSINE": np.cos, "LOGISTIC": lambda t: 1 / (1 + np.exp(-t))}


class Kernel:
    """One thread; BLAS too, for the NumPy side of the ratio."""

    params = ([2, 8, 20], list(PLAIN), ["float64", "float32"])
    param_names = ("d", "activation", "dtype")

    def setup(self, d, activation, dtype):
        rng = np.random.default_rng(0)
        self.activation, self.plain = getattr(kernel, activation), PLAIN[activation]
        self.Y, self.W = rng.normal(size=(N, d)), 3 * rng.normal(size=(d, P))
        self.b = rng.uniform(0, 2 * np.pi, P)
        self.out = np.zeros((N, P), dtype)

    def time_2000_by_2000(self, d, activation, dtype):
        kernel.features(self.activation, self.Y, self.W, self.b, 1.0, self.out)

    def _seconds(self):
        ours, plain = [], []
        with blas_threads(1):
            for _ in range(7):
                start = time.perf_counter()
                kernel.features(self.activation, self.Y, self.W, self.b, 1.0, self.out)
                middle = time.perf_counter()
                self.plain(self.Y @ self.W + self.b)
                ours.append(middle - start)
                plain.append(time.perf_counter() - middle)
        return np.median(ours), np.median(plain)

    def track_ns_per_entry(self, d, activation, dtype):
        return 1e9 * self._seconds()[0] / (N * P)

    track_ns_per_entry.unit = "ns"

    def track_times_faster_than_numpy(self, d, activation, dtype):
        ours, plain = self._seconds()
        return plain / ours

    def track_max_error(self, d, activation, dtype):
        kernel.features(self.activation, self.Y, self.W, self.b, 1.0, self.out)
        exact = self.plain(self.Y[:50].astype(np.longdouble) @ self.W + self.b)
        return float(np.abs(self.out[:50] - exact).max())


class Transform:
    params = (["FourierFeatures", "MultiscaleFourierFeatures", "SigmoidFeatures"], [1, 2])
    param_names = ("map", "threads")

    def setup(self, name, threads):
        randsmap.set_num_threads(threads)
        self.Y = np.random.default_rng(0).normal(size=(N, 2))
        self.map = getattr(randsmap, name)(n_features=P, random_state=0).fit(self.Y)
        self.out = np.zeros((N, P))

    def teardown(self, name, threads):
        randsmap.set_num_threads(None)

    def time_fit(self, name, threads):
        self.map.fit(self.Y)

    def time_transform(self, name, threads):
        self.map.transform(self.Y)

    def time_transform_into_memory_that_is_there(self, name, threads):
        self.map.transform(self.Y, out=self.out)

    def time_transform_one_row(self, name, threads):
        self.map.transform(self.Y[:1])

    def peakmem_transform(self, name, threads):
        self.map.transform(self.Y)

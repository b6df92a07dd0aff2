"""Fits of random features: the solvers, samples that arrive in batches, memory that does not grow with their number."""

import numpy as np

from randsmap import FourierFeatures, RANDSMAPDecoder, SigmoidFeatures

from ._gemm import tracked


def smooth_fields(n, M=200):
    rng = np.random.default_rng(0)
    Y = rng.uniform(size=(n, 2))
    F = np.exp(-((np.linspace(0, 1, M) - Y[:, :1]) ** 2) / 0.02) * (1 + Y[:, 1:])
    return Y, F / F.sum(axis=1, keepdims=True)


@tracked
class Fit:
    params = [
        [
            (1000, 500, "cholesky"),
            (500, 1000, "cholesky"),
            (1000, 500, "svd"),
            (2000, 1000, "krylov"),
            (2000, 1000, "lowrank"),
        ]
    ]
    param_names = ["n_samples, n_features, solver"]

    def setup(self, problem):
        n, P, solver = problem
        self.data = smooth_fields(n)
        features = FourierFeatures(0.5, n_features=P)
        self.decoder = RANDSMAPDecoder(features, solver=solver, regularization=1e-3, random_state=0)

    def run_fit(self, problem):
        self.decoder.fit(*self.data)


class ManySamples:
    """The feature matrix would take 160 MB; a fit holds one block of it."""

    def setup(self):
        self.data = smooth_fields(100_000, 20)
        features = FourierFeatures(0.5, n_features=200)
        self.decoder = RANDSMAPDecoder(features, solver="cholesky", regularization=1e-3, random_state=0)

    def peakmem_fit(self):
        self.decoder.fit(*self.data)


@tracked
class PartialFit:
    """4096 samples of 400 cells, 500 features, in batches, and the solution that the first prediction waits for."""

    params = [64, 2048]
    param_names = ["rows of a batch"]

    def setup(self, rows):
        self.Y, self.F = smooth_fields(4096, 400)
        self.run_batches(rows)

    def run_batches(self, rows):
        features = SigmoidFeatures(5.0, n_features=500, latent_box=(0, 1))
        self.decoder = RANDSMAPDecoder(features, latent_scale=None, random_state=0)
        for a in range(0, len(self.Y), rows):
            self.decoder.partial_fit(self.Y[a : a + rows], self.F[a : a + rows])

    def run_batch_and_solution(self, rows):
        self.decoder.partial_fit(self.Y[:rows], self.F[:rows]).predict(self.Y[:1])

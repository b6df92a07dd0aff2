"""Ridge regression: the solvers, and memory that does not grow with the number of samples."""

import numpy as np

from randsmap.decoders._ridge import FeatureRows, ridge
from randsmap.features import SigmoidFeatures


def problem(n, P, M):
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(n, 2))
    F = rng.dirichlet(np.ones(M), size=n)
    return FeatureRows(SigmoidFeatures(10.0, n_features=P, random_state=0).fit(X), X), F


class Ridge:
    params = [[(1000, 500), (500, 1000)], ["cholesky", "svd"]]
    param_names = ["n_samples, n_features", "solver"]

    def setup(self, shape, solver):
        self.rows, self.F = problem(*shape, 200)

    def time_ridge(self, shape, solver):
        ridge(self.rows, self.F, 1e-3, solver)


class ManySamples:
    """Phi would take 160 MB; the fit holds one block of it."""

    params = ["cholesky", "svd"]
    param_names = ["solver"]

    def setup(self, solver):
        self.rows, self.F = problem(100_000, 200, 20)

    def peakmem_ridge(self, solver):
        ridge(self.rows, self.F, 1e-3, solver)

    def time_ridge(self, solver):
        ridge(self.rows, self.F, 1e-3, solver)

"""Ridge regression: the solvers, and memory that does not grow with the number of samples."""

import numpy as np

from randsmap._linalg.krylov import solve_ridge
from randsmap._linalg.ridge import FeatureRows, ridge
from randsmap._linalg.sums import Sums, sum_rows
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


class OrderFreeSums:
    """A block of rows added to the sums, and two of them merged."""

    def setup(self):
        self.rows, F = problem(sum_rows(2000, 400), 2000, 400)
        self.Phi, self.F, self.sums = self.rows.whole(), F, Sums(2001, 400, True)

    def time_add(self):
        self.sums.add(self.Phi, self.F)

    def time_merge(self):
        self.sums.merge(self.sums)


class Krylov:
    """Smooth fields, so that few right-hand sides are left; the error against Cholesky is tracked."""

    params = ["cholesky", "krylov"]
    param_names = ["solver"]

    def setup(self, solver):
        self.rows, _ = problem(3000, 3000, 1)
        Y = self.rows._X
        self.F = np.exp(-((np.linspace(0, 1, 200) - Y[:, :1]) ** 2) / 0.02) * (1 + Y[:, 1:])

    def time_ridge(self, solver):
        solve_ridge(self.rows, self.F, 1e-3, solver)

    def peakmem_ridge(self, solver):
        solve_ridge(self.rows, self.F, 1e-3, solver)

    def track_relative_error(self, solver):
        exact = ridge(self.rows, self.F, 1e-3, "cholesky")[0]
        A = solve_ridge(self.rows, self.F, 1e-3, solver)[0]
        return float(np.linalg.norm(self.rows.whole() @ (A - exact)) / np.linalg.norm(self.F))

"""Choice of hyperparameters: on a validation set, by leaving one out, and of everything at once."""

import numpy as np

import randsmap

from ._gemm import tracked

DECODER = randsmap.RANDSMAPDecoder(randsmap.SigmoidFeatures(), random_state=0)


def problem(n, M):
    rng = np.random.default_rng(0)
    Y = rng.uniform(size=(2 * n, 2))
    F = np.exp(np.sin(5 * Y @ rng.normal(size=(2, 40))) @ rng.normal(size=(40, M)) / 5)
    F /= F.sum(axis=1, keepdims=True)
    return Y[:n], F[:n], Y[n:], F[n:]


@tracked
class Tune:
    params = [400, 8000]
    param_names = ["n_cells"]

    def setup(self, M):
        self.data = problem(200, M)

    def run_tune(self, M):
        randsmap.tune(DECODER, {"features__slope": np.linspace(1, 20, 10).tolist()}, *self.data)

    def run_leave_one_out(self, M):
        randsmap.leave_one_out(DECODER, *self.data[:2], regularizations=np.geomspace(1e-8, 10, 10))


@tracked
class Auto:
    def setup(self):
        self.data = problem(100, 400)[:2]

    def run_fit(self):
        randsmap.AutoDecoder(n_trials=10, random_state=0).fit(*self.data)

"""Choice of hyperparameters: in the span of the fields, directly, and by leaving one out."""

import numpy as np

import randsmap
from randsmap.metrics import relative_l2
from randsmap.tuning import _search as tuning


def problem(n, M):
    rng = np.random.default_rng(0)
    Y = rng.uniform(size=(2 * n, 2))
    F = np.exp(np.sin(5 * Y @ rng.normal(size=(2, 40))) @ rng.normal(size=(40, M)) / 5)
    F /= F.sum(axis=1, keepdims=True)
    return Y[:n], F[:n], Y[n:], F[n:]


DECODER = randsmap.RANDSMAPDecoder(randsmap.SigmoidFeatures(), random_state=0)
GRID = {"features__slope": np.linspace(1, 20, 10).tolist()}


class Tune:
    """The same grid in coordinates and, as the baseline, with fits to the fields themselves."""

    params = ["coefficients", "direct"]
    param_names = ["evaluation"]

    def setup(self, evaluation):
        self.data = problem(200, 8000)
        self.pays = tuning._pays
        tuning._pays = lambda *arguments: evaluation == "coefficients"

    def teardown(self, evaluation):
        tuning._pays = self.pays

    def time_tune(self, evaluation):
        randsmap.tune(DECODER, GRID, *self.data)

    def peakmem_tune(self, evaluation):
        randsmap.tune(DECODER, GRID, *self.data)

    def track_difference_from_direct(self, evaluation):
        Y, F, Y_val, F_val = self.data
        result = randsmap.tune(DECODER, GRID, *self.data)
        direct = relative_l2(F_val, result.best_decoder_.predict(Y_val)).mean()
        return abs(float(result.errors_.min() / direct - 1))


class LeaveOneOut:
    params = [200, 8000]
    param_names = ["n_cells"]

    def setup(self, M):
        self.data = problem(400, M)[:2]

    def time_path_of_ten(self, M):
        randsmap.leave_one_out(DECODER, *self.data, regularizations=np.geomspace(1e-8, 10, 10))

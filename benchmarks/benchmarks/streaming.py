"""partial_fit: batches of rows, and the solution that the first prediction waits for."""

import numpy as np

from randsmap import RANDSMAPDecoder, SigmoidFeatures


class PartialFit:
    """8192 samples of M = 400 cells, P = 500 features, in batches."""

    params = [1, 64, 2048]
    param_names = ["rows of a batch"]

    def setup(self, rows):
        rng = np.random.default_rng(0)
        self.Y = rng.uniform(size=(8192, 2))
        F = 1 + np.sin(3 * self.Y[:, :1] + np.arange(400) * self.Y[:, 1:])
        self.F = F / F.sum(axis=1, keepdims=True)
        self.features = SigmoidFeatures(5.0, n_features=500, latent_box=(0, 1))
        self.n = min(8192, 1024 * rows)  # rows alone take longer
        self.decoder = self.new()
        self.time_batches(rows)

    def new(self):
        return RANDSMAPDecoder(self.features, latent_scale=None, random_state=0)

    def time_batches(self, rows):
        self.decoder = self.new()
        for a in range(0, self.n, rows):
            self.decoder.partial_fit(self.Y[a : a + rows], self.F[a : a + rows])

    def time_batch_and_solution(self, rows):
        self.decoder.partial_fit(self.Y[:rows], self.F[:rows]).predict(self.Y[:1])

    def peakmem_batches(self, rows):
        self.time_batches(rows)

    def track_difference_from_one_fit(self, rows):
        one = self.new().fit(self.Y[: self.n], self.F[: self.n]).predict(self.Y[:100])
        decoder = self.decoder
        return float(abs(decoder.predict(self.Y[:100]) - one).max() / abs(one).max())

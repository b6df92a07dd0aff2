"""Decoding a batch and a single latent point, through the kernel and through `predict`."""

import numpy as np

from randsmap import FourierFeatures, RANDSMAPDecoder, RFNNDecoder

M = 400


def fitted(cls, P):
    rng = np.random.default_rng(0)
    Y = rng.uniform(size=(300, 2))
    F = rng.dirichlet(np.ones(M), size=300)
    return cls(FourierFeatures(0.3, n_features=P), random_state=0).fit(Y, F)


class Decode:
    params = [[1, 4, 12, 100, 4000], [500, 2000]]
    param_names = ["n_latents", "n_features"]

    def setup(self, n, P):
        self.decoder, self.plain = fitted(RANDSMAPDecoder, P), fitted(RFNNDecoder, P)
        self.X = np.random.default_rng(1).uniform(size=(n, 2))
        self.Phi = np.hstack([np.ones((n, 1)), self.decoder.features_.transform(self.X)])
        self.out = np.empty((n, M))

    def time_predict(self, n, P):
        self.decoder.predict(self.X, out=self.out)

    def time_predict_without_invariants(self, n, P):
        self.plain.predict(self.X, out=self.out)

    def time_bare_gemm(self, n, P):
        np.dot(self.Phi, self.decoder.coef_, out=self.out)

    def peakmem_predict(self, n, P):
        self.decoder.predict(self.X)

    def track_mass_error(self, n, P):
        return float(np.abs(self.decoder.predict(self.X).sum(axis=1) - 1).max())

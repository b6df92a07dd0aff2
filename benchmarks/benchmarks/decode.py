"""Decoding a batch and a single latent point: fields, cells, derivatives, in Python and frozen."""

import numpy as np

from randsmap import FourierFeatures, RANDSMAPDecoder, RFNNDecoder

from ._gemm import tracked

M, P = 400, 2000


def fitted(cls, d=2):
    rng = np.random.default_rng(0)
    Y, F = rng.uniform(size=(300, d)), rng.dirichlet(np.ones(M), size=300)
    return cls(FourierFeatures(0.3, n_features=P), random_state=0).fit(Y, F)


@tracked
class Decode:
    params = [1, 12, 4000]
    param_names = ["n_latents"]

    def setup(self, n):
        self.decoder, self.plain = fitted(RANDSMAPDecoder), fitted(RFNNDecoder)
        self.X = np.random.default_rng(1).uniform(size=(n, 2))
        self.out = np.empty((n, M))

    def run_predict(self, n):
        self.decoder.predict(self.X, out=self.out)

    def run_predict_without_invariants(self, n):
        self.plain.predict(self.X, out=self.out)


@tracked
class OnePoint:
    params = [2, 10]
    param_names = ["n_latents"]

    def setup(self, d):
        self.decoder = fitted(RANDSMAPDecoder, d)
        rng = np.random.default_rng(1)
        self.x, self.v, self.u = rng.uniform(size=(1, d)), np.ones(d), np.ones(M)
        self.J, self.cells = np.empty((1, M, d)), np.arange(20) * (M // 20)

    def run_jacobian(self, d):
        self.decoder.jacobian(self.x, out=self.J)

    def run_jvp(self, d):
        self.decoder.jvp(self.x, self.v)

    def run_vjp(self, d):
        self.decoder.vjp(self.x, self.u)

    def run_predict_cells(self, d):
        self.decoder.predict(self.x, cells=self.cells)


@tracked
class Frozen:
    params = [[("float64", None), ("float32", None), ("float32", 1e-4)]]
    param_names = ["precision, tol"]

    def setup(self, kind):
        rng = np.random.default_rng(0)
        Y = rng.uniform(size=(500, 2))
        F = np.exp(-((np.linspace(0, 1, M) - Y[:, :1]) ** 2) / 0.02) * (1 + Y[:, 1:])
        F /= F.sum(axis=1, keepdims=True)
        decoder = RANDSMAPDecoder(FourierFeatures(0.3, n_features=P), random_state=0).fit(Y, F)
        precision, tol = kind
        self.frozen = decoder.freeze(precision=precision, tol=tol)
        self.x, self.out = Y[:1] + 0.01, np.empty((1, M))

    def run_predict(self, kind):
        self.frozen.predict(self.x, out=self.out)

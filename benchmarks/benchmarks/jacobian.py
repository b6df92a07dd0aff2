"""Jacobians and their products beside the decode; a subset of the cells beside the whole field."""

import numpy as np

from randsmap import DiffusionMaps, KernelDecoder, RANDSMAPDecoder, SigmoidFeatures
from randsmap._kernels import gradients


class Jacobian:
    params = [[400, 16384], [2, 10]]
    param_names = ["n_cells", "n_latents"]

    def setup(self, M, d):
        rng = np.random.default_rng(0)
        Y, F = rng.uniform(size=(60, d)), rng.dirichlet(np.ones(M), size=60)
        self.decoder = RANDSMAPDecoder(SigmoidFeatures(5.0, n_features=2000), random_state=0).fit(Y, F)
        self.x, self.v, self.u = rng.uniform(size=(1, d)), np.ones(d), np.ones(M)
        self.field, self.J = np.empty((1, M)), np.empty((1, M, d))
        self.cells = np.arange(20) * (M // 20)

    def time_predict(self, M, d):
        self.decoder.predict(self.x, out=self.field)

    def time_jacobian(self, M, d):
        self.decoder.jacobian(self.x, out=self.J)

    def time_jvp(self, M, d):
        self.decoder.jvp(self.x, self.v)

    def time_vjp(self, M, d):
        self.decoder.vjp(self.x, self.u)

    def time_predict_cells(self, M, d):
        self.decoder.predict(self.x, cells=self.cells)

    def time_jacobian_cells(self, M, d):
        self.decoder.jacobian(self.x, cells=self.cells)

    def track_mass_of_jacobian(self, M, d):
        J = self.decoder.jacobian(self.x)
        return float((abs(J.sum(axis=1)) / abs(J).sum(axis=1)).max())


class Kernels:
    """The derivative of 2000 sigmoids at 100 points, d = 2, beside the sigmoids."""

    def setup(self):
        rng = np.random.default_rng(0)
        self.Y, self.W, self.b = rng.normal(size=(100, 2)), rng.normal(size=(2, 2000)), np.zeros(2000)
        self.S, self.G = np.empty((100, 2000)), np.empty((100, 2, 2000))

    def time_slopes(self):
        gradients.slopes(1, self.Y, self.W, self.b, 1.0, self.S)

    def time_gradients(self):
        gradients.gradients(self.S, None, self.W, self.G)


class KernelDecoders:
    params = ["gaussian", "multi-gaussian"]
    param_names = ["kernel"]

    def setup(self, kernel):
        rng = np.random.default_rng(0)
        Y, F = rng.uniform(size=(1000, 2)), rng.dirichlet(np.ones(400), size=1000)
        scale = {"length_scale": 0.1} if kernel == "gaussian" else {"max_frequency": 20.0}
        self.decoder = KernelDecoder(kernel, latent_scale=None, **scale).fit(Y, F)
        self.X = rng.uniform(size=(100, 2))

    def time_predict(self, kernel):
        self.decoder.predict(self.X)

    def time_jacobian(self, kernel):
        self.decoder.jacobian(self.X)


class Encoder:
    """The Nystroem map's derivative at 100 fields of 400 cells, 2000 training fields."""

    def setup(self):
        rng = np.random.default_rng(0)
        place, width = rng.uniform(0.2, 0.8, (2000, 1)), rng.uniform(0.1, 0.2, (2000, 1))
        F = np.exp(-(((np.linspace(0, 1, 400) - place) / width) ** 2))
        self.encoder = DiffusionMaps(2, epsilon_scale=0.4).fit(F)
        self.X, self.V, self.U = F[:100], rng.normal(size=(100, 400)), rng.normal(size=(100, 2))

    def time_transform(self):
        self.encoder.transform(self.X)

    def time_jacobian(self):
        self.encoder.jacobian(self.X)

    def time_jvp(self):
        self.encoder.jvp(self.X, self.V)

    def time_vjp(self):
        self.encoder.vjp(self.X, self.U)

"""Sampled reduced models: the choice of cells, and a rate at few and many cells of the field."""

import numpy as np

from randsmap import KernelDecoder, SampledModel, sample_cells

from ._gemm import tracked


@tracked
class Sampled:
    params = [1000, 100000]
    param_names = ["M"]

    def setup(self, M):
        self.Y = np.random.default_rng(0).uniform(size=(100, 2))
        x = np.linspace(0, 1, M)
        F = np.exp(-(((x - 0.2 - 0.6 * self.Y[:, :1]) / (0.05 + 0.05 * self.Y[:, 1:])) ** 2))
        self.decoder = KernelDecoder(length_scale=1.0, regularization=1e-6).fit(self.Y, F)
        cells = sample_cells(self.decoder, self.Y, 60)
        self.model = SampledModel(
            self.decoder, lambda t, f: f[60:] - f[:60], cells, stencil=np.append(cells - 1, cells)
        )
        self.model.velocity(0.0, self.Y[0])

    def run_sample_cells(self, M):
        sample_cells(self.decoder, self.Y, 60)

    def run_velocity(self, M):
        self.model.velocity(0.0, self.Y[0])

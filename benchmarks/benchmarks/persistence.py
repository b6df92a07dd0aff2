"""Model files."""

import tempfile
from pathlib import Path

import numpy as np

import randsmap

from ._gemm import tracked


@tracked
class ModelFile:
    def setup(self):
        rng = np.random.default_rng(0)
        F = rng.uniform(0.5, 1, (1000, 400))
        F /= F.sum(axis=1, keepdims=True)
        self.model = randsmap.ManifoldModel(randsmap.POD(2), randsmap.RANDSMAPDecoder(random_state=0)).fit(F)
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name, "model.npz")
        self.run_save()

    def teardown(self):
        self.folder.cleanup()

    def run_save(self):
        self.model.save(self.path)

    def run_load(self):
        randsmap.load(self.path)

    def peakmem_load(self):
        randsmap.load(self.path)

"""Model files beside `numpy.savez` and `numpy.load` of the same arrays."""

import tempfile
from pathlib import Path

import numpy as np

import randsmap
from randsmap.persistence._model_files import save


class ModelFile:
    def setup(self):
        rng = np.random.default_rng(0)
        F = rng.uniform(0.5, 1, (2000, 400))
        F /= F.sum(axis=1, keepdims=True)
        decoder = randsmap.RANDSMAPDecoder(random_state=0)
        self.model = decoder.fit(rng.uniform(-1, 1, (2000, 2)), F)
        self.folder = tempfile.TemporaryDirectory()
        self.path, self.peer = (Path(self.folder.name, name) for name in ("model.npz", "peer.npz"))
        self.time_save()
        self.time_savez()

    def teardown(self):
        self.folder.cleanup()

    def time_save(self):
        save(self.model, self.path)

    def time_load(self):
        randsmap.load(self.path)

    def peakmem_load(self):
        randsmap.load(self.path)

    def time_savez(self):
        np.savez(self.peer, coef_=self.model.coef_, weights_=self.model.features_.weights_)

    def time_numpy_load(self):
        with np.load(self.peer) as arrays:
            [arrays[name] for name in arrays.files]

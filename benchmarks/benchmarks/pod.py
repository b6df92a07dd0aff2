"""POD: fit of few and of many snapshots, both transforms."""

import numpy as np

from randsmap import POD


class Pod:
    params = [[(100, 16384), (2000, 400)], [None, "mass"]]
    param_names = ["shape", "invariants"]

    def setup(self, shape, invariants):
        n, M = shape
        rng = np.random.default_rng(0)
        F = np.exp(-((np.linspace(0, 1, M) - rng.uniform(size=(n, 1))) ** 2) / 0.02)
        self.F = F / F.sum(axis=1, keepdims=True)
        self.pod = POD(10, invariants=invariants).fit(self.F)
        self.latents = self.pod.transform(self.F)

    def time_fit(self, shape, invariants):
        POD(10, invariants=invariants).fit(self.F)

    def time_plain_svd(self, shape, invariants):
        np.linalg.svd(self.F - self.F.mean(axis=0), full_matrices=False)

    def peakmem_fit(self, shape, invariants):
        POD(10, invariants=invariants).fit(self.F)

    def time_transform(self, shape, invariants):
        self.pod.transform(self.F)

    def time_inverse_transform(self, shape, invariants):
        self.pod.inverse_transform(self.latents)

    def track_mass_error(self, shape, invariants):
        return float(np.abs(self.pod.inverse_transform(100 * self.latents).sum(axis=1) - 1).max())

    def track_l2_error(self, shape, invariants):
        found = self.pod.inverse_transform(self.latents)
        return float((np.linalg.norm(found - self.F, axis=1) / np.linalg.norm(self.F, axis=1)).mean())

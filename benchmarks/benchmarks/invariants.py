"""Affine invariants: the check of the training data, and the projection of fields."""

import numpy as np

from randsmap.invariants._affine import AffineInvariants


class Invariants:
    params = [[400, 16384], [1, 4]]
    param_names = ["n_cells", "n_invariants"]

    def setup(self, M, q):
        rng = np.random.default_rng(0)
        self.C = rng.uniform(1, 2, size=(M, q))
        self.C[:, 0] = 1
        # one field, and others that differ from it in directions the invariants do not see
        Q = np.linalg.qr(self.C)[0]
        change = rng.normal(size=(200, M))
        self.F = rng.uniform(size=M) + (change - change @ Q @ Q.T)
        self.invariants = AffineInvariants.from_data(self.F, invariants=self.C)
        self.G = rng.normal(size=(1000, M))
        self.work = np.empty_like(self.G)

    def time_from_data(self, M, q):
        AffineInvariants.from_data(self.F, invariants=self.C)

    def time_project(self, M, q):
        self.work[:] = self.G
        self.invariants.project(self.work)

    def track_conservation_error(self, M, q):
        """max |C_j^T f - m_j| / (|C_j|^T |f| + |m_j|)."""
        F = self.invariants.project(self.G.copy()).astype(np.longdouble)
        m = self.invariants.values
        return float((np.abs(F @ self.C - m) / (np.abs(F) @ np.abs(self.C) + np.abs(m))).max())

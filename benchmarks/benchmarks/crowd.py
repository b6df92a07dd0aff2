"""Kernel `crowd`: eikonal solves and Hughes' model."""

import numpy as np

from randsmap import set_num_threads
from randsmap.datasets import HughesSolver, make_hughes, solve_eikonal


def corridor(n_fields):
    """Slowness of crowds in the paper's corridor (n_fields, 200, 50), and its obstacle."""
    x, y = np.meshgrid((np.arange(200) + 0.5) * 0.1, (np.arange(50) + 0.5) * 0.1, indexing="ij")
    wall = (x > 10) & (x < 11) & (y > 2) & (y < 3)
    centers = np.linspace(3, 17, n_fields)[:, None, None]
    density = 2 * np.exp(-((x - centers) ** 2) / 6 - (y - 2.2) ** 2 / 6)
    return 1 / (1 - density / 5), wall


class Eikonal:
    """One field, and batches on one core; microseconds a field = time / fields."""

    params = [[1, 8, 64], ["marching", "sweeping"]]
    param_names = ["fields", "method"]

    def setup(self, fields, method):
        self.slowness, self.wall = corridor(fields)
        set_num_threads(1)

    def teardown(self, fields, method):
        set_num_threads(None)

    def time_exit(self, fields, method):
        solve_eikonal(self.slowness, 0.1, exits="right", obstacles=self.wall, method=method)

    def time_point_source(self, fields, method):
        solve_eikonal(self.slowness, 0.1, [(120, 25)], obstacles=self.wall, method=method)


class Hughes:
    """Eight trajectories (one group of lanes) of 100 steps on the paper's 200 x 50 cells."""

    timeout = 120

    def setup(self):
        slowness, wall = corridor(8)
        self.solver = HughesSolver(obstacles=wall)
        self.initial = (5 * (1 - 1 / slowness) * ~wall).reshape(8, -1)

    def time_100_steps(self):
        self.solver.solve(self.initial, 2.5)

    def peakmem_100_steps(self):
        self.solver.solve(self.initial, 2.5)

    def track_mass_drift(self):
        fields = self.solver.solve(self.initial, 25.0).fields[:, 0]
        return float(np.abs(fields.sum(axis=1) / self.initial.sum(axis=1) - 1).max())

    def time_make_hughes(self):
        make_hughes(16, 20, random_state=0, t_end=5.0)


class EikonalAccuracy:
    unit = "length"

    def track_point_source_l2_error(self):
        x = np.arange(201) / 200
        T = solve_eikonal(np.ones((201, 201)), 1 / 200, [(0, 0)])
        return float(np.sqrt(np.mean((T - np.hypot(x[:, None], x)) ** 2)))

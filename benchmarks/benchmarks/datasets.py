"""Solvers and data sets: traffic, eikonal equation, crowd, rotated images."""

import numpy as np

import randsmap
from randsmap import HughesSolver, LWRSolver, solve_eikonal

from ._gemm import tracked


def corridor(n_fields):
    """Slowness of crowds in the paper's corridor (n_fields, 200, 50), and its obstacle."""
    x, y = np.meshgrid((np.arange(200) + 0.5) * 0.1, (np.arange(50) + 0.5) * 0.1, indexing="ij")
    wall = (x > 10) & (x < 11) & (y > 2) & (y < 3)
    centers = np.linspace(3, 17, n_fields)[:, None, None]
    density = 2 * np.exp(-((x - centers) ** 2) / 6 - (y - 2.2) ** 2 / 6)
    return 1 / (1 - density / 5), wall


@tracked
class Traffic:
    params = [1, 8]
    param_names = ["trajectories"]

    def setup(self, trajectories):
        self.solver = LWRSolver()
        self.initial = randsmap.datasets.make_lwr(trajectories, 1, random_state=0, t_end=0.0).data

    def run_4000_steps(self, trajectories):
        self.solver.solve(self.initial, 20.0)


@tracked
class Eikonal:
    params = [[1, 64], ["marching", "sweeping"]]
    param_names = ["fields", "method"]

    def setup(self, fields, method):
        self.slowness, self.wall = corridor(fields)

    def run_exit(self, fields, method):
        solve_eikonal(self.slowness, 0.1, exits="right", obstacles=self.wall, method=method)


@tracked
class Hughes:
    """Eight trajectories (one group of lanes) of 20 steps on the paper's 200 x 50 cells."""

    def setup(self):
        slowness, wall = corridor(8)
        self.solver = HughesSolver(obstacles=wall)
        self.initial = (5 * (1 - 1 / slowness) * ~wall).reshape(8, -1)

    def run_20_steps(self):
        self.solver.solve(self.initial, 0.5)


@tracked
class Rotation:
    def setup(self):
        self.image = randsmap.datasets.head_phantom(128)
        self.out = np.empty((100, 128 * 128))

    def run_100_rotations(self):
        randsmap.datasets.make_rotated_images(100, image=self.image, out=self.out)

"""LWR traffic flow: cost of a cell update, loss of mass, order of accuracy."""

import math
import time

import numpy as np

import randsmap
from randsmap.datasets import LWRSolver, make_lwr


class Solve:
    params = ([1, 8], [1, 2])
    param_names = ("trajectories", "threads")

    def setup(self, trajectories, threads):
        randsmap.set_num_threads(threads)
        self.solver = LWRSolver()
        self.initial = make_lwr(trajectories, 1, random_state=0, t_end=0.0).data

    def teardown(self, trajectories, threads):
        randsmap.set_num_threads(None)

    def time_4000_steps(self, trajectories, threads):
        self.solver.solve(self.initial, 20.0)

    def track_ns_per_cell_update(self, trajectories, threads):
        seconds = []
        for _ in range(9):
            start = time.perf_counter()
            self.solver.solve(self.initial, 20.0)
            seconds.append(time.perf_counter() - start)
        return 1e9 * float(np.median(seconds)) / (4000 * self.initial.size)

    track_ns_per_cell_update.unit = "ns"


class Study:
    def time_make_lwr(self):
        make_lwr(20, 120, random_state=0)

    def peakmem_make_lwr(self):
        make_lwr(100, 120, random_state=0)


def track_mass_error():
    """Largest change of the exact sum of the cells after time 0: 0 is the promise."""
    initial = make_lwr(5, 1, random_state=0, t_end=0.0).data
    fields = LWRSolver().solve(initial, 20.0, times=np.linspace(0.005, 20.0, 40)).fields
    mass = np.array([[math.fsum(field) for field in run] for run in fields])
    return float(abs(mass - mass[:, :1]).max())


def track_l1_error_of_a_shock():
    """Against the exact solution of the Riemann problem 0.1 | 0.8 at t = 1, 400 cells."""
    solver = LWRSolver()
    x = solver.cell_centers
    field = solver.solve(np.where(x < 0, 0.1, 0.8), 1.0).fields[0]
    exact = 0.1 + 0.7 * np.clip((x - 0.2) / solver.dx + 0.5, 0, 1)  # cell averages, shock at 0.2
    window = abs(x) < 2.5
    return float(abs(field - exact)[window].sum() * solver.dx)

"""Make traffic_golden.npz: LWR fields computed by PyClaw, which the solver must reproduce.

Run once, by hand (pytest does not collect it), in an environment with ``clawpack`` (5.14.0 was
used; its build needs gfortran and ninja)::

    python tests/data/make_traffic_golden.py

The solver is PyClaw's classic one with the Riemann solver ``traffic_1D``: order 2, van Leer
limiter, fixed step, periodic, v_max = 2, rho_max = 1, 400 cells on [-5, 5], dt = 0.005.
"""

import logging
import sys
import time
from pathlib import Path

import numpy as np
from clawpack import pyclaw, riemann

N_CELLS, DT, V_MAX = 400, 0.005, 2.0
STEPS = (500, 4000)


def study_initial(rng, centers):
    """The traffic study's initial data: noisy bump, clipped at 0, sum 1."""
    a, w, xc = rng.uniform(0.5, 1.5), rng.uniform(0.2, 0.8), rng.uniform(-3, 3)
    rho = a * np.exp(-((centers - xc) ** 2) / (2 * w**2)) + rng.normal(0, 0.02, N_CELLS)
    rho = np.clip(rho, 0, None)
    return rho / rho.sum()


def jam_initial(rng, centers):
    """Densities from empty to jammed: shocks of both directions and transonic rarefactions."""
    steps = np.repeat([0.95, 0.05, 0.7, 1.0, 0.0, 0.3, 0.6, 0.15], N_CELLS // 8)
    smooth = 0.5 + 0.45 * np.sin(2 * np.pi * (centers + 5) / 5) * rng.uniform(0.8, 1, N_CELLS)
    return np.array([steps, np.clip(smooth, 0, 1)])


def pyclaw_run(initial, steps):
    solver = pyclaw.ClawSolver1D(riemann.traffic_1D)
    solver.limiters = pyclaw.limiters.tvd.vanleer
    solver.order = 2
    solver.bc_lower[0] = solver.bc_upper[0] = pyclaw.BC.periodic
    solver.dt_variable = False
    solver.dt_initial = solver.dt = DT  # dt_initial alone does not fix the step
    solver.max_steps = max(steps) + 1

    domain = pyclaw.Domain(pyclaw.Dimension(-5.0, 5.0, N_CELLS, name="x"))
    state = pyclaw.State(domain, 1)
    state.problem_data["umax"] = V_MAX
    state.q[0] = initial
    solution = pyclaw.Solution(state, domain)
    solver.setup(solution)

    fields = []
    for step in range(1, max(steps) + 1):
        # one step a call: the step count is exact whatever the rounding of the end time
        solver.dt = DT
        if not solver.step(solution, True, 0.0, step * DT):
            raise RuntimeError("PyClaw refused the step")
        if step in steps:
            fields.append(state.q[0].copy())
    return fields


def main():
    logging.disable(logging.CRITICAL)
    rng = np.random.default_rng(20)
    centers = -5 + (np.arange(N_CELLS) + 0.5) * 10 / N_CELLS
    study = [study_initial(rng, centers) for _ in range(2)]
    initial = np.vstack([study, jam_initial(rng, centers)])
    start = time.perf_counter()
    fields = np.array([pyclaw_run(rho, STEPS) for rho in initial])
    seconds = (time.perf_counter() - start) / len(initial)
    np.savez(Path(__file__).with_name("traffic_golden.npz"), initial=initial, steps=STEPS, fields=fields)
    print(
        f"PyClaw: {seconds:.3f} s a trajectory, {1e9 * seconds / (N_CELLS * max(STEPS)):.0f} ns a cell update",
        file=sys.stderr,
    )


if __name__ == "__main__":
    main()

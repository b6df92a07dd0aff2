"""Peers in an environment of their own: `python worker.py JOB`, then a line a run; answers seconds.

Runs under the peer's Python, so it imports nothing of randsmap. Its data are like the comparison's in
size and kind.
"""

import sys
import time

import numpy as np


def pyclaw():
    """One LWR trajectory, 400 cells, 4000 steps, classic solver of order 2 with the van Leer limiter."""
    from clawpack import pyclaw, riemann

    x = np.linspace(-5, 5, 400, endpoint=False) + 0.0125
    rho = np.exp(-(x**2) / 0.5) + 0.02 * np.abs(np.random.default_rng(0).normal(size=400))
    rho /= rho.sum()

    def run():
        solver = pyclaw.ClawSolver1D(riemann.traffic_1D)
        solver.order, solver.limiters = 2, pyclaw.limiters.tvd.vanleer
        solver.bc_lower[0] = solver.bc_upper[0] = pyclaw.BC.periodic
        solver.dt_variable, solver.dt_initial, solver.dt, solver.max_steps = False, 0.005, 0.005, 10**6
        solver.cfl_max = 1.0
        domain = pyclaw.Domain(pyclaw.Dimension(-5.0, 5.0, 400, name="x"))
        state = pyclaw.State(domain, solver.num_eqn)
        state.q[0] = rho
        state.problem_data.update(umax=2.0, efix=True)
        controller = pyclaw.Controller()
        controller.solution, controller.solver = pyclaw.Solution(state, domain), solver
        controller.tfinal, controller.num_output_times = 20.0, 1
        controller.output_format, controller.verbosity = None, 0
        start = time.perf_counter()
        controller.run()
        return time.perf_counter() - start

    return run


def datafold():
    """Nystroem extension of 8000 fields of 400 cells from 2000 training fields, two coordinates."""
    import datafold.dynfold as dfold
    import datafold.pcfold as pfold

    rng = np.random.default_rng(0)
    x = np.linspace(-5, 5, 400)

    def fields(n):
        F = np.exp(-((x - rng.uniform(-3, 3, (n, 1))) ** 2) / (2 * rng.uniform(0.2, 0.8, (n, 1)) ** 2))
        return F / F.sum(axis=1, keepdims=True)

    F, F_test = fields(2000), fields(8000)
    scale = np.median(np.linalg.norm(F[:200, None] - F[None, :200], axis=2))
    maps = dfold.DiffusionMaps(pfold.GaussianKernel(epsilon=scale**2 / 2), n_eigenpairs=3)
    maps.fit(pfold.PCManifold(F))

    def run():
        start = time.perf_counter()
        maps.transform(F_test)
        return time.perf_counter() - start

    return run


def ddm(step):
    """Geometric harmonics from two latent coordinates to 400 cells: fit on 2000, predict 8000."""
    import datafold.dynfold as dfold
    import datafold.pcfold as pfold

    rng = np.random.default_rng(0)
    Y, Y_test = rng.normal(size=(2000, 2)), rng.normal(size=(8000, 2))
    F = np.exp(-((np.linspace(-5, 5, 400) - Y[:, :1]) ** 2) / (2 * (0.3 + 0.2 * np.abs(Y[:, 1:])) ** 2))
    scale = 0.6 * np.median(np.linalg.norm(Y[:500, None] - Y[None, :500], axis=2))
    harmonics = dfold.GeometricHarmonicsInterpolator(pfold.GaussianKernel(epsilon=scale**2 / 2), n_eigenpairs=100)
    work = {"fit": lambda: harmonics.fit(Y, F), "predict": lambda: harmonics.predict(Y_test)}
    work["fit"]()

    def run():
        start = time.perf_counter()
        work[step]()
        return time.perf_counter() - start

    return run


JOBS = {"pyclaw": pyclaw, "datafold": datafold, "ddm_fit": lambda: ddm("fit"), "ddm_predict": lambda: ddm("predict")}

if __name__ == "__main__":
    run = JOBS[sys.argv[1]]()
    print("ready", flush=True)
    for _ in sys.stdin:
        print(repr(run()), flush=True)

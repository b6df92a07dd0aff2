"""The LWR kernel: the scheme against PyClaw and plain NumPy, the same bits at every level."""

import hashlib
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from randsmap._kernels import traffic
from randsmap.datasets import LWRSolver

from helpers import python
from oracles import numpy_step

pytestmark = pytest.mark.kernels

EPS = np.finfo(float).eps
GOLDEN = Path(__file__).parent / "data" / "traffic_golden.npz"  # by make_traffic_golden.py


def kernel_steps(q, courant, rho_max, n_steps, rounding=0.0):
    n = len(q)
    state = np.zeros(traffic.GHOSTS_LEFT + n + traffic.GHOSTS_RIGHT)
    state[traffic.GHOSTS_LEFT : traffic.GHOSTS_LEFT + n] = q
    out = np.empty((1, n))
    traffic.run(
        state,
        np.empty_like(state),
        courant,
        rho_max,
        rounding,
        np.array([n_steps]),
        np.zeros(1),
        np.zeros(1, np.intp),
        out,
    )
    return out[0]


def test_agrees_with_pyclaw():
    golden = np.load(GOLDEN)
    steps, initial = golden["steps"], golden["initial"]
    fields = LWRSolver().solve(initial, steps[-1] * 0.005, times=steps * 0.005).fields
    error = abs(fields - golden["fields"]).max(axis=2)
    assert error[:2].max() <= 1e-13  # the study's data, 4000 steps (measured: 7e-17)
    # Shocks, jams, transonic rarefactions. A flux rounded by eps in a constant state moves a shock
    # by as much every step: the difference may grow by eps * rho_max a step.
    assert (error[2:] <= steps * EPS).all()


@pytest.mark.parametrize("n", [*range(2, 20), 64, 401, *range(510, 516), 1025])
def test_agrees_with_numpy(n):
    rng = np.random.default_rng(n)
    for rho_max, courant in ((1.0, 0.4), (0.3, 0.9), (120.0, 1.0)):
        q = rho_max * rng.uniform(0, 1, n)
        q[rng.random(n) < 0.2] = 0
        q[rng.random(n) < 0.2] = rho_max
        expected = q
        for _ in range(20):
            expected = numpy_step(expected, courant, rho_max)
        result = kernel_steps(q, courant, rho_max, 20)
        assert abs(result - expected).max() <= 20 * 8 * EPS * rho_max


@settings(deadline=None, max_examples=60)
@given(st.lists(st.floats(0, 1), min_size=2, max_size=40), st.floats(0.01, 1), st.floats(1e-3, 1e3))
def test_agrees_with_numpy_on_any_data(q, courant, rho_max):
    q = rho_max * np.rint(np.array(q) * 2**52) / 2**52  # ratios of jumps do not overflow
    expected = numpy_step(numpy_step(q, courant, rho_max), courant, rho_max)
    result = kernel_steps(q, courant, rho_max, 2)
    assert abs(result - expected).max() <= 2 * 16 * EPS * rho_max


def test_constant_states_stay_as_they_are():
    for value in (0.0, 0.1, 0.5, 0.9, 1.0):
        q = np.full(21, value)
        assert np.array_equal(kernel_steps(q, 0.7, 1.0, 50), q)


def test_whole_and_shorter_steps_and_unsaved_events():
    q = np.random.default_rng(0).uniform(0, 1, 30)
    state = np.zeros(33)
    state[2:32] = q
    out = np.full((2, 30), np.nan)
    traffic.run(
        state,
        np.empty_like(state),
        0.4,
        1.0,
        0.0,
        np.array([3, 2, 1]),
        np.array([0.5, 0.0, 0.0]),
        np.array([1, -1, 0]),
        out,
    )
    after3 = kernel_steps(q, 0.4, 1.0, 3)
    assert np.array_equal(out[1], kernel_steps(after3, 0.2, 1.0, 1))
    assert np.array_equal(out[0], kernel_steps(q, 0.4, 1.0, 6))


def test_rounded_fluxes_keep_every_bit_of_the_mass():
    q = np.rint(np.random.default_rng(1).uniform(0, 1, 101) * 2**53) / 2**53
    for n_steps in (1, 10, 1000):
        assert math.fsum(kernel_steps(q, 0.4, 1.0, n_steps, rounding=0.5 * (1 + 2**-10))) == math.fsum(q)


LEVELS = """
import hashlib
import numpy as np
from randsmap.datasets import LWRSolver
digest = hashlib.sha256()
for n in (2, 3, 7, 13, 64, 401, 1027):
    initial = np.random.default_rng(n).uniform(0, 1, (5, n))
    solver = LWRSolver(n, dt=0.7 * (10 / n) / 2)
    times = solver.dt * np.r_[0.3, 5, 30]
    digest.update(solver.solve(initial, times[-1], times=times).fields.tobytes())
print(digest.hexdigest())
"""


def test_same_bits_at_every_instruction_level(levels):
    digests = {python(LEVELS, level=level).strip() for level in levels}
    assert len(digests) == 1
    assert len(next(iter(digests))) == hashlib.sha256().digest_size * 2


@pytest.mark.parametrize("rho_max", [1e-140, 1.0, 1e140])
def test_empty_roads_stay_empty(rho_max):
    assert not LWRSolver(2, rho_max=rho_max, dt=0.1).solve([0.0, 0.0], 1.0).fields.any()

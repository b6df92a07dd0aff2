"""LWRSolver and make_lwr: exact solutions, mass, extrema, times, threads, the study's data."""

import math
import signal
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import randsmap
from randsmap.datasets import LWRSolver, _common, _lwr, make_lwr

EPS = np.finfo(float).eps


@pytest.fixture
def threads():
    yield randsmap.set_num_threads
    randsmap.set_num_threads(None)


def solver_at(courant, n_cells, **keywords):
    return LWRSolver(n_cells, dt=courant * (10 / n_cells) / 2, **keywords)


# -- Exact solutions (v_max = 2, rho_max = 1) ------------------------------------------------------


def riemann_average(left, right, edges, t):
    """Cell averages of the entropy solution of a jump at x = 0."""
    x = (np.add.outer(edges[:-1], np.diff(edges)[0] * (np.arange(64) + 0.5) / 64)) / t
    if left < right:
        values = np.where(x < 2 * (1 - left - right), left, right)
    else:
        values = np.clip((1 - x / 2) / 2, right, left)
    return values.mean(axis=1)


def riemann_errors(left, right, n_cells):
    solver = solver_at(0.4, n_cells)
    x = solver.cell_centers
    field = solver.solve(np.where(x < 0, left, right), 1.0).fields[0]
    exact = riemann_average(left, right, np.linspace(-5, 5, n_cells + 1), 1.0)
    window = abs(x) < 2.5  # out of reach of the other jump, at the ends of the road
    return abs(field - exact)[window].sum() * solver.dx, field[window]


@pytest.mark.parametrize(
    ("left", "right"),
    [(0.1, 0.8), (0.45, 0.05), (0.95, 0.6), (0.9, 0.1), (1, 0)],
    ids=["shock", "rarefaction", "jam-rarefaction", "transonic", "green-light"],
)
def test_riemann_problems_converge_at_first_order(left, right):
    # order 1 in L1 is what a shock, and the kinks of a rarefaction started from a jump, allow
    errors = [riemann_errors(left, right, n)[0] for n in (200, 400, 800, 1600)]
    orders = -np.diff(np.log2(errors))
    assert (orders > 0.95).all(), orders


def test_transonic_rarefaction_has_no_expansion_shock():
    # without the entropy fix the jump 0.9 -> 0.1 has Roe speed 0 and stays for ever
    largest = []
    for n in (200, 400, 800):
        jumps = np.diff(riemann_errors(0.9, 0.1, n)[1])
        assert jumps.max() <= 2 * EPS
        largest.append(-jumps.min())
    assert largest[1] < 0.02  # the exact fan falls by 0.00625 a cell
    assert largest[0] > 1.8 * largest[1] > 1.8 * 1.8 * largest[2]


def test_smooth_solution_converges_at_second_order():
    def bump(x):
        return 0.3 + 0.15 * np.sin(2 * np.pi * x / 10)

    t = 0.5 / (4 * 0.15 * 2 * np.pi / 10)  # half the time at which characteristics cross
    errors = []
    for n in (100, 200, 400, 800):
        solver = solver_at(0.4, n)
        x = np.add.outer(solver.cell_centers, solver.dx * ((np.arange(16) + 0.5) / 16 - 0.5))
        foot = x
        for _ in range(60):
            foot = x - 2 * (1 - 2 * bump(foot)) * t
        field = solver.solve(bump(x).mean(axis=1), t).fields[0]
        errors.append(abs(field - bump(foot).mean(axis=1)).mean())
    orders = -np.diff(np.log2(errors))
    assert (orders > 1.9).all(), orders


# -- Mass and extrema ------------------------------------------------------------------------------


def test_mass_of_the_study_is_kept():
    lwr = make_lwr(10, 30, random_state=0)
    exact = np.array([math.fsum(row) for row in lwr.data]).reshape(10, 30)
    assert abs(exact - 1).max() <= 4 * EPS
    # the same number at all times but 0, when the initial data are given back unrounded
    late = np.where(lwr.times.reshape(10, 30) > 0, exact, exact[:, -1:])
    assert (late == late[:, -1:]).all()


def test_mass_of_jams_is_kept():
    # case 17: jam-like densities, scaled back
    r0 = np.random.default_rng(0).uniform(0, 0.9, 200)
    r0 *= 100 / r0.sum()
    field = LWRSolver(200, domain=(0, 10), dt=0.01).solve(r0, 5.0).fields[0]
    assert abs(field.sum() / 100 - 1) < 1e-13 and field.min() >= 0


densities = st.lists(st.one_of(st.floats(1e-139, 1), st.sampled_from([0.0, 0.5, 1.0])), min_size=2, max_size=60)


@settings(deadline=None, max_examples=60)
@given(densities, st.floats(0.01, 0.4), st.sampled_from([1.0, 0.3, 120.0]))
def test_no_new_extrema_and_exact_mass_up_to_courant_0_4(values, courant, rho_max):
    initial = rho_max * np.array(values)
    solver = solver_at(courant, len(values), rho_max=rho_max)
    times = solver.dt * np.r_[0.5, 1, 10, 60.5]
    fields = solver.solve(initial, times[-1], times=times).fields
    assert fields.min() >= 0
    assert fields.min() >= initial.min() - 4 * EPS * initial.max()
    assert fields.max() <= initial.max() * (1 + 4 * EPS)
    masses = [math.fsum(field) for field in fields]
    assert len(set(masses)) == 1
    assert abs(masses[0] - math.fsum(initial)) <= len(initial) * EPS * initial.max()


@settings(deadline=None, max_examples=30)
@given(densities, st.floats(0.4, 1.0))
def test_mass_beyond_courant_0_4(values, courant):
    initial = np.array(values)
    solver = solver_at(courant, len(values))
    field = solver.solve(initial, 40 * solver.dt).fields[0]
    assert abs(math.fsum(field) - math.fsum(initial)) <= 40 * len(initial) * EPS


def test_mirrored_traffic():
    # rho -> rho_max - rho with x -> -x is a symmetry of the equation and of the scheme
    rho = np.random.default_rng(5).uniform(0, 1, 77)
    solver = solver_at(0.4, 77)
    a = solver.solve(rho, 3.0).fields[0]
    b = solver.solve(1 - rho[::-1], 3.0).fields[0]
    assert abs(a - (1 - b[::-1])).max() <= 3.0 / solver.dt * 8 * EPS


# -- Time loop -------------------------------------------------------------------------------------


def test_end_times_are_hit():
    # case 46
    r0 = np.linspace(0.1, 0.4, 50)
    solver = LWRSolver(50, dt=0.1)
    for t_end in (0.3, 0.25, 0.1 + 0.2):
        assert solver.solve(r0, t_end).times.tolist() == [t_end]
    result = solver.solve(r0, 0.0)
    assert result.times.tolist() == [0.0] and np.array_equal(result.fields, r0[None])


def test_rounded_multiples_of_dt_are_whole_steps():
    solver = LWRSolver(50, dt=0.1)
    r0 = np.linspace(0.1, 0.4, 50)
    a = solver.solve(r0, 0.3).fields
    assert np.array_equal(a, solver.solve(r0, 0.1 + 0.2).fields)
    assert np.array_equal(a, solver.solve(r0, 3 * 0.1).fields)
    steps, fractions = _common.steps_to(np.arange(1, 200001) * 0.005, 0.005)
    assert np.array_equal(steps, np.arange(1, 200001)) and not fractions.any()
    steps, fractions = _common.steps_to(np.array([0.25, 0.3 - 1e-9, 0.3 + 1e-9]), 0.1)
    assert steps.tolist() == [2, 2, 3]
    assert np.allclose(fractions, [0.5, 1 - 1e-8, 1e-8], atol=1e-14)


def test_shorter_step_is_a_step_of_that_length():
    r0 = np.linspace(0.1, 0.4, 50)
    whole = LWRSolver(50, dt=0.1).solve(r0, 0.05).fields
    half = LWRSolver(50, dt=0.05).solve(r0, 0.05).fields
    assert abs(whole - half).max() <= 4 * EPS


def test_fields_do_not_depend_on_other_times():
    r0 = np.random.default_rng(0).uniform(0, 1, 50)
    solver = LWRSolver(50, dt=0.05)
    times = np.array([0.0, 0.02, 0.05, 0.33, 0.33, 1.0])
    all_at_once = solver.solve(r0, 2.0, times=times)
    assert np.array_equal(all_at_once.times, times)
    for t, field in zip(times, all_at_once.fields):
        assert np.array_equal(solver.solve(r0, t).fields[0], field)
    assert np.array_equal(all_at_once.fields[0], r0)


@pytest.mark.parametrize("updates", [1, 50, 777])
def test_calls_of_any_length_give_the_same(monkeypatch, updates):
    r0 = np.random.default_rng(0).uniform(0, 1, (2, 50))
    solver = LWRSolver(50, dt=0.05)
    expected = solver.solve(r0, 3.0, times=[0.0, 0.02, 1.0, 1.0, 3.0]).fields
    monkeypatch.setattr(_lwr, "_UPDATES_PER_CALL", updates)
    assert np.array_equal(solver.solve(r0, 3.0, times=[0.0, 0.02, 1.0, 1.0, 3.0]).fields, expected)


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs POSIX timers")
@pytest.mark.parametrize("n_threads", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_long_run_can_be_interrupted(threads, n_threads):
    def interrupt(signum, frame):
        raise KeyboardInterrupt

    threads(n_threads)
    previous = signal.signal(signal.SIGALRM, interrupt)
    try:
        start = time.perf_counter()
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with pytest.raises(KeyboardInterrupt):
            LWRSolver(400).solve(np.full((3, 400), 0.3), 1e6)  # minutes
        assert time.perf_counter() - start < 5
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


# -- Batches, threads, kinds of input --------------------------------------------------------------


@pytest.mark.parametrize("n_trajectories", range(1, 18))
def test_a_trajectory_does_not_depend_on_the_batch(threads, n_trajectories):
    rng = np.random.default_rng(n_trajectories)
    n_cells = int(rng.integers(2, 60))
    initial = rng.uniform(0, 1, (n_trajectories, n_cells))
    solver = solver_at(0.4, n_cells)
    times = solver.dt * np.array([1, 2.5, 40])
    alone = [solver.solve(row, 40 * solver.dt, times=times).fields for row in initial]
    for n in (1, 2, 5):
        threads(n)
        batch = solver.solve(initial, 40 * solver.dt, times=times)
        assert batch.fields.shape == (n_trajectories, 3, n_cells)
        assert np.array_equal(batch.fields, alone)


def test_kinds_of_input():
    # cases 1, 4, 25, 31
    solver = LWRSolver(20, dt=0.1)
    rho = np.round(np.random.default_rng(0).uniform(0, 1, (3, 20)), 3).astype(np.float32)
    before = rho.copy()
    expected = solver.solve(rho.astype(float), 1.0).fields
    frozen = rho.astype(float)
    frozen.setflags(write=False)
    wide = np.repeat(rho, 2, axis=1)
    mirrored = np.ascontiguousarray(rho[:, ::-1])[:, ::-1]
    for same in (rho, frozen, rho.tolist(), np.asfortranarray(rho), wide[:, ::2], mirrored):
        assert np.array_equal(solver.solve(same, 1.0).fields, expected)
    assert np.array_equal(rho, before)
    assert np.array_equal(
        solver.solve(np.eye(20, dtype=np.uint8)[:3], 1.0).fields, solver.solve(np.eye(20)[:3], 1.0).fields
    )
    assert np.array_equal(solver.solve(np.eye(20, dtype=bool)[0], 1.0).fields, solver.solve(np.eye(20)[0], 1.0).fields)


def test_result_is_not_the_callers_memory():
    r0, times = np.linspace(0.1, 0.4, 50), np.array([0.0, 0.1])
    result = LWRSolver(50, dt=0.1).solve(r0, 0.1, times=times)
    r0[:], times[:] = 0, 7
    assert result.fields[0, -1] == 0.4 and result.times.tolist() == [0.0, 0.1]


def test_tiny_and_zero_densities():
    solver = LWRSolver(20, dt=0.1)
    assert not solver.solve(np.zeros(20), 1.0).fields.any()
    tiny = np.zeros(20)
    tiny[3:6] = 5e-324, 1e-310, 1e-139
    field = solver.solve(tiny, 1.0).fields[0]
    assert np.isfinite(field).all() and math.fsum(field) == math.fsum(tiny)
    wide = np.exp(-(np.linspace(-40, 40, 20) ** 2))  # 0 to rounding in most cells, subnormal in some
    assert solver.solve(wide, 1.0).fields.min() >= 0


def test_attributes():
    solver = LWRSolver(4, domain=(0, 2), dt=0.1)
    assert solver.dx == 0.5 and solver.cell_centers.tolist() == [0.25, 0.75, 1.25, 1.75]
    assert solver.courant == 0.4
    assert repr(solver) == "LWRSolver(n_cells=4, domain=(0.0, 2.0), v_max=2.0, rho_max=1.0, dt=0.1)"
    assert randsmap.LWRSolver is LWRSolver


# -- Errors ----------------------------------------------------------------------------------------


def test_cfl_violation_is_an_error_that_names_the_largest_dt():
    with pytest.raises(ValueError, match=r"Courant number .* got 2 .*admissible dt is 0\.05"):
        LWRSolver(100, dt=0.1)
    for n in range(2, 300):  # a Courant number of 1 is allowed, however it rounds
        dx = 10 / n
        LWRSolver(n, dt=dx / 2)
        LWRSolver(n, v_max=3.0, dt=dx / 3.0)


@pytest.mark.parametrize(
    ("keywords", "error"),
    [
        ({"n_cells": 1}, "n_cells"),
        ({"n_cells": 0}, "n_cells"),
        ({"domain": (1, 1)}, "domain"),
        ({"domain": (5, -5)}, "domain"),
        ({"domain": (0, np.inf)}, "domain"),
        ({"domain": (0, 1, 2)}, "domain"),
        ({"domain": 3}, "domain"),
        ({"domain": ("a", "b")}, "domain"),
        ({"v_max": 0}, "v_max"),
        ({"v_max": -1}, "v_max"),
        ({"v_max": np.nan}, "v_max"),
        ({"rho_max": 0}, "rho_max"),
        ({"rho_max": np.inf}, "rho_max"),
        ({"dt": 0}, "dt"),
        ({"dt": -0.1}, "dt"),
        ({"dt": np.nan}, "dt"),
    ],
)
def test_bad_parameters(keywords, error):
    with pytest.raises(ValueError, match=error):
        LWRSolver(**keywords)


@pytest.mark.parametrize("keywords", [{"n_cells": 4.0}, {"n_cells": True}, {"dt": "0.1"}, {"v_max": None}])
def test_bad_parameter_types(keywords):
    with pytest.raises(TypeError, match=next(iter(keywords))):
        LWRSolver(**keywords)


@pytest.mark.parametrize(
    "bad",
    [
        np.full(20, np.nan),
        np.full(20, np.inf),
        np.r_[np.zeros(19), -1e-9],
        np.r_[np.zeros(19), 1 + 1e-9],
        np.zeros(19),
        np.zeros(21),
        np.zeros((2, 19)),
        np.zeros((0, 20)),
        np.zeros(0),
        np.array(0.5),
        np.zeros((1, 2, 20)),
        np.zeros(20, complex),
        ["a"] * 20,
    ],
    ids=str,
)
def test_bad_initial_data(bad):
    with pytest.raises(ValueError, match="initial"):
        LWRSolver(20, dt=0.1).solve(bad, 1.0)


@pytest.mark.parametrize("times", [[0.5, 0.4], [-0.1, 0.5], [0.5, 1.1], [], [np.nan], [[0.5]], 0.5])
def test_bad_times(times):
    with pytest.raises(ValueError, match="times"):
        LWRSolver(20, dt=0.1).solve(np.zeros(20), 1.0, times=times)


def test_bad_end():
    solver = LWRSolver(20, dt=0.1)
    for t_end in (-1.0, np.nan, np.inf, 1e300):
        with pytest.raises(ValueError, match="t_end"):
            solver.solve(np.zeros(20), t_end)


# -- The study's data ------------------------------------------------------------------------------


def test_study_data():
    lwr = make_lwr(6, 20, random_state=3)
    assert lwr.data.shape == (120, 400) and lwr.data.flags.c_contiguous
    assert lwr.trajectories.tolist() == sorted(list(range(6)) * 20)
    assert lwr.parameters.shape == (6, 3)
    assert ((lwr.parameters >= [0.5, 0.2, -3]) & (lwr.parameters < [1.5, 0.8, 3])).all()
    assert np.array_equal(lwr.cell_centers, LWRSolver().cell_centers)
    steps = lwr.times.reshape(6, 20) / 0.005
    assert abs(steps - np.rint(steps)).max() < 1e-9
    assert (np.diff(steps) > 0.5).all() and steps.min() >= 0 and steps.max() <= 4000
    assert abs(lwr.data.sum(axis=1) - 1).max() <= 1e-13
    assert lwr.data.min() >= 0
    assert lwr.DESCR


def test_study_data_are_states_of_the_solver():
    lwr = make_lwr(2, 11, random_state=0, t_end=0.05)  # all 11 states
    assert np.array_equal(lwr.times[:11], np.arange(11) * 0.005)
    fields = LWRSolver().solve(lwr.data[[0, 11]], 0.05, times=lwr.times[:11]).fields
    assert np.array_equal(fields.reshape(22, 400), lwr.data)
    # the noise is on the bump itself, before the sum is made 1
    clean = make_lwr(2, 11, random_state=0, t_end=0.05, noise=0.0)
    a, w, xc = clean.parameters.T[:, :, None]
    bump = a * np.exp(-((clean.cell_centers - xc) ** 2) / (2 * w**2))
    assert np.allclose(clean.data[[0, 11]], bump / bump.sum(axis=1, keepdims=True), rtol=1e-14)
    assert np.array_equal(clean.parameters, lwr.parameters)


def test_study_noise_level():
    lwr = make_lwr(20, 1, random_state=1, t_end=0.0)
    a, w, xc = lwr.parameters.T[:, :, None]
    bump = a * np.exp(-((lwr.cell_centers - xc) ** 2) / (2 * w**2))
    inside = bump > 0.1  # nothing clipped: 5 sigma
    scale = (lwr.data * bump * inside).sum(1) / (bump**2 * inside).sum(1)
    noise = (lwr.data / scale[:, None] - bump)[inside]
    assert abs(noise.std() / 0.02 - 1) < 0.1  # some 1500 values: 5 standard errors


def test_study_data_follow_the_seed_alone(threads):
    threads(1)
    reference = make_lwr(5, 7, random_state=0, t_end=1.0)
    for n in (2, 3):
        threads(n)
        assert np.array_equal(make_lwr(5, 7, random_state=0, t_end=1.0).data, reference.data)
    more = make_lwr(8, 7, random_state=0, t_end=1.0)
    assert np.array_equal(more.data[:35], reference.data)
    assert np.array_equal(more.times[:35], reference.times)
    assert not np.array_equal(make_lwr(5, 7, random_state=1, t_end=1.0).data, reference.data)
    for kind in (np.random.RandomState, np.random.default_rng):
        a, b = (make_lwr(2, 3, random_state=kind(4), t_end=1.0).data for _ in range(2))
        assert np.array_equal(a, b)


def test_study_progress_bar(capsys):
    make_lwr(3, 2, random_state=0, t_end=0.1)
    assert capsys.readouterr().err == ""
    make_lwr(3, 2, random_state=0, t_end=0.1, progress=True)
    assert "3/3" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("keywords", "error"),
    [
        ({"n_trajectories": 0}, "n_trajectories"),
        ({"snapshots_per_trajectory": 0}, "snapshots"),
        ({"noise": -1.0}, "noise"),
        ({"snapshots_per_trajectory": 12, "t_end": 0.05}, "number of states"),
        ({"t_end": -1.0}, "t_end"),
        ({"dt": 0.1}, "Courant"),
        ({"n_cells": 1}, "n_cells"),
    ],
)
def test_study_bad_arguments(keywords, error):
    with pytest.raises(ValueError, match=error):
        make_lwr(**keywords)


@pytest.mark.parametrize("scale", [2.0**-460, 2.0**-300, 2.0**300, 2.0**460])
def test_the_unit_of_density_changes_nothing(scale):
    # products of differences of densities neither under- nor overflow
    rho = np.random.default_rng(0).uniform(0, 0.9, 100)
    times = [0.0, 0.123, 1.0]
    fields = LWRSolver(100).solve(rho, 1.0, times=times).fields
    scaled = LWRSolver(100, rho_max=scale).solve(rho * scale, 1.0, times=times).fields
    assert np.array_equal(scaled, fields * scale)
    if scale < 1:  # thin traffic on an ordinary road: the linear limit, whatever the density
        thin = LWRSolver(100).solve(rho * scale, 1.0, times=times).fields / scale
        less_thin = LWRSolver(100).solve(rho * 2.0**-100, 1.0, times=times).fields / 2.0**-100
        np.testing.assert_allclose(thin, less_thin, rtol=0, atol=1e-13)


def test_extremes_of_road_and_time_are_told():
    with pytest.raises(ValueError, match="wide enough for 400 cells"):
        LWRSolver(domain=(0.0, 5e-324))
    with pytest.raises(ValueError, match=r"more than 2\*\*53 steps"):
        LWRSolver(4).solve([0.1] * 4, 1e308)
    with pytest.raises(ValueError, match="got -0.5$"):
        LWRSolver(4).solve([-0.5] * 4, 1.0)


def test_output_array_and_file(tmp_path):
    expected = make_lwr(2, 5, random_state=0, t_end=1.0).data
    array = np.empty((10, 400))
    assert make_lwr(2, 5, random_state=0, t_end=1.0, out=array).data is array
    assert np.array_equal(array, expected)
    mapped = make_lwr(2, 5, random_state=0, t_end=1.0, out=tmp_path / "lwr.npy").data
    assert isinstance(mapped, np.memmap) and np.array_equal(mapped, expected)
    assert np.array_equal(np.load(tmp_path / "lwr.npy"), expected)
    assert [p.name for p in tmp_path.iterdir()] == ["lwr.npy"]
    with pytest.raises(ValueError, match=r"out must have shape \(10, 400\)"):
        make_lwr(2, 5, random_state=0, t_end=1.0, out=np.empty((9, 400)))

"""HughesSolver, make_hughes: a plain NumPy version agrees; conservation, bounds, symmetry, time."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import randsmap
from randsmap.datasets import HughesSolver, make_hughes

import hughes_reference as reference

EPS = np.finfo(float).eps


def paper_solver():
    free, _, _, _ = reference.paper_corridor()
    return HughesSolver(obstacles=~free)


def small(obstacle=True, **parameters):
    """40 x 10 cells of 0.5 m, with a pillar."""
    pillar = np.zeros((40, 10), bool)
    if obstacle:
        pillar[18:21, 4:6] = True
    return HughesSolver((40, 10), obstacles=pillar, **{"dt": 0.125} | parameters)


def random_crowd(solver, seed=0, highest=None):
    rng = np.random.default_rng(seed)
    return rng.uniform(0, highest or solver.rho_max, len(solver.mask)) * solver.mask


@pytest.fixture(scope="module")
def paper_run():
    """Both initial densities of the reference after 2800 steps of the paper's corridor."""
    return paper_solver().solve(reference.paper_bumps().reshape(2, -1), 70.0).fields[:, 0]


# -- against the plain version --------------------------------------------------------------------


@pytest.mark.slow
def test_agrees_with_the_plain_version_after_70_s(paper_run):
    golden = np.load(reference.GOLDEN)["final"].reshape(2, -1)
    np.testing.assert_allclose(paper_run, golden, rtol=0, atol=1e-10)


@pytest.mark.slow
def test_agrees_with_the_plain_version_at_the_paper_resolution():
    free, doors, _, _ = reference.paper_corridor()
    initial = reference.paper_bumps()
    expected = reference.run(initial, 8, free, doors, 0.1, 0.1, 0.025)
    fields = paper_solver().solve(initial.reshape(2, -1), 0.2).fields
    # a few ulp of phi (about 20) turn directions by that over dx; densities near 2, 8 steps
    tolerance = 8 * 4 * np.spacing(20.0) / 0.1
    np.testing.assert_allclose(fields.reshape(initial.shape), expected, rtol=0, atol=tolerance)


@settings(deadline=None, max_examples=25)
@given(
    seed=st.integers(0, 2**32),
    nx=st.integers(2, 15),
    ny=st.integers(1, 9),
    width=st.sampled_from([1.0, 0.7]),
    blocked=st.sampled_from([0.0, 0.25]),
    crowded=st.sampled_from([0.02, 1.0]),
)
def test_agrees_with_the_plain_version_on_any_corridor(seed, nx, ny, width, blocked, crowded):
    rng = np.random.default_rng(seed)
    free = rng.random((nx, ny)) >= blocked
    free[[0, -1], 0] = True
    doors = (rng.random(ny) < 0.7) & free[0] & free[-1]
    doors[0] = True
    dx, dy, v_max, rho_max, min_speed = 0.5, 0.5 * width, 1.3, 4.0, 0.01
    dt = 0.99 / (2 * v_max * (1 / dx + 1 / dy))
    solver = HughesSolver(
        (nx, ny),
        lengths=(nx * dx, ny * dy),
        obstacles=~free,
        exit=doors,
        v_max=v_max,
        rho_max=rho_max,
        min_speed=min_speed,
        dt=dt,
    )
    initial = rng.uniform(0, rho_max * crowded, (3, nx, ny)) * free
    fields = solver.solve(initial.reshape(3, -1), 20 * dt).fields.reshape(initial.shape)
    expected = reference.run(initial, 20, free, doors, dx, dy, dt, (v_max, rho_max, min_speed))
    np.testing.assert_allclose(fields, expected, rtol=0, atol=1e-11)
    assert fields.min() >= 0 and fields.max() <= rho_max * (1 + 8 * EPS)
    assert (fields[:, ~free] == 0).all()
    np.testing.assert_allclose(fields.sum((1, 2)), initial.sum((1, 2)), rtol=20 * 8 * EPS)


# -- conservation, bounds -------------------------------------------------------------------------


@pytest.mark.slow
def test_mass_bounds_and_obstacle_over_2800_steps(paper_run):
    initial = reference.paper_bumps().reshape(2, -1)
    assert np.abs(paper_run.sum(axis=1) / initial.sum(axis=1) - 1).max() <= 1e-13
    assert paper_run.min() >= 0
    assert (paper_run[:, ~paper_solver().mask] == 0).all()
    # people have left through the exit, entered again and passed the obstacle
    assert paper_run.max() < 5 and (paper_run.reshape(2, 200, 50)[:, 150:].sum((1, 2)) > 0).all()


@pytest.mark.parametrize("courant", [1.0, 0.3])
def test_densities_stay_between_empty_and_jammed(courant):
    solver = small(dt=0.125 * courant)
    # jam beside void, everywhere: the hardest case for the bounds
    initial = (np.random.default_rng(3).random((16, 400)) < 0.5) * solver.rho_max * solver.mask
    fields = solver.solve(initial, 30.0, times=np.linspace(0, 30, 13)).fields
    assert fields.min() >= 0
    assert fields.max() <= solver.rho_max * (1 + 8 * EPS)
    np.testing.assert_allclose(fields.sum(-1), initial.sum(-1)[:, None] * np.ones(13), rtol=1e-13)
    assert (fields[..., ~solver.mask] == 0).all()


def test_jammed_corridor_stands_still_and_stays_finite():
    solver = small()
    jam = solver.rho_max * solver.mask
    assert np.array_equal(solver.solve(jam, 5.0).fields[0], jam)
    assert np.isfinite(solver.potential(jam)[solver.mask]).all()
    assert solver.potential(jam)[solver.mask].max() < 20 / solver.min_speed * 1.5
    # a jam with a hole dissolves from the hole on
    hole = jam.reshape(40, 10).copy()
    hole[5] = 0
    field = solver.solve(hole.reshape(-1), 5.0).fields[0]
    assert np.isfinite(field).all() and field.min() >= 0
    assert field.sum() == pytest.approx(hole.sum(), rel=1e-14)


def test_people_without_a_way_out_stay():
    room = np.zeros((40, 10), bool)
    room[10:20, [2, 7]] = True
    room[[10, 19], 2:8] = True
    solver = HughesSolver((40, 10), obstacles=room, dt=0.1)
    initial = random_crowd(solver)
    inside = np.zeros((40, 10), bool)
    inside[11:19, 3:7] = True
    field = solver.solve(initial, 10.0).fields[0]
    assert np.array_equal(field[inside.ravel()], initial[inside.ravel()])
    assert np.isinf(solver.potential(initial)[inside.ravel()]).all()


# -- symmetry, uniform flow -----------------------------------------------------------------------


def test_mirrored_crowd_stays_mirrored():
    # corridor, obstacle and exit symmetric about y = 2.5
    solver = paper_solver()
    x, y = solver.cell_centers.T
    rho = 2 * np.exp(-((x - 6) ** 2) / 4 - (y - 2.5) ** 2 / 2) * solver.mask
    rho = rho.reshape(200, 50)
    rho = (rho + rho[:, ::-1]) / 2
    skew = random_crowd(solver, 1, 2.0).reshape(200, 50)
    fields = solver.solve([rho.ravel(), skew.ravel(), skew[:, ::-1].ravel()], 12.5).fields
    fields = fields.reshape(3, 200, 50)
    # 500 steps, each adding a few roundings of the largest density
    tolerance = 500 * 8 * EPS * 2
    np.testing.assert_allclose(fields[0], fields[0][:, ::-1], rtol=0, atol=tolerance)
    np.testing.assert_allclose(fields[1], fields[2][:, ::-1], rtol=0, atol=tolerance)


def test_uniform_crowd_in_an_empty_corridor_walks_on_unchanged():
    solver = small(obstacle=False)
    uniform = np.full(400, 1.2)
    np.testing.assert_allclose(solver.solve(uniform, 25.0).fields[0], uniform, rtol=1e-13)


def test_one_row_is_the_lwr_equation():
    # without a cross direction everyone walks right: rho_t + (rho (1 - rho/5))_x = 0
    def error(n):
        solver = HughesSolver((n, 1), lengths=(20.0, 20.0 / n), dt=20.0 / n / 5)
        x = solver.cell_centers[:, 0]
        rho = np.where((x > 5) & (x < 10), 5.0, 0.0)  # rarefaction from 10, standing back at 5
        field = solver.solve(rho, 3.0).fields[0]
        fan = np.clip(2.5 * (1 - (x - 10) / 3.0), 0, 5)
        exact = np.where(x < 5, 0.0, fan)
        return np.abs(field - exact).mean()

    e = [error(n) for n in (200, 400, 800)]
    # a fan from a jam: Godunov converges as h log(1/h)
    assert e[0] < 0.05 and 0.65 < np.log2(e[0] / e[1]) < np.log2(e[1] / e[2]) < 1


def test_door_sends_everyone_through_it():
    door = np.zeros(10, bool)
    door[6:8] = True
    solver = small(exit=door)
    initial = random_crowd(solver, highest=1.0)
    one = solver.solve(initial, solver.dt).fields[0]
    assert one.sum() == pytest.approx(initial.sum(), rel=1e-14)
    phi = solver.potential(initial).reshape(40, 10)
    assert phi[-1].argmin() in (6, 7) and (phi[-1, :6] > phi[-1, 6]).all()


# -- time -----------------------------------------------------------------------------------------


def test_times_are_hit_exactly_and_do_not_depend_on_one_another():
    solver = small(dt=0.1)
    initial = random_crowd(solver)
    times = [0.0, 0.3, 0.37, 0.37, 1.0, 2.25]
    result = solver.solve(initial, 2.25, times=times)
    assert np.array_equal(result.times, times)
    assert np.array_equal(result.fields[0], initial)
    for t, field in zip(times, result.fields):
        assert np.array_equal(solver.solve(initial, t).fields[0], field)
    # 0.3 is three whole steps though 3 * 0.1 > 0.3; 2.25 ends with half a step
    half = small(dt=0.05)
    state = solver.solve(initial, 0.1 * 3).fields[0]
    assert np.array_equal(result.fields[1], state)
    last = half.solve(solver.solve(initial, 2.2).fields[0], 0.05).fields[0]
    np.testing.assert_allclose(result.fields[-1], last, rtol=1e-12, atol=1e-14)


def test_long_runs_between_outputs_are_cut_without_a_trace(monkeypatch):
    solver = small()
    initial = random_crowd(solver)
    times = [0.1, 7.3, 7.5, 20.0]
    whole = solver.solve(initial, 20.0, times=times).fields
    monkeypatch.setattr("randsmap.datasets._hughes._UPDATES_PER_CALL", 8 * 400 * 7)
    assert np.array_equal(solver.solve(initial, 20.0, times=times).fields, whole)


def test_cfl_violation_names_the_largest_dt():
    with pytest.raises(ValueError, match="largest admissible dt is 0.025") as error:
        HughesSolver(dt=0.026)
    largest = float(str(error.value).rsplit(" ", 1)[1])
    assert HughesSolver(dt=largest).courant <= 1 + 4 * EPS
    with pytest.raises(ValueError, match="Courant"):
        HughesSolver(v_max=1.1)
    assert HughesSolver().courant == 1


# -- input ----------------------------------------------------------------------------------------


def test_trajectories_do_not_depend_on_company_or_threads():
    solver = small()
    crowd = np.stack([random_crowd(solver, s) for s in range(19)])
    times = [1.0, 2.6]
    together = solver.solve(crowd, 3.0, times=times).fields
    assert together.shape == (19, 2, 400)
    for k in (0, 7, 8, 18):
        assert np.array_equal(solver.solve(crowd[k], 3.0, times=times).fields, together[k])
    try:
        for n in (1, 3):
            randsmap.set_num_threads(n)
            assert np.array_equal(solver.solve(crowd, 3.0, times=times).fields, together)
    finally:
        randsmap.set_num_threads(None)


def test_kinds_of_input_and_no_change_of_the_caller_data():
    solver = small()
    initial = np.random.default_rng(0).integers(0, 5, 400) * solver.mask
    expected = solver.solve(initial.astype(float), 1.0).fields
    original = initial.copy()
    for fields in (
        initial,
        initial.tolist(),
        initial.astype(np.uint8),
        initial.astype(np.float16),
        np.repeat(initial, 2)[::2],
        np.asfortranarray(initial[None])[0],
    ):
        assert np.array_equal(solver.solve(fields, 1.0).fields, expected)
    locked = initial.astype(float)
    locked.setflags(write=False)
    assert np.array_equal(solver.solve(locked, 1.0).fields, expected)
    assert np.array_equal(initial, original)
    # changing the mask afterwards changes nothing
    pillar = np.zeros((40, 10), bool)
    pillar[18:21, 4:6] = True
    solver = HughesSolver((40, 10), obstacles=pillar, dt=0.125)
    pillar[:] = True
    assert np.array_equal(solver.solve(initial, 1.0).fields, expected)


@pytest.mark.parametrize(
    "parameters, error, message",
    [
        (dict(n_cells=5), ValueError, "n_cells"),
        (dict(n_cells=(1, 5)), ValueError, r"n_cells\[0\]"),
        (dict(n_cells=(5, 0)), ValueError, r"n_cells\[1\]"),
        (dict(n_cells=(5.0, 5)), TypeError, "integer"),
        (dict(lengths=(1.0, -1.0)), ValueError, "lengths"),
        (dict(lengths=(1.0, np.nan)), ValueError, "lengths"),
        (dict(v_max=0.0), ValueError, "v_max"),
        (dict(rho_max=-1.0), ValueError, "rho_max"),
        (dict(min_speed=2.0), ValueError, "min_speed"),
        (dict(min_speed=0.0), ValueError, "min_speed"),
        (dict(dt=0.0), ValueError, "dt"),
        (dict(dt=np.inf), ValueError, "dt"),
        (dict(obstacles=np.zeros((50, 200), bool)), ValueError, "obstacles must have shape"),
        (dict(obstacles=np.zeros((200, 50))), TypeError, "boolean"),
        (dict(obstacles=np.ones((200, 50), bool)), ValueError, "exit is open"),
        (dict(exit=np.zeros(50, bool)), ValueError, "exit is open"),
        (dict(exit=np.ones(49, bool)), ValueError, "exit must have shape"),
    ],
)
def test_bad_parameters_are_named(parameters, error, message):
    with pytest.raises(error, match=message):
        HughesSolver(**parameters)


@pytest.mark.parametrize(
    "change, message",
    [
        (dict(initial=np.zeros(399)), "length 400"),
        (dict(initial=np.zeros((2, 399))), "400 columns"),
        (dict(initial=np.zeros((0, 400))), "at least 1 row"),
        (dict(initial=np.array(1.0)), "dimension"),
        (dict(initial=np.full(400, np.nan)), "finite"),
        (dict(initial=np.full(400, -0.1)), "between 0 and rho_max"),
        (dict(initial=np.full(400, 5.1)), "between 0 and rho_max"),
        (dict(initial=np.ones(400)), r"0 in obstacles, got 1.0 in cell \(18, 4\)"),
        (dict(t_end=-1.0), "t_end"),
        (dict(times=[]), "empty"),
        (dict(times=[2.0]), "between 0 and t_end"),
        (dict(times=[0.5, 0.2]), "ascending"),
        (dict(times=[-0.5]), "between 0 and t_end"),
        (dict(t_end=1e300), "2\\*\\*53"),
    ],
)
def test_bad_data_are_named(change, message):
    with pytest.raises(ValueError, match=message):
        small().solve(**{"initial": np.zeros(400), "t_end": 1.0} | change)


# -- make_hughes ----------------------------------------------------------------------------------


def quick(n=3, **arguments):
    return make_hughes(n, 6, **{"random_state": 0, "t_end": 1.0} | arguments)


def test_snapshots_have_the_layout_promised():
    data = quick()
    assert data.data.shape == (18, 10000) and data.shape == (200, 50)
    assert np.array_equal(data.trajectories, np.repeat([0, 1, 2], 6))
    steps = data.times / 0.025
    assert np.allclose(steps, np.rint(steps)) and data.times.max() <= 1.0
    assert (np.diff(data.times.reshape(3, 6)) > 0).all()
    np.testing.assert_allclose(data.data.sum(axis=1), 1, rtol=0, atol=1e-14)
    assert data.data.min() >= 0 and (data.data[:, ~data.mask] == 0).all()
    assert data.mask.reshape(200, 50)[100:110, 20:30].sum() == 0 and (~data.mask).sum() == 100
    low, high = [1.2, 1.6, 1.6, 1.5, 1.5], [2.1, 2.0, 2.0, 3.5, 3.5]
    assert ((data.parameters >= low) & (data.parameters < high)).all()
    np.testing.assert_allclose(data.cell_centers.reshape(200, 50, 2)[3, 7], [0.35, 0.75])


@pytest.mark.parametrize("normalization", ["before", "after"])
def test_snapshots_are_the_solver_at_their_times(normalization):
    data = quick(normalization=normalization)
    solver = paper_solver()
    a, wx, wy, xc, yc = data.parameters[1]
    x, y = data.cell_centers.T
    rho = a * np.exp(-((x - xc) ** 2) / (2 * wx**2) - (y - yc) ** 2 / (2 * wy**2)) * data.mask
    if normalization == "before":
        rho /= rho.sum() * 0.01
    rows = slice(6, 12)
    fields = solver.solve(rho, 1.0, times=data.times[rows]).fields
    np.testing.assert_allclose(data.data[rows], fields / fields.sum(axis=1, keepdims=True), rtol=1e-12, atol=1e-18)


def test_all_states_can_be_drawn_in_order():
    data = make_hughes(1, 41, random_state=1, t_end=1.0)
    np.testing.assert_allclose(data.times, np.arange(41) * 0.025)


def test_same_seed_same_data_whatever_the_number_of_trajectories_and_threads():
    nine = quick(9)
    assert np.array_equal(quick(3).data, nine.data[:18])
    assert np.array_equal(quick(3).parameters, nine.parameters[:3])
    assert not np.array_equal(quick(3, random_state=1).data, nine.data[:18])
    try:
        randsmap.set_num_threads(1)
        assert np.array_equal(quick(9).data, nine.data)
    finally:
        randsmap.set_num_threads(None)
    for seed in (np.random.RandomState, np.random.default_rng):
        first, second = (quick(1, random_state=seed(5)).data for _ in range(2))
        assert np.array_equal(first, second)


def test_out_may_be_a_memory_map(tmp_path):
    mapped = np.lib.format.open_memmap(tmp_path / "crowd.npy", mode="w+", shape=(18, 10000))
    result = quick(out=mapped)
    assert result.data is mapped
    mapped.flush()
    expected = quick().data
    assert np.array_equal(np.load(tmp_path / "crowd.npy"), expected)
    result = quick(out=tmp_path / "other.npy")
    assert isinstance(result.data, np.memmap) and np.array_equal(result.data, expected)
    assert np.array_equal(np.load(tmp_path / "other.npy"), expected)


def test_progress_bar_reaches_its_end(capsys):
    data = quick(9, progress=True)
    text = capsys.readouterr().err
    assert "Hughes" in text and "100%" in text
    assert data.data.shape == (54, 10000)


@pytest.mark.parametrize(
    "arguments, error, message",
    [
        (dict(n_trajectories=0), ValueError, "n_trajectories"),
        (dict(snapshots_per_trajectory=42), ValueError, "the number of states"),
        (dict(snapshots_per_trajectory=2.0), TypeError, "integer"),
        (dict(normalization="never"), ValueError, "normalization"),
        (dict(dt=0.03), ValueError, "largest admissible dt"),
        (dict(t_end=-1.0), ValueError, "t_end"),
        (dict(random_state="a"), ValueError, "seed"),
        (dict(out=np.empty((18, 9999))), ValueError, r"out must have shape \(18, 10000\)"),
        (dict(out=np.empty((18, 10000), np.float32)), TypeError, "float64"),
        (dict(out=np.empty((10000, 18)).T), ValueError, "C-contiguous"),
    ],
)
def test_bad_arguments_are_named(arguments, error, message):
    with pytest.raises(error, match=message):
        make_hughes(**{"n_trajectories": 3, "snapshots_per_trajectory": 6, "t_end": 1.0} | arguments)

"""solve_eikonal: exact values, one discrete solution whatever the method, convergence."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import randsmap
from randsmap.datasets import solve_eikonal

import hughes_reference as reference
from oracles import by_plain_iteration

pytestmark = pytest.mark.kernels

METHODS = ("marching", "sweeping")
DATA = Path(__file__).parent / "data"


# -- exact values ---------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_point_source_first_order_values(method):
    T = solve_eikonal(np.ones((5, 5)), 1.0, [(0, 0)], method=method)
    assert np.array_equal(T[0], range(5)) and np.array_equal(T[:, 0], range(5))
    assert abs(T[1, 1] - (1 + 2**-0.5)) < 1e-15
    np.testing.assert_allclose(T, T.T, rtol=1e-15)


@pytest.mark.parametrize("method", METHODS)
def test_slow_column_takes_the_one_sided_update(method):
    slowness = np.ones((4, 6))
    slowness[:, 3] = 50
    T = solve_eikonal(slowness, 1.0, [(i, 0) for i in range(4)], method=method)
    assert np.array_equal(T, np.tile([0, 1, 2, 52, 53, 54], (4, 1)))
    turned = solve_eikonal(slowness.T, 1.0, [(0, i) for i in range(4)], method=method)
    assert np.array_equal(turned, T.T)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    "side, axis, reverse", [("left", 0, False), ("right", 0, True), ("bottom", 1, False), ("top", 1, True)]
)
def test_straight_exit_is_exact(method, side, axis, reverse):
    slowness = np.full((7, 9), 3.0)
    T = solve_eikonal(slowness, (0.5, 0.25), exits=side, method=method)
    n, h = slowness.shape[axis], (1.5, 0.75)[axis]
    distance = h * (np.arange(n)[::-1] if reverse else np.arange(n)) + h
    rows = np.moveaxis(T, axis, -1)
    assert np.array_equal(rows, np.broadcast_to(distance, rows.shape))


@pytest.mark.parametrize("method", METHODS)
def test_unreached_cells_and_obstacles_are_infinite(method):
    wall = np.zeros((6, 6), bool)
    wall[2, :] = True
    T = solve_eikonal(np.ones((6, 6)), 1.0, [(0, 0)], obstacles=wall, method=method)
    assert np.isfinite(T[:2]).all() and np.isinf(T[2:]).all()
    wall[2, 3] = False
    T = solve_eikonal(np.ones((6, 6)), 1.0, [(0, 0)], obstacles=wall, method=method)
    assert np.array_equal(np.isinf(T), wall)


@pytest.mark.parametrize("method", METHODS)
def test_maze_that_turns_back_many_times(method):
    # walls with doors at alternating ends: the way goes right, up, left, up, right ...
    wall = np.zeros((30, 21), bool)
    wall[:, 1::2] = True
    for k, j in enumerate(range(1, 21, 2)):
        wall[-1 if k % 2 == 0 else 0, j] = False
    T = solve_eikonal(np.ones(wall.shape), 1.0, [(0, 0)], obstacles=wall, method=method)
    assert np.array_equal(np.isinf(T), wall)
    assert T[-1, -1] == pytest.approx(10 * (29 + 2) + 29, abs=1e-10)


def test_zero_only_at_sources():
    rng = np.random.default_rng(0)
    sources = rng.random((20, 30)) < 0.05
    T = solve_eikonal(rng.uniform(0.1, 100, (20, 30)), 0.3, sources)
    assert np.array_equal(T == 0, sources)


# -- one discrete solution ------------------------------------------------------------------------


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 2**32),
    nx=st.integers(1, 14),
    ny=st.integers(1, 14),
    contrast=st.sampled_from([0.0, 0.3, 3.0]),
    blocked=st.sampled_from([0.0, 0.2, 0.4]),
    dy=st.sampled_from([0.1, 0.25, 0.03, 1e-4, 100.0]),
    exits=st.sets(st.sampled_from(["left", "right", "bottom", "top"])),
)
def test_methods_and_plain_iteration_agree(seed, nx, ny, contrast, blocked, dy, exits):
    rng = np.random.default_rng(seed)
    slowness = np.exp(contrast * rng.standard_normal((5, nx, ny)))
    obstacles = rng.random((nx, ny)) < blocked
    sources = (rng.random((nx, ny)) < 0.1) & ~obstacles
    if not exits and not sources.any():
        exits = {"right"}
    marched = solve_eikonal(slowness, (0.1, dy), sources, exits=exits, obstacles=obstacles)
    swept = solve_eikonal(slowness, (0.1, dy), sources, exits=exits, obstacles=obstacles, method="sweeping")
    plain = by_plain_iteration(slowness, (0.1, dy), sources, exits, obstacles)
    # an update is right to a few ulp of T; over nx + ny of them (and some detours)
    tolerance = 1e-12
    np.testing.assert_allclose(marched, plain, rtol=tolerance)
    np.testing.assert_allclose(swept, plain, rtol=tolerance)
    # one field alone takes another path through the kernel: the same bits
    for k in (0, 4):
        alone = solve_eikonal(slowness[k], (0.1, dy), sources, exits=exits, obstacles=obstacles)
        assert np.array_equal(alone, marched[k])


def test_batch_is_bit_equal_to_single_fields_at_any_thread_count():
    rng = np.random.default_rng(1)
    fields = rng.uniform(1, 3, (141, 12, 9))
    try:
        randsmap.set_num_threads(1)
        batch = solve_eikonal(fields, 0.1, exits="right")
        singles = [solve_eikonal(f, 0.1, exits="right") for f in fields]
        randsmap.set_num_threads(3)
        assert np.array_equal(solve_eikonal(fields, 0.1, exits="right"), batch)
    finally:
        randsmap.set_num_threads(None)
    assert np.array_equal(batch, singles)
    assert solve_eikonal(fields[:0], 0.1, exits="right").shape == (0, 12, 9)


def test_methods_agree_at_the_paper_resolution_with_a_dense_crowd():
    free, doors, x, y = reference.paper_corridor()
    # rho_max in the middle: speed floored at 1e-3, potentials to 1e3
    density = 5 * np.exp(-((x - 9) ** 2) / 2 - (y - 2) ** 2 / 2)
    slowness = 1 / np.maximum(1 - density / 5, 1e-3)
    marched = solve_eikonal(slowness, 0.1, exits="right", obstacles=~free)
    swept = solve_eikonal(slowness, 0.1, exits="right", obstacles=~free, method="sweeping")
    np.testing.assert_allclose(marched, swept, rtol=1e-12, atol=1e-10)


def test_mirrored_field_gives_the_mirrored_solution():
    rng = np.random.default_rng(2)
    slowness = rng.uniform(1, 2, (30, 20))
    T = solve_eikonal(slowness, 0.1, exits="right")
    np.testing.assert_allclose(solve_eikonal(slowness[:, ::-1], 0.1, exits="right"), T[:, ::-1], rtol=1e-13)
    np.testing.assert_allclose(solve_eikonal(slowness[::-1], 0.1, exits="left"), T[::-1], rtol=1e-13)
    np.testing.assert_allclose(solve_eikonal(slowness.T, 0.1, exits="top"), T.T, rtol=1e-13)


# -- convergence ----------------------------------------------------------------------------------


def orders(error, sizes):
    e = np.array([error(n) for n in sizes])
    return np.log(e[:-1] / e[1:]) / np.log(2)


def test_distance_from_a_point_converges_with_first_order():
    def error(n):  # at a fixed distance from the source, on a square of side 1
        x = np.arange(n + 1) / n
        T = solve_eikonal(np.ones((n + 1, n + 1)), 1 / n, [(0, 0)])
        return np.abs(T - np.hypot(x[:, None], x)).max()

    # error ~ h log(1/h): the measured order creeps towards 1 from below
    rates = orders(error, (50, 100, 200, 400))
    assert (rates > 0.75).all() and (rates < 1.01).all() and (np.diff(rates) > 0).all()


def test_distance_to_an_exit_in_a_layered_medium_converges_with_first_order():
    # slowness depends on the distance from the exit: T is its integral, from the exit's ghost
    # centres
    def error(n):
        x = (np.arange(n) + 0.5) / n
        T = solve_eikonal(np.repeat(1 + x[:, None] ** 2, 5, axis=1), 1 / n, exits="right")
        return np.abs(T[:, 2] - ((1 - x) + (1 - x**3) / 3)).max()

    rates = orders(error, (50, 100, 200, 400))
    assert (np.abs(rates - 1) < 0.05).all()


def test_distance_around_an_obstacle_converges_with_first_order():
    # source at (0, 0.5); wall x in [0.4, 0.6], y > 0.3 on the unit square: behind it the shortest
    # way bends at the wall's lower corners
    def error(n):
        x = (np.arange(n) + 0.5) / n
        X, Y = np.meshgrid(x, x, indexing="ij")
        wall = (X > 0.4) & (X < 0.6) & (Y > 0.3)
        source = (0, n // 2)
        sx, sy = x[source[0]], x[source[1]]
        T = solve_eikonal(np.ones((n, n)), 1 / n, [source], obstacles=wall)
        first = np.hypot(0.4 - sx, 0.3 - sy)
        behind = (X > 0.6) & (Y > 0.35)
        exact = first + 0.2 + np.hypot(X - 0.6, Y - 0.3)
        return np.abs(T - exact)[behind].max()

    rates = orders(error, (40, 80, 160, 320))
    assert (rates > 0.7).all() and (rates < 1.2).all()


# -- another package ------------------------------------------------------------------------------


def fmm_problem():
    """Slowness, obstacle; slowness 1 in the last column, where skfmm starts at half a cell."""
    x, y = np.meshgrid((np.arange(60) + 0.5) * 0.1, (np.arange(25) + 0.5) * 0.1, indexing="ij")
    slowness = 1 + 2 * np.exp(-((x - 2) ** 2) - (y - 1) ** 2)
    slowness[-1] = 1.0
    wall = np.zeros((60, 25), bool)
    wall[30:36, 8:15] = True
    return slowness, wall


def solve_with_skfmm(slowness, wall):
    import skfmm

    phi = np.ones((61, 25))
    phi[-1] = -1
    speed = 1 / np.vstack([slowness, slowness[-1:]])
    mask = np.vstack([wall, np.zeros((1, 25), bool)])
    T = skfmm.travel_time(np.ma.MaskedArray(phi, mask), np.ma.MaskedArray(speed, mask), dx=0.1, order=1)
    return np.ma.filled(T, np.inf)[:-1]


def test_agrees_with_scikit_fmm_of_order_1():
    slowness, wall = fmm_problem()
    golden = np.load(DATA / "eikonal_skfmm.npz")["T"]  # scikit-fmm 2025.6.23
    T = solve_eikonal(slowness, 0.1, exits="right", obstacles=wall)
    # skfmm's zero lies half a cell nearer than the ghost's centre
    np.testing.assert_allclose(T - 0.05, golden, rtol=0, atol=1e-10)


# -- input ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "convert",
    [
        np.asfortranarray,
        lambda a: a.tolist(),
        lambda a: a.astype(np.uint8),
        lambda a: a.astype(np.float16),
        lambda a: a.astype(np.float32),
        lambda a: np.repeat(a, 2, 1)[:, ::2],
        lambda a: a.astype(bool),
    ],
)
def test_kinds_of_input(convert):
    slowness = np.ones((6, 5))
    slowness.setflags(write=False)
    expected = solve_eikonal(slowness, 0.5, [(1, 2)])
    given = convert(slowness)
    assert np.array_equal(solve_eikonal(given, 0.5, [(1, 2)]), expected)
    mask = np.zeros((6, 5), bool)
    mask[1, 2] = True
    assert np.array_equal(solve_eikonal(given, 0.5, mask), expected)


def test_input_is_left_alone_and_nan_in_obstacles_ignored():
    slowness = np.ones((6, 5))
    slowness[2, 2] = np.nan
    wall = np.isnan(slowness)
    before = slowness.copy(), wall.copy()
    T = solve_eikonal(slowness, 0.5, exits="top", obstacles=wall)
    assert np.isinf(T[2, 2]) and np.isfinite(T[~wall]).all()
    assert np.array_equal(slowness, before[0], equal_nan=True) and np.array_equal(wall, before[1])


def test_out_takes_the_result_and_may_be_the_input():
    slowness = np.random.default_rng(0).uniform(1, 2, (9, 6, 5))
    expected = solve_eikonal(slowness, 0.1, exits="right")
    out = np.empty_like(slowness)
    assert solve_eikonal(slowness, 0.1, exits="right", out=out) is out
    assert np.array_equal(out, expected)
    solve_eikonal(slowness, 0.1, exits="right", out=slowness)
    assert np.array_equal(slowness, expected)


@pytest.mark.parametrize(
    "arguments, message",
    [
        (dict(slowness=np.ones(4)), "shape"),
        (dict(slowness=np.ones((0, 4))), "at least one cell"),
        (dict(slowness=np.array(1.0)), "shape"),
        (dict(slowness=np.ones((4, 4), complex)), "real"),
        (dict(slowness=[["a"]]), "real"),
        (dict(slowness=np.zeros((4, 4))), "positive"),
        (dict(slowness=-np.ones((4, 4))), "positive"),
        (dict(slowness=np.full((4, 4), np.nan)), "positive and finite"),
        (dict(slowness=np.full((4, 4), np.inf)), "positive and finite"),
        (dict(slowness=np.full((4, 4), 1e200)), "times spacing"),
        (dict(spacing=0.0), "spacing"),
        (dict(spacing=(1.0, -1.0)), "spacing"),
        (dict(spacing=(1.0, 1.0, 1.0)), "spacing"),
        (dict(sources=[(4, 0)]), "lie in the grid"),
        (dict(sources=[(-1, 0)]), "lie in the grid"),
        (dict(sources=[(0.5, 0)]), "index pairs"),
        (dict(sources=np.zeros((3, 4), bool)), "shape"),
        (dict(sources=None), "source cell or an exit"),
        (dict(sources=[]), "source cell or an exit"),
        (dict(exits="north"), "exits"),
        (dict(obstacles=np.ones((4, 4), bool)), "must not lie in obstacles"),
        (dict(obstacles=np.zeros((5, 4), bool)), "shape"),
        (dict(method="newton"), "method"),
        (dict(out=np.empty((4, 5))), "out must have shape"),
    ],
)
def test_bad_input_is_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        solve_eikonal(**{"slowness": np.ones((4, 4)), "spacing": 1.0, "sources": [(0, 0)]} | arguments)


def test_masks_must_be_boolean():
    with pytest.raises(TypeError, match="boolean"):
        solve_eikonal(np.ones((4, 4)), 1.0, [(0, 0)], obstacles=np.zeros((4, 4)))


if __name__ == "__main__":  # writes the golden array; needs scikit-fmm
    np.savez_compressed(DATA / "eikonal_skfmm.npz", T=solve_with_skfmm(*fmm_problem()))


def test_fields_that_are_not_aligned_are_copied():
    slowness = np.ones(8 * 12 * 7 + 1, np.uint8)[1:].view(np.float64).reshape(12, 7)
    slowness[...] = np.random.default_rng(0).uniform(1, 2, (12, 7))
    assert not slowness.flags.aligned
    expected = solve_eikonal(slowness.copy(), 0.1, exits="right")
    assert np.array_equal(solve_eikonal(slowness, 0.1, exits="right"), expected)

"""Projection on bounds: exact optimality, bounds to the bit, totals to round-off, hostile input; the option
`bounds` and the invariant values of rows in every estimator."""

import hashlib
import math
import pickle
from fractions import Fraction
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog
from sklearn.base import clone
from sklearn.linear_model import Ridge

import randsmap
from randsmap import (
    POD,
    ConservativeRegressor,
    DoubleDiffusionMapsDecoder,
    FourierFeatures,
    KernelDecoder,
    KNNDecoder,
    ManifoldModel,
    RANDSMAPDecoder,
    RFNNDecoder,
    project_bounds,
)
from randsmap._kernels import decode
from randsmap.invariants import AffineInvariants
from randsmap.invariants._bounds import project_rows

from helpers import python, random_problem
from oracles import exact_projection

pytestmark = pytest.mark.kernels

EPS = np.finfo(float).eps


# -- oracles -----------------------------------------------------------------------------------------


def sorted_simplex(z, total=1.0):
    """The usual method: sort, cumulative sums."""
    s = np.sort(z)[::-1]
    excess = np.cumsum(s) - total
    k = np.flatnonzero(s * np.arange(1, len(z) + 1) > excess)[-1]
    return np.maximum(z - excess[k] / (k + 1), 0)


def assert_feasible(F, lower, upper, w, total):
    F = np.atleast_2d(F)
    assert (F >= lower).all() and (F <= upper).all()
    for f, m in zip(F, np.broadcast_to(total, len(F))):
        terms, m = [Fraction(float(a)) * Fraction(float(b)) for a, b in zip(w, f)], Fraction(float(m))
        assert abs(sum(terms) - m) <= 1e-14 * float(sum(map(abs, terms)) + abs(m))


# -- optimality --------------------------------------------------------------------------------------


@st.composite
def problems(draw):
    M = draw(st.integers(1, 7))
    # eighths: ties, cells on their bounds and totals at the end of the range happen
    number = st.integers(-24, 24).map(lambda k: k / 8)
    z = draw(st.lists(number, min_size=M, max_size=M))
    w = draw(st.lists(st.sampled_from([0.0, 0.5, 1.0, 1.0, 3.0]), min_size=M, max_size=M))
    v = draw(st.lists(st.sampled_from([0.25, 1.0, 1.0, 5.0]), min_size=M, max_size=M))
    if draw(st.booleans()):
        w, v = [1.0] * M, [1.0] * M
    lower = draw(st.lists(st.one_of(st.just(-np.inf), number), min_size=M, max_size=M))
    width = draw(st.lists(st.one_of(st.just(np.inf), st.integers(0, 16).map(lambda k: k / 8)), min_size=M, max_size=M))
    if draw(st.booleans()):
        lower, width = [draw(number)] * M, [np.inf] * M
    upper = [0.0 if b == np.inf else a + b for a, b in zip(lower, width)]
    upper = [u if b != np.inf else np.inf for u, b in zip(upper, width)]
    upper = [max(0.0, u) if a == -np.inf else u for a, u in zip(lower, upper)]
    # a total of a field within the bounds
    at = [draw(number) for _ in range(M)]
    inside = [min(max(x, a), b) for x, a, b in zip(at, lower, upper)]
    return z, w, v, lower, upper, float(sum(a * b for a, b in zip(w, inside)))


@pytest.mark.slow
@given(problems())
@settings(max_examples=400, deadline=None)
def test_equals_the_projection_in_rational_arithmetic(problem):
    z, w, v, lower, upper, m = problem
    got = project_bounds(z, lower=lower, upper=upper, weights=w, total=m, cell_weights=v)
    assert_feasible(got, lower, upper, w, m)
    if not any(w):
        np.testing.assert_array_equal(got, np.clip(z, lower, upper))
        return
    exact, t = exact_projection(z, w, v, lower, upper, m)
    d = np.array(w) / np.array(v)
    size = np.abs(z) + abs(float(t)) * d + np.abs([float(x) for x in exact])
    # round-off of the total, spread over the free cells (one of least influence at worst)
    spread = (np.dot(w, size) + abs(m)) * d / min(a * b for a, b in zip(w, d) if a > 0)
    error = np.abs([float(Fraction(a) - b) for a, b in zip(got, exact)])
    assert (error <= 16 * EPS * (size + spread)).all()


@pytest.mark.slow
@pytest.mark.parametrize("scale", [1.0, 1e-3, 1e-6, 30.0])
def test_simplex_of_many_cells_equals_the_sorting_method(scale):
    rng = np.random.default_rng(0)
    Z = 1e-4 + scale * rng.normal(size=(7, 10000))
    got = project_bounds(Z)
    assert_feasible(got, 0, np.inf, np.ones(10000), 1)
    for f, z in zip(got, Z):
        # cumulative sums of n terms of that size, over the number of free cells
        slack = len(z) * EPS * np.abs(z).sum() / np.count_nonzero(f) + 4 * EPS * np.abs(z).max()
        assert np.abs(f - sorted_simplex(z)).max() <= slack


@pytest.mark.parametrize("seed", range(8))
def test_conditions_of_optimality_with_random_weights_and_bounds(seed):
    rng = np.random.default_rng(seed)
    M = int(rng.integers(1, 3000))
    w = rng.uniform(0.1, 3, M) * (rng.random(M) > 0.1 * (seed % 2))
    v = rng.lognormal(0, 1, M)
    lower = np.where(rng.random(M) < 0.3, -np.inf, rng.normal(size=M) - 1)
    upper = np.where(rng.random(M) < 0.3, np.inf, np.maximum(lower, -3) + rng.exponential(size=M))
    inside = np.clip(rng.normal(size=M), lower, upper)
    total, z = w @ inside, rng.normal(0, 3, M)
    f = project_bounds(z, lower=lower, upper=upper, weights=w, total=total, cell_weights=v)
    assert_feasible(f, lower, upper, w, total)
    d = w / v
    free = (f > lower) & (f < upper) & (d > 0)
    np.testing.assert_array_equal(f[d == 0], np.clip(z, lower, upper)[d == 0])
    t = (f - z)[free] / d[free]
    slack = 64 * EPS * (np.abs(f) + np.abs(z))[free] / d[free] + 1e-11
    middle = np.median(t)
    assert (np.abs(t - middle) <= slack).all()
    moved = z + middle * d
    assert (moved[(f == lower) & (d > 0)] <= f[(f == lower) & (d > 0)] + 1e-9).all()
    assert (moved[(f == upper) & (d > 0)] >= f[(f == upper) & (d > 0)] - 1e-9).all()


def test_equals_a_solver_of_quadratic_programs():
    from scipy.optimize import LinearConstraint, minimize

    rng = np.random.default_rng(3)
    M = 12
    w, v, z = rng.uniform(0.5, 2, M), rng.uniform(0.5, 2, M), rng.normal(size=M)
    total = 0.4 * w.sum()
    solution = minimize(
        lambda f: v @ (f - z) ** 2,
        np.full(M, 0.4),
        jac=lambda f: 2 * v * (f - z),
        bounds=[(0, 1)] * M,
        constraints=LinearConstraint(w, total, total),
        method="SLSQP",
        options={"ftol": 1e-15, "maxiter": 500},
    )
    f = project_bounds(z, upper=1.0, weights=w, total=total, cell_weights=v)
    assert np.abs(f - solution.x).max() < 1e-6
    assert v @ (f - z) ** 2 <= solution.fun + 1e-12


@pytest.mark.slow
@given(st.integers(0, 2**32 - 1), st.integers(1, 40))
@settings(max_examples=100, deadline=None)
def test_no_error_grows_when_the_truth_is_within(seed, M):
    rng = np.random.default_rng(seed)
    v = rng.uniform(0.2, 5, M)
    truth = np.clip(rng.normal(0.3, 1, M), 0, 1)
    z = truth + rng.normal(0, rng.choice([1e-9, 1e-2, 10]), M)
    f = project_bounds(z, upper=1.0, weights=v, total=v @ truth, cell_weights=v)
    before, after = (math.sqrt(v @ (x - truth) ** 2) for x in (z, f))
    assert after <= before + 64 * EPS * math.sqrt(v @ (np.abs(z) + np.abs(truth)) ** 2)


# -- hostile input -----------------------------------------------------------------------------------

N = 10000
STEPS = np.arange(N)
HOSTILE = {
    "uniform": (np.random.default_rng(0).random(N), 1.0),
    "normal": (np.random.default_rng(0).normal(size=N), 1.0),
    "sorted": (np.sort(np.random.default_rng(0).normal(size=N)), 1.0),
    "reverse": (np.sort(np.random.default_rng(0).normal(size=N))[::-1], 1.0),
    "geometric": (0.99**STEPS, 1.0),
    "underflowing": (0.5**STEPS, 1.0),
    "one giant": (np.r_[np.zeros(N - 1), 1e139], 1.0),
    "all equal": (np.full(N, 0.7), 1.0),
    "all negative and equal": (np.full(N, -1.0), 1.0),
    "all negative": (-np.random.default_rng(0).random(N), 1.0),
    "two values": (np.where(STEPS % 3, 0.25, -0.25), 1.0),
    "Newton loses one cell in a hundred a step": (-(100.0 ** (STEPS // 100 - 50.0)), 1e60),
    "the same in small steps": (-(4.0 ** (STEPS * 450 // N - 220)), 1e100),
    "the same beside a large offset": (2.0**40 - 2.0 ** (STEPS * 40 // N), 1.0),
    "cancellation": (1e16 + 2.0 * np.random.default_rng(0).integers(0, 1000, N), 1.0),
    "negative cancellation": (-1e16 + 2.0 * np.random.default_rng(0).integers(0, 1000, N), 1.0),
    "huge": (np.full(N, 1e140), 1.0),
    "huge of both signs": (1e140 * (-1.0) ** STEPS, 1.0),
    "tiny": (np.random.default_rng(0).integers(0, 9, N) * 1e-140, 1e-140 * 1000),
    "zeros": (np.zeros(N), 0.0),
    "one point": (np.random.default_rng(0).normal(size=N), 0.0),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_input_on_the_simplex(name):
    z, total = HOSTILE[name]
    f = project_bounds(z, total=total)
    assert (f >= 0).all()
    mass = math.fsum(f)
    assert abs(mass - total) <= 1e-14 * (mass + total)
    # optimal: f = max(z + t, 0) with one t, to the round-off of z + t
    free = f > 0
    if free.any():
        top = np.argmax(z)
        t = Fraction(f[top]) - Fraction(z[top])
        for i in np.r_[0:50, STEPS[free][:50], STEPS[~free][:50]]:
            expected = max(Fraction(z[i]) + t, Fraction(0))
            size = abs(float(Fraction(z[i]))) + abs(float(t)) + total
            assert abs(float(Fraction(f[i]) - expected)) <= 8 * EPS * size, i


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("weighted", [False, True])
def test_hostile_input_between_two_bounds(name, weighted):
    z, _ = HOSTILE[name]
    w = np.random.default_rng(1).uniform(0.5, 2, N) if weighted else np.ones(N)
    for total in (0.0, 0.3 * math.fsum(w), math.fsum(w)):
        f = project_bounds(z, upper=1.0, weights=w, total=total)
        assert (f >= 0).all() and (f <= 1).all()
        mass = math.fsum(w * f)
        assert abs(mass - total) <= (1e-14 + 2 * EPS) * (mass + total)


def test_all_on_one_side_with_a_level_total():
    # no cell is free at t = 0, and the next breakpoint is far
    assert project_bounds([5.0, -5.0], upper=1.0, total=1.5).tolist() == [1.0, 0.5]
    assert project_bounds([5.0, -5.0], upper=1.0, total=0.5).tolist() == [0.5, 0.0]
    assert project_bounds([5.0, 5.0, -5.0], upper=1.0, total=3.0).tolist() == [1.0, 1.0, 1.0]


def test_total_beyond_the_range_by_round_off():
    upper = np.full(10, 0.1)
    total = math.fsum(upper) * (1 + 4 * EPS)
    np.testing.assert_array_equal(project_bounds(np.zeros(10), upper=upper, total=total), upper)
    with pytest.raises(ValueError, match=r"total 1.001 \(row 0\) is out of reach by 0.001"):
        project_bounds(np.zeros(10), upper=upper, total=1.001)


def test_a_field_that_satisfies_everything_comes_back_as_it_is():
    rng = np.random.default_rng(0)
    F = project_bounds(rng.normal(size=(20, 1000)), upper=0.01)
    np.testing.assert_array_equal(project_bounds(F, upper=0.01), F)


@pytest.mark.parametrize("M", [11, 1000, 20000])
@pytest.mark.parametrize("bounds", [{"lower": None}, {"lower": -1e12, "upper": 1e12}])
def test_a_field_whose_total_cancels_comes_back_as_it_is(M, bounds):
    rng = np.random.default_rng(M)
    w = rng.uniform(0.1, 3, M)
    options = {**bounds, "weights": w, "cell_weights": rng.lognormal(0, 2, M), "total": 4.5}
    F = project_bounds(rng.normal(size=(9, M)) * 10.0 ** rng.uniform(-3, 10, (9, M)), **options)
    defect = np.abs([math.fsum((w * f).tolist()) - 4.5 for f in F]) / (np.abs(F) @ w)
    assert (defect <= 8 * EPS).all()
    np.testing.assert_array_equal(project_bounds(F, **options), F)


@pytest.mark.parametrize("total", [1e-100, 1e-139])
def test_totals_that_are_nothing_beside_the_field(total):
    rng = np.random.default_rng(0)
    z = 1e4 + rng.normal(size=40)
    f = project_bounds(z, upper=4.0, total=total, cell_weights=10.0 ** rng.uniform(-4, 4, 40))
    assert abs(math.fsum(f) - total) <= 1e-14 * total and (f >= 0).all()
    f = project_bounds(z - 1e4, lower=None, total=total)
    assert abs(math.fsum(f) - total) <= 1e-14 * np.abs(f).sum()


def test_one_cell_and_no_rows():
    assert project_bounds([3.0]).tolist() == [1.0]
    assert project_bounds([[3.0], [-1.0]], total=[2.0, 0.5]).tolist() == [[2.0], [0.5]]
    assert project_bounds(np.zeros((0, 4))).shape == (0, 4)


def test_clip_only():
    F = np.array([[-1.0, 0.5, 7.0]])
    assert project_bounds(F, upper=[1.0, 1.0, np.inf], total=None).tolist() == [[0.0, 0.5, 7.0]]
    assert project_bounds(F, lower=None, upper=None, total=None).tolist() == F.tolist()


# -- interface ---------------------------------------------------------------------------------------


def test_any_array_goes_in_and_none_is_changed():
    rng = np.random.default_rng(0)
    F = rng.normal(size=(6, 40)).astype(np.float32)
    expected = project_bounds(F.astype(float))
    wide = np.zeros((12, 80), np.float32)
    wide[::2, ::2] = F
    frozen = F.copy()
    frozen.setflags(write=False)
    for fields in (F, frozen, wide[::2, ::2], np.asfortranarray(F), F.tolist()):
        before = np.array(fields)
        np.testing.assert_array_equal(project_bounds(fields), expected)
        np.testing.assert_array_equal(fields, before)
    np.testing.assert_array_equal(project_bounds(F[0]), expected[0])


def test_out():
    F = np.random.default_rng(0).normal(size=(6, 40))
    expected, out = project_bounds(F), np.empty((6, 40))
    assert project_bounds(F, out=out) is out
    np.testing.assert_array_equal(out, expected)
    overlapping = np.zeros(7 * 40)
    given, result = overlapping[:240].reshape(6, 40), overlapping[40:].reshape(6, 40)
    given[:] = F
    np.testing.assert_array_equal(project_bounds(given, out=result), expected)
    np.testing.assert_array_equal(project_bounds(F, out=F), expected)
    with pytest.raises(ValueError, match="shape"):
        project_bounds(F, out=np.empty((5, 40)))
    with pytest.raises(TypeError, match="float64"):
        project_bounds(F, out=np.empty((6, 40), np.float32))


@pytest.mark.parametrize(
    "kwargs, message",
    [
        (dict(lower=1.0, upper=0.0), "lower bound 1.0 of cell 0 exceeds its upper bound 0.0"),
        (dict(lower=np.nan), "nan for cell 0"),
        (dict(lower=np.inf), "inf for cell 0"),
        (dict(lower=[0.0, 0.0]), "length 3, got 2"),
        (dict(lower="a"), "must be an array of real numbers"),
        (dict(weights=np.eye(3)[:, :2], total=1.0), r"total must have shape \(2,\) or \(1, 2\), got \(\)"),
        (dict(weights=np.eye(3), total=[1.0, 2.0, -3.0]), "value -3.0 of invariant 2 in row 0 is out of reach by 3"),
        (
            dict(weights=[[1, 1], [1, 0], [1, 1]], total=[1.0, 2.0]),
            r"the values .* in row 0 of the invariants .*together",
        ),
        (dict(weights=np.ones((3, 9)) + np.eye(3, 9), total=np.ones(9)), "column"),
        (dict(cell_weights=[1.0, 0.0, 1.0]), "must be positive, got 0.0 for cell 1"),
        (dict(weights=[1.0, 1.0]), "length 3, got 2"),
        (dict(total=-1.0), r"total -1.0 \(row 0\) is out of reach by 1"),
        (dict(total=[1.0, 2.0]), "length 1, got 2"),
        (dict(total=np.nan), "finite"),
        (dict(weights=np.zeros(3)), "out of reach"),
    ],
)
def test_wrong_arguments(kwargs, message):
    with pytest.raises(ValueError, match=message):
        project_bounds([[1.0, 2.0, 3.0]], **kwargs)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_fields_must_be_finite(value):
    with pytest.raises(ValueError, match="F must be finite"):
        project_bounds([[1.0, value]])
    # the kernel itself, which decoders call with what they made
    projection = AffineInvariants.of(
        np.ones((20, 1)), [1.0], np.zeros(20, bool), np.zeros(0), bounds=(np.zeros(20), np.full(20, np.inf))
    )
    F = np.zeros((3, 20))
    F[1, 17] = value
    with pytest.raises(ValueError, match="field 1 is too large"):
        projection.project(F)


def test_same_bits_for_any_number_of_threads():
    F = np.random.default_rng(0).normal(size=(1500, 200))
    results = []
    for n in (1, 2, 5):
        randsmap.set_num_threads(n)
        try:
            results.append(project_bounds(F, upper=0.2).tobytes())
        finally:
            randsmap.set_num_threads(None)
    assert len(set(results)) == 1


BITS = """
import hashlib, numpy as np
from randsmap import project_bounds
rng, digest = np.random.default_rng(0), hashlib.sha256()
for M in (1, 7, 16, 100, 1003, 5000):
    for scale in (1e-4, 1.0, 1e12):
        Z, w = scale * rng.normal(size=(20, M)), rng.uniform(0.5, 2, M)
        for kwargs in ({}, dict(upper=3.0), dict(weights=w, cell_weights=w[::-1].copy()),
                       dict(lower=-w, upper=w, total=0.1)):
            digest.update(project_bounds(Z, **kwargs).tobytes())
print(digest.hexdigest())
"""


def test_same_bits_on_every_instruction_level(levels):
    results = {level: python(BITS, level=level) for level in levels}
    assert len(set(results.values())) == 1, results
    assert len(results["baseline"].strip()) == 2 * hashlib.sha256().digest_size


# -- several invariants --------------------------------------------------------------------------------


def most(costs, C, m, lower, upper):
    """The largest costs . x of the fields x with C^T x = m within the bounds, by a solver of linear programmes."""
    limits = list(zip(np.where(np.isfinite(lower), lower, None), np.where(np.isfinite(upper), upper, None)))
    C, m = C[:, C.any(axis=0)], m[C.any(axis=0)]
    scale = np.abs(C).max(axis=0)
    return -linprog(-costs, A_eq=(C / scale).T, b_eq=m / scale, bounds=limits).fun


def totals(kind, rng):
    """C (M, q), bounds and the values m of a field within them."""
    M, q = int(rng.integers(9, 40)), int(rng.integers(2, 9))
    C = rng.normal(size=(M, q))
    if kind == "species":  # no two share cells; some cells have none
        C = rng.choice([-1, 0.5, 3], (M, 1)) * np.eye(q + 1)[rng.integers(0, q + 1, M), :q]
    elif kind == "pairs":
        C[: M // 2, : q // 2] = C[M // 2 :, q // 2 :] = 0
    elif kind == "shared":
        C = (rng.random((M, q)) < 0.4) * 1.0
    elif kind == "duplicates":
        C[:, 1] = C[:, 0] * 2
    elif kind == "wide":
        C *= 10.0 ** rng.uniform(-5, 5, q)
    lower = np.where(rng.random(M) < 0.8, rng.uniform(-1, 0, M), -np.inf)
    upper = np.where(rng.random(M) < 0.6, rng.uniform(0, 1, M), np.inf)
    inside = rng.uniform(lower.clip(-2), upper.clip(None, 2))
    if kind == "corner":
        lower, upper = lower.clip(-1), upper.clip(None, 1)
        inside = np.where(rng.random(M) < 0.5, lower, upper)
    return C, lower, upper, C.T @ inside


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kind", ["any", "species", "pairs", "shared", "duplicates", "wide", "corner"])
def test_several_totals_and_bounds_are_one_exact_projection(kind, weighted):
    """The bounds to the bit, the totals to round-off; no field with both is nearer, by linear programming: the largest
    (z - g) V x of such fields x is that of g."""
    rng = np.random.default_rng(weighted)
    for _ in range(12):
        C, lower, upper, m = totals(kind, rng)
        M = len(C)
        v = 10.0 ** rng.uniform(-2, 2, M) if weighted else None
        Z = rng.normal(size=(2, M)) * [[1], [30]]
        G = project_bounds(Z, lower=lower, upper=upper, weights=C, total=m, cell_weights=v)
        assert (G >= lower).all() and (G <= upper).all()
        values = (G.astype(np.longdouble) @ C.astype(np.longdouble)).astype(float)
        assert (np.abs(values - m) <= 1e-14 * (np.abs(G) @ np.abs(C) + np.abs(m))).all()
        for z, g in zip(Z, G):
            pull = (z - g) * (1 if v is None else v)
            gap = most(pull, C, m, lower, upper) - pull @ g
            assert gap <= 1e-6 * np.abs(pull).max() * max(1, np.abs(g).max())
        free = (C == 0).all(axis=1)
        np.testing.assert_array_equal(G[:, free], Z.clip(lower, upper)[:, free])
        np.testing.assert_array_equal(
            project_bounds(G, lower=lower, upper=upper, weights=C, total=m, cell_weights=v)[:, free], G[:, free]
        )


def test_totals_that_share_no_cells_are_projections_of_their_own():
    rng = np.random.default_rng(0)
    parts = [slice(0, 13), slice(13, 30), slice(30, 41)]
    w, v = rng.uniform(0.1, 2, 41), rng.uniform(0.5, 2, 41)
    C, lower, upper = np.zeros((41, 3)), np.full(41, -np.inf), np.full(41, np.inf)
    for j, part in enumerate(parts):
        C[part, j] = w[part]
    lower[parts[0]], upper[parts[2]] = 0.0, 0.3  # the second has no bounds
    Z, m = rng.normal(size=(5, 41)), np.array([1.0, -2.0, 0.5])
    G = project_bounds(Z, lower=lower, upper=upper, weights=C, total=m, cell_weights=v)
    for j, part in enumerate(parts):
        alone = {"lower": lower[part], "upper": upper[part], "weights": w[part], "cell_weights": v[part]}
        np.testing.assert_array_equal(G[:, part], project_bounds(Z[:, part], total=m[j], **alone))
    many = project_bounds(rng.normal(size=(2, 64 * 3)), weights=np.repeat(np.eye(64), 3, axis=0), total=np.ones(64))
    np.testing.assert_allclose(many.reshape(2, 64, 3).sum(axis=2), 1, rtol=0, atol=1e-14)


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("name", ["randsmap", "ddm", "kernel", "conservative", "POD"])
def test_two_species_with_a_mass_each_of_which_one_is_bounded(name, overlap):
    """Decoding, some cells, derivatives, pickles, files and frozen decoders, with the totals of rows."""
    Y, F = problem()
    C = np.zeros((40, 2))
    C[:20, 0] = C[20:, 1] = 1
    if overlap:
        C[:, 0] = np.linspace(0.5, 2, 40)
    upper = np.where(np.arange(40) < 20, 0.25, np.inf)
    lower = np.where((np.arange(40) < 20) | overlap, 0.0, -np.inf)
    _, decode, X = fitted(name, (lower, upper), invariants=C, invariant_tol=1.0, invariant_values=(F @ C).mean(axis=0))
    estimator = decode.__self__
    X = X[::4]
    m = F[np.arange(len(X)) % len(F)] @ C
    for values in (None, m):
        G, wanted = decode(X, invariant_values=values), estimator_values(estimator) if values is None else m
        assert (G >= lower).all() and (G <= upper).all() and (G[:, 4] == 0).all() and (overlap or G.min() < 0)
        assert (np.abs(G @ C - wanted) <= 1e-14 * (np.abs(G) @ np.abs(C) + np.abs(wanted))).all()
        np.testing.assert_array_equal(decode(X, invariant_values=values, cells=[3, 25]), G[:, [3, 25]])
    with pytest.raises(ValueError, match="row 1"):
        decode(X[:2], invariant_values=[m[0], [1e3, 1.0]])
    again = pickle.loads(pickle.dumps(estimator))
    np.testing.assert_array_equal(getattr(again, decode.__name__)(X), decode(X))
    if name == "conservative":
        return
    frozen = estimator.freeze() if name != "POD" else estimator.encoder_.freeze()
    np.testing.assert_array_equal(frozen.predict(X[:1]), decode(X[:1]))
    np.testing.assert_array_equal(
        frozen.predict(X, invariant_values=m), np.vstack([decode(x[None], invariant_values=[k]) for x, k in zip(X, m)])
    )
    if name == "POD":
        return
    x, h = np.linspace(0.1, 0.9, 9)[:, None], 1e-6
    J, ahead, back = estimator.jacobian(x)[:, :, 0], decode(x + h), decode(x - h)
    same = ((ahead > 0) == (back > 0)).all(axis=1) & ((ahead < upper) == (back < upper)).all(axis=1)
    assert same.sum() >= 4
    assert np.abs(J - (ahead - back) / (2 * h))[same].max() < 1e-6 * np.abs(J).max()
    assert (np.abs(J @ C) <= 1e-12 * np.abs(J) @ np.abs(C)).all()
    U = np.random.default_rng(0).normal(size=(9, 40))
    np.testing.assert_allclose(estimator.vjp(x, U)[:, 0], (U * J).sum(axis=1), rtol=0, atol=1e-10)
    np.testing.assert_array_equal(frozen.jacobian(x[:1])[:, :, 0], J[:1])


def estimator_values(estimator):
    return (estimator.encoder_ if isinstance(estimator, ManifoldModel) else estimator).invariant_values_


# -- the option `bounds` -----------------------------------------------------------------------------


problem = partial(random_problem, M=40, d=1, constant={4: 0.0}, place=(0.2, 0.8), compact=True)


FAR = np.concatenate([np.linspace(-3, 4, 200), [50.0, -1e3]])[:, None]
ESTIMATORS = {
    "randsmap": RANDSMAPDecoder(FourierFeatures(0.3), random_state=0),
    "ddm": DoubleDiffusionMapsDecoder(invariants="mass", rank=12, center=False, latent_scale=None),
    "kernel": KernelDecoder(length_scale=0.3, invariants="mass"),
    "conservative": ConservativeRegressor(Ridge(1e-3)),
    "POD": ManifoldModel(POD(4, invariants="mass")),
}


def with_bounds(estimator, bounds, **kwargs):
    estimator = clone(estimator)
    (estimator.encoder if isinstance(estimator, ManifoldModel) else estimator).set_params(bounds=bounds, **kwargs)
    return estimator


def fitted(name, bounds="nonnegative", **kwargs):
    """The estimator fitted, its decoding function, and latents to decode."""
    Y, F = problem()
    estimator = with_bounds(ESTIMATORS[name], bounds, **kwargs)
    if name == "POD":
        model = estimator.fit(F)
        X = np.random.default_rng(1).normal(0, 0.5, (200, model.encoder_.n_components_))
        return model, model.inverse_transform, X
    return estimator.fit(Y, F), estimator.predict, FAR


@pytest.mark.parametrize("name", ESTIMATORS)
def test_decoded_fields_are_within_and_conserve(name):
    _, decode, X = fitted(name, (0.0, 0.25))
    G = decode(X)
    assert (G >= 0).all() and (G <= 0.25).all() and (G[:, 4] == 0).all()
    assert np.abs(G.sum(axis=1) - 1).max() <= 40 * EPS
    _, plain, _ = fitted(name, None)
    assert plain(X).min() < 0  # there was something to do
    # one row at a time, a batch, some cells, into an array: the same fields
    np.testing.assert_allclose(np.vstack([decode(x[None]) for x in X[:20]]), G[:20], rtol=0, atol=1e-9)
    np.testing.assert_array_equal(decode(X, cells=[3, 4, 9]), G[:, [3, 4, 9]])
    out = np.empty_like(G)
    assert decode(X, out=out) is out
    np.testing.assert_array_equal(out, G)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_error_does_not_grow(name):
    Y, F = problem()
    bounded, plain = (fitted(name, bounds) for bounds in ("nonnegative", None))
    if name == "POD":
        G, H = (model.reconstruct(F) for model, _, _ in (bounded, plain))
    else:
        G, H = (decode(Y) for _, decode, _ in (bounded, plain))
    before, after = (np.linalg.norm(X - F, axis=1) for X in (H, G))
    assert (after <= before + 1e-13).all()


@pytest.mark.parametrize("name", ESTIMATORS)
def test_pickle_clone_and_files(name, tmp_path):
    estimator, decode, X = fitted(name, (np.zeros(40), np.full(40, 0.3)))
    copy = pickle.loads(pickle.dumps(estimator))
    method = "inverse_transform" if name == "POD" else "predict"
    np.testing.assert_array_equal(getattr(copy, method)(X), decode(X))
    if name != "conservative":
        randsmap.persistence.save(estimator, tmp_path / "model.npz")
        np.testing.assert_array_equal(getattr(randsmap.load(tmp_path / "model.npz"), method)(X), decode(X))
    assert np.array_equal(
        clone(estimator).get_params()["encoder__bounds" if name == "POD" else "bounds"][1], np.full(40, 0.3)
    )


def test_bounds_without_invariants_clip():
    Y, F = problem()
    decoder = RANDSMAPDecoder(FourierFeatures(0.3), random_state=0, invariants=None)
    plain = decoder.fit(Y, F).predict(FAR)
    bounded = with_bounds(decoder, (0.0, 0.1999)).set_params(bounds=(0.0, 0.3)).fit(Y, F).predict(FAR)
    np.testing.assert_allclose(bounded, np.clip(plain, 0, 0.3), rtol=0, atol=1e-12)


def test_cell_weights_are_the_norm_and_the_mass():
    Y, F = problem(constant=None)
    v = np.random.default_rng(0).uniform(0.5, 2, 40)
    F = F / (F @ v)[:, None]
    decoder = RANDSMAPDecoder(FourierFeatures(0.3), random_state=0, cell_weights=v)
    plain, bounded = (with_bounds(decoder, b).fit(Y, F).predict(FAR) for b in (None, "nonnegative"))
    expected = project_bounds(plain, weights=v, cell_weights=v)
    np.testing.assert_allclose(bounded, expected, rtol=0, atol=1e-12)


def test_obstacle_cells_are_untouched_and_their_mass_counts():
    Y, F = problem()
    F = F.copy()
    F[:, 4] = 0.25  # mass 1.25 in all
    decoder = with_bounds(ESTIMATORS["randsmap"], (0.0, 0.25)).fit(Y, F)
    G = decoder.predict(FAR)
    assert (G[:, 4] == 0.25).all() and np.abs(G.sum(axis=1) - 1.25).max() < 40 * EPS


def test_zero_weights_are_clipped_and_dependent_columns_allowed():
    Y, F = problem()
    w = np.ones(40)
    w[30:] = 0
    C = np.stack([w, 2 * w, 0 * w], axis=1)
    decoder = with_bounds(ESTIMATORS["randsmap"], "nonnegative", invariants=C, invariant_tol=1e9).fit(Y, F)
    m = decoder.invariant_values_
    G = decoder.predict(FAR, invariant_values=m)
    assert (G >= 0).all()
    assert (np.abs(G @ C - m) <= 40 * EPS * (G @ np.abs(C) + np.abs(m))).all()


@pytest.mark.parametrize(
    "kwargs, message",
    [
        (dict(bounds=(0.01, None)), r"field \d+ is 0.0 in cell \d+, whose bounds are \[0.01, inf\]"),
        (dict(bounds=(None, 0.1)), r"field \d+ is 0\.\d+ in cell \d+, whose bounds are \[-inf, 0.1\]"),
        (dict(bounds=(1.0, 0.0)), "exceeds"),
        (dict(bounds="positive"), "'nonnegative' or None"),
        (dict(bounds=1.0), "must be a pair"),
        (dict(bounds=(0.0, np.ones(3))), "length 40, got 3"),
        (dict(bounds=(0.0, 0.25), invariant_values=20.0, invariant_tol=1e9), "out of reach by 11.8: "),
        (
            dict(bounds=(0.0, None), invariants=np.vander(np.linspace(-1, 1, 40), 9), invariant_tol=9.0),
            "with bounds, at most 8 invariants may share cells, of at most 64",
        ),
        (
            dict(
                bounds=(0.0, None),
                invariants=np.stack([np.ones(40), np.arange(40)], 1),
                invariant_tol=9.0,
                invariant_values=[1.0, 50.0],
            ),
            "invariants .* together",
        ),
    ],
)
def test_what_cannot_be_is_an_error_at_fit(kwargs, message):
    Y, F = problem()
    decoder = clone(ESTIMATORS["randsmap"]).fit(Y, F)
    before = decoder.coef_
    decoder.set_params(**kwargs)
    with pytest.raises(ValueError, match=message):
        decoder.fit(Y, F)
    assert decoder.coef_ is before


def test_constant_cells_must_be_within_exactly_and_others_but_for_round_off():
    Y, F = problem()
    F = F.copy()
    F[0, 30] = -1e-17
    decoder = with_bounds(ESTIMATORS["randsmap"], "nonnegative").fit(Y, F)
    assert decoder.predict(Y).min() >= 0
    F[:, 4] = -1e-17
    with pytest.raises(ValueError, match="cell 4 is -1e-17 in all training fields, outside its bounds"):
        decoder.fit(Y, F)
    F[:, 4], F[0, 30] = 0, -1e-9
    with pytest.raises(ValueError, match="field 0 is -1e-09 in cell 30"):
        decoder.fit(Y, F)


def test_only_where_rows_are_projected():
    Y, F = problem()
    with pytest.raises(ValueError, match="constraint='training'"):
        RANDSMAPDecoder(constraint="training", bounds="nonnegative").fit(Y, F)
    assert "bounds" not in RFNNDecoder().get_params() and "bounds" not in KNNDecoder().get_params()


def test_tune():
    Y, F = problem()
    decoder = with_bounds(ESTIMATORS["randsmap"], "nonnegative").set_params(features=FourierFeatures())
    result = randsmap.tune(decoder, {"features__length_scale": [0.1, 0.3, 1.0]}, Y[::2], F[::2], Y[1::2], F[1::2])
    assert result.best_decoder_.predict(FAR).min() >= 0


@pytest.mark.parametrize("name", ["randsmap", "ddm", "kernel"])
def test_derivatives_with_active_bounds(name):
    decoder, decode, _ = fitted(name, (0.0, 0.25))
    X, h = np.linspace(0.1, 0.9, 9)[:, None], 1e-6
    J = decoder.jacobian(X)
    numeric = (decode(X + h) - decode(X - h)) / (2 * h)
    # where a cell changes its state within h the derivative jumps
    same = ((decode(X + h) > 0) == (decode(X - h) > 0)).all(axis=1)
    assert same.sum() >= 5
    assert np.abs(J[same, :, 0] - numeric[same]).max() < 1e-6 * np.abs(J).max()
    assert (J[decode(X) == 0] == 0).all() and (J[:, 4] == 0).all()
    assert (np.abs(J.sum(axis=1)) <= 1e-13 * np.abs(J).sum(axis=1)).all()
    U = np.random.default_rng(0).normal(size=(9, 40))
    np.testing.assert_allclose(decoder.jvp(X, [2.0]), 2 * J[:, :, 0], rtol=0, atol=1e-12)
    np.testing.assert_allclose(decoder.vjp(X, U)[:, 0], np.einsum("ij,ij->i", U, J[:, :, 0]), atol=1e-11)
    cells = [5, 4, 20]
    np.testing.assert_array_equal(decoder.jacobian(X, cells=cells), J[:, cells])
    np.testing.assert_allclose(
        decoder.vjp(X, U[:, :3], cells=cells)[:, 0], np.einsum("ij,ij->i", U[:, :3], J[:, cells, 0]), atol=1e-11
    )


def test_derivatives_of_bounded_POD():
    model, decode, _ = fitted("POD")
    pod = model.encoder_
    X, h = pod.transform(problem()[1][:5]), 1e-6
    J = pod.inverse_jacobian(X)
    V = np.random.default_rng(0).normal(size=X.shape)
    numeric = (decode(X + h * V) - decode(X - h * V)) / (2 * h)
    same = ((decode(X + h * V) > 0) == (decode(X - h * V) > 0)).all(axis=1)
    assert same.any()
    np.testing.assert_allclose(np.einsum("imk,ik->im", J, V)[same], numeric[same], atol=1e-7)
    np.testing.assert_allclose(pod.inverse_jvp(X, V), np.einsum("imk,ik->im", J, V), atol=1e-13)
    U = np.random.default_rng(1).normal(size=(5, 40))
    np.testing.assert_allclose(pod.inverse_vjp(X, U), np.einsum("imk,im->ik", J, U), atol=1e-13)


# -- invariant values of rows ------------------------------------------------------------------------


@pytest.mark.parametrize("bounds", [None, "nonnegative"])
@pytest.mark.parametrize("name", ESTIMATORS)
def test_values_of_rows(name, bounds):
    _, decode, X = fitted(name, bounds)
    n = len(X)
    m = np.random.default_rng(2).uniform(0.5, 2, n)
    for values in (m, m[:, None], m.tolist()):
        G = decode(X, invariant_values=values)
        assert (np.abs(G.sum(axis=1) - m) <= 1e-14 * (np.abs(G).sum(axis=1) + m)).all()
        assert (G[:, 4] == 0).all() and (bounds is None or (G >= 0).all())
    for same in (0.7, [0.7], np.array([[0.7]] * n)):
        np.testing.assert_array_equal(decode(X, invariant_values=same), decode(X, invariant_values=np.full(n, 0.7)))
    np.testing.assert_array_equal(decode(X, invariant_values=m, cells=[7, 2]), decode(X, invariant_values=m)[:, [7, 2]])
    # the fitted value again: the same fields
    np.testing.assert_allclose(decode(X, invariant_values=1.0), decode(X), rtol=0, atol=1e-13)
    out = np.empty_like(G)
    assert decode(X, invariant_values=m, out=out) is out
    np.testing.assert_array_equal(out, G)


def test_values_of_rows_with_several_invariants():
    Y, F = problem()
    x = np.linspace(0, 1, 40)
    C = np.stack([np.ones(40), 2 * np.ones(40), x**2 + 0.1, np.zeros(40)], axis=1)
    decoder = RANDSMAPDecoder(FourierFeatures(0.3), random_state=0, invariants=C, invariant_tol=1e9)
    decoder.fit(Y, F)
    X = np.linspace(0, 1, 4)[:, None]  # as many rows as columns: one-dimensional is one value a column
    m = np.array([0.9, 1.8, 0.3, 0.0])
    G = decoder.predict(X, invariant_values=m)
    assert (np.abs(G @ C - m) <= 1e-14 * (np.abs(G) @ np.abs(C) + np.abs(m))).all()
    m = np.array([0.9, 1.8, 0.3, 0.0]) * np.arange(1, 5)[:, None]
    G = decoder.predict(X, invariant_values=m)
    assert (np.abs(G @ C - m) <= 1e-14 * (np.abs(G) @ np.abs(C) + np.abs(m))).all()
    m[2, 1] = 5.0
    with pytest.raises(ValueError, match="of row 2 has [0-9.]+ for column [01] .* imply [0-9.]+"):
        decoder.predict(X, invariant_values=m)
    m[2, 1], m[3, 3] = 5.4, 1.0
    with pytest.raises(ValueError, match="of row 3 has 1.0 for column 3 .* imply 0.0"):
        decoder.predict(X, invariant_values=m)
    for wrong in (1.0, np.ones(3), np.ones((3, 4)), np.ones((4, 3))):
        with pytest.raises(ValueError, match="must have shape"):
            decoder.predict(X, invariant_values=wrong)


def test_values_of_rows_out_of_reach_name_the_row():
    decoder, _, _ = fitted("randsmap", (0.0, 0.25))
    X = np.zeros((3, 1))
    with pytest.raises(ValueError, match="the value 10.0 of invariant 0 in row 1 is out of reach by 1.75: "):
        decoder.predict(X, invariant_values=[1.0, 10.0, 1.0])
    with pytest.raises(ValueError, match="the value -1.0 of invariant 0 in row 0"):
        decoder.predict(X, invariant_values=-1.0)
    with pytest.raises(ValueError, match="finite"):
        decoder.predict(X, invariant_values=np.nan)


def test_values_of_rows_need_invariants_and_the_projection():
    Y, F = problem()
    with pytest.raises(ValueError, match="no invariants"):
        RANDSMAPDecoder(invariants=None).fit(Y, F).predict(Y, invariant_values=1.0)
    with pytest.raises(ValueError, match="no invariants"):
        POD(2, invariants=None).fit(F).inverse_transform(np.zeros((1, 2)), invariant_values=1.0)
    for decoder in (RANDSMAPDecoder(constraint="training"), RFNNDecoder()):
        with pytest.raises(ValueError, match="does not project"):
            decoder.fit(Y, F).predict(Y, invariant_values=1.0)


def test_values_of_rows_of_a_model():
    _, F = problem()
    model = ManifoldModel(POD(3), with_bounds(ESTIMATORS["kernel"], "nonnegative")).fit(F)
    G = model.inverse_transform(model.transform(F[:5]), invariant_values=[1.0, 2.0, 3.0, 4.0, 5.0])
    assert np.abs(G.sum(axis=1) - np.arange(1, 6)).max() < 1e-13 and G.min() >= 0


@pytest.mark.parametrize(
    "w, v",
    [
        ([1.0, 1.0], [1e-140, 1.0]),
        ([1.0, 1.0], [1e-140, 1e-140]),
        ([1e10, 1e10], [1e-140, 1e-140]),
        ([1e139, 1e139], [0.1, 0.1]),
        ([1e-140, 1e-140], [1.0, 1.0]),
        ([1e139, 1e139], [1.0, 1.0]),
        ([1e140, 1e-140], [1e-140, 1e140]),
    ],
)
def test_weights_at_the_edges_of_the_domain(w, v):
    f = project_bounds([1.0, 2.0], weights=w, total=w[0], cell_weights=v)
    assert (f >= 0).all() and abs(f @ w - w[0]) <= 1e-14 * w[0]


@pytest.mark.parametrize(
    "z, bounds, total, expected",
    [([1e140, -1e140, 1e139], (-1e139, 1e139), 1.0, None), ([1.0, 2.0], (0.0, 1e140), 1e140, [5e139, 5e139])],
)
def test_bounds_at_the_edges_of_the_domain(z, bounds, total, expected):
    f = project_bounds(z, lower=bounds[0], upper=bounds[1], total=total)
    assert (f >= bounds[0]).all() and (f <= bounds[1]).all()
    assert abs(math.fsum(f) - total) <= 1e-14 * math.fsum(np.abs(f))
    if expected is not None:
        np.testing.assert_allclose(f, expected, rtol=1e-14)


def test_training_fields_within_bounds_that_stand_for_none():
    rng = np.random.default_rng(0)
    Y, F = rng.normal(size=(20, 2)), rng.random((20, 6))
    F /= F.sum(axis=1, keepdims=True)
    decoder = RANDSMAPDecoder(bounds=(-1e140, 1e140), random_state=0).fit(Y, F)
    assert abs(decoder.predict(Y).sum(axis=1) - 1).max() <= 1e-14


@pytest.mark.parametrize(
    "weights, total, expected",
    [
        ([1e-130, 1e139], 0.0, [0, 0]),
        ([1e139, 1e-130], 0.0, [0, 0]),
        ([1e-130, 1e139], 1e-130, [1, 0]),
        ([1e-130, 1e139], 1e139, [1, 1]),
        ([1e-140, 1e-140], 1e-140, [0.5, 0.5]),
        ([1e-140, 1e-140], 0.0, [0, 0]),
        ([0.0, 1e-140], 3e-140, [1, 3]),
        ([1e-140, 1.0], 1.0, [1, 1]),
    ],
)
def test_weights_and_totals_far_apart(weights, total, expected):
    np.testing.assert_allclose(project_bounds([1.0, 1.0], weights=weights, total=total), expected, rtol=1e-11)


@pytest.mark.parametrize("wrong", [1e-150, 1e150])
@pytest.mark.parametrize("name", ["F", "weights", "cell_weights", "total", "upper"])
def test_numbers_outside_the_domain_are_refused(name, wrong):
    given = {"F": [1.0, 2.0], "weights": [1.0, 1.0], "cell_weights": [1.0, 1.0], "total": 1.0, "upper": [2.0, 2.0]}
    # a single weight is divided by; of fields and bounds the largest counts
    given[name] = [wrong, 1.0] if "weights" in name or wrong > 1 else [wrong, wrong]
    given["total"] = wrong if name == "total" else 1.0
    with pytest.raises(ValueError, match=r"must be 0 or of magnitude 1e-140 to 1e\+140, got 1e[-+]150"):
        project_bounds(given.pop("F"), **given)


def test_a_step_that_round_off_leads_too_far_is_taken_back():
    """z + t d of cell 1 rounds to its bound beside 7e6, where it is 2e-11 in truth: the slope without it is 1e-15."""
    w = np.array([49.76, 12600.4, 1.54e-3, 83427.0, 1.15e-5])
    lower, upper = np.array([9e-80, 1e-80, 7e-80, -1e-79, -2e-79]), np.array([np.inf, np.inf, 0.9, 0.0, np.inf])
    Z = np.array([[-5132924.5, -7180003.5, -9.46, -382.0, -4e-9], [-5132924.5, -7180003.5, -9.46, 382.0, 4e-9]])
    F = project_bounds(Z, weights=w, lower=lower, upper=upper, total=2.9e-7)
    assert (F >= lower).all() and (F <= upper).all()
    assert np.abs(F @ w - 2.9e-7).max() <= 1e-14 * 5.8e-7
    t = 7180003.5 / w[1]  # where cell 1 leaves its bound; cell 4 alone moved before
    moved = Z[:, 4] + t * w[4]
    np.testing.assert_allclose(F[:, 4], moved, rtol=1e-12)
    np.testing.assert_allclose(F[:, 1], (2.9e-7 - w[4] * moved) / w[1], rtol=1e-9)
    assert F[:, [0, 2]].tolist() == [[9e-80, 7e-80]] * 2 and not F[:, 3].any()


def test_rows_that_do_not_converge_are_named():
    """A projection whose directions do not belong to its invariants, and values that no field reaches."""
    C, F = np.ones((1, 3)), np.full((5, 3), 1 / 3)
    F[2:] = 1.0
    no_direction = decode.Projection(
        C, np.ones(1), np.zeros((1, 3)), np.ones((1, 1)), np.zeros(0, np.intp), np.zeros(0)
    )
    assert no_direction.project(F.copy()) == -2 - 2
    with pytest.raises(ValueError, match="projection of field 2 on its invariants and bounds does not converge"):
        project_rows(no_direction, F.copy())
    bounded = decode.Projection(
        C,
        np.ones(1),
        np.zeros((1, 3)),
        np.ones((1, 1)),
        np.zeros(0, np.intp),
        np.zeros(0),
        (np.ones((1, 3)), np.zeros(3), np.ones(3), None),
    )
    assert bounded.project(F.copy(), np.array([[1.0], [2.0], [3.0], [4.0], [5.0]])) == -2 - 3
    F[1, 1] = np.nan
    assert no_direction.project(F.copy()) == bounded.project(F.copy()) == 1

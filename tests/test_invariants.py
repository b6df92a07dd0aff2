"""Affine invariants: the projection against plain formulas, conservation to a few ulp."""

import inspect
import math
import pickle
import re
import warnings
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.linear_model import Ridge
from sklearn.neighbors import KNeighborsRegressor

import randsmap
from randsmap._kernels import decode as kernel
from randsmap.decoders import BlendedDecoder
from randsmap.invariants import AffineInvariants, invariant_values
from randsmap.invariants._fitting import constant_cells
from randsmap.metrics import scaled_l2
from randsmap.reports import evaluate

from helpers import fitted_invariants as fitted
from helpers import python

pytestmark = pytest.mark.kernels

EPS = np.finfo(float).eps


def violation(F, C, m):
    """max of |C_j^T f - m_j| / (|C_j|^T |f| + |m_j|), computed without round-off."""
    worst = 0.0
    for f in F:
        for c, value in zip(C.T, m):
            terms = [_exact(a, b) for a, b in zip(c.tolist(), f.tolist())]
            defect = math.fsum([t for pair in terms for t in pair] + [-value])
            size = math.fsum(np.abs(c * f).tolist()) + abs(value)
            worst = max(worst, abs(defect) / size if size else abs(defect))
    return worst


def _exact(a, b):
    """a * b as an unevaluated sum of two floats (Dekker)."""
    p = a * b
    s = 134217729.0
    ah = s * a - (s * a - a)
    bh = s * b - (s * b - b)
    al, bl = a - ah, b - bh
    return p, ((ah * bh - p) + ah * bl + al * bh) + al * bl


@st.composite
def invariant_problems(draw, n=12, M=None):
    """Fields with random invariants: dependent and zero columns, weights, constant cells."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    M = M or draw(st.sampled_from([5, 16, 17, 40, 300]))
    q = draw(st.integers(1, 5))
    columns = []
    for _ in range(q):
        kind = draw(st.sampled_from(["ones", "normal", "positive", "zero", "dependent", "local"]))
        if kind == "dependent" and columns:
            c = np.array(columns).T @ rng.integers(-3, 4, size=len(columns))
        elif kind == "ones":
            c = np.ones(M)
        elif kind == "zero":
            c = np.zeros(M)
        elif kind == "local":
            c = np.where(np.arange(M) < M // 2, rng.uniform(0.5, 2, M), 0.0)
        elif kind == "positive":
            c = rng.uniform(0.5, 2, M)
        else:
            c = rng.normal(size=M)
        columns.append(c * 10.0 ** draw(st.integers(-6, 6)))
    C = np.array(columns).T
    weights = rng.uniform(0.1, 10, M) if draw(st.booleans()) else None
    constant = rng.uniform(size=M) < draw(st.sampled_from([0.0, 0.2]))
    constant[:2] = False
    level = draw(st.sampled_from([0.0, 0.3, -2.5]))

    F = rng.uniform(0, 1, size=(n, M))
    F[:, constant] = level
    free = ~constant
    # on the free cells, move every field to where its invariants equal those of the first
    length = np.linalg.norm(C[free], axis=0)
    D = C[free] / np.where(length > 0, length, 1)
    F[:, free] -= (F[:, free] - F[0, free]) @ np.linalg.pinv(D.T, rcond=1e-10) @ D.T
    return C, weights, constant, level, F, rng


@pytest.mark.slow
@given(invariant_problems())
@settings(deadline=None, max_examples=80)
def test_projection_conserves_to_a_few_ulp_and_keeps_constants(problem):
    C, weights, constant, level, F, rng = problem
    inv = fitted(F, invariants=C, cell_weights=weights)
    assert inv.constant[constant].all()
    for scale in (1e-8, 1.0, 1e6):
        G = F[:6] + scale * rng.normal(size=F[:6].shape)
        inv.project(G)
        assert violation(G, C, inv.values) <= 1e-14
        assert (G[:, constant] == level).all()


@given(invariant_problems())
@settings(deadline=None, max_examples=40)
def test_no_admissible_field_is_decoded_worse(problem):
    C, weights, constant, level, F, rng = problem
    inv = fitted(F, invariants=C, cell_weights=weights)
    V = np.ones(F.shape[1]) if weights is None else weights
    for scale in (1e-3, 1.0, 1e3):
        G = F + scale * rng.normal(size=F.shape)
        before = np.sqrt((V * (G - F) ** 2).sum(axis=1))
        after = np.sqrt((V * (inv.project(G.copy()) - F) ** 2).sum(axis=1))
        # F itself satisfies its invariants only to round-off, of a system of this condition
        slack = 1e3 * EPS * np.sqrt((V * F**2).sum(axis=1).max()) * condition(inv)
        assert (after <= before * (1 + 1e-12) + slack).all()


@pytest.mark.parametrize("seed", range(4))
def test_a_copy_of_a_column_is_dropped_without_a_word(seed):
    M = 3000  # the columns' normals are right to round-off of their norm, 50 times that of a cell
    rng = np.random.default_rng(seed)
    C = np.column_stack([np.ones(M), np.ones(M), rng.uniform(5, 20, M)])
    F = rng.uniform(size=(4, M))
    for _ in range(2):
        F -= (F - F[0]) @ C @ np.linalg.pinv(C)
    inv = fitted(F, invariants=C)
    assert len(inv.dependent) == 1


def condition(inv):
    if not len(inv.independent):
        return 1.0
    scaled = inv.triangle / np.linalg.norm(inv.triangle, axis=0)
    return np.linalg.cond(scaled)


@given(invariant_problems())
@settings(deadline=None, max_examples=40)
def test_coefficient_correction_is_the_plain_formula(problem):
    C, weights, constant, level, F, rng = problem
    inv = fitted(F, invariants=C, cell_weights=weights)
    if condition(inv) > 1e4:
        return
    M = F.shape[1]
    R = rng.normal(size=(9, M))
    A = inv.constrain_coefficients(R.copy())
    B = np.zeros((9, C.shape[1]))
    B[0] = inv.values

    S, kept = ~inv.constant, inv.independent
    plain = R.copy()
    plain[:, ~S] = 0
    plain[0, ~S] = inv.constant_values
    K = C[:, kept] / np.linalg.norm(C[:, kept], axis=0)
    Vinv = np.diag(1 / (np.ones(M) if weights is None else weights)[S])
    E = B[:, kept] / np.linalg.norm(C[:, kept], axis=0) - plain @ K
    plain[:, S] += E @ np.linalg.solve(K[S].T @ Vinv @ K[S], K[S].T @ Vinv)
    assert np.allclose(A, plain, rtol=1e-6, atol=1e-8 * np.abs(plain).max())
    size = (np.abs(A) + np.abs(R)) @ np.abs(C) + np.abs(B)
    assert (np.abs(A @ C - B) <= 1e-10 * size).all()
    assert (A[1:, ~S] == 0).all() and (A[0, ~S] == inv.constant_values).all()


def test_mass_with_volumes_is_a_uniform_shift():
    rng = np.random.default_rng(0)
    V = rng.uniform(0.1, 3, 30)
    F = rng.uniform(size=(8, 30))
    F *= 2 / (F @ V)[:, None]
    inv = fitted(F, cell_weights=V)
    assert np.array_equal(inv.matrix[:, 0], V)
    assert abs(inv.values[0] - 2) < 4 * EPS
    G = rng.uniform(size=(3, 30))
    shift = inv.project(G.copy()) - G
    assert np.ptp(shift, axis=1).max() < 1e-14
    assert np.allclose(shift[:, 0], (2 - G @ V) / V.sum(), atol=1e-14)


def test_compensated_sums_see_what_plain_sums_lose():
    x = np.array([[1e16, 1.0, -1e16, 3.0] * 10])
    C = np.ones((40, 1))
    value, scale = invariant_values(C, x)
    assert value[0, 0] == 40.0
    assert abs(scale[0, 0] - math.fsum(np.abs(x[0]).tolist())) <= 40 * EPS * scale[0, 0]
    products = np.array([[1 + 2.0**-30, -1.0]])
    weights = np.array([[1 - 2.0**-30], [1.0]])
    assert invariant_values(weights, products)[0][0, 0] == -(2.0**-60)


def test_every_instruction_level_gives_the_same_bits(levels):
    code = """
import numpy as np, sys
from randsmap.invariants import AffineInvariants
rng = np.random.default_rng(0)
F = rng.uniform(size=(5, 77)); F[:, 3] = 0.25; F /= 1.0
C = np.stack([np.ones(77), np.arange(77.0)], axis=1)
inv = AffineInvariants.of(C, np.array([20.0, 700.0]), np.arange(77) == 3, np.array([0.25]))
sys.stdout.write(inv.project(F).tobytes().hex())
"""
    results = {python(code, level=level) for level in levels}
    assert len(results) == 1 and len(results.pop()) == 5 * 77 * 16


def test_values_from_data_are_the_common_value():
    rng = np.random.default_rng(3)
    F = rng.uniform(size=(1000, 37))
    F /= F.sum(axis=1, keepdims=True)
    inv = fitted(F)
    assert abs(inv.values[0] - 1) <= 2 * EPS


def test_values_of_dependent_columns_are_implied_by_the_others():
    rng = np.random.default_rng(4)
    F = rng.uniform(size=(50, 20))
    F /= F.sum(axis=1, keepdims=True)
    F = F.astype(np.float32).astype(float)  # mass 1 only to single precision
    C = np.stack([np.ones(20), np.zeros(20), 3 * np.ones(20)], axis=1)
    inv = fitted(F, invariants=C, dtype=np.float32)
    assert len(inv.independent) == 1
    assert inv.values[1] == 0
    assert abs(inv.values[2] - 3 * inv.values[0]) <= 2 * EPS * 3
    G = inv.project(rng.normal(size=(4, 20)))
    assert violation(G, C, inv.values) <= 1e-14


def test_constant_cells_are_found_exactly():
    F = np.ones((10, 4))
    F[:, 1] = 0.0
    F[3, 1] = -0.0
    F[9, 2] = np.nextafter(1, 2)
    F[:, 3] = np.arange(10)
    assert constant_cells(F, F[0], np.ones(4, bool)).tolist() == [True, True, False, False]
    big = np.zeros((300, 4000))
    big[299, 5] = 1
    assert np.flatnonzero(~constant_cells(big, big[0], np.ones(4000, bool))).tolist() == [5]


def test_all_cells_constant():
    F = np.tile([0.25, 0.75], (3, 1))
    inv = fitted(F, invariants=np.array([[1.0, 0], [1, 1]]))
    assert len(inv.independent) == 0 and inv.values.tolist() == [1.0, 0.75]
    assert (inv.project(np.zeros((2, 2))) == F[:2]).all()
    with pytest.raises(ValueError, match=r"invariant_values\[0\] is 2.0.* imply 1.0"):
        fitted(F, values=2.0)


def test_more_invariants_than_cells():
    rng = np.random.default_rng(5)
    C = rng.integers(-3, 4, size=(2, 5))
    F = np.tile([[0.5, 0.25]], (4, 1))
    F[1:, 1] += 1e-9  # not constant, within the tolerance
    inv = fitted(F, invariants=C)
    assert len(inv.independent) <= 2
    G = inv.project(rng.normal(size=(3, 2)))
    assert violation(G, C.astype(float), inv.values) <= 1e-14


@pytest.mark.parametrize(
    "C",
    [
        np.ones(6, dtype=int),
        np.ones((6, 1), dtype=bool),
        np.ones(6, dtype=np.float32),
        [1.0] * 6,
        np.ones((6, 2))[:, ::2],
        np.asfortranarray(np.ones((6, 1))),
    ],
)
def test_number_types_of_the_matrix(C):
    F = np.random.default_rng(0).dirichlet(np.ones(6), size=5)
    before = np.array(C)
    inv = fitted(F, invariants=C)
    assert inv.matrix.dtype == np.float64 and inv.matrix.shape == (6, 1)
    assert not np.shares_memory(inv.matrix, C)
    assert np.array_equal(np.array(C), before)


@pytest.mark.parametrize(
    "kwargs, message",
    [
        (dict(invariants=np.full(6, np.nan)), "invariants must be finite"),
        (dict(invariants=np.ones(5)), r"one row per cell, \(6,\) or \(6, q\), got \(5,\)"),
        (dict(invariants="energy"), "'mass', None or an array, got 'energy'"),
        (dict(invariants=["a"] * 6), "real numbers"),
        (dict(cell_weights=np.ones(5)), "cell_weights must have length 6, got 5"),
        (dict(cell_weights=np.array([1, 1, 0, 1, 1, 1])), "positive, got 0.0 for cell 2"),
        (dict(cell_weights=np.full(6, np.nan)), "cell_weights must be finite"),
        (dict(values=[1.0, 2.0]), "invariant_values must have length 1, got 2"),
        (dict(values=np.nan), "invariant_values must be finite"),
        (dict(values=1.5), r"invariant 0: field \d has the value .*, expected 1.5"),
        (dict(invariants=None, values=1.0), "without invariants"),
        (dict(tol=-1.0), "invariant_tol must be"),
        (dict(invariants=np.zeros((6, 1)), values=1.0), r"invariant_values\[0\] is 1.0, but column 0"),
        (dict(invariants=np.ones((6, 2)), values=[1.0, 1.1]), r"invariant_values\[\d\] is 1.*column \d"),
    ],
)
def test_errors_name_what_was_wrong(kwargs, message):
    F = np.random.default_rng(0).dirichlet(np.ones(6), size=5)
    with pytest.raises(ValueError, match=message):
        fitted(F, **kwargs)


def test_training_data_that_violate_name_the_worst_sample():
    F = np.random.default_rng(0).dirichlet(np.ones(6), size=5)
    F[2] *= 1.25
    F[3] *= 1.5
    with pytest.raises(ValueError, match=r"invariant 0: field 3 .* 1\.5.*invariants=None"):
        fitted(F, values=1.0)
    inv = fitted(F, values=1.0, tol=0.5)
    assert inv.values[0] == 1.0


def test_tolerance_follows_the_number_type():
    F = np.random.default_rng(0).dirichlet(np.ones(6), size=5)
    F[2] *= 1 + 1e-5
    with pytest.raises(ValueError):
        fitted(F)
    fitted(F, dtype=np.float32)


def test_invariant_zero_with_a_field_of_zeros():
    rng = np.random.default_rng(0)
    F = rng.normal(size=(6, 10))
    F -= F.mean(axis=1, keepdims=True)
    F[2] = 0
    inv = fitted(F)
    assert abs(inv.values[0]) < 1e-14


@pytest.mark.parametrize("M, q", [(2, 2), (7, 3)])
def test_what_the_invariants_determine_has_no_derivative(M, q):
    # of the last cells, which the others' invariants leave alone, all invariants determine the values
    rng = np.random.default_rng(M)
    C = np.zeros((M, q))
    C[-q:] = rng.normal(size=(q, q)) * [10.0 ** (-3 * j) for j in range(q)]
    Y, F = rng.uniform(size=(20, 1)), rng.uniform(1, 2, size=(20, M))
    F[:, -q:] = F[0, -q:] * (1 + 1e-15 * rng.integers(0, 3, (20, q)))  # not constant to the bit
    decoder = randsmap.RANDSMAPDecoder(
        randsmap.MonomialFeatures(2), invariants=C, center=False, latent_scale=None, random_state=0
    ).fit(Y, F)
    X, V = rng.uniform(-1, 2, size=(30, 1)), rng.normal(size=(30, 1))
    J, Jv = decoder.jacobian(X), decoder.jvp(X, V)
    for T in (J[..., 0], Jv):
        assert (np.abs(T[:, -q:]) <= 1e-20).all()
        assert M == q or (np.abs(T[:, :-q]) > 0).any()
    assert violation(decoder.predict(X), C, decoder.invariant_values_) <= 1e-14
    frozen = decoder.set_params(features=randsmap.FourierFeatures(n_features=9)).fit(Y, F).freeze()
    assert (np.abs(frozen.jvp(X, V)[:, -q:]) <= 1e-20).all()


def test_coefficients_of_any_layout_are_corrected():
    # of one coordinate the tail's coefficients are one row, and all of them come by columns
    rng = np.random.default_rng(0)
    Y, C = rng.uniform(size=(12, 1)), rng.normal(size=(9, 2))
    Q = np.linalg.qr(C)[0]
    F = np.sin(3 * Y + np.arange(9.0))
    F += (F[0] - F) @ Q @ Q.T
    decoder = randsmap.KernelDecoder("thin-plate", degree=1, invariants=C).fit(Y, F)
    assert violation(decoder.predict(2 * Y), C, decoder.invariant_values_) <= 1e-14


def test_fields_of_the_smallest_numbers_are_projected_as_far_as_these_go():
    """Derivatives far from the training points are such fields."""
    rng = np.random.default_rng(0)
    C, unit = 1e3 * rng.normal(size=(5, 2)), 5e-324
    held = AffineInvariants.of(C, np.zeros(2), np.zeros(5, bool), np.empty(0))
    F = held.project(unit * rng.integers(-4000, 4000, (200, 5)))
    assert (np.abs(F @ C) <= unit * (np.abs(C).sum(axis=0) + 5)).all()


def test_projection_object_survives_pickling():
    F = np.random.default_rng(0).dirichlet(np.ones(6), size=5)
    inv = fitted(F)
    again = pickle.loads(pickle.dumps(inv))
    G = np.random.default_rng(1).normal(size=(3, 6))
    assert np.array_equal(again.project(G.copy()), inv.project(G.copy()))


def test_projection_without_invariants_or_rows():
    empty = np.empty((0, 4))
    projection = kernel.Projection(empty, np.empty(0), empty, np.empty((0, 0)), np.array([1]), np.array([9.0]))
    F = np.zeros((2, 4))
    projection.project(F)
    assert F.tolist() == [[0, 9, 0, 0]] * 2
    projection.project(empty)


def halves(M, eps, n=40):
    """Latents, fields and C = [1, 1 + eps s], s = +-1 on the halves: both are 1 for every field."""
    rng = np.random.default_rng(0)
    x, Y = np.linspace(0, 1, M), rng.uniform(size=(n, 1))
    F = 1 + np.sin(3 * x + 4 * Y) + np.exp(-(((x - Y) / 0.1) ** 2))
    for half in (F[:, : M // 2], F[:, M // 2 :]):
        half /= 2 * half.sum(axis=1, keepdims=True)
    return Y, F, np.stack([np.ones(M), 1 + eps * np.where(np.arange(M) < M // 2, 1, -1)], axis=1)


def exact_miss(f, c, value):
    """|c . f - value| / (|c| . |f| + |value|) in rational arithmetic."""
    terms = [Fraction(a) * Fraction(b) for a, b in zip(c.tolist(), f.tolist())]
    return float(abs(sum(terms) - Fraction(value)) / (sum(map(abs, terms)) + abs(Fraction(value))))


@pytest.mark.parametrize(
    "M, eps",
    [
        (100, 2e-14),
        (100, 2e-15),
        (100, 1e-12),
        (1000, 1e-9),
        pytest.param(4000, 8e-13, marks=pytest.mark.slow),
        (4, 2e-15),
    ],
)
def test_nearly_dependent_invariants_hold_or_fit_says_how_well(M, eps):
    Y, F, C = halves(M, eps)
    decoder = randsmap.RANDSMAPDecoder(randsmap.SigmoidFeatures(8.0, n_features=20), invariants=C, random_state=0)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        decoder.fit(Y, F)
    fields = np.vstack(
        [decoder.predict([[0.3], [7.0]]), decoder.invariants_.project(np.random.default_rng(1).normal(size=(3, M)))]
    )
    miss = max(exact_miss(f, c, m) for f in fields for c, m in zip(C.T, decoder.invariant_values_))
    if said:
        assert len(said) == 1 and len(decoder.invariants_.independent) == 1
        promised = float(re.search(r"satisfy it to ([\d.e-]+) of", str(said[0].message))[1])
        assert 0.9 * eps < promised < 1.1 * eps
        assert miss <= promised + 1e-15
    else:
        assert miss <= 1e-14
    assert bool(said) == (5e-15 < eps < M * EPS)


@pytest.mark.parametrize("eps", [1e-12, 1e-9, 1e-6])
@pytest.mark.parametrize("regularization", [1e-3, 0.0])
def test_some_cells_are_those_of_the_whole_field_for_nearly_dependent_invariants(eps, regularization):
    Y, F, C = halves(100, eps)
    features = randsmap.SigmoidFeatures(8.0, n_features=20)
    decoder = randsmap.RANDSMAPDecoder(features, regularization=regularization, invariants=C, random_state=0).fit(Y, F)
    far, cells = np.linspace(-1, 2, 9)[:, None], np.arange(100)[::7]
    size = np.abs(np.hstack([np.ones((9, 1)), decoder.features_.transform(far)])) @ np.abs(decoder.coef_)
    whole = decoder.predict(far)
    assert (np.abs(decoder.predict(far, cells=cells) - whole[:, cells]) <= 1e-13 * size[:, cells]).all()
    # what all cells together say, of the difference of the two invariants too, in rational arithmetic
    m = decoder.invariant_values_
    for fields in (whole, decoder.predict(far, cells=np.arange(100))):
        for f, s in zip(fields, size):
            sums = [sum(Fraction(a) * Fraction(b) for a, b in zip(c.tolist(), f.tolist())) for c in C.T]
            error = (sums[1] - sums[0]) - (Fraction(m[1]) - Fraction(m[0]))
            assert abs(float(error)) <= 100 * EPS * eps * s.sum()
    J = decoder.jacobian(far)
    assert np.abs(decoder.jacobian(far, cells=cells) - J[:, cells]).max() <= 1e-12 * np.abs(J).max()
    U = np.random.default_rng(0).normal(size=(9, 100))
    pulled = np.einsum("lmd,lm->ld", J, U)
    assert np.abs(decoder.vjp(far, U) - pulled).max() <= 1e-11 * np.abs(pulled).max()


def test_the_correction_of_nearly_dependent_invariants_is_an_orthogonal_projection():
    weights = np.random.default_rng(2).uniform(0.1, 10, 60)
    _, F, C = halves(60, 1e-11)
    inv = fitted(F, invariants=C, cell_weights=weights)
    W = inv.directions
    assert np.abs(W * weights @ W.T - np.eye(2)).max() <= 60 * EPS
    second = (C[:, 1] - C[:, 0]) / weights  # exact differences of neighbouring numbers
    rest = second - (second * weights @ W.T) @ W
    assert np.abs(rest).max() <= 100 * EPS * np.abs(second).max()


@pytest.mark.parametrize("profile", [np.linspace(0, 1, 40), np.linspace(0.1, 1, 40)])
@pytest.mark.parametrize("kind", ["RANDSMAP", "streaming", "kernel", "DDM", "POD", "conservative"])
def test_fields_whose_mass_varies_fit_with_tol_1_and_hold_the_masses_given(profile, kind):
    x = np.linspace(0, 1, 50)
    B = np.exp(-(((x - np.linspace(0.3, 0.7, 40)[:, None]) / 0.1) ** 2))
    F, Y = B / B.sum(axis=1, keepdims=True) * profile[:, None], np.linspace(0, 1, 40)[:, None]
    keep = dict(invariants="mass", invariant_tol=1.0)
    features = randsmap.SigmoidFeatures(5.0, n_features=30, latent_box=(0.0, 1.0))
    decoders = {
        "RANDSMAP": randsmap.RANDSMAPDecoder(features, random_state=0, **keep),
        "streaming": randsmap.RANDSMAPDecoder(features, latent_scale=None, random_state=0, **keep),
        "kernel": randsmap.KernelDecoder(length_scale=0.3, **keep),
        "DDM": randsmap.DoubleDiffusionMapsDecoder(**keep),
        "POD": randsmap.POD(5, **keep),
        "conservative": randsmap.ConservativeRegressor(KNeighborsRegressor(), **keep),
    }
    decoder, masses = decoders[kind], np.linspace(0, 2, 40)
    if kind == "POD":
        fields = decoder.fit(F).inverse_transform(decoder.transform(F), invariant_values=masses)
    else:
        if kind == "streaming":
            for rows in (slice(0, 25), slice(25, 40)):
                decoder.partial_fit(Y[rows], F[rows])
        else:
            decoder.fit(Y, F)
        fields = decoder.predict(Y, invariant_values=masses)
    assert max(exact_miss(f, np.ones(50), m) for f, m in zip(fields, masses)) <= 1e-14
    with pytest.raises(ValueError, match=r"do not satisfy invariant 0.*invariant_tol=1\.0.*invariant_values="):
        fitted(F)


_VARYING = {"invariants": "mass", "invariant_tol": 1.0}
_VARYING_MODELS = {
    "features": (randsmap.POD(4), randsmap.RANDSMAPDecoder(random_state=0, **_VARYING)),
    "bounds": (randsmap.POD(4), randsmap.KernelDecoder(bounds="nonnegative", **_VARYING)),
    "several": (
        randsmap.POD(4),
        randsmap.KernelDecoder(invariants=np.stack([np.ones(60), np.arange(60), np.ones(60)], 1), invariant_tol=1.0),
    ),
    "blend": (randsmap.POD(4), BlendedDecoder([randsmap.KernelDecoder()], **_VARYING)),
    "conservative": (randsmap.POD(4), randsmap.ConservativeRegressor(KNeighborsRegressor(1), **_VARYING)),
    "POD": (randsmap.POD(6, **_VARYING), None),
}


def fields_of_different_masses():
    t = np.linspace(0, 1, 40)
    B = np.exp(-(((np.linspace(0, 1, 60) - 0.3 - 0.4 * t[:, None]) / 0.1) ** 2))
    return t[:, None], B * (1 + 0.8 * np.sin(9 * t))[:, None]


@pytest.mark.parametrize("name", _VARYING_MODELS)
def test_fields_are_decoded_with_their_own_values_and_latents_need_values(name, tmp_path):
    Y, F = fields_of_different_masses()
    encoder, decoder = _VARYING_MODELS[name]
    model = randsmap.ManifoldModel(encoder, decoder).fit(F)
    part = model.encoder_ if decoder is None else model.decoder_
    latents, values = model.transform(F), F @ part.invariant_matrix_
    expected = model.inverse_transform(latents, invariant_values=values)
    assert np.allclose(expected @ part.invariant_matrix_, values, rtol=1e-12)
    size = np.linalg.norm(F, axis=1)
    error = np.linalg.norm(expected - F, axis=1) / size
    assert error.max() < 0.1
    # fields at hand
    decoded = [model.reconstruct(F), randsmap.ManifoldModel(encoder, decoder, consistency=1).fit(F).reconstruct(F)]
    if name != "conservative":
        model.save(tmp_path / "model.npz")
        decoded.append(randsmap.load(tmp_path / "model.npz").reconstruct(F))
    for G in decoded:
        assert np.abs(G @ part.invariant_matrix_ - values).max() <= 1e-12 * values.max()
    assert np.allclose(decoded[0], expected, atol=1e-13)
    assert model.score(F) == pytest.approx(-error.mean())
    assert np.allclose(randsmap.model.reconstruction_errors(model, F)["relative_l2"], error)
    assert np.allclose(evaluate(model, F).l2, error)
    # latents alone
    calls = [model.inverse_transform, lambda X: model.inverse_transform(X, cells=[1, 2])]
    if decoder is not None:
        assert part.score(latents, F) == pytest.approx(-error.mean())
        calls.append(part.predict)
    if hasattr(part, "freeze") and name != "conservative":
        frozen = [part.freeze(precision=precision) for precision in ("float64", "float32")]
        calls += [each.predict for each in frozen]
        for each in frozen:
            assert np.abs(each.predict(latents, invariant_values=values) - expected).max() < 1e-5
            if name != "bounds":  # without bounds derivatives do not depend on the values
                directions = np.ones_like(latents)
                jvp = part.inverse_jvp if decoder is None else part.jvp
                assert np.abs(each.jvp(latents, directions) - jvp(latents, directions)).max() < 1e-4
    for call in calls:
        for rows in (latents, latents[:1]):
            with pytest.raises(ValueError, match="must be given.*invariant_values"):
                call(rows)
    if name == "bounds":
        with pytest.raises(ValueError, match="must be given"):
            part.jacobian(latents)
        free = randsmap.KernelDecoder(latent_scale=None, length_scale=0.2, invariants=None)
        within = randsmap.ConservativeRegressor(free, bounds="nonnegative", **_VARYING).fit(latents, F)
        for derivative in (within.jacobian, lambda X: within.jvp(X, X), lambda X: within.vjp(X, F)):
            with pytest.raises(ValueError, match="must be given.*need a fit to fields of equal values"):
                derivative(latents)


def test_searches_compare_fields_of_their_own_values():
    Y, F = fields_of_different_masses()
    decoder = randsmap.KernelDecoder(latent_scale=None, length_scale=0.2, **_VARYING)
    for cells in (1, 60):  # of many cells other decoders are compared by coordinates
        G = np.repeat(F, cells, axis=1)
        usual = {"reference": G}
        result = randsmap.tune(decoder, {"length_scale": [0.2, 1.0]}, Y[::2], G[::2], Y[1::2], G[1::2])
        fitted = randsmap.KernelDecoder(latent_scale=None, length_scale=0.2, **_VARYING).fit(Y[::2], G[::2])
        direct = scaled_l2(G[1::2], fitted.predict(Y[1::2], invariant_values=G[1::2].sum(1)), reference=G[1::2])
        np.testing.assert_allclose(result.sample_errors_[0], direct, rtol=1e-8)
        for lambdas in ([1e-3], [1e-3, 1e-2, 0.1, 1.0]):
            errors = randsmap.leave_one_out(decoder, Y, G, regularizations=lambdas).errors_[0]
            for i in (0, 17):
                refit = clone(decoder).fit(np.delete(Y, i, 0), np.delete(G, i, 0))
                again = refit.predict(Y[i : i + 1], invariant_values=G[i].sum())
                assert errors[i] == pytest.approx(scaled_l2(G[i : i + 1], again, **usual)[0], rel=1e-6)
    parametric = randsmap.ParametricModel(randsmap.ManifoldModel(randsmap.POD(4), decoder), randsmap.KernelDecoder())
    parametric.fit(Y, F)
    fields = parametric.predict(Y, invariant_values=F.sum(1))
    assert parametric.score(Y, F) == pytest.approx(-scaled_l2(F, fields).mean())
    with pytest.raises(ValueError, match="invariant_values"):
        parametric.predict(Y)
    with pytest.raises(ValueError, match="constraint='training' imposes one value"):
        randsmap.RANDSMAPDecoder(constraint="training", **_VARYING).fit(Y, F)


def test_batches_whose_mass_varies_are_told_the_remedy():
    F = np.random.default_rng(0).dirichlet(np.ones(6), size=10)
    features = randsmap.SigmoidFeatures(n_features=5, latent_box=(0.0, 1.0))
    decoder = randsmap.RANDSMAPDecoder(features, latent_scale=None, random_state=0)
    decoder.partial_fit(np.linspace(0, 1, 10)[:, None], F)
    with pytest.raises(ValueError, match=r"of this batch.*invariant_tol=1\.0"):
        decoder.partial_fit(np.linspace(0, 1, 10)[:, None], 1.1 * F)


def test_no_negative_zero_in_messages():
    with pytest.raises(ValueError, match=r"is in \[0\.0, inf\]"):
        randsmap.project_bounds([1.0, 1.0], total=-1.0)
    with pytest.raises(ValueError, match=r"is in \[0\.0, 0\.0\]"):
        randsmap.project_bounds([1.0, 1.0], lower=-0.0, upper=-0.0)
    F = np.array([[0.5, 0.5], [0.0, 0.0]])
    with pytest.raises(ValueError, match=r"field 1 has the value 0\.0"):
        fitted(F, values=1.0)
    value, _ = invariant_values(np.ones((2, 1)), np.array([[-0.0, -0.0]]))
    assert not np.signbit(value).any()


WITH_INVARIANTS = [
    randsmap.RANDSMAPDecoder(random_state=0),
    randsmap.KernelDecoder(),
    randsmap.DoubleDiffusionMapsDecoder(),
    randsmap.AutoDecoder(n_trials=2),
    randsmap.BlendedDecoder([randsmap.KernelDecoder()]),
    randsmap.ConservativeRegressor(Ridge()),
    randsmap.POD(2),
]


def test_auto_is_the_default_of_every_estimator_with_invariants():
    classes = filter(inspect.isclass, (getattr(randsmap, name) for name in randsmap.__all__))
    found = {each for each in classes if "invariants" in inspect.signature(each).parameters}
    assert found == {type(each) for each in WITH_INVARIANTS}
    assert {each.invariants for each in WITH_INVARIANTS} == {"auto"}


@pytest.mark.parametrize("estimator", WITH_INVARIANTS[:-1], ids=lambda each: type(each).__name__)
def test_fields_given_as_latents_look_swapped(estimator):
    """By their masses; latents that have none may be more than the fields' cells."""
    rng = np.random.default_rng(0)
    X, F = rng.uniform(size=(40, 2)), rng.uniform(0.5, 1, (40, 12))
    clone(estimator).fit(F, X)
    F /= F.sum(axis=1, keepdims=True)
    with pytest.raises(ValueError, match="12 columns and y, the fields, only 2: are they swapped.*invariants=None"):
        clone(estimator).fit(F, X)
    clone(estimator).set_params(invariants=None).fit(F, X)


@pytest.mark.parametrize("kind", ["common", "varying", "background", "noise", "mistake"])
@pytest.mark.parametrize("estimator", WITH_INVARIANTS, ids=lambda each: type(each).__name__)
def test_auto_keeps_the_mass_that_all_training_fields_have(estimator, kind):
    """By every estimator with invariants; a mass that is lost by noise or one wrong field is warned of."""
    rng = np.random.default_rng(0)
    X, F = rng.uniform(size=(40, 2)), rng.uniform(0.5, 1, (40, 12))
    F /= F.sum(axis=1, keepdims=True)
    F *= {"common": 1, "varying": rng.uniform(0.5, 2, (40, 1)), "noise": 1 + 1e-3 * rng.normal(size=(40, 1))}.get(
        kind, 1
    )
    if kind == "mistake":
        F[7] *= 2
    if kind == "background":  # masses differ by little of their own, but by all that moves
        F = 300 + rng.uniform(size=(40, 1)) * F
    fitted = clone(estimator)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        fitted.fit(*((F,) if isinstance(estimator, randsmap.POD) else (X, F)))
    said = [str(each.message) for each in found if "'auto' enforces no mass: most" in str(each.message)]
    assert bool(said) == (kind in ("noise", "mistake")) and all("field 7" in each for each in said if kind == "mistake")
    assert fitted.invariants_.in_words[0] == ("the mass (sum of the cells)" if kind == "common" else "")
    decode = fitted.inverse_transform if isinstance(estimator, randsmap.POD) else fitted.predict
    if kind == "common":
        np.testing.assert_allclose(decode(3 * X).sum(axis=1), 1, rtol=0, atol=1e-12)
    else:  # a mass that is asked for by its value is not given up
        with pytest.raises(ValueError, match="do not satisfy invariant 0"):
            args = (F,) if isinstance(estimator, randsmap.POD) else (X, F)
            fitted.set_params(invariant_values=1.0).fit(*args)

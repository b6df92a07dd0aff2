"""Projections of fields: on bounds and a total, and on affine invariants."""

from __future__ import annotations

import re
import warnings
from fractions import Fraction

import numpy as np

import randsmap
from randsmap import project_bounds

from fuzz_targets.inputs import (
    EPS,
    LARGEST,
    SMALLEST,
    UNIT,
    WIDE,
    in_single,
    laid_out,
    numbers,
    quiet,
    refused,
    same_bits,
    size,
    spoiled,
    violation,
    within,
)
from oracles import exact_projection

UNREPRESENTABLE = ("is too large for floating-point numbers", "does not converge")


# -- Bounds ----------------------------------------------------------------------------------------
def bounds(rng):
    """project_bounds: feasible as promised, optimal (Karush-Kuhn-Tucker), the same for any layout. A field an input."""
    n, M = size(rng, (0, 2), (1, 16)), size(rng, (1, 6), (1, 40), (41, 300))
    given, Z = in_single(rng, numbers(rng, (n, M)))
    w, v, extreme = _weights(rng, M)
    lower, upper = _limits(rng, M)
    options = {"lower": lower, "upper": upper, "weights": w, "cell_weights": v}
    w, v = (np.ones(M) if x is None else x for x in (w, v))
    low, high = (np.broadcast_to(none if x is None else x, M) for x, none in ((lower, -np.inf), (upper, np.inf)))
    if rng.integers(12) == 0:
        return _wrong_bounds(rng, Z, options, low)
    with quiet():
        inside = np.clip(numbers(rng, (n, M), largest=1e100), low, high).astype(WIDE)
        totals = (inside @ w.astype(WIDE)).astype(float)
    kind = rng.integers(4)
    if kind == 0:
        options["total"] = None
    elif kind == 1 and n:
        options["total"], totals = totals[0], np.full(n, totals[0])
    else:
        options["total"] = laid_out(rng, totals)
    sizes = np.abs(totals[totals != 0])
    if kind and not ((SMALLEST <= sizes) & (sizes <= LARGEST)).all():
        return 0
    try:
        F = project_bounds(laid_out(rng, given), **options)
    except ValueError as error:
        assert extreme, error  # products of weights as far apart as the domain allows under- or overflow
        assert any(text in str(error) for text in UNREPRESENTABLE), error
        return n
    assert F.shape == (n, M) and F.dtype == np.float64
    assert (F >= low).all() and (F <= high).all(), "bounds are exact"
    if kind == 0:
        assert np.array_equal(F, np.clip(Z, low, high)), "without a total it is a clip"
        return n
    _check_total(F, w, totals)
    if not extreme:
        _check_optimal(F, Z, w, v, low, high, totals)
        moderate = n and 1e-280 < np.abs(totals[0]) < 1e9 and np.abs(Z).max() < 1e9
        if moderate and M <= 6 and rng.integers(8) == 0:
            _check_exact(F[0], Z[0], w, v, low, high, totals[0])
    settled = (violation(F, w[:, None], totals[:, None])[:, 0] <= 7 * EPS) & (np.abs(F).max(axis=1) >= SMALLEST)
    if settled.any() and not extreme:
        options["total"] = totals[settled]
        assert same_bits(project_bounds(F[settled], **options), F[settled]), "a field that satisfies both stays"
        options["total"] = totals
    if rng.integers(3) == 0:
        _check_out(rng, given, Z, F, options)
    return n


def _weights(rng, M):
    """weights, cell_weights (None: ones), and whether they are so far apart that products under- or overflow."""
    w = v = None
    kind = rng.integers(6)
    if kind == 1:
        w = rng.uniform(0.1, 3, M)
    elif kind == 2:
        w = rng.choice([0.0, 0.5, 1.0, 3.0], M)
    elif kind == 3:
        w = 10.0 ** rng.uniform(-5, 5, M)
    elif kind == 4 and rng.integers(8) == 0:
        w = 10.0 ** rng.uniform(-140, 140, M)
    if rng.integers(3) == 0:
        v = 10.0 ** rng.uniform(-4, 4, M)
    return w, v, kind == 4 and w is not None


def _limits(rng, M):
    kind = rng.integers(6)
    if kind < 2:
        return 0.0, (None, float(rng.uniform(0.5, 4)))[kind]
    if kind == 2:
        return None, None
    lower = rng.integers(-16, 9, M) / 8
    upper = lower + rng.choice([0.0, 0.125, 1.0, 3.0, np.inf], M)
    if kind == 3:
        lower[rng.random(M) < 0.5] = -np.inf
    elif kind == 4:
        lower, upper = lower * 10.0 ** rng.integers(-130, 90), upper * 1.0
        upper = np.maximum(lower, upper)
    return lower, upper


def _wrong_bounds(rng, Z, options, low):
    n, M = Z.shape
    kind = rng.integers(5)
    if kind == 0 and n:
        refused(lambda: project_bounds(spoiled(rng, Z), **options), "F must be finite")
    elif kind == 1:
        options["lower"] = np.where(np.isfinite(low), low, 0.0)
        options["upper"] = options["lower"] - np.maximum(1.0, np.abs(options["lower"]))
        refused(lambda: project_bounds(Z, **options), "exceeds its upper bound")
    elif kind == 2:
        options["weights"] = spoiled(rng, np.ones(M))
        refused(lambda: project_bounds(Z, **options), "weights must be")
    elif kind == 3:
        options["cell_weights"] = spoiled(rng, np.ones(M))
        refused(lambda: project_bounds(Z, **options), "cell_weights must be")
    elif n:
        options.update(lower=0.0, upper=1.0, weights=None, total=M * (1 + rng.uniform(1e-3, 5)))
        refused(lambda: project_bounds(Z, **options), "is out of reach")
    return 1


def _check_total(F, w, totals):
    W, wide = w.astype(WIDE), F.astype(WIDE)
    with quiet():
        within(wide @ W, totals, 1e-14 * (np.abs(wide) @ W + np.abs(totals)) + len(w) * UNIT, "the total")


def _check_optimal(F, Z, w, v, low, high, totals):
    """f = clip(z + t w / v, lower, upper) for one t a field, to the round-off of the total, which the free cells share
    (tests/test_bounds.py: one of least influence at worst)."""
    used = w > 0
    if not used.any():
        assert np.array_equal(F, np.clip(Z, low, high))
        return
    assert np.array_equal(F[:, ~used], np.clip(Z, low, high)[:, ~used])
    F, Z, low, high, w, v = (x[..., used].astype(WIDE) for x in (F, Z, low, high, w, v))
    d = w / v
    sizes = np.abs(F) + np.abs(Z)
    slack = 16 * EPS * (sizes / d + ((sizes @ w + np.abs(totals)) / (w * d).min())[:, None]) + 4 * UNIT / d
    with quiet():
        t = (F - Z) / d
    unit = len(w) * UNIT  # what rounding took from a subnormal total is given to single cells
    first = np.where(F > low + unit, t - slack, -np.inf)  # not at the lower bound: t is at least that
    last = np.where(F < high - unit, t + slack, np.inf)
    fixed = low == high
    first[:, fixed], last[:, fixed] = -np.inf, np.inf
    wrong = first.max(axis=1) > last.min(axis=1)
    assert not wrong.any(), f"field {int(np.argmax(wrong))} is not the nearest"


def _check_exact(f, z, w, v, low, high, total):
    if not w.any():
        return
    exact, t = exact_projection(z, w, v, low, high, total)
    d = w / v
    sizes = np.abs(z) + abs(float(t)) * d + np.abs([float(x) for x in exact])
    spread = (np.dot(w, sizes) + abs(total)) * d / min(a * b for a, b in zip(w, d) if a > 0)
    error = np.array([float(Fraction(a) - b) for a, b in zip(f.tolist(), exact)])
    within(error, 0.0, 16 * EPS * (sizes + spread) + 2 * len(z) * UNIT, "beside rational arithmetic")


def _check_out(rng, given, Z, F, options):
    n, M = F.shape
    memory = np.full((2 * n + 1) * M, np.nan)
    out = memory[:-M].reshape(2 * n, M)[: n or 0]
    assert project_bounds(given, out=out, **options) is out and same_bits(out, F)
    assert np.isnan(memory[n * M :]).all(), "written beyond out"
    own = Z.copy()
    assert same_bits(project_bounds(own, out=own, **options), F), "in place"
    shifted = np.zeros((n + 1) * M)
    shifted[: n * M] = Z.ravel()
    moved = shifted[M:].reshape(n, M)
    project_bounds(shifted[: n * M].reshape(n, M), out=moved, **options)
    assert same_bits(moved, F), "overlapping memory"
    if n == 1:
        assert same_bits(project_bounds(Z[0], **options), F[0])


# -- Invariants ------------------------------------------------------------------------------------
def invariants(rng):
    """AffineInvariants: C^T f = m to 1e-14, constant cells, no admissible field further. A field an input."""
    n, M, q = size(rng, (2, 9)), size(rng, (3, 40), (16, 17), (100, 300)), size(rng, (1, 5))
    C = _columns(rng, M, q)
    V = 10.0 ** rng.uniform(-1, 1, M) if rng.integers(2) else None
    constant = rng.random(M) < rng.choice([0.0, 0.2])
    constant[:2] = False
    F = rng.uniform(0, 1, (n, M)) * 10.0 ** rng.integers(-3, 4)
    F[:, constant] = rng.choice([0.0, 0.25, -3.5])
    # fields with the invariants of the first, moved by what cannot change them
    free = ~constant
    scaled = C[free] / np.maximum(np.abs(C).max(axis=0), 1e-300)
    U, sigma, _ = np.linalg.svd(scaled, full_matrices=False)
    Q = U[:, sigma > EPS * sigma[0]] if sigma[0] else U[:, :0]
    moves = F[:, free] - F[0, free]
    F[:, free] = F[0, free] + moves - moves @ Q @ Q.T
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        given = randsmap.invariants.InvariantParameters(invariants=C, cell_weights=V)
        held = randsmap.invariants.fit_estimator(given, F, F.dtype)
    assert (held.constant[constant]).all()
    G = F + rng.choice([1e-8, 1.0, 1e6]) * numbers(rng, (n, M), largest=1e6)
    projected = held.project(G.copy())
    worst = violation(projected, C, held.values).max()
    # a dropped column that is no combination of the others to round-off is told, with what it misses
    limit = max([1e-14] + [1e-15 + float(re.search(r"satisfy it to ([\d.e-]+)", str(w.message))[1]) for w in told])
    assert worst <= limit, f"invariants miss by {float(worst)} of their size"
    assert (projected[:, held.constant] == held.constant_values).all(), "constant cells"
    weights = (np.ones(M) if V is None else V).astype(WIDE)
    before = np.sqrt((weights * (G.astype(WIDE) - F) ** 2).sum(axis=1))
    after = np.sqrt((weights * (projected.astype(WIDE) - F) ** 2).sum(axis=1))
    # F itself satisfies its invariants to round-off alone, of a system of this condition
    T = held.triangle / np.maximum(np.linalg.norm(held.triangle, axis=0), 1e-300)
    condition = np.linalg.cond(T) if len(T) else 1.0
    slack = 1e3 * EPS * condition * np.sqrt((weights * (F.astype(WIDE) ** 2 + G.astype(WIDE) ** 2)).sum(axis=1))
    assert (after <= before * (1 + 1e-12) + slack).all(), "an admissible field is further than before"
    for i in range(n):
        assert same_bits(held.project(G[i : i + 1].copy()), projected[i : i + 1]), "a row depends on the others"
    return n


def _columns(rng, M, q):
    """Invariants (M, q): ones, of either sign, local, zero, dependent ones, of scales that are far apart."""
    columns = []
    for _ in range(q):
        kind = rng.integers(6)
        if kind == 0 and columns:
            c = np.array(columns).T @ rng.integers(-3, 4, len(columns))
        elif kind == 1:
            c = np.zeros(M)
        elif kind == 2:
            c = np.where(np.arange(M) < M // 2, rng.uniform(0.5, 2, M), 0.0)
        elif kind == 3:
            c = rng.uniform(0.5, 2, M)
        elif kind == 4:
            c = rng.normal(size=M)
        else:
            c = np.ones(M)
        columns.append(c * 10.0 ** rng.integers(-6, 7))
    return np.array(columns).T


TARGETS = bounds, invariants

"""Elementary functions, and functions of points: features, distances, radial kernels, neighbours, convex weights."""

from __future__ import annotations

import numpy as np

from randsmap import FourierFeatures, MaternFeatures, MonomialFeatures, MultiscaleFourierFeatures, SigmoidFeatures
from randsmap._kernels import distances as distance_kernels
from randsmap._kernels import simplex, vecmath
from randsmap._kernels.features import COSINE
from randsmap._linalg.distances import (
    centred_points,
    fill_pairs,
    gaussian_kernel,
    kernel_sums,
    pairs_within,
    squared_distances,
)
from randsmap._linalg.neighbors import NeighborIndex

from fuzz_targets.inputs import (
    EPS,
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
    within,
)
from oracles import AT_ITSELF, ELEMENTARY, PLAIN, RADIAL, STEEPEST, brute_force, enumerate_faces, multi_gaussian, ulp

DIRECT = distance_kernels.DIRECT_DIM  # up to so many coordinates distances are sums of squares, beyond also products


# -- Elementary functions --------------------------------------------------------------------------
def elementary(rng):
    """cos, exp, log and logistic function of any numbers: to 2 units in the last place. A number an input."""
    name = list(ELEMENTARY)[rng.integers(len(ELEMENTARY))]
    n = size(rng, (0, 9), (10, 300))
    x = rng.uniform(-760, 720, n) if rng.integers(3) == 0 else numbers(rng, (n,), 1e307)
    x[rng.random(n) < rng.choice([0.0, 0.1])] = rng.choice([np.nan, np.inf, -np.inf, 0.0, -0.0])
    if name == "log":  # of normal numbers alone
        x = np.clip(np.nan_to_num(np.abs(x), nan=1.0), np.finfo(float).tiny, None)
    memory = np.full(n + 2, 7.0)
    out = memory[1:-1]
    getattr(vecmath, name)(x, out)
    assert memory[0] == memory[-1] == 7.0, "written beyond out"
    with quiet():
        exact = ELEMENTARY[name](x.astype(WIDE))
        exact = np.where(np.isfinite(exact.astype(float)), exact, exact.astype(float))
        assert np.array_equal(np.isnan(out), np.isnan(exact)), "NaN"
        defined = ~np.isnan(exact)
        bound = 2 * ulp(exact[defined].astype(float))
    within(out[defined], exact[defined], bound, name)
    getattr(vecmath, name)(x, x)
    assert np.array_equal(x, out, equal_nan=True), "in place"
    return n


# -- Features --------------------------------------------------------------------------------------
def features(rng):
    """Feature maps and their derivatives against the formula. A point an input."""
    n, d, P = size(rng, (1, 3), (4, 30)), size(rng, (1, 4), (5, 18)), size(rng, (1, 9), (10, 130))
    given, X = in_single(rng, numbers(rng, (n, d), largest=1e12))
    if rng.integers(8) == 0:
        return _monomials(rng, X)
    maps = (
        FourierFeatures(10.0 ** rng.uniform(-1, 1), n_features=P, paired=bool(rng.integers(2)), random_state=0),
        FourierFeatures(rng.uniform(0.5, 2, d), n_features=P, orthogonal=bool(rng.integers(2)), random_state=1),
        MaternFeatures(1.0, nu=float(rng.choice([0.5, 1.5, 2.5])), n_features=P, random_state=2),
        MultiscaleFourierFeatures(3.0, n_features=P, random_state=3),
        SigmoidFeatures(10.0 ** rng.uniform(-1, 2), n_features=P, random_state=4),
    )
    features = maps[rng.integers(len(maps))].fit(rng.normal(size=(3, d)))
    if rng.integers(10) == 0:
        refused(lambda: features.transform(spoiled(rng, X)), "NaN", "infinity", "finite")
        refused(lambda: features.transform(X[:, :-1] if d > 1 else np.hstack([X, X])), "features", "columns")
        return 1
    activation, W, b, scale = features.activation_parameters()
    presented = laid_out(rng, given)
    got = features.transform(presented)
    t = X.astype(WIDE) @ W.astype(WIDE) + b
    argument_error = (d + 2) * EPS * (np.abs(X) @ np.abs(W) + np.abs(b))
    with quiet():
        value = scale * PLAIN[activation](t)
    # the steepest slope times the error of the argument; an activation is between -1 and 1
    bound = scale * np.minimum(argument_error * STEEPEST[activation] + 4 * EPS, 2)
    assert (np.abs(got) <= scale * (1 + (2.0**-23 if got.dtype == np.float32 else 4 * EPS))).all()
    if got.dtype == np.float32:
        bound = bound + np.abs(value) * 2.0**-24 + 1e-45
    if isinstance(presented, np.ndarray) and presented.dtype.isnative:
        assert got.dtype == given.dtype
    within(got, value, bound, type(features).__name__)
    out = np.full((n, P), np.nan, given.dtype)
    assert features.transform(given, out=out) is out
    within(out, value, bound + (given.dtype == np.float32) * (np.abs(value) * 2.0**-24 + 1e-45), "out")
    if activation == COSINE:
        slope, second = -np.sin(t), 1.0
    else:
        with quiet():
            slope, second = np.where(np.abs(t) < 1e4, 1 / (2 + np.exp(t) + np.exp(-t)), 0), 0.1
    wide = scale * np.abs(W.T[None]).astype(WIDE)
    bound = (np.minimum(argument_error * second + 8 * EPS, 2))[:, :, None] * wide + UNIT
    within(features.jacobian(X), scale * slope[:, :, None] * W.T, bound, "the derivative")
    return n


def _monomials(rng, X):
    X = X[:, :3] * min(1.0, 1e3 / max(np.abs(X).max(), 1e-300))
    centres = rng.normal(size=(5, X.shape[1]))
    features = MonomialFeatures(int(rng.integers(1, 5))).fit(centres)
    powers = _powers(X.shape[1], features.degree)
    x = X.astype(WIDE) - centres.mean(axis=0, dtype=WIDE)
    Z, value = features.transform(X), np.stack([np.prod(x**p, axis=1) for p in powers], axis=1)
    # each factor carries the round-off of a mean and of a difference, each product its own
    size_of_x = np.abs(X) + np.abs(centres).max(axis=0)
    largest = np.stack([np.prod(size_of_x**p, axis=1) for p in powers], axis=1)
    within(Z, value, 8 * features.degree * EPS * largest + UNIT, "monomials")
    return len(X)


def _powers(d, degree):
    from itertools import combinations_with_replacement

    return [
        np.bincount(which, minlength=d)
        for k in range(1, degree + 1)
        for which in combinations_with_replacement(range(d), k)
    ]


# -- Distances -------------------------------------------------------------------------------------
def _points(rng, largest=1e139):
    n, m = size(rng, (0, 1), (1, 9), (10, 40)), size(rng, (1, 12), (13, 60))
    dim = size(rng, (1, 5), (DIRECT - 1, DIRECT + 2), (20, 70))
    X, Z = numbers(rng, (n, dim), largest), numbers(rng, (m, dim), largest)
    if rng.integers(2):  # near one another
        Z = Z[:1] + numbers(rng, (m, dim), 1.0) * np.abs(Z[:1]).max() * 10.0 ** rng.uniform(-9, 0)
        X = Z[rng.integers(m, size=n)] * (1 + EPS * rng.integers(0, 2, (n, dim)))
    return X, Z


def _squared(X, Z):
    X, Z = X.astype(WIDE), Z.astype(WIDE)
    return ((X[:, None] - Z[None]) ** 2).sum(axis=2)


def _distance_error(D, dim):
    """Of direct sums of dim squares; or of products, which err by some 2 eps (|x|^2 + |z|^2) <= 2^10 eps D."""
    return (dim + 3 + 2048 * (dim > DIRECT)) * EPS * D + (dim + 1024) * UNIT


def distances(rng):
    """Squared distances, Gaussian kernels, their sums, pairs within reach: 1e-13 of each. A row of the result an input.

    Relative, however far the points are from the origin; symmetric to the bit.
    """
    X, Z = _points(rng)
    dim, exact = X.shape[1], _squared(X, Z)
    within(squared_distances(X, Z), exact, _distance_error(exact, dim), "squared distances")
    itself = squared_distances(Z)
    assert np.array_equal(itself, itself.T) and not np.diag(itself).any()
    assert same_bits(squared_distances(Z, Z.copy()), itself), "an equal copy"
    within(itself, _squared(Z, Z), _distance_error(_squared(Z, Z), dim), "distances of a set")
    epsilon = float(np.clip(np.sqrt(np.median(itself)), 1e-140, 1e140)) * 10.0 ** rng.uniform(-1, 1)
    if np.isfinite(epsilon) and 1e-149 < epsilon < 1e149:
        _check_gaussian(rng, X, Z, epsilon)
    if len(X):
        _check_pairs(rng, X, Z, itself)
    return len(X) + len(Z)


def _check_gaussian(rng, X, Z, epsilon):
    dim, t = X.shape[1], _squared(X, Z) / WIDE(epsilon) ** 2
    K = gaussian_kernel(X, Z, epsilon=epsilon)
    exact, error = np.exp(-t), _kernel_error(t, dim)
    near_limit = exact < 1.001e-300
    within(np.where(near_limit, 0, K), np.where(near_limit, 0, exact), error, "Gaussian kernel")
    assert ((K == 0) | (K >= 0.999e-300)).all()
    if not len(X):
        return
    points = centred_points(Z)
    centre = points[2]
    weights = rng.normal(size=(size(rng, (1, 4)), len(Z)))
    S = kernel_sums(X, points, weights, epsilon)
    # the points themselves are moved by half an ulp where the centre does not subtract exactly
    extent = [np.abs(A).max(axis=1) + np.abs(centre).max() for A in (X, Z)]
    with quiet():
        distance, moved = np.sqrt(t), 2 * EPS * np.sqrt(WIDE(dim)) * np.add.outer(*extent) / epsilon
        nearer, further = np.exp(-(np.maximum(distance - moved, 0) ** 2)), np.exp(-((distance + moved) ** 2))
        slack = np.abs(weights) @ (error + np.maximum(nearer - exact, exact - further)).T
    within(S.T, weights @ exact.T, slack + len(Z) * EPS * (np.abs(weights) @ exact.T) + 1e-299, "sums of the kernel")


def _kernel_error(t, dim):
    """Of exp(-t): that of its exponent and its own. Of products (distances.c) the exponent's is 2^11 eps, and what is
    below 4e-18 has none that is told."""
    products = dim > DIRECT
    with quiet():
        return np.exp(-t) * ((dim + 5) * EPS * t + (8 + 2048 * products) * EPS) + (5e-18 if products else 1e-300)


def _check_pairs(rng, X, Z, itself):
    exact = _squared(X, Z)
    reach = float(np.median(itself)) or 1.0
    x_reach, z_reach = reach * rng.random(len(X)), reach * rng.random(len(Z))
    x_reach[rng.random(len(X)) < 0.1] = np.inf
    points = centred_points(Z)
    centre = points[2]
    with quiet():
        shift = 4 * EPS * (np.abs(Z).max() + np.abs(centre).max() + np.abs(X).max()) * np.sqrt(X.shape[1])
        error = _distance_error(exact, X.shape[1]) + 2 * np.sqrt(exact) * shift + shift**2
    i, j, D = pairs_within(X, points, x_reach, z_reach)
    found = np.zeros(exact.shape, bool)
    found[i, j] = True
    limit = np.maximum(x_reach[:, None], z_reach)
    assert found[exact + error < limit].all(), "a pair within reach is missing"
    assert not found[exact - error > limit].any(), "a pair out of reach"
    within(D, exact[i, j], error[i, j], "distances of pairs")


def radial(rng):
    """Radial kernels and their slopes by the formula. A row an input."""
    name = list(RADIAL)[rng.integers(len(RADIAL))]
    scale, *functions = RADIAL[name]
    X, Z = _points(rng, largest=1e3)
    dim, kernel = X.shape[1], getattr(distance_kernels, name)
    other = None if rng.integers(2) else Z
    X = Z if other is None else X
    t = WIDE(scale) * _squared(X, Z)
    distinct = t > 0
    for slopes in (False, True):
        got = fill_pairs(X, other, scale, np.full(t.shape, np.nan), kernel, slopes)
        itself = AT_ITSELF[name][slopes]
        products = 2048 * EPS * (dim > DIRECT)  # of points that are equal, but not the same
        within(got[~distinct], itself, (2 * EPS * slopes + products) * abs(itself), f"{name} of a point with itself")
        if other is None:
            assert np.array_equal(got, got.T)
        factor, function, s = WIDE(scale) if slopes else WIDE(1), functions[slopes], t[distinct]
        with quiet():
            exact = factor * function(s)
            # what a relative error of t does, by a difference
            condition = np.abs(factor * function(s * WIDE(1 + 1e-6)) - exact) / 1e-6
            bound = ((dim + 3 + 2048 * (dim > DIRECT)) * condition + 8 * np.abs(exact)) * EPS
            if name == "GAUSSIAN" and not slopes:
                bound = _kernel_error(s, dim)
            # t of subnormal squares has no digits
            bound = np.where(s < 1e-290, np.maximum(bound, np.abs(exact) + np.abs(itself)), bound)
        limit = 1e-300 * (abs(itself) or 1) * max(1.0, scale)
        within(got[distinct], exact, bound + 1.001 * limit, f"{name}{' slope' if slopes else ''}")
    return len(X)


def multi_gaussians(rng):
    """The multi-Gaussian kernel and its slope in high precision. A distance an input."""
    n = size(rng, (1, 12))
    low = float(rng.choice([0.0, 10.0 ** rng.uniform(-3, 1)]))
    high = max(low, 1e-3) * (1 + 10.0 ** rng.uniform(-8, 3))
    D = 10.0 ** rng.uniform(-24, 8, n) / high**2
    for slopes in (False, True):
        got = np.concatenate([D, [0.0]])  # a lane that takes another branch
        distance_kernels.multi_gaussian(got, low, high, slopes)
        exact = np.array([float(multi_gaussian(x, low, high)[slopes]) for x in D])
        exponent = low * low * D  # of the slowest Gaussian, which carries its rounding into the value
        error = (60 + 20 * exponent if slopes else 12 + 2 * exponent) * EPS * exact
        within(
            (1 - 2 * slopes) * got[:n], exact, np.maximum(error, 1.001e-300 * max(1.0, high**2)), f"slopes: {slopes}"
        )
    return n


# -- Neighbours ------------------------------------------------------------------------------------
def neighbours(rng):
    """Exact k nearest neighbours: the bits of a plain search, ties by index. A query an input."""
    d, n = size(rng, (1, 6), (7, 12)), size(rng, (1, 9), (10, 120), (10, 120), (200, 600))
    points = numbers(rng, (n, d), 1e139)
    queries = np.concatenate([points[rng.integers(n, size=7)], numbers(rng, (size(rng, (0, 25)), d), 1e139)])
    if rng.integers(2):
        queries[7:] = points.mean(axis=0) / 2 + points[rng.integers(n, size=len(queries) - 7)] / 2
    index = NeighborIndex(points)
    for k in {1, size(rng, (1, min(n, 13))), size(rng, (1, n)) if n < 150 else min(n, 33)}:
        distance, which = index.query(queries, k)
        with quiet():
            expected = brute_force(points, queries, k)
        assert np.array_equal(which, expected[1]), f"k={k}: other neighbours"
        assert np.array_equal(distance, expected[0]), f"k={k}: other distances"
    return len(queries)


# -- Convex weights --------------------------------------------------------------------------------
def weights(rng):
    """Weights of the k-NN decoder: on the simplex, the nearest point of the hull, the least norm. A point an input."""
    k, d = size(rng, (1, 4), (5, 12)), size(rng, (1, 4), (5, 9))
    m = size(rng, (1, 12))
    kind = rng.integers(4)
    P = rng.normal(size=(k, d))
    if kind == 1:
        P = rng.integers(0, 3, (k, d)).astype(float)
    elif kind == 2:
        P = rng.normal(size=(k, 1)) * rng.normal(size=(1, d)) + 3
    Y = rng.normal(size=(m, d)) * rng.choice([0.2, 1, 5])
    if rng.integers(2):
        Y = rng.dirichlet(np.ones(k), m) @ P
    unit = 10.0 ** rng.integers(-100, 100)
    a = np.full((m, k), np.nan)
    simplex.latent(P * unit, Y * unit, np.tile(np.arange(k), (m, 1)).astype(np.intp), a)
    assert (a >= 0).all() and (np.abs(a.sum(axis=1) - 1) <= 4 * EPS).all()
    # the nearest point of the hull: no vertex is further along the residual (tests/test_simplex.py)
    gradient = (a @ P - Y) @ P.T
    tolerance = 1e-10 * d * (1 + np.abs(P).max() + np.abs(Y).max()) ** 2
    assert (gradient.min(axis=1) >= (gradient * a).sum(axis=1) - tolerance).all(), "not the nearest point"
    if k <= 4:
        for y, b in zip(Y[:2], a[:2]):
            residual, norm, _ = enumerate_faces(P, y)
            extent = 1 + np.abs(P).max() + np.abs(y).max()
            assert np.linalg.norm(y - b @ P) <= residual + 1e-8 * extent
            assert b @ b <= norm + 1e-7, "weights of a smaller norm"
    F = numbers(rng, (k, size(rng, (1, 40))), 1e100)
    mixed = np.full((m, F.shape[1]), np.nan)
    simplex.mix(F, np.tile(np.arange(k), (m, 1)).astype(np.intp), a, mixed)
    size_of_terms = a.astype(WIDE) @ np.abs(F).astype(WIDE)
    within(mixed, a.astype(WIDE) @ F, (k + 2) * EPS * size_of_terms + k * UNIT, "mixtures")
    return m


TARGETS = elementary, features, distances, radial, multi_gaussians, neighbours, weights

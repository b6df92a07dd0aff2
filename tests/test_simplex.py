"""Weights of the k-NN decoder against an enumeration of all faces, and scipy's SLSQP."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from randsmap._kernels import simplex as kernel

from oracles import encode, enumerate_faces

pytestmark = pytest.mark.kernels

EPS = np.finfo(float).eps


def latent_weights(P, y):
    weights = np.empty((1, len(P)))
    kernel.latent(
        np.ascontiguousarray(P, float), np.array(y, float)[None], np.arange(len(P))[None].astype(np.intp), weights
    )
    return weights[0]


def assert_on_simplex(a):
    assert a.min() >= 0
    assert abs(a.sum() - 1) <= 4 * EPS


def points(rng, kind, k, d):
    if kind == "general":
        return rng.normal(size=(k, d)), rng.normal(size=d) * rng.choice([0.2, 1, 5])
    if kind == "lattice":  # duplicates, points on edges and at corners
        return rng.integers(0, 3, (k, d)).astype(float), rng.integers(0, 5, d) / rng.choice([1, 2, 4])
    if kind == "line":
        P = rng.normal(size=(k, 1)) * rng.normal(size=(1, d)) + 3
        return P, P[rng.integers(k)] + rng.choice([0, 0.1]) * rng.normal(size=d)
    P = rng.normal(size=(k, d))  # inside
    return P, rng.dirichlet(np.ones(k)) @ P


@pytest.mark.slow
@settings(deadline=None, max_examples=250)
@given(
    st.sampled_from(["general", "lattice", "line", "inside"]),
    st.integers(1, 7),
    st.integers(1, 4),
    st.integers(0, 2**32 - 1),
)
def test_residual_and_norm_are_least(kind, k, d, seed):
    P, y = points(np.random.default_rng(seed), kind, k, d)
    a = latent_weights(P, y)
    residual, norm, _ = enumerate_faces(P, y)
    assert_on_simplex(a)
    scale = 1 + np.abs(P).max() + np.abs(y).max()
    assert np.linalg.norm(y - a @ P) <= residual + 1e-8 * scale
    assert a @ a <= norm + 1e-7


@pytest.mark.parametrize(
    "y, expected",
    [
        ([0.25, 0.25], [0.5, 0.25, 0.25]),  # inside: barycentric
        ([1.0, 1.0], [0, 0.5, 0.5]),  # outside: projection on the edge
        ([2.0, 0.0], [0, 1, 0]),  # outside: nearest vertex
        ([1.0, 0.0], [0, 1, 0]),  # on a vertex
    ],
)
def test_triangle(y, expected):
    a = latent_weights(np.array([[0.0, 0], [1, 0], [0, 1]]), y)
    np.testing.assert_allclose(a, expected, atol=4 * EPS)


def test_duplicates_share_the_weight():
    a = latent_weights(np.array([[1.0], [1.0], [0.0], [1.0]]), [1.0])
    np.testing.assert_allclose(a, [1 / 3, 1 / 3, 0, 1 / 3], atol=4 * EPS)
    np.testing.assert_allclose(latent_weights(np.ones((4, 2)), [3.0, 1.0]), 0.25, atol=4 * EPS)


def test_coordinates_spanned_by_rounding_only_do_not_count():
    t = np.linspace(0, 1, 5)[:, None]
    P = 1e3 + t * np.array([[0.3, 0.7]])  # off the line by rounding errors of 1e-13
    a = latent_weights(P, P[2] + [1e-10, 0])
    np.testing.assert_allclose(a, 0.2, atol=1e-5)


def test_middle_of_a_square():
    square = np.array([[0.0, 0], [1, 0], [1, 1], [0, 1]])
    np.testing.assert_allclose(latent_weights(square, [0.5, 0.5]), 0.25, atol=4 * EPS)
    np.testing.assert_allclose(latent_weights(square, [0.5, 0.0]), [0.5, 0.5, 0, 0], atol=4 * EPS)


@pytest.mark.parametrize("k, d", [(40, 2), (60, 3), (8, 200), (300, 1)])
def test_many_points_and_many_dimensions_satisfy_the_optimality_conditions(k, d):
    rng = np.random.default_rng(k)
    P = rng.normal(size=(k, d))
    for y in rng.normal(size=(20, d)) * np.linspace(0.1, 3, 20)[:, None]:
        a = latent_weights(P, y)
        assert_on_simplex(a)
        gradient = P @ (a @ P - y)  # equal on the support, not lower elsewhere
        tolerance = 1e-10 * (1 + np.abs(P).max()) ** 2 * d
        assert gradient.min() >= gradient @ a - tolerance
        residual = y - a @ P
        if np.linalg.norm(residual) < 1e-10:
            # among zeros: a is the positive part of an affine function of the points
            used = a > 1e-9
            affine = np.column_stack([np.ones(k), P])
            c = np.linalg.lstsq(affine[used], a[used], rcond=None)[0]
            np.testing.assert_allclose(np.maximum(affine @ c, 0), a, atol=1e-7)


def test_one_neighbour():
    assert latent_weights(np.array([[3.0, 4.0]]), [0.0, 0.0]).tolist() == [1.0]


def test_no_rows():
    kernel.latent(np.zeros((2, 1)), np.zeros((0, 1)), np.zeros((0, 2), np.intp), np.zeros((0, 2)))
    kernel.mix(np.zeros((2, 3)), np.zeros((0, 2), np.intp), np.zeros((0, 2)), np.zeros((0, 3)))


def test_mix_is_the_weighted_sum():
    rng = np.random.default_rng(0)
    F = rng.normal(size=(9, 2500))
    neighbors = rng.integers(0, 9, (7, 4))
    weights = rng.dirichlet(np.ones(4), 7)
    out = np.full((7, 2500), np.nan)
    kernel.mix(F, neighbors, weights, out)
    np.testing.assert_allclose(out, np.einsum("lk,lkm->lm", weights, F[neighbors]), atol=8 * EPS * np.abs(F).max())


def nystroem_terms(seed, n=200, d=2, k=5):
    """Rows of -D/eps^2, offsets and values of a made-up extension; smooth in the latent points."""
    rng = np.random.default_rng(seed)
    latents = rng.uniform(-1, 1, (n, d))
    fields = np.column_stack([latents, 0.3 * latents**2, np.sin(2 * latents)])
    rows = -((fields[:, None] - fields) ** 2).sum(-1) / 0.5
    offset = -np.log(np.exp(rows).sum(1))
    values = np.ascontiguousarray((1.2 * latents).T)
    return rng, rows, offset, values


@pytest.mark.parametrize("d, k", [(1, 2), (2, 3), (2, 6), (3, 7)])
def test_encoder_weights_are_never_worse_than_slsqp(d, k):
    from scipy.optimize import minimize

    rng, rows, offset, values = nystroem_terms(d + 10 * k, d=d)
    n = len(offset)
    encoded = np.stack([encode(rows, offset, values, [i], np.ones(1))[0] for i in range(n)])
    targets = encoded[:25] + 0.05 * rng.normal(size=(25, d))
    distances = ((targets[:, None] - encoded) ** 2).sum(-1)
    neighbors = np.ascontiguousarray(np.argsort(distances, axis=1, kind="stable")[:, :k])
    weights, start = np.empty((25, k)), np.empty((25, k))
    kernel.encoder(rows, offset, values, encoded, targets, neighbors, neighbors, weights)
    kernel.latent(encoded, targets, neighbors, start)
    for y, row, a, latent in zip(targets, neighbors, weights, start):
        assert_on_simplex(a)

        def objective(x):
            psi, J = encode(rows, offset, values, row, x)
            return (psi - y) @ (psi - y), 2 * J.T @ (psi - y)

        best, x_best = np.inf, None
        for x in (np.full(k, 1 / k), np.eye(k)[0], latent):
            x = minimize(
                objective,
                x,
                jac=True,
                method="SLSQP",
                bounds=[(0, 1)] * k,
                constraints={"type": "eq", "fun": lambda x: x.sum() - 1, "jac": lambda x: np.ones(len(x))},
                options={"ftol": 1e-15, "maxiter": 300},
            ).x
            x = np.maximum(x, 0) / np.maximum(x, 0).sum()
            value = objective(x)[0]
            if value < best:
                best, x_best = value, x
        assert np.sqrt(objective(a)[0]) <= np.sqrt(best) + 1e-9
        if k == d + 1:  # unique, unless the neighbours are near a line
            spread = np.linalg.svd(encode(rows, offset, values, row, a)[1], compute_uv=False)
            if spread[-1] > 1e-2:
                np.testing.assert_allclose(a, x_best, atol=1e-5)


def test_encoder_weights_use_neighbours_evenly_where_the_minimiser_is_not_unique():
    _, rows, offset, values = nystroem_terms(5)
    encoded = np.stack([encode(rows, offset, values, [i], np.ones(1))[0] for i in range(len(offset))])
    k = 8
    y = encoded.mean(0, keepdims=True)
    neighbors = np.argsort(((encoded - y) ** 2).sum(1), kind="stable")[None, :k].copy()
    weights = np.empty((1, k))
    kernel.encoder(rows, offset, values, encoded, y, neighbors, neighbors, weights)
    psi, J = encode(rows, offset, values, neighbors[0], weights[0])
    assert np.linalg.norm(psi - y[0]) < 1e-12
    # no step within the linearised zero set lowers |a|^2 (to first order in the curvature)
    linear = latent_weights(J.T, J @ weights[0])
    assert weights[0] @ weights[0] <= linear @ linear * (1 + 1e-3)

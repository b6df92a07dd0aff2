"""Local linear regression residuals against a plain transcription, and the selections they make."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import eigh
from scipy.spatial.distance import pdist, squareform

from randsmap.datasets import make_lwr, make_rotated_images, make_s_curve, make_swiss_roll
from randsmap.encoders import estimate_n_components
from randsmap.encoders._harmonics import local_linear_residuals, non_harmonic_selection


def residuals_by_least_squares(V):
    """Dsilva et al. 2018, one regression a point by an orthogonal factorisation."""
    n = len(V)
    residuals = [1.0]
    for k in range(1, V.shape[1]):
        X, y = V[:, :k], V[:, k]
        bandwidth = np.median(pdist(X)) / 3
        root = np.exp(-squareform(pdist(X, "sqeuclidean")) / bandwidth**2 / 2)
        error = np.empty(n)
        for i in range(n):
            others = np.arange(n) != i
            A = np.column_stack((np.ones(n), X - X[i]))[others] * root[i, others, None]
            error[i] = y[i] - np.linalg.lstsq(A, y[others] * root[i, others], rcond=None)[0][0]
        residuals.append(np.linalg.norm(error) / np.linalg.norm(y))
    return np.array(residuals)


def diffusion_maps(F, scale, n_modes):
    """Eigenvectors (trivial one 1) of diffusion maps with alpha = 1, plain NumPy."""
    distance = pdist(F)
    K = np.exp(-(squareform(distance) ** 2) / (scale * np.median(distance)) ** 2)
    q = K.sum(axis=1)
    K /= np.outer(q, q)
    d = K.sum(axis=1)
    n = len(F)
    _, v = eigh(K / np.sqrt(np.outer(d, d)), subset_by_index=[n - 1 - n_modes, n - 1])
    v = v[:, ::-1]
    return v[:, 1:] / v[:, :1]


def width_resolved(latents, width, n_neighbors=6):
    """R^2 of the width predicted by the mean of the nearest other points in the latent plane."""
    latents = latents / latents.std(axis=0)
    distance = squareform(pdist(latents))
    np.fill_diagonal(distance, np.inf)
    nearest = np.argsort(distance, axis=1)[:, :n_neighbors]
    error = width[nearest].mean(axis=1) - width
    return 1 - (error**2).sum() / ((width - width.mean()) ** 2).sum()


@pytest.mark.parametrize("kind", ["strip", "curve", "noise"])
def test_agrees_with_one_least_squares_problem_a_point(kind):
    rng = np.random.default_rng(0)
    x, y = rng.random((2, 300))
    V = {
        "strip": np.column_stack(
            [np.cos(np.pi * a * x) * np.cos(np.pi * b * y) for a, b in ((1, 0), (2, 0), (0, 1), (3, 0), (1, 1), (4, 0))]
        ),
        "curve": np.column_stack([np.cos(np.pi * k * x) for k in range(1, 7)]),
        "noise": rng.standard_normal((300, 4)),
    }[kind]
    # normal equations: eps times the squared condition of the local planes, at most 1e5 here
    np.testing.assert_allclose(local_linear_residuals(V), residuals_by_least_squares(V), rtol=0, atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("n, seed", [(1000, 0), (1000, 1), (600, 2)])
def test_swiss_roll_keeps_the_leading_pair(n, seed):
    roll = make_swiss_roll(n, random_state=seed)
    selected, residuals = non_harmonic_selection(diffusion_maps(roll.data, 0.12, 8), 2)
    assert selected.tolist() == [1, 2]
    assert residuals[1] > 3 * residuals[2:].max()


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 3])
def test_s_curve_pair_resolves_the_width(seed):
    curve = make_s_curve(1000, random_state=seed)
    V = diffusion_maps(curve.data, 0.2, 14)
    selected, _ = non_harmonic_selection(V, 2)
    width = curve.coordinates[:, 1]
    assert selected[0] == 1 and 8 <= selected[1] <= 14
    assert width_resolved(V[:, selected - 1], width) > 0.5
    assert width_resolved(V[:, [0, 2]], width) < 0.1  # the pair in the paper's caption


def test_the_first_is_selected_even_if_later_ones_are_predicted_worse_than_by_zero():
    V = np.random.default_rng(0).standard_normal((60, 6))
    selected, residuals = non_harmonic_selection(V, 2)
    assert (residuals[1:] > 1).any() and selected[0] == 1


def test_functions_of_earlier_coordinates_score_low_new_ones_high():
    rng = np.random.default_rng(1)
    x, y = rng.random((2, 800))
    V = np.column_stack(
        (
            np.cos(np.pi * x),
            np.cos(2 * np.pi * x),
            np.cos(np.pi * y),
            np.cos(np.pi * x) * np.cos(np.pi * y),
            np.cos(2 * np.pi * y),
        )
    )
    selected, residuals = non_harmonic_selection(V, 2)
    assert selected.tolist() == [1, 3]
    assert residuals[0] == 1
    assert residuals[2] > 0.9 and residuals[[1, 3, 4]].max() < residuals[2] / 2
    assert non_harmonic_selection(V, 5)[0].tolist() == [1, 2, 3, 4, 5]


@settings(deadline=None, max_examples=25)
@given(seed=st.integers(0, 2**32 - 1), exponent=st.integers(-40, 40))
def test_neither_signs_nor_a_common_scale_nor_the_order_of_points_matter(seed, exponent):
    rng = np.random.default_rng(seed)
    x, y = rng.random((2, 120))
    V = np.column_stack((np.cos(np.pi * x), np.cos(np.pi * y), np.cos(2 * np.pi * x)))
    signs = rng.choice([-1.0, 1.0], 3)
    expected = local_linear_residuals(V)
    # powers of two are exact; only BLAS's order of summation may differ with the signs
    np.testing.assert_allclose(local_linear_residuals(V * signs * 2.0**exponent), expected, rtol=1e-8)
    order = rng.permutation(120)
    np.testing.assert_allclose(local_linear_residuals(V[order]), expected, rtol=1e-8)


def test_more_points_than_max_samples_uses_a_fixed_subset():
    x = np.random.default_rng(0).random((5000, 2))
    V = np.column_stack((np.cos(np.pi * x[:, 0]), np.cos(2 * np.pi * x[:, 0]), np.cos(np.pi * x[:, 1])))
    first = local_linear_residuals(V, max_samples=400)
    assert (first == local_linear_residuals(V, max_samples=400)).all()
    np.testing.assert_allclose(first, local_linear_residuals(V, max_samples=1500), atol=0.1)


@pytest.mark.parametrize(
    "V",
    [
        np.column_stack((np.r_[np.zeros(40), 1.0], np.arange(41.0) - 20)),  # coinciding points
        np.column_stack((np.r_[np.zeros(20), 1e3 * np.arange(1, 21)], np.arange(40.0) - 20)),
        np.column_stack((np.r_[0.0, 1.0, 2.0], np.r_[1.0, -1.0, 3.0])),
        np.column_stack((np.arange(30.0),) * 3 + (np.arange(30.0) ** 2,)),  # dependent columns
    ],
)
def test_degenerate_points_stay_finite(V):
    residuals = local_linear_residuals(V)
    assert np.isfinite(residuals).all() and (residuals >= 0).all()


def test_input_is_neither_changed_nor_required_to_be_contiguous():
    V = np.random.default_rng(0).standard_normal((3, 50)).T
    V.flags.writeable = False
    copy = V.copy()
    local_linear_residuals(V)
    assert (V == copy).all()


def test_an_eigenvector_of_zeros_is_refused():
    with pytest.raises(ValueError, match="eigenvector 1 is zero"):
        non_harmonic_selection(np.zeros((4, 2)), 1)


def circle(n, seed):
    angle = np.random.default_rng(seed).uniform(0, 2 * np.pi, n)
    return np.column_stack((np.cos(angle), np.sin(angle)))


def curve(n, seed):
    t = np.random.default_rng(seed).uniform(0, 3, n)
    return np.column_stack((t, np.sin(3 * t), np.cos(2 * t)))


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize(
    "make, expected",
    [
        (partial(circle, 300), 2),
        (partial(curve, 300), 1),
        (lambda seed: make_swiss_roll(1000, random_state=seed).data, 2),
        (lambda seed: make_s_curve(1000, random_state=seed).data, 2),
        (lambda seed: make_rotated_images(200, random_state=seed).data, 2),
        (lambda seed: make_lwr(100, snapshots_per_trajectory=10, random_state=seed).data, 2),
        (lambda seed: np.random.default_rng(seed).random((800, 3)), 3),
    ],
    ids=["circle", "curve", "Swiss roll", "S-curve", "images", "traffic", "cube"],
)
def test_number_of_components(make, expected, seed):
    assert estimate_n_components(make(seed)) == expected


def test_number_of_components_of_few_or_equal_snapshots():
    assert estimate_n_components(np.eye(3)) == 1
    assert estimate_n_components(np.random.default_rng(0).random((1000, 4)), max_components=2) == 2
    twice = np.repeat(curve(150, 0), 2, axis=0)
    assert estimate_n_components(twice) == 1
    assert estimate_n_components(1e6 + 1e-3 * curve(300, 0)) == 1
    with pytest.raises(ValueError, match="all snapshots are equal"):
        estimate_n_components(np.ones((5, 2)))
    with pytest.raises(ValueError, match="at least 3"):
        estimate_n_components(np.eye(2))

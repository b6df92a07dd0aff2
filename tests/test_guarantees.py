"""Each sentence of docs/guarantees.md, attacked: at latents near, far and absurd, with hostile invariants and fits.

The same bits for any number of threads are tested in test_threads.py.
"""

import warnings

import numpy as np
import pytest
from sklearn.neighbors import KNeighborsRegressor
from threadpoolctl import threadpool_limits

import randsmap

from helpers import random_invariants, random_problem, with_common_invariants

M, D = 24, 2
DECODERS = {
    "sigmoids": lambda **o: randsmap.RANDSMAPDecoder(randsmap.SigmoidFeatures(5.0), random_state=0, **o),
    "few features": lambda **o: randsmap.RANDSMAPDecoder(randsmap.FourierFeatures(n_features=7), random_state=0, **o),
    "no regularization": lambda **o: randsmap.RANDSMAPDecoder(regularization=0.0, random_state=0, **o),
    "Krylov": lambda **o: randsmap.RANDSMAPDecoder(solver="krylov", regularization=1e-3, random_state=0, **o),
    "low rank": lambda **o: randsmap.RANDSMAPDecoder(solver="lowrank", regularization=1e-5, random_state=0, **o),
    "uncentred": lambda **o: randsmap.RANDSMAPDecoder(center=False, latent_scale=None, random_state=0, **o),
    "Gaussian": lambda **o: randsmap.KernelDecoder("gaussian", **o),
    "thin plate": lambda **o: randsmap.KernelDecoder("thin-plate", degree=1, **o),
    "harmonics": lambda **o: randsmap.DoubleDiffusionMapsDecoder(**o),
    "regressor": lambda **o: randsmap.ConservativeRegressor(KNeighborsRegressor(3), **o),
    "search": lambda **o: randsmap.AutoDecoder(n_trials=4, random_state=0, **o),
}


def points(rng, Y):
    """Latents in the training set, between its points, around it, and as far as numbers are allowed to be."""
    far = rng.normal(size=(20, D)) * 10.0 ** rng.uniform(0, 12, (20, 1))
    return np.vstack([Y, Y[:10] + 1e-9, rng.uniform(-1, 2, (30, D)), far, np.zeros((1, D))])


def decode(decoder, X, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", randsmap.ExtrapolationWarning)
        return decoder.predict(X, **options)


def problem(q, weighted, seed, constant=None):
    rng = np.random.default_rng(seed)
    Y, F = random_problem(50, M, D, seed=seed, constant=constant)
    options, C = random_invariants(rng, q, M, weighted)
    weights = options["cell_weights"]
    held = np.isin(np.arange(M), list(constant or {}))
    if q:
        F = with_common_invariants(F, C, weights, held)
    return rng, Y, F, {k: v for k, v in options.items() if v is not None or k == "invariants"}, C


def violations(F, C, m):
    """|C.f - m| in units of what is promised, the larger of 1e-14 (|C|.|f| + |m|)."""
    exact = np.longdouble(F) @ np.longdouble(C)
    promised = 1e-14 * (abs(F) @ abs(C) + abs(m))
    return np.max(abs(exact - m) / np.where(promised > 0, promised, 1e-300), initial=0)


@pytest.mark.parametrize("q, weighted", [(1, False), (1, True), (3, True)])
@pytest.mark.parametrize("name", DECODERS)
def test_invariants_hold_at_every_latent_point(name, q, weighted):
    rng, Y, F, options, C = problem(q, weighted, seed=q + 2 * weighted)
    if name == "harmonics":
        options.pop("cell_weights", None)
        C = C if q == 3 else np.ones((M, 1))
        F = with_common_invariants(F, C)
    decoder = DECODERS[name](**options).fit(Y, F)
    decoded = decode(decoder, points(rng, Y))
    assert np.isfinite(decoded).all()
    assert violations(decoded, C, F[0] @ C) <= 1


@pytest.mark.parametrize("scale", [1e-130, 1e-8, 1e8, 1e130])
def test_invariants_hold_for_numbers_of_any_size(scale):
    rng, Y, F, _, _ = problem(1, False, seed=5)
    decoder = DECODERS["sigmoids"]().fit(Y, F * scale)
    decoded = decode(decoder, points(rng, Y)[:-21])
    assert violations(decoded / scale, np.ones((M, 1)), F[0].sum()) <= 1


@pytest.mark.parametrize("size", [1e141, 1e-141])
@pytest.mark.parametrize("argument", ["latents", "fields"])
def test_numbers_beyond_the_range_are_refused_by_name(size, argument):
    Y, F = random_problem(30, M, D, seed=1)
    data = {"latents": (Y * size, F), "fields": (Y, F * size)}[argument]
    with pytest.raises(ValueError, match=r"1e-?140"):
        DECODERS["sigmoids"]().fit(*data)


def test_dependent_and_zero_columns_of_C_are_satisfied_too():
    rng = np.random.default_rng(3)
    Y, F = random_problem(40, M, D, seed=3)
    C = rng.normal(size=(M, 2))
    C = np.column_stack([C, np.zeros(M), C[:, 0] + C[:, 1], 2 * C[:, 0], C[:, 1] * (1 + 1e-9 * rng.normal(size=M))])
    F = with_common_invariants(F, np.linalg.qr(C)[0][:, [0, 1, 5]])
    decoder = DECODERS["sigmoids"](invariants=C).fit(Y, F)
    X = points(rng, Y)
    decoded = decode(decoder, X)
    assert violations(decoded, C[:, :5], F[0] @ C[:, :5]) <= 1
    cells = np.array([0, 5, 17])
    assert np.array_equal(decode(decoder, X, cells=cells), decoded[:, cells]) or np.allclose(
        decode(decoder, X, cells=cells), decoded[:, cells], rtol=1e-13, atol=1e-15
    )
    tangents = decoder.jvp(Y[:5], rng.normal(size=(5, D)))
    assert (abs(tangents @ C[:, :5]) <= 1e-13 * (abs(tangents) @ abs(C[:, :5]))).all()


def test_a_column_that_can_not_be_told_from_the_others_is_warned_of_if_its_difference_counts():
    """The warning's figure is the largest violation that decoded fields can have."""
    rng = np.random.default_rng(8)
    big = 400
    Y, F = random_problem(40, big, D, seed=8)
    C = rng.normal(size=(big, 1))
    close = C + 3e-14 * rng.normal(size=(big, 1)) * abs(C)
    both = np.hstack([C, close])
    F = with_common_invariants(F, C)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        decoder = DECODERS["sigmoids"](invariants=both).fit(Y, F)
    decoded = decode(decoder, points(rng, Y))
    assert violations(decoded, both, F[0] @ both) <= 1 or told


@pytest.mark.parametrize("name", DECODERS)
def test_constant_cells_have_their_value_to_the_last_bit(name):
    constant = {3: 0.0, 4: 0.1, 20: 1 / 3}
    rng, Y, F, options, _ = problem(1, False, seed=2, constant=constant)
    decoded = decode(DECODERS[name](**options).fit(Y, F), points(rng, Y))
    assert (decoded[:, list(constant)] == list(constant.values())).all()


@pytest.mark.parametrize("q, weighted", [(1, False), (1, True), (3, True)])
def test_projection_never_moves_a_field_away_from_one_that_satisfies_the_invariants(q, weighted):
    rng, Y, F, options, C = problem(q, weighted, seed=11)
    if q == 1:
        options["invariants"] = C
    metric = options.pop("cell_weights", np.ones(M))
    X = points(rng, Y)[: 2 * len(Y)]
    X, truth = np.vstack([X, X[::-1]]), rng.permutation(np.vstack([F] * 4))[: 2 * len(X)]  # any truth will do
    truth = truth[: len(X)]
    free = decode(DECODERS["sigmoids"](invariants=None, cell_weights=metric).fit(Y, F), X)
    kept = decode(DECODERS["sigmoids"](cell_weights=metric, **options).fit(Y, F), X)

    def distance(A, B):
        return np.sqrt(((A - B) ** 2) @ metric)

    assert (distance(kept, truth) <= distance(free, truth) * (1 + 1e-12) + 1e-14 * distance(free, 0)).all()


@pytest.mark.parametrize("bounds", ["nonnegative", (-0.01, 0.9), "by cell"])
@pytest.mark.parametrize("name", ["sigmoids", "no regularization", "Gaussian", "thin plate", "regressor", "search"])
def test_bounds_hold_exactly_with_the_invariant(name, bounds):
    rng = np.random.default_rng(4)
    weights = 10.0 ** rng.uniform(-1, 1, M)
    Y, F = random_problem(50, M, D, seed=4)
    F /= (F @ weights)[:, None]
    options, C = {"invariants": "mass", "cell_weights": weights}, weights[:, None]
    if bounds == "by cell":
        bounds = (F.min(axis=0) - rng.uniform(0, 0.01, M), F.max(axis=0) + rng.uniform(0, 0.01, M))
    low, high = (0.0, np.inf) if isinstance(bounds, str) else bounds
    decoder = DECODERS[name](bounds=bounds, **options).fit(Y, F)
    decoded = decode(decoder, points(rng, Y))
    assert (decoded >= low).all()
    assert (decoded <= high).all()
    assert violations(decoded, C, F[0] @ C) <= 1
    free = decode(DECODERS[name](**options).fit(Y, F), Y) if name != "search" else None
    if free is not None:  # the nearest field that does both: no worse than without the bounds
        metric = options["cell_weights"]
        error = np.sqrt(((decode(decoder, Y) - F) ** 2) @ metric)
        assert (error <= np.sqrt(((free - F) ** 2) @ metric) * (1 + 1e-10) + 1e-13).all()


def test_data_outside_the_bounds_and_values_that_no_field_has_are_refused():
    Y, F = random_problem(30, M, D, seed=6)
    with pytest.raises(ValueError, match="bound"):
        DECODERS["sigmoids"](bounds=(0.0, F.max() / 2)).fit(Y, F)
    decoder = DECODERS["sigmoids"](bounds=(0.0, 1.0)).fit(Y, F)
    with pytest.raises(ValueError, match=r"row 1\b"):
        decoder.predict(Y[:2], invariant_values=[1.0, M + 1.0])


def test_solvers_agree_to_what_is_said():
    """n = 400, P = 300 at lambda = 1e-3: Cholesky against the SVD to 3e-11 of the fields, in the order of magnitude."""
    Y, F = random_problem(400, 60, D, seed=9)

    def fields(solver, threads, regularization):
        decoder = randsmap.RANDSMAPDecoder(
            randsmap.FourierFeatures(n_features=300), regularization=regularization, solver=solver, random_state=0
        )
        with threadpool_limits(threads):
            return decoder.fit(Y, F).predict(Y)

    exact = fields("svd", 1, 1e-3)
    assert np.linalg.norm(fields("cholesky", 2, 1e-3) - exact) <= 3e-11 * np.linalg.norm(exact)
    svd = fields("svd", 1, 1e-9)
    assert np.linalg.norm(fields("cholesky", 1, 1e-9) - svd) <= 3e-5 * np.linalg.norm(svd)
    auto = fields("auto", 1, 1e-9)  # by a QR factorisation
    assert np.linalg.norm(fields("auto", 2, 1e-9) - auto) <= 1e-12 * np.linalg.norm(auto)


def test_neighbours_mixtures_and_modes_keep_what_all_training_fields_have():
    rng = np.random.default_rng(0)
    Y, F = random_problem(40, M, D, seed=0, constant={2: 0.25})
    for decoded in (
        decode(randsmap.KNNDecoder(4).fit(Y, F), points(rng, Y)),
        decode(DECODERS["search"]().fit(Y, F), points(rng, Y)),
    ):
        assert violations(decoded, np.ones((M, 1)), 1.0) <= 1


def test_varying_masses_are_those_that_are_given():
    rng = np.random.default_rng(7)
    Y, F = random_problem(40, M, D, seed=7, total=None)
    decoder = DECODERS["sigmoids"](invariants="mass", invariant_tol=1.0).fit(Y, F)
    values = rng.uniform(0.1, 5, len(Y))
    decoded = decoder.predict(Y, invariant_values=values)
    assert violations(decoded, np.ones((M, 1)), values[:, None]) <= 1


def test_the_papers_form_conserves_at_training_points_alone():
    Y, F = random_problem(30, M, D, seed=1)
    options = {"center": False, "latent_scale": None, "constraint": "training", "random_state": 0}
    decoder = randsmap.RANDSMAPDecoder(randsmap.SigmoidFeatures(5.0, n_features=60), **options).fit(Y, F)
    assert abs(decoder.predict(Y).sum(axis=1) - 1).max() <= 1e-7
    elsewhere = decode(decoder, np.random.default_rng(0).uniform(-1, 2, (50, D)))
    assert abs(elsewhere.sum(axis=1) - 1).max() > 1e-7


def test_data_that_do_not_satisfy_the_invariants_are_refused_with_the_worst_sample():
    Y, F = random_problem(30, M, D, seed=1)
    F[17] *= 1.01
    with pytest.raises(ValueError, match=r"\b17\b"):
        DECODERS["sigmoids"](invariants="mass").fit(Y, F)
    DECODERS["sigmoids"](invariants=None).fit(Y, F)

"""Weights of samples in fits: weighted least squares, by every solver."""

import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import Ridge

import randsmap
from randsmap import ConservativeRegressor, FourierFeatures, KernelDecoder, KNNDecoder, RANDSMAPDecoder, RFNNDecoder
from randsmap.persistence import load, save

RNG = np.random.default_rng(0)
N = 40
X = RNG.uniform(size=(N, 2))
F = np.exp(-((np.linspace(0, 1, 30) - X[:, :1]) ** 2 + X[:, 1:] ** 2) / 0.1)
F /= F.sum(axis=1, keepdims=True)
COUNTS = RNG.integers(0, 4, N)
ROWS, KEPT = np.repeat(np.arange(N), COUNTS), np.flatnonzero(COUNTS)
POINTS = RNG.uniform(size=(7, 2))


def ridge(cls=RANDSMAPDecoder, P=15, regularization=0.1, **parameters):
    features = FourierFeatures(0.5, n_features=P)
    return cls(features, regularization=regularization, random_state=0, **parameters)


RIDGE = {
    f"{name}-{P}-{center}": ridge(P=P, center=center, **parameters)
    for name, parameters in {
        "auto": {},
        "small": {"regularization": 1e-6},
        "minimum-norm": {"regularization": 0.0},
        "qr": {"regularization": 1e-9},
        "cholesky": {"solver": "cholesky"},
        "svd": {"solver": "svd"},
        "krylov": {"solver": "krylov", "tol": 1e-13},
        "rfnn": {"cls": RFNNDecoder},
        "bounds": {"bounds": "nonnegative"},
    }.items()
    for P in (15, 200)
    for center in (True, False)
}
KERNELS = {
    f"{kernel}-{degree}-{center}-{value}": KernelDecoder(
        kernel, length_scale=0.5, degree=degree, center=center, regularization=value, invariants="mass"
    )
    for kernel, degree, center in [
        ("gaussian", 0, True), ("gaussian", 0, False), ("gaussian", 1, True), ("matern", 0, True),
        ("thin-plate", 1, True),
    ]
    for value in (1e-2, 1e-9)
}  # fmt: skip


@pytest.mark.filterwarnings("ignore::randsmap.ExtrapolationWarning")
@pytest.mark.parametrize("decoder", [*RIDGE.values(), *KERNELS.values()], ids=[*RIDGE, *KERNELS])
def test_integer_weights_are_repeated_rows_and_no_weight_is_no_row(decoder):
    fitted = [
        clone(decoder).fit(*arguments)
        for arguments in [(X, F, COUNTS), (X[ROWS], F[ROWS]), (X[KEPT], F[KEPT], COUNTS[KEPT]), (X[KEPT], F[KEPT])]
    ]
    weighted, repeated, without, unweighted = (one.predict(POINTS) for one in fitted)
    assert abs(weighted - repeated).max() < 1e-10 < abs(weighted - unweighted).max()
    assert np.array_equal(weighted, without)
    np.testing.assert_allclose(fitted[0].leverage(POINTS), fitted[1].leverage(POINTS), rtol=1e-6)


@pytest.mark.parametrize(
    "decoder", [ridge(), ridge(regularization="auto"), RFNNDecoder(random_state=0), KernelDecoder()]
)
def test_equal_weights_of_one_change_nothing_and_rows_without_weight_not_even_the_choice_of_lambda(decoder):
    plain = clone(decoder).fit(X[KEPT], F[KEPT])
    for arguments in [(X[KEPT], F[KEPT], np.ones(len(KEPT))), (X, F, COUNTS > 0)]:
        assert np.array_equal(clone(decoder).fit(*arguments).coef_, plain.coef_)


def test_lambda_auto_is_the_best_by_weighted_errors_of_samples_left_out_with_their_weight():
    noisy = F + 0.3 * F.std() * np.random.default_rng(1).standard_normal(F.shape) * (X[:, :1] > 0.5)

    def decoder(regularization):
        features = FourierFeatures(0.2, n_features=30)
        return RFNNDecoder(features, regularization=regularization, latent_scale=None, random_state=0)

    def error(regularization, weights):
        errors = np.empty(N)
        for i in range(N):
            others = np.where(np.arange(N) == i, 0.0, weights)
            missed = noisy[i] - decoder(regularization).fit(X, noisy, others).fitted.decode(X[i : i + 1])[0]
            errors[i] = min(1.0, np.linalg.norm(missed) / np.linalg.norm(noisy[i]))
        return np.average(errors, weights=weights)

    found = []
    for weights in (np.where(X[:, 0] > 0.5, 5.0, 0.1), np.where(X[:, 0] > 0.5, 0.1, 5.0)):
        chosen = decoder("auto").fit(X, noisy, weights).regularization_
        errors = [error(chosen * factor, weights) for factor in (0.01, 0.1, 1.0, 10.0, 100.0)]
        assert min(errors) == errors[2]
        found.append(chosen)
    assert found[0] > 5 * found[1]


@pytest.mark.parametrize("decoder", [ridge(P=200), KernelDecoder(degree=1)])
def test_a_model_file_keeps_the_weights_that_leverages_need(decoder, tmp_path):
    weighted = clone(decoder).fit(X, F, COUNTS)
    save(weighted, tmp_path / "model.npz")
    assert np.array_equal(load(tmp_path / "model.npz").leverage(POINTS), weighted.leverage(POINTS))


@pytest.mark.parametrize(
    ("decoder", "weights", "error", "message"),
    [
        (ridge(solver="lowrank"), COUNTS, ValueError, "solver='lowrank' accepts no sample_weight"),
        (ridge(output_rank=3), COUNTS, ValueError, "output_rank is not read with sample_weight"),
        (RANDSMAPDecoder(constraint="training"), COUNTS, ValueError, "constraint is not read with sample_weight"),
        (KernelDecoder(regularization=0.0), COUNTS, ValueError, "sample_weight needs regularization > 0"),
        (
            KNNDecoder(),
            COUNTS,
            TypeError,
            "KNNDecoder.fit takes no sample_weight: RANDSMAPDecoder, .* take sample_weight",
        ),
        (randsmap.DoubleDiffusionMapsDecoder(), COUNTS, TypeError, "DoubleDiffusionMapsDecoder.fit takes no sample_w"),
        (randsmap.AutoDecoder(), COUNTS, TypeError, "sample_weight"),
        (ridge(), COUNTS[1:], ValueError, "sample_weight must"),
        (ridge(), -COUNTS, ValueError, "sample_weight must be >= 0"),
        (KernelDecoder(), 0 * COUNTS, ValueError, "sample_weight must be >= 0, and not zero for all rows"),
        (ridge(), np.arange(N) == 3, ValueError, "sample_weight must be positive for at least 2 rows"),
        (ridge(), np.where(COUNTS, np.nan, 1), ValueError, "sample_weight must be finite"),
    ],
)
def test_weights_that_are_none_or_would_not_be_read_are_refused_by_name(decoder, weights, error, message):
    with pytest.raises(error, match=message):
        clone(decoder).fit(X, F, sample_weight=weights)


@pytest.mark.parametrize("decoder", [ridge(), KernelDecoder()])
def test_a_method_that_takes_weights_can_be_pickled(decoder):
    fit = pickle.loads(pickle.dumps(clone(decoder).fit))
    assert np.array_equal(fit(X, F, COUNTS).coef_, clone(decoder).fit(X, F, COUNTS).coef_)


def test_batches_refuse_weights_by_name():
    with pytest.raises(TypeError, match="sample_weight"):
        ridge(latent_scale=None).partial_fit(X, F, sample_weight=COUNTS)


def test_conservative_regressors_pass_weights_on_and_do_not_ask_rows_without_one_for_the_invariants():
    fields = F.copy()
    fields[3] *= 7
    weights = np.where(np.arange(N) == 3, 0, 1 + COUNTS)
    weighted = ConservativeRegressor(Ridge(1e-3)).fit(X, fields, sample_weight=weights)
    rows = np.repeat(np.arange(N), weights)
    repeated = ConservativeRegressor(Ridge(1e-3)).fit(X[rows], fields[rows])
    np.testing.assert_allclose(weighted.predict(POINTS), repeated.predict(POINTS), atol=1e-10)

"""Promises on the traffic data of the paper's first case study (Sec. 5.1), at its full size."""

import numpy as np
import pytest

import randsmap
from randsmap.metrics import conservation_error, relative_l2

pytestmark = pytest.mark.slow

N, P_FRACTIONS = 2000, (1.0, 0.5, 0.25)
MAPS = {
    "sigmoid": lambda P: randsmap.SigmoidFeatures(11.0, n_features=P),
    "fourier": lambda P: randsmap.FourierFeatures(0.16, n_features=P),
    "multiscale": lambda P: randsmap.MultiscaleFourierFeatures(8.5, n_features=P),
}


@pytest.fixture(scope="module")
def traffic():
    F = randsmap.datasets.make_lwr(random_state=0).data
    order = np.random.RandomState(0).permutation(len(F))
    F_train, F_test = F[order[:N]], F[order[2 * N :]]
    encoder = randsmap.DiffusionMaps(2, alpha=0.0)
    Y_train = encoder.fit_transform(F_train)
    return F_train, Y_train, F_test, encoder.transform(F_test)


def far_latents(Y, n=500):
    low, high = Y.min(axis=0), Y.max(axis=0)
    return np.random.RandomState(1).uniform(low - 100 * (high - low), high + 100 * (high - low), (n, Y.shape[1]))


def assert_mass_is_one(F):
    assert (abs(F.sum(axis=1) - 1) <= 1e-14 * (abs(F).sum(axis=1) + 1)).all()


@pytest.mark.parametrize("name, P", [("sigmoid", 1.0), ("sigmoid", 0.25), ("fourier", 0.5), ("multiscale", 0.25)])
def test_every_decoded_field_has_the_mass(traffic, name, P):
    F, Y, F_test, Y_test = traffic
    exact = randsmap.RANDSMAPDecoder(MAPS[name](P), random_state=0).fit(Y, F)
    for latents in (Y, Y_test, far_latents(Y)):
        assert_mass_is_one(exact.predict(latents))
    plain = randsmap.RFNNDecoder(MAPS[name](P), random_state=0).fit(Y, F)
    # the truth satisfies the invariant, so the projection can only bring the fields nearer to it
    slack = 1 + 1e-12
    assert (relative_l2(F_test, exact.predict(Y_test)) <= slack * relative_l2(F_test, plain.predict(Y_test))).all()


@pytest.mark.parametrize("regularization", [0.0, 1e-12, 1e-6, 1.0])
def test_mass_for_any_regularization(traffic, regularization):
    F, Y, _, Y_test = traffic
    decoder = randsmap.RANDSMAPDecoder(MAPS["sigmoid"](0.25), regularization=regularization, random_state=0).fit(Y, F)
    for latents in (Y, Y_test, far_latents(Y)):
        assert_mass_is_one(decoder.predict(latents))


# mean conservation errors of the RANDSMAP-Sig rows: training and test set (App. G)
PAPER_SIGMOID = {1.0: (5.24e-9, 4.100e-8), 0.5: (6.47e-9, 3.556e-8), 0.25: (8.29e-9, 2.178e-8)}


@pytest.mark.parametrize("P", P_FRACTIONS)
def test_training_constraint_conserves_as_the_paper_reports(traffic, P):
    F, Y, F_test, Y_test = traffic
    decoder = randsmap.RANDSMAPDecoder(MAPS["sigmoid"](P), constraint="training", random_state=0).fit(Y, F)
    for truth, latents, paper in ((F, Y, PAPER_SIGMOID[P][0]), (F_test, Y_test, PAPER_SIGMOID[P][1])):
        error = conservation_error(truth, decoder.predict(latents)).mean()
        assert paper / 3 < error < 3 * paper


def test_both_forms_reconstruct_equally_well(traffic):
    F, Y, F_test, Y_test = traffic
    errors = [
        relative_l2(
            F_test,
            randsmap.RANDSMAPDecoder(MAPS["sigmoid"](0.25), constraint=constraint, random_state=0, **paper)
            .fit(Y, F)
            .predict(Y_test),
        ).mean()
        for constraint, paper in (("everywhere", {"center": False, "latent_scale": None}), ("training", {}))
    ]
    assert errors[0] == pytest.approx(errors[1], rel=1e-4)

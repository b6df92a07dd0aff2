"""Fields at new parameters."""

import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression

import randsmap
from randsmap import POD, KernelDecoder, ManifoldModel, ParametricModel, RANDSMAPDecoder


def snapshots(n=41):
    x, centre = np.linspace(0, 1, 50), np.linspace(0.3, 0.7, n)
    F = np.exp(-(((x - centre[:, None]) / 0.1) ** 2))
    return centre, F / F.sum(axis=1, keepdims=True)


def parametric(regressor=None):
    model = ManifoldModel(POD(6, invariants="mass"))
    return ParametricModel(model, regressor or KernelDecoder(length_scale=0.1, latent_scale=None, regularization=1e-9))


def test_fields_between_the_parameters_are_right_and_keep_the_mass():
    t, F = snapshots()
    fitted = parametric().fit(t[::2], F[::2])
    G = fitted.predict(t[1::2])
    assert randsmap.metrics.relative_l2(F[1::2], G).max() < 0.03
    assert (np.abs(G.sum(axis=1) - 1) <= 1e-14 * (np.abs(G).sum(axis=1) + 1)).all()
    assert fitted.score(t[1::2], F[1::2]) == -randsmap.metrics.relative_l2(F[1::2], G).mean()


def test_a_column_of_parameters_is_a_sequence_of_numbers():
    t, F = snapshots()
    np.testing.assert_array_equal(
        parametric().fit(t[:, None], F).predict(t[:3, None]), parametric().fit(t, F).predict(t[:3])
    )


def test_any_regressor_and_one_latent():
    from sklearn.neighbors import KNeighborsRegressor

    t, F = snapshots()
    model = ManifoldModel(POD(1, invariants="mass"), RANDSMAPDecoder(random_state=0))
    for regressor in (KNeighborsRegressor(2), KernelDecoder(length_scale=0.1)):
        fitted = ParametricModel(model, regressor).fit(t, F)
        assert fitted.latents([0.4, 0.5]).shape == (2, 1)
        assert fitted.predict([0.4, 0.5]).shape == (2, 50)


def trajectories(speeds_and_widenings, n_times=20):
    """Times, speeds and widenings of bumps that move and spread, their fields, and which trajectory each is of."""
    t = np.linspace(0, 1, n_times)
    parameters = np.array([(now, speed, widening) for speed, widening in speeds_and_widenings for now in t])
    x = np.linspace(0, 2, 60)
    now, speed, widening = parameters.T[:, :, None]
    F = np.exp(-((x - 0.4 - speed * now) ** 2) / (0.02 + widening * now))
    run = np.repeat(np.arange(len(speeds_and_widenings)), n_times)
    return parameters, F / F.sum(axis=1, keepdims=True), run


def test_groups_are_held_out_as_a_whole_when_latents_are_interpolated():
    parameters, F, run = trajectories([(0.6, 0.02), (0.6, 0.08), (0.9, 0.02), (0.9, 0.04), (1.2, 0.02), (1.2, 0.08)])
    new, truth, _ = trajectories([(0.75, 0.05), (1.0, 0.06)])
    model = ParametricModel(ManifoldModel(POD(1.0, invariants="mass")))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", randsmap.ExtrapolationWarning)
        by_neighbours = -model.fit(parameters, F).score(new, truth)
        by_runs = -model.fit(parameters, F, groups=run).score(new, truth)
        kernels = randsmap.AutoDecoder(families=("thin-plate", "gaussian", "matern"), invariants=None)
        told = kernels.fit(parameters, model.model_.transform(F), run)
        np.testing.assert_array_equal(model.latents(new), told.predict(new))
    assert by_runs < 0.5 * by_neighbours
    with pytest.raises(ValueError, match="groups are for a regressor whose fit takes them, .* got LinearRegression"):
        ParametricModel(POD(3), LinearRegression()).fit(parameters, F, groups=run)
    with pytest.raises(ValueError, match=r"one label for each of the 120 samples, got shape \(119,\)"):
        model.fit(parameters, F, groups=run[1:])


def test_options_reach_the_model():
    t, F = snapshots()
    fitted = parametric().fit(t, F)
    np.testing.assert_allclose(fitted.predict(t, cells=[3, -1]), fitted.predict(t)[:, [3, -1]], rtol=0, atol=1e-16)


def test_saved_and_cloned(tmp_path):
    t, F = snapshots()
    fitted = parametric().fit(t, F)
    fitted.save(tmp_path / "m.npz")
    np.testing.assert_array_equal(randsmap.load(tmp_path / "m.npz").predict(t), fitted.predict(t))
    np.testing.assert_array_equal(clone(fitted).fit(t, F).predict(t), fitted.predict(t))


def test_errors():
    t, F = snapshots()
    with pytest.raises(NotFittedError):
        parametric().predict([0.5])
    with pytest.raises(ValueError, match="same number of rows"):
        parametric().fit(t[1:], F)
    with pytest.raises(ValueError, match=r"got 40 and 41; .* swapped"):
        parametric().fit(F[1:], t)
    with pytest.warns(UserWarning, match=r"parameters have \d+ columns, the snapshots 1: are they swapped"):
        randsmap.tuning.choose_parametric([ManifoldModel(POD(1))], F, t[:, None], n_trials=1)
    with pytest.raises(ValueError, match="NaN"):
        parametric().fit(np.where(t > 0.5, np.nan, t), F)
    with pytest.raises(ValueError):
        parametric().fit(t, F).predict([[0.5, 0.5]])


def test_warnings_of_extrapolation_speak_of_parameters():
    t, F = snapshots()
    fitted = ParametricModel(
        ManifoldModel(POD(3), RANDSMAPDecoder(random_state=0)), KernelDecoder(length_scale=0.1)
    ).fit(t, F)
    with pytest.warns(randsmap.ExtrapolationWarning) as told:
        fitted.predict([0.5, 30.0])
    assert str(told[0].message).startswith("row 1 of X is far from the training points of this KernelDecoder")
    # a regressor that extrapolates and has no leverage: the latents are far away
    fitted = ParametricModel(ManifoldModel(POD(3), RANDSMAPDecoder(random_state=0)), LinearRegression()).fit(t, F)
    with pytest.warns(
        randsmap.ExtrapolationWarning, match="^row 1 of X is far from the training points of this RANDSMAPDecoder"
    ):
        fitted.predict([0.5, 1e6])
    with pytest.warns(randsmap.ExtrapolationWarning, match="^row 0 of X is far from the training points"):
        clone(fitted.model).fit(F).inverse_transform([[1e6, 0, 0]])


def test_a_leverage_in_units_of_a_limit_of_zero_is_a_number():
    class Certain(LinearRegression):
        leverage_limit_ = leverage_ = 0.0

        def leverage(self, X):
            return np.maximum(np.ravel(X) - 1, 0)

    t, F = snapshots()
    fitted = ParametricModel(ManifoldModel(POD(3)), Certain()).fit(t, F)
    np.testing.assert_array_equal(fitted.leverage([0.5, 2.0]), [0, np.inf])
    assert fitted.leverage_ == 0


def test_parameters_that_do_not_determine_the_field_are_told():
    t, F = snapshots(40)
    trajectory = np.repeat(np.arange(4.0), 10)  # the times are forgotten
    with pytest.warns(
        UserWarning, match="36 of 40 snapshots differ from others with the same parameters, such as row 1 from row 0"
    ) as told:
        parametric().fit(trajectory, F)
    assert "both at (0)" in str(told[0].message) and "such as the time" in str(told[0].message)
    both = np.column_stack([trajectory, t])
    both[7] = both[23]
    with pytest.warns(UserWarning, match="1 of 40 snapshots .* row 23 from row 7"):
        parametric().fit(both, F)
    twice = np.repeat(np.arange(20), 2)  # the same fields at the same parameters
    parametric().fit(t[twice], F[twice] * (1 + 1e-13 * np.random.default_rng(0).standard_normal((40, 1))))


@pytest.mark.parametrize("sizes", [(23, 1), (22, 2), (20, 4), (12, 11, 1)])
def test_groups_of_very_unequal_size_give_a_model_or_an_error_about_the_groups(sizes):
    (t, F), groups = snapshots(24), np.repeat(np.arange(len(sizes)), sizes)
    result = randsmap.autotune(F, n_components=1, n_trials=2, groups=groups, families="thin-plate")
    assert np.isfinite(result.held_out_error_)
    models = [ManifoldModel(POD(d)) for d in (2, 6)]
    found = randsmap.tuning.choose_parametric(models, t[:, None], F, groups=groups)
    assert np.isfinite(found.held_out_errors_).all()


@pytest.mark.parametrize("size", [2, 3])
def test_groups_that_leave_too_few_samples_are_named(size):
    F, groups = snapshots(2 * size)[1], np.repeat([0, 1], size)
    with pytest.raises(ValueError, match="groups"):
        randsmap.autotune(F, n_components=1, n_trials=2, groups=groups)


# -- Angles ----------------------------------------------------------------------------------------
def ring(turns, width):
    """Pulses on a ring, that are `turns` (n,) round."""
    x = (np.arange(64) + 0.5) / 64
    distance = (x - turns[:, None] + 0.5) % 1 - 0.5
    F = np.exp(-((distance / width[:, None]) ** 2))
    return F / F.sum(axis=1, keepdims=True)


def moving(t, speed=2.0):
    return ring(0.1 + speed * t, 0.08 + 0.04 * t)


def registered():
    return randsmap.ShiftRegistration(ManifoldModel(POD(3, invariants="mass")))


SPLINE = KernelDecoder("thin-plate", degree=1)


@pytest.mark.parametrize("order", ["in order", "shuffled", "backwards"])
@pytest.mark.parametrize("speed", [2.0, -3.0])
def test_phases_are_unwrapped_where_the_parameter_passes_the_seam(speed, order):
    t = np.linspace(0, 1, 48)
    middle, rows = (
        (t[1:] + t[:-1]) / 2,
        {"shuffled": np.random.default_rng(0).permutation(48), "backwards": t[::-1].argsort()}.get(
            order, np.arange(48)
        ),
    )
    fitted = ParametricModel(registered(), SPLINE).fit(t[rows], moving(t, speed)[rows])
    assert randsmap.metrics.relative_l2(moving(middle, speed), fitted.predict(middle)).max() < 2e-3
    latents = fitted.latents(middle)
    assert (np.abs(latents[:, 0]) <= np.pi).all()


def test_phases_are_unwrapped_along_each_trajectory():
    t, speeds = np.linspace(0, 1, 40), np.array([1.0, 1.1, 1.2, 1.3, 1.4])
    parameters = np.array([(now, speed) for speed in speeds for now in t])
    F = np.concatenate([moving(t, speed) for speed in speeds])
    new = np.column_stack([t[:-1] + 0.01, np.full(39, 1.25)])
    fitted = ParametricModel(registered(), SPLINE).fit(parameters, F)
    assert randsmap.metrics.relative_l2(moving(new[:, 0], 1.25), fitted.predict(new)).max() < 0.02
    groups = np.repeat(np.arange(5), 40)
    grouped = ParametricModel(registered(), randsmap.AutoDecoder(families="thin-plate", n_trials=1, invariants=None))
    grouped.fit(parameters, F, groups=groups)
    assert randsmap.metrics.relative_l2(moving(new[:, 0], 1.25), grouped.predict(new)).max() < 0.05


@pytest.mark.parametrize("order", ["in order", "shuffled"])
@pytest.mark.parametrize("speeds", [[1.0, 5.3], [1.0, 1.2, 1.4, 1.9, 2.7, 3.6]])
def test_runs_whose_phases_grow_apart_by_turns_keep_them_and_are_warned_of(speeds, order):
    now, speed = np.tile(np.linspace(0, 1, 20), len(speeds)), np.repeat(speeds, 20)
    rows = np.random.default_rng(0).permutation(len(now)) if order == "shuffled" else np.arange(len(now))
    new = np.column_stack([np.linspace(0, 1, 20), np.full(20, (speeds[0] + speeds[1]) / 2)])
    with pytest.warns(UserWarning, match="the direction of motion"):
        fitted = ParametricModel(registered(), SPLINE).fit(
            np.column_stack([now, speed])[rows], ring(0.1 + speed * now, 0.1 + 0 * now)[rows]
        )
    truth = ring(0.1 + new[:, 0] * new[:, 1], np.full(20, 0.1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", randsmap.ExtrapolationWarning)
        assert randsmap.metrics.relative_l2(truth, fitted.predict(new)).max() < 0.05


def test_phases_around_a_circle_of_parameters_are_interpolated_on_the_circle(tmp_path):
    def at(angle):
        return np.column_stack([np.cos(angle), np.sin(angle)])

    angle = np.linspace(0, 2 * np.pi, 60, endpoint=False)
    fitted = ParametricModel(registered(), SPLINE).fit(at(angle), ring(angle / (2 * np.pi), 0.1 + 0 * angle))
    middle = angle + np.pi / 60
    truth = ring(middle / (2 * np.pi), 0.1 + 0 * middle)
    assert randsmap.metrics.relative_l2(truth, fitted.predict(at(middle))).max() < 0.01
    fitted.save(tmp_path / "model.npz")
    loaded = randsmap.load(tmp_path / "model.npz")
    np.testing.assert_array_equal(loaded.predict(at(middle)), fitted.predict(at(middle)))
    with pytest.raises(TypeError, match="its phase runs around a circle of parameters"):
        fitted.freeze()


def test_equal_parameters_on_both_sides_of_the_seam_have_equal_phases():
    t = np.repeat(0.5 + 0.5 / 64 + np.linspace(-0.05, 0.05, 13), 2)
    F = ring(t + 1e-9 * np.tile([-1, 1], 13), 0.1 + 0 * t)
    assert np.ptp(registered().fit(F).transform(F[12:14])[:, 0]) > 6  # theta is pi and -pi
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ParametricModel(registered(), KernelDecoder()).fit(t, F)


def test_phases_that_jump_between_neighbours_are_warned_of():
    t = np.linspace(0, 1, 12)
    with pytest.warns(UserWarning, match="the direction of motion"):
        ParametricModel(registered(), SPLINE).fit(t, moving(t, speed=5.0))


@pytest.mark.parametrize("seen", [1.0, -1.0])
def test_a_gap_of_parameters_in_which_phases_may_turn_by_more_than_half_is_warned_of(seen):
    t = np.linspace(0, 1, 48)
    t = seen * np.delete(t, np.s_[15:33])  # 0.4 wide: theta turns by 0.8 of a turn, which looks like -0.2
    with pytest.warns(UserWarning, match=r"by 5\.\d+ from .* to .* as fast as elsewhere: the direction"):
        ParametricModel(registered(), SPLINE).fit(t, ring(0.1 + 2 * t, 0.1 + 0 * t))


def test_a_wide_step_of_a_parameter_that_phases_do_not_depend_on_is_no_gap():
    parameters = np.array([(t, other) for t in np.linspace(0, 1, 20) for other in (0, 0.5, 1)])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ParametricModel(registered(), SPLINE).fit(parameters, ring(2 * parameters[:, 0], 0.1 + 0 * parameters[:, 0]))


@pytest.mark.parametrize("around", [False, True], ids=["latents", "cosine and sine"])
def test_derivatives_follow_the_parameters(around):
    rng = np.random.default_rng(0)
    if around:  # once around the circle: theta is regressed by its cosine and sine
        t = np.linspace(0, 1, 30, endpoint=False)
        P, F = (
            np.column_stack([np.cos(2 * np.pi * t), np.sin(2 * np.pi * t)]),
            ring(t, 0.15 + 0.05 * np.cos(2 * np.pi * t)),
        )
        model, at = registered(), 1.01 * P[3:9]
    else:
        t, F = snapshots()
        P, model, at = t, ManifoldModel(POD(6, invariants="mass")), np.array([0.41, 0.553, 0.6])
    fitted = ParametricModel(model, KernelDecoder(regularization=1e-6)).fit(P, F)
    assert around == (fitted._roles == 2).any()
    at = at.reshape(len(at), -1)
    J, h = fitted.jacobian(at), 1e-6
    steps = h * np.eye(at.shape[1])
    central = np.stack([(fitted.predict(at + e) - fitted.predict(at - e)) / (2 * h) for e in steps], axis=2)
    np.testing.assert_allclose(J, central, rtol=0, atol=1e-6 * np.abs(J).max())
    V, U = rng.standard_normal(at.shape), rng.standard_normal((len(at), F.shape[1]))
    size = 1e-13 * np.abs(J).sum(axis=(1, 2)).max()
    np.testing.assert_allclose(fitted.jvp(at, V), (J @ V[:, :, None])[:, :, 0], rtol=0, atol=size * np.abs(V).max())
    np.testing.assert_allclose(fitted.vjp(at, U), np.einsum("nm,nmp->np", U, J), rtol=0, atol=size * np.abs(U).max())
    np.testing.assert_array_equal(fitted.jacobian(at, cells=[3, -1]), J[:, [3, -1]])
    assert fitted.jacobian(at[:0]).shape == (0, *J.shape[1:]) and fitted.vjp(at[:0], U[:0]).shape == (0, at.shape[1])
    if around:  # directions by their labels
        pandas = pytest.importorskip("pandas")
        named = ParametricModel(model, fitted.regressor).fit(pandas.DataFrame(P, columns=["a", "b"]), F)
        directions = pandas.DataFrame(V, columns=["a", "b"])
        np.testing.assert_array_equal(
            named.jvp(pandas.DataFrame(at, columns=["a", "b"]), directions), fitted.jvp(at, V)
        )
        with pytest.raises(ValueError, match="V has other labels than the columns of fit"):
            named.jvp(at, directions[["b", "a"]])
    else:  # a sequence of numbers is one parameter, of directions, too
        np.testing.assert_array_equal(fitted.jvp(at[:, 0], V[:, 0]), fitted.jvp(at, V))


def test_without_the_regressors_derivatives_there_are_none():
    t, F = snapshots()
    fitted = ParametricModel(POD(3), LinearRegression()).fit(t, F)
    assert not hasattr(fitted, "jacobian") and not hasattr(fitted, "vjp")
    of_modes = ParametricModel(POD(3), KernelDecoder()).fit(t, F)
    np.testing.assert_allclose(
        of_modes.jacobian([0.5]),
        (of_modes.predict([0.5 + 1e-6]) - of_modes.predict([0.5 - 1e-6]))[:, :, None] / 2e-6,
        rtol=0,
        atol=1e-6,
    )

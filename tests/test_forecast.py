"""Forecasts: what is exact, what every field keeps, trajectories, times, lags, error bars, hostile arguments."""

import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression

import randsmap
from randsmap import POD, KernelDecoder, LatentForecast, ManifoldModel
from randsmap.metrics import relative_l2

RNG = np.random.default_rng(0)
MODES = POD(3, invariants=None)
PLANES = np.linalg.qr(RNG.normal(size=(30, 3)))[0].T


def linear_paths(n=8, steps=25, dt=0.2, seed=1):
    """Trajectories of a damped rotation and a decay in three modes of 30 cells: latents, fields, labels."""
    A = np.array([[-0.05, 1.0, 0.0], [-1.0, -0.05, 0.0], [0.0, 0.0, -0.3]])
    values, V = np.linalg.eig(A)
    start = np.random.default_rng(seed).normal(size=(n, 3))
    t = np.arange(steps) * dt if np.ndim(dt) == 0 else dt
    flow = (V * np.exp(values * t[:, None])[:, None, :]) @ np.linalg.inv(V)
    Z = np.einsum("tij,nj->nti", flow.real, start)
    return Z, 2.0 + Z @ PLANES, np.repeat(np.arange(n), len(t))


def bumps(n=12, steps=25, seed=0):
    """Bumps of mass 1 on a ring, which move at a speed that depends on their width, and spread."""
    x, t = np.arange(40) / 40, np.arange(steps) * 0.04
    centre, width = np.random.default_rng(seed).uniform([0, 0.08], [1, 0.16], (n, 2)).T[:, :, None, None]
    moved = (x - centre - (0.5 + 2 * width) * t[:, None] + 0.5) % 1 - 0.5
    F = np.exp(-((moved / (width + 0.05 * t[:, None])) ** 2))
    return F / F.sum(axis=2, keepdims=True)


def stacked(paths):
    return paths.reshape(-1, paths.shape[2]), np.repeat(np.arange(len(paths)), paths.shape[1])


def test_a_linear_system_is_forecast_to_1e_6_as_far_as_it_goes():
    _, F, labels = linear_paths()
    fitted = LatentForecast(MODES).fit(*stacked(F[:6]))
    for path in F[6:]:
        found = fitted.forecast(path[:1], 24)
        assert relative_l2(path[1:], found).max() < 1e-6
    (long,) = linear_paths(1, 60)[1]
    single = LatentForecast(MODES).fit(long[:50])
    assert relative_l2(long[50:], single.forecast(long[:50], 10)).max() < 1e-6
    assert fitted.held_out_errors_[np.isfinite(fitted.held_out_errors_)].max() < 1e-6


@pytest.mark.parametrize("model", [POD(6, invariants="mass", bounds="nonnegative"), None], ids=["POD", "kernels"])
def test_every_forecast_field_has_the_mass_and_the_bounds(model):
    F, labels = stacked(bumps())
    if model is None:
        decoder = KernelDecoder(length_scale=0.5, regularization=1e-8, invariants="mass", bounds="nonnegative")
        model = ManifoldModel(POD(6), decoder)
    fitted = LatentForecast(model).fit(F, labels)
    for start in (F[0], F[5], np.full(40, 1 / 40)):
        found = fitted.forecast(start[None], 60)
        assert abs(found.sum(axis=1) - 1).max() < 1e-13 and found.min() >= 0


def test_fields_of_other_masses_keep_their_own():
    F, labels = stacked(bumps())
    F = F * np.linspace(1, 2, 12).repeat(25)[:, None]
    fitted = LatentForecast(POD(6, invariants="mass", invariant_tol=1.0)).fit(F, labels)
    found = fitted.forecast(1.3 * bumps(1, seed=3)[0, :1], 10)
    np.testing.assert_allclose(found.sum(axis=1), 1.3, rtol=1e-13)


def test_pairs_are_within_trajectories_wherever_their_rows_stand():
    _, F, labels = linear_paths()
    rows, labels = stacked(F)
    expected = LatentForecast(MODES).fit(rows, labels).forecast(F[0, :1], 5)
    order = np.argsort(np.tile(np.arange(25), 8), kind="stable")  # one row of each trajectory after the other
    mixed = LatentForecast(MODES).fit(rows[order], [f"run {i}" for i in labels[order]])
    np.testing.assert_allclose(mixed.forecast(F[0, :1], 5), expected, rtol=1e-6)
    # paired across its two trajectories, the last step of the first would be a jump
    apart = LatentForecast(MODES).fit(*stacked(F[:2])).forecast(F[0, :1], 24)
    assert relative_l2(F[0, 1:], apart).max() < 1e-6


class Recorder(LinearRegression):
    def fit(self, X, y, groups=None):
        type(self).seen = X, y, groups
        return super().fit(X, y)


def test_a_regressor_sees_states_rates_and_groups():
    Z, F, labels = linear_paths(4, 6)
    fitted = LatentForecast(MODES, Recorder(), lag=2).fit(*stacked(F), times=np.tile(np.arange(6) * 0.5, 4))
    X, y, groups = Recorder.seen
    assert X.shape == (4 * 4, 6) and y.shape == (16, 3) and np.array_equal(groups, np.repeat(np.arange(4), 4))
    latents = fitted.model_.transform(F[0])
    np.testing.assert_allclose(X[0], [*latents[1], *(latents[1] - latents[0])], atol=1e-12)
    np.testing.assert_allclose(y[0], latents[2] - latents[1], atol=1e-12)
    assert fitted.step_ == 0.5 and type(fitted.regressor_) is Recorder


@pytest.mark.parametrize("n", [500, 900])
def test_pairs_of_many_trajectories_are_of_all_their_parts(n):
    rows = np.tile(np.linspace(0, 1, 10), n)  # how far along its trajectory each field is
    F = rows[:, None] * PLANES[0] + 1
    LatentForecast(POD(1, invariants=None), Recorder()).fit(F, np.repeat(np.arange(n), 10))
    X, _, groups = Recorder.seen
    assert len(X) == 4000 and len(np.unique(groups)) > 0.9 * n
    counts = np.unique(X.round(6), return_counts=True)[1]
    assert len(counts) == 9 and counts.min() > 0.8 * counts.max()


def test_steps_that_differ_are_divided_by():
    times = np.cumsum(np.random.default_rng(4).uniform(0.05, 0.15, 40))
    Z, F, labels = linear_paths(10, dt=times)
    fitted = LatentForecast(MODES).fit(F.reshape(-1, 30), labels, np.tile(times, 10))
    assert fitted.step_ == np.median(np.diff(times))
    _, exact, _ = linear_paths(2, 20, dt=fitted.step_, seed=9)
    for path in exact:
        assert relative_l2(path[1:], fitted.forecast(path[:1], 19)).max() < 2e-3
    ignored = LatentForecast(MODES).fit(F.reshape(-1, 30), labels)
    assert relative_l2(exact[0, 1:], ignored.forecast(exact[0, :1], 19)).max() > 1e-2


def test_equal_steps_need_no_times():
    _, F, labels = linear_paths(4)
    rows = F.reshape(-1, 30)
    timed = LatentForecast(MODES).fit(rows, labels, 7 + 0.2 * np.tile(np.arange(25), 4))
    np.testing.assert_array_equal(
        timed.forecast(F[0, :1], 3), LatentForecast(MODES).fit(rows, labels).forecast(F[0, :1], 3)
    )
    assert timed.step_ == pytest.approx(0.2)


def standing_waves(n=10, steps=30):
    """cos(t + phase) of a mode: a field alone does not tell whether it rises or falls."""
    phase, size = np.random.default_rng(5).uniform([0, 0.5], [2 * np.pi, 1], (n, 2)).T[:, :, None]
    return 3 + (size * np.cos(0.3 * np.arange(steps) + phase))[:, :, None] * np.sin(np.arange(20) / 3)


def test_a_wave_needs_two_fields():
    waves = standing_waves()
    fitted = LatentForecast(POD(1, invariants=None), lag=2).fit(*stacked(waves[:8]))
    assert relative_l2(waves[8, 2:], fitted.forecast(waves[8, :2], 28)).max() < 1e-6
    single = LatentForecast(POD(1, invariants=None)).fit(*stacked(waves[:8]))
    assert relative_l2(waves[8, 2:], single.forecast(waves[8, 1:2], 28)).max() > 1e-2
    with pytest.raises(ValueError, match="fields must hold at least the last 2 of a trajectory"):
        fitted.forecast(waves[8, :1], 3)
    np.testing.assert_array_equal(fitted.forecast(waves[8, :9], 3), fitted.forecast(waves[8, 7:9], 3))


def test_a_lag_is_chosen_by_held_out_forecasts(tmp_path):
    waves = standing_waves()
    fitted = LatentForecast(POD(1, invariants=None), lag="auto").fit(*stacked(waves[:8]))
    assert fitted.lag_ == 2
    assert relative_l2(waves[8, 2:], fitted.forecast(waves[8, :2], 28)).max() < 1e-6
    with pytest.raises(ValueError, match="fields must hold at least the last 2"):
        fitted.forecast(waves[8, :1], 3)
    assert LatentForecast(MODES, LinearRegression(), lag="auto").fit(*stacked(linear_paths()[1])).lag_ == 1
    short = LatentForecast(POD(1, invariants=None), lag="auto").fit(*stacked(waves[:5, :3]))
    assert short.lag_ == 1  # too few fields for more
    F, labels = stacked(waves[:8])
    one_more = LatentForecast(POD(1, invariants=None), lag="auto").fit(np.vstack([F, F[:1]]), np.append(labels, 99))
    assert one_more.lag_ == 2  # a single field is no trajectory
    with pytest.raises(ValueError, match="lag"):
        LatentForecast(POD(1), lag="best").fit(*stacked(waves))


def test_without_a_model_there_are_modes_enough():
    """A translation on a ring is linear in all its modes, and those of 99.99 % of the energy miss 1 %."""
    place = np.arange(100)[:, None] / 37
    pulse = 0.1 + np.exp(-((((np.arange(60) / 60 - place + 0.5) % 1 - 0.5) / 0.05) ** 2))
    fitted = LatentForecast().fit(pulse[:75])
    assert relative_l2(pulse[75:], fitted.forecast(pulse[:75], 25)).max() < 1e-9
    assert fitted.held_out_errors_.shape[1] == 18 and len(fitted.held_out_errors_) == 36  # of two quarters


@pytest.mark.slow
def test_error_bars_grow_and_cover_trajectories_left_out():
    paths = bumps(60, seed=6)
    fitted = LatentForecast(POD(8, invariants="mass")).fit(*stacked(paths[:30]))
    inside = []
    for path in paths[30:]:
        found, bars = fitted.forecast(path[:1], 24, return_error=True)
        assert bars.shape == (24,) and (np.diff(bars) >= 0).all() and (bars > 0).all()
        inside.append(relative_l2(path[1:], found) <= bars)
    assert 0.8 <= np.mean(inside)
    _, half = fitted.forecast(paths[0, :1], 24, return_error=True, coverage=0.5)
    _, far = fitted.forecast(paths[0, :1], 60, return_error=True)
    assert (half < bars).all() and far[59] > far[23]


@pytest.mark.parametrize("n", [4, 6, 9])
def test_error_bars_cover_new_trajectories_though_few_were_seen(n):
    inside = []
    for seed in range(3):
        paths = bumps(n + 10, seed=seed + 100)
        fitted = LatentForecast(POD(5)).fit(*stacked(paths[:n]))
        for path in paths[n:]:
            found, bars = fitted.forecast(path[:1], 24, return_error=True, coverage=n / (n + 1))
            assert np.isfinite(bars).all()
            inside.append((relative_l2(path[1:], found) <= bars).mean())
    assert np.mean(inside) >= n / (n + 1)
    for coverage, needed in ((n / (n + 1) + 0.005, n + 1), (0.99, 99), (1, "inf")):
        with pytest.warns(
            UserWarning, match=rf"needs {needed} trajectories.* {n} of the fit support coverage <= {n}/{n + 1}"
        ):
            bars = fitted.forecast(path[:1], 30, return_error=True, coverage=coverage)[1]
        assert bars.shape == (30,) and np.isinf(bars).all()


def test_bars_grow_on_where_too_few_trajectories_go():
    F = bumps(10)
    rows, labels = stacked(F)
    short = (np.tile(np.arange(25), 10) < 12) | (labels < 2)  # two of 25 fields, the others of 12
    bars = LatentForecast(POD(5)).fit(rows[short], labels[short]).forecast(rows[:1], 24, return_error=True)[1]
    np.testing.assert_allclose(bars[11:], bars[10] * np.arange(12, 25) / 11)


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("longest", range(5))
def test_the_regressor_is_chosen_by_errors_wherever_the_longest_trajectory_stands(longest):
    rows, labels = stacked(bumps(5))
    some = (np.tile(np.arange(25), 5) < 12) | (labels == longest)
    fitted = LatentForecast(POD(5)).fit(rows[some], labels[some])
    assert fitted.regressor_.regularization < 1e3  # a constant is one without end


def test_nine_trajectories_at_least_are_left_out_of_many_snapshots():
    F, labels = stacked(bumps(12, 220))
    fitted = LatentForecast(POD(3), LinearRegression()).fit(F, labels)
    assert np.isfinite(fitted.forecast(F[:1], 5, return_error=True)[1]).all()


def test_one_label_is_a_single_trajectory():
    F = bumps(1)[0]
    expected = LatentForecast(POD(3)).fit(F).forecast(F[:1], 4, return_error=True)
    found = LatentForecast(POD(3)).fit(F, np.full(25, "run")).forecast(F[:1], 4, return_error=True)
    np.testing.assert_array_equal(found[0], expected[0])
    np.testing.assert_array_equal(found[1], expected[1])


@pytest.mark.parametrize("lag", [1, 2])
def test_the_fewest_snapshots_are_enough_and_one_less_is_refused(lag):
    F = bumps(3)
    for n, length in ((3, lag + 1), (2, lag + 2), (1, 4 * (lag + 1))):
        rows, labels = stacked(F[:n, :length])
        forecast = LatentForecast(POD(1), lag=lag)
        assert np.isfinite(forecast.fit(rows, labels).forecast(rows[:lag], 3)).all()
        with pytest.raises(ValueError, match=rf"two of {lag + 2}, or one of {4 * (lag + 1)}, got {n * length - 1}"):
            forecast.fit(rows[1:], labels[1:])


@pytest.mark.parametrize(
    ("attribute", "forged"),
    [
        ("held_out_errors_", lambda errors: np.full_like(errors, np.inf)),
        ("_angles", lambda _: np.array([7])),
        ("_angles", lambda _: np.array([0, 0])),
        ("lag_", lambda _: 2),
        ("_timed", lambda _: True),
        ("_box", lambda box: np.ascontiguousarray(box[::-1])),
        ("_runs", lambda runs: runs[1:].copy()),
    ],
)
def test_a_forged_file_is_refused(tmp_path, attribute, forged):
    fitted = LatentForecast(POD(3)).fit(*stacked(bumps(4)))
    setattr(fitted, attribute, forged(getattr(fitted, attribute)))
    with pytest.raises(ValueError):
        fitted.save(tmp_path / "forecast.npz")
        randsmap.load(tmp_path / "forecast.npz")


def test_forecasts_stay_near_the_snapshots():
    F = bumps(8)
    rows, labels = stacked(F)
    repelled = LatentForecast(POD(4), Pushing()).fit(rows, labels)
    latents = repelled.model_.transform(repelled.forecast(rows[:1], 500))
    seen = repelled.model_.transform(rows)
    ranges = np.ptp(seen, axis=0)
    margin = np.sqrt(ranges * ranges.max()) + 1e-9
    assert (latents <= seen.max(axis=0) + margin).all() and (latents >= seen.min(axis=0) - margin).all()


class Pushing(LinearRegression):
    """Every latent grows by a factor at each step."""

    def predict(self, X):
        return 1e6 * X


class TooMany(LinearRegression):
    """A column too many."""

    def predict(self, X):
        return np.zeros((len(X), 3))


def test_an_angle_has_no_jump():
    paths = bumps(10)
    aligned = ManifoldModel(POD(3, invariants="mass"))
    fitted = LatentForecast(randsmap.ShiftRegistration(aligned)).fit(*stacked(paths[:8]))
    found = fitted.forecast(paths[8, :1], 24)
    assert relative_l2(paths[8, 1:], found).max() < 0.1
    assert abs(found.sum(axis=1) - 1).max() < 1e-13


def test_a_fitted_model_is_taken_as_it_is_and_another_is_cloned():
    F, labels = stacked(bumps())
    model = ManifoldModel(POD(4))
    fitted = LatentForecast(model).fit(F, labels)
    assert not hasattr(model, "encoder_") and fitted.model_.encoder_.n_components_ == 4
    known = ManifoldModel(POD(4)).fit(F[:100])
    with pytest.warns(UserWarning, match="model is fitted: .* error bars are too small") as warned:
        taken = LatentForecast(known).fit(F, labels)
    assert len(warned) == 1 and taken.model_ is known
    copied = clone(fitted.set_params(lag=3))
    assert copied.get_params()["model__encoder__n_components"] == 4 and copied.lag == 3 and copied.regressor is None
    with pytest.raises(NotFittedError):
        copied.forecast(F[:3], 1)


def test_groups_reach_a_decoder_that_searches():
    F, labels = stacked(bumps(6, 12))
    decoder = randsmap.AutoDecoder(families="gaussian", n_trials=1, invariants="mass")
    fitted = LatentForecast(ManifoldModel(POD(3), decoder)).fit(F, labels)
    alone = clone(decoder).fit(fitted.model_.encoder_.transform(F), F, groups=labels)
    assert fitted.model_.decoder_.held_out_error_ == alone.held_out_error_


def test_asking_a_forecast_for_an_error_bar_without_steps_leaves_it_as_it_is(tmp_path):
    F, labels = stacked(bumps(4))
    fitted = LatentForecast(ManifoldModel(POD(3), randsmap.KernelDecoder(regularization=1e-6))).fit(F, labels)
    with pytest.raises(AttributeError, match=r"grow with the steps: forecast\(..., return_error=True\)"):
        fitted.error_bar_  # noqa: B018
    fitted.save(tmp_path / "forecast.npz")


@pytest.mark.filterwarnings("ignore:the mass of these fields")
@pytest.mark.parametrize("weights", [None, np.linspace(1, 2, 30)])
def test_absolute_bars_are_relative_to_what_held_out_errors_are(weights, tmp_path):
    Z, _, labels = linear_paths(4)
    F = np.concatenate([Z, -Z]).reshape(-1, 3) @ PLANES  # their mean is 0
    F, labels = F + 1e-3 * np.random.default_rng(0).normal(size=F.shape), np.append(labels, labels + 4)
    F -= F.mean(axis=0)
    fitted = LatentForecast(POD(3, invariants=None, cell_weights=weights)).fit(F, labels)
    fitted.save(tmp_path / "forecast.npz")
    w = np.ones(30) if weights is None else weights
    usual = np.median(np.sqrt(F**2 @ w))
    for scale in (1, 1e-9, 0):
        found, relative = fitted.forecast(scale * F[:1], 5, return_error=True, coverage=0.8)
        absolute = randsmap.load(tmp_path / "forecast.npz").forecast(
            scale * F[:1], 5, return_error="absolute", coverage=0.8
        )[1]
        norms = np.sqrt(found**2 @ w)
        assert (norms > 0.1 * usual).all() or (norms < 9e-4 * usual).all()
        expected = relative * np.maximum(norms, 1e-3 * usual)
        np.testing.assert_allclose(absolute, expected, rtol=1e-9)


def test_files_hold_forecasts(tmp_path):
    F, labels = stacked(bumps(8))
    for lag in (1, 2):
        fitted = LatentForecast(ManifoldModel(POD(4)), lag=lag).fit(F, labels)
        fitted.save(tmp_path / "forecast.npz")
        again = randsmap.load(tmp_path / "forecast.npz")
        for found, expected in zip(
            again.forecast(F[:4], 9, return_error=True, coverage=0.8),
            fitted.forecast(F[:4], 9, return_error=True, coverage=0.8),
        ):
            np.testing.assert_array_equal(found, expected)


def test_fields_of_a_shape_and_labels_come_back():
    xarray = pytest.importorskip("xarray")
    F = bumps(6, 12).reshape(-1, 5, 8)
    labels = np.repeat(np.arange(6), 12)
    expected = LatentForecast(MODES).fit(F.reshape(-1, 40), labels).forecast(F.reshape(-1, 40)[:1], 4)
    found = LatentForecast(MODES).fit(F, labels).forecast(F[:1], 4)
    np.testing.assert_allclose(found, expected.reshape(-1, 5, 8), atol=1e-12)
    named = xarray.DataArray(F, dims=("time", "y", "x"), coords={"x": np.arange(8.0)})
    fitted = LatentForecast(MODES).fit(named, labels)
    array = fitted.forecast(named[:1], 4)
    assert array.dims == ("time", "y", "x") and np.array_equal(array.x, np.arange(8.0))
    with pytest.raises(ValueError, match="fields has other labels"):
        fitted.forecast(named[:1].isel(x=slice(None, None, -1)), 4)


def test_wrong_arguments_are_named():
    F, labels = stacked(bumps(4, 10))
    cases = [
        ({"groups": labels[:5]}, ValueError, "groups must hold one label"),
        ({"times": np.arange(39)}, ValueError, "times must have length 40"),
        ({"groups": labels, "times": np.zeros(40)}, ValueError, "times must increase along each trajectory"),
        ({"groups": labels, "times": -np.arange(40)}, ValueError, "times must increase"),
        ({"times": np.full(40, np.nan)}, ValueError, "times must be finite"),
        ({"groups": np.arange(40)}, ValueError, "snapshots must hold three trajectories of more than lag=1"),
    ]
    for options, error, message in cases:
        with pytest.raises(error, match=message):
            LatentForecast(POD(2)).fit(F, **options)
    for model, error, message in [
        (POD, TypeError, "model must be an estimator"),
        (KernelDecoder(), TypeError, "model must be an estimator"),
        (randsmap.DiffusionMaps(2), TypeError, "model must be an estimator"),
    ]:
        with pytest.raises(error, match=message):
            LatentForecast(model).fit(F, labels)
    for regressor, error in [
        (LinearRegression, TypeError),
        (randsmap.DiffusionMaps(2), TypeError),
        (Recorder().fit, TypeError),
        (TooMany(), ValueError),
    ]:
        with pytest.raises(error, match="regressor must"):
            LatentForecast(POD(2), regressor).fit(F, labels)
    for lag, error in ((0, ValueError), (1.5, TypeError), (True, TypeError), (10, ValueError)):
        with pytest.raises(error, match="lag"):
            LatentForecast(POD(2), lag=lag).fit(F, labels)
    fitted = LatentForecast(POD(2)).fit(F, labels)
    before = fitted.forecast(F[:1], 2)
    with pytest.raises(ValueError):
        fitted.fit(F[:3])
    np.testing.assert_array_equal(fitted.forecast(F[:1], 2), before)
    for fields, steps, options, message in [
        (F[:0], 2, {}, "fields must hold at least the last 1"),
        (F[0], 2, {}, "fields must"),
        (F[:1, :5], 2, {}, "features"),
        (F[:1] * np.nan, 2, {}, "fields must be finite"),
        (F[:1], 0, {}, "n_steps must be at least 1"),
        (F[:1], 2, {"coverage": 0}, "coverage"),
        (F[:1], 2, {"coverage": 1.2}, "coverage"),
    ]:
        with pytest.raises(ValueError, match=message):
            fitted.forecast(fields, steps, **options)
    for steps in (1.5, True, "3"):
        with pytest.raises(TypeError, match="n_steps"):
            fitted.forecast(F[:1], steps)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.isfinite(fitted.forecast(F[:1, ::-1], 50)).all()

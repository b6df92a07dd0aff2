"""Shift registration: conservative shifts of fields, and models of aligned ones."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from sklearn.base import clone

import randsmap
from randsmap import KernelDecoder, ManifoldModel, ShiftRegistration
from randsmap._kernels import linear_map as kernel
from randsmap.maps.linear_map import Basis, LinearMap, map_arrays
from randsmap.model import latent_map

EPS = np.finfo(float).eps
pytestmark = pytest.mark.kernels
LINES = hnp.arrays(np.float64, (3, 2, 9), elements=st.floats(-1e3, 1e3))


def bumps(n=60, N=48, seed=0):
    rng = np.random.default_rng(seed)
    x = np.arange(N) / N
    centre, width = rng.uniform([0, 0.06], [1, 0.15], (n, 2)).T
    F = np.exp(-((((x - centre[:, None] + 0.5) % 1 - 0.5) / width[:, None]) ** 2))
    return F / F.sum(axis=1, keepdims=True)


def model(**options):
    decoder = KernelDecoder(length_scale=1.0, **{"regularization": 1e-8, "invariants": "mass", **options})
    return ManifoldModel(randsmap.DiffusionMaps(1), decoder)


def carrier(shape, low=-np.inf, high=np.inf):
    """C's shifts of lines (k, N) within limits."""
    M = int(np.prod(shape))
    arrays = {"axis": np.array([*shape, 1]), "lower": np.full(M, low), "upper": np.full(M, high)}
    return LinearMap.of(map_arrays(Basis(kind=kernel.SHIFT, n_components=1 + M, n_own=1, n_cells=M, arrays=arrays), {}))


def points(F, shift):
    """Angles of shifts in cells (n,), and lines F (n, k, N), as one row each."""
    return np.hstack([2 * np.pi / F.shape[2] * np.reshape(shift, (-1, 1)), F.reshape(len(F), -1)])


def shift_lines(F, shift, *limits):
    return carrier(F.shape[1:], *limits).fields(points(F, shift)).reshape(F.shape)


def plain(F, shift, low, high):
    """The same in NumPy, of complex lines and shifts, too, where no parabola is a line."""
    whole = np.floor(shift.real)
    w = (shift - whole)[:, None, None]
    low = np.where(F.real.min(axis=2, keepdims=True) >= 0, max(low, 0.0), low)
    right = (7 * (F + np.roll(F, -1, 2)) - np.roll(F, 1, 2) - np.roll(F, -2, 2)) / 12
    left = np.roll(right, 1, 2)
    curve = 6 * (F - (left + right) / 2)
    x = (right - left + curve) / (2 * np.where(curve == 0, 1, curve))
    x = np.where((x.real > 0) & (x.real < 1), x, 0)
    scale = np.ones_like(F)
    for value in (left, right, left + x * (right - left + curve * (1 - x))):
        for limit, beyond in ((low, value.real < low), (high, value.real > high)):
            factor = np.where(beyond, F - limit, 1) / np.where(beyond, F - value, 1)
            scale = np.where(factor.real < scale.real, np.where(factor.real > 0, factor, 0), scale)
    left, right = F + scale * (left - F), F + scale * (right - F)
    curve = 6 * (F - (left + right) / 2)

    def integral(a, b):  # of the parabola from a to b
        return sum(c * (b**p - a**p) / p for p, c in ((1, left), (2, right - left + curve), (3, -curve)))

    moved = integral(0, 1 - w) + np.roll(integral(1 - w, 1), 1, 2)
    return np.stack([np.roll(line, int(k), 1) for line, k in zip(moved, whole)])


@pytest.mark.parametrize("limits", [(-np.inf, np.inf), (0.0, np.inf), (-0.5, 1.0)])
def test_shifts_and_tangents_are_those_of_the_formula_by_complex_steps(limits):
    rng = np.random.default_rng(3)
    # near the limits, where it is scaled, not at them, where it has kinks
    F = 0.99 * np.clip(rng.normal(size=(40, 2, 9)).cumsum(axis=2) / 2, *limits) + 1e-3
    shift, speed, T, h = rng.uniform(-20, 20, 40), rng.normal(size=40), rng.normal(size=F.shape), 1e-100
    expected = plain(F + h * 1j * T, shift + h * 1j * speed, *limits)
    size = 100 * EPS * np.abs(F).max()
    np.testing.assert_allclose(shift_lines(F, shift, *limits), expected.real, rtol=0, atol=size)
    moved = carrier(F.shape[1:], *limits).jvp(points(F, shift), points(T, speed))
    steep = np.abs(expected.imag / h).max(axis=(1, 2))  # a scale moves the faster the flatter its parabola is
    assert (np.abs(moved.reshape(F.shape) - expected.imag / h).max(axis=(1, 2)) <= 1e-12 * steep).all()


@given(LINES, hnp.arrays(np.float64, 3, elements=st.floats(-1e6, 1e6)))
def test_shifts_keep_sums(F, shift):
    G = shift_lines(F, shift)
    assert (np.abs(G.sum(axis=2) - F.sum(axis=2)) <= 40 * EPS * np.abs(F).sum(axis=2) + 1e-290).all()


@given(
    hnp.arrays(np.float64, (3, 2, 9), elements=st.floats(0, 1e3)),
    hnp.arrays(np.float64, 3, elements=st.floats(-99, 99)),
)
def test_shifts_make_no_negative_values(F, shift):
    assert (shift_lines(F, shift) >= 0).all()


@given(
    hnp.arrays(np.float64, (3, 2, 9), elements=st.floats(-1, 2)), hnp.arrays(np.float64, 3, elements=st.floats(-99, 99))
)
def test_shifts_keep_limits(F, shift):
    G = shift_lines(F, shift, -1.0, 2.0)
    assert (G >= -1).all() and (G <= 2).all()


@given(LINES, st.integers(-100, 100))
def test_whole_cells_are_rolled(F, k):
    np.testing.assert_allclose(
        # the angle is rounded, and so are the cells
        shift_lines(F, np.full(3, float(k))),
        np.roll(F, k, axis=2),
        rtol=0,
        atol=(8 + 2 * abs(k)) * EPS * np.abs(F).max(initial=0),
    )


def test_shifts_are_of_third_order_or_better():
    errors = []
    for N in (32, 64, 128):
        edges = 2 * np.pi * np.arange(N + 1) / N

        def averages(offset, edges=edges, N=N):  # exact ones of 2 + sin(x - offset)
            return (2 + -np.diff(np.cos(edges - offset)) * N / (2 * np.pi))[None, None]

        shift = 7.3
        G = shift_lines(averages(0.0), np.array([shift]))
        errors.append(np.abs(G - averages(2 * np.pi * shift / N)).max())
    assert errors[0] / errors[1] > 2**2.9 and errors[1] / errors[2] > 2**2.9


@pytest.mark.parametrize(("shape", "axis"), [(None, -1), ((3, 48), 1), ((48, 3), 0), ((2, 48, 3), -2)])
def test_aligned_fields_have_one_phase_and_decoded_ones_keep_the_mass(shape, axis):
    lines = bumps()
    if shape is None:
        F = lines
    else:
        profile = np.linspace(1, 2, int(np.prod(shape)) // 48)
        F = np.moveaxis(
            (lines[:, :, None] * profile).reshape(len(lines), 48, *np.delete(shape, axis)), 1, 1 + axis % len(shape)
        ).reshape(len(lines), -1)
        F = F / F.sum(axis=1, keepdims=True)
    fitted = ShiftRegistration(model(), shape=shape, axis=axis).fit(F)
    Y = fitted.transform(F)
    assert Y.shape == (len(F), 2) and (Y[:, 0] >= -np.pi).all() and (Y[:, 0] < np.pi).all()
    theta = fitted.transform(fitted.registered(F)[1])[:, 0]
    assert np.abs(theta).max() < 1e-2
    G = fitted.inverse_transform(Y + [[1e3, 0.0]])
    assert (np.abs(G.sum(axis=1) - 1) <= 1e-14 * (np.abs(G).sum(axis=1) + 1)).all()
    assert randsmap.metrics.relative_l2(F, fitted.reconstruct(F)).mean() < 0.02
    np.testing.assert_array_equal(fitted.inverse_transform(Y, cells=[5, -1]), fitted.inverse_transform(Y)[:, [5, -1]])
    out = np.empty_like(F)
    assert fitted.inverse_transform(Y, out=out) is out
    np.testing.assert_array_equal(out, fitted.inverse_transform(Y))


def test_a_shifted_field_differs_in_theta_alone():
    F = bumps()
    fitted = ShiftRegistration(model()).fit(F)
    a, b = fitted.transform(F), fitted.transform(np.roll(F, 5, axis=1))
    moved = (b[:, 0] - a[:, 0] - 2 * np.pi * 5 / 48 + np.pi) % (2 * np.pi) - np.pi
    assert np.abs(moved).max() < 1e-12 and np.abs(b[:, 1] - a[:, 1]).max() < 1e-9
    np.testing.assert_allclose(fitted.inverse_transform(a + [2 * np.pi, 0]), fitted.inverse_transform(a), atol=1e-12)


def test_fields_without_a_first_mode_have_phase_zero():
    F = bumps()
    fitted = ShiftRegistration(model()).fit(F)
    for field in (np.full((1, 48), 1 / 48), np.tile(bumps(1, 24), 2) / 2):
        assert fitted.transform(field)[0, 0] == 0


def test_bounds_hold_after_the_shift():
    F = bumps()
    fitted = ShiftRegistration(model(bounds=(0.0, 0.2))).fit(F)
    G = fitted.inverse_transform(np.random.default_rng(0).normal(0, 2, (200, 2)))
    assert G.min() >= 0 and G.max() <= 0.2
    assert (np.abs(G.sum(axis=1) - 1) <= 1e-14 * (np.abs(G).sum(axis=1) + 1)).all()


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"invariants": np.arange(1.0, 49.0)[:, None], "invariant_tol": 1.0, "invariant_values": [1.0]}, "invariants"),
        ({"cell_weights": np.linspace(1, 2, 48), "invariants": None}, "cell_weights"),
        ({"bounds": (0.0, np.linspace(1, 2, 48))}, "bounds"),
    ],
)
def test_what_changes_along_the_axis_is_refused(options, name):
    estimator = ShiftRegistration(model(**options))
    with pytest.raises(ValueError, match=f"{name} must be the same all along the periodic axis"):
        estimator.fit(bumps())
    assert not hasattr(estimator, "model_")


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [({"shape": (7, 7)}, "49 cells"), ({"shape": (16, 3), "axis": 1}, "at least 4"), ({"axis": 1}, "axis must be")],
)
def test_shapes_that_do_not_fit_are_refused(kwargs, message):
    with pytest.raises(ValueError, match=message):
        ShiftRegistration(model(), **kwargs).fit(bumps())
    with pytest.raises(TypeError, match="ManifoldModel"):
        ShiftRegistration(KernelDecoder()).fit(bumps())


def test_jvp_is_the_derivative_and_keeps_the_mass():
    F = bumps()
    fitted = ShiftRegistration(model(regularization=1e-3)).fit(F)
    Y = fitted.transform(F)
    V, h = np.random.default_rng(1).standard_normal(Y.shape), 1e-6
    tangent = fitted.jvp(Y, V)
    difference = (fitted.inverse_transform(Y + h * V) - fitted.inverse_transform(Y - h * V)) / (2 * h)
    away = np.abs((Y[:, 0] * 48 / (2 * np.pi) + 0.5) % 1 - 0.5) > 1e-3  # from whole cells, where it jumps
    np.testing.assert_allclose(tangent[away], difference[away], rtol=0, atol=1e-6 * np.abs(tangent).max())
    assert np.abs(tangent.sum(axis=1)).max() <= 1e-12 * np.abs(tangent).sum(axis=1).max()
    J = fitted.jacobian(Y)
    size = 64 * EPS * np.abs(J).sum(axis=2).max()
    np.testing.assert_allclose((J @ V[:, :, None])[:, :, 0], tangent, rtol=0, atol=size * np.abs(V).max())
    U, some = np.random.default_rng(2).standard_normal(F.shape), np.array([5, 0, -1])
    np.testing.assert_allclose(fitted.vjp(Y, U), np.einsum("nm,nmd->nd", U, J), rtol=0, atol=48 * size * 4)
    np.testing.assert_array_equal(fitted.jacobian(Y, cells=some), J[:, some])
    np.testing.assert_array_equal(
        fitted.vjp(Y, U[:, some], cells=some), np.einsum("nm,nmd->nd", U[:, some], J[:, some])
    )
    for name, more, right in (("jacobian", (), J), ("jvp", (V,), tangent), ("vjp", (U,), fitted.vjp(Y, U))):
        out = np.empty(right.shape)
        assert getattr(fitted, name)(Y, *more, out=out) is out
        np.testing.assert_array_equal(out, right)
        with pytest.raises(ValueError, match="out must have shape"):
            getattr(fitted, name)(Y, *more, out=out[1:])
    vectors = U[:, :2].copy()
    for out, name in ((Y, "X"), (vectors, "U")):  # written while they are read
        with pytest.raises(ValueError, match=f"out must not share memory with {name}"):
            fitted.vjp(Y, vectors, out=out, cells=[0, 1])


def test_derivatives_are_those_without_consistency_steps():
    F = bumps()
    fitted = ShiftRegistration(model(regularization=1e-3)).fit(F)
    Y = fitted.transform(F)[:4] + 0.01
    plain = fitted.jacobian(Y)
    np.testing.assert_array_equal(fitted.set_params(model__consistency=2).jacobian(Y), plain)
    fitted.model_.set_params(consistency=2)
    np.testing.assert_array_equal(fitted.jacobian(Y), plain)
    # of cells, and by JAX and PyTorch, fields are those that have these derivatives
    decode, M = latent_map(fitted, "jacobian")[0], F.shape[1]
    np.testing.assert_array_equal(decode(Y), fitted.inverse_transform(Y, consistency=0))
    assert (decode(Y) != fitted.inverse_transform(Y)).any()
    with pytest.warns(UserWarning, match=f"decodes {3 * M} values and a whole field has {M}"):
        randsmap.SampledModel(fitted, lambda t, f: f, [3, 20, 40])


def test_saved_loaded_cloned(tmp_path):
    F = bumps()
    fitted = ShiftRegistration(model()).fit(F)
    fitted.save(tmp_path / "model.npz")
    again = randsmap.load(tmp_path / "model.npz")
    np.testing.assert_array_equal(again.reconstruct(F), fitted.reconstruct(F))
    np.testing.assert_array_equal(clone(fitted).fit(F).reconstruct(F), fitted.reconstruct(F))
    assert fitted.score(F) < 0 and len(fitted.get_feature_names_out()) == 2


def test_batches_are_aligned_as_all_fields_are():
    F, decoder = bumps(), randsmap.RANDSMAPDecoder(random_state=0)
    inside = ManifoldModel(randsmap.POD(2), decoder)
    streamed = ShiftRegistration(inside).partial_fit(F[:40]).partial_fit(F[40:])
    aligned = ShiftRegistration(inside).fit(F).registered(F)[1]
    alone = clone(inside).partial_fit(aligned[:40]).partial_fit(aligned[40:])
    np.testing.assert_array_equal(streamed.model_.decoder_.coef_, alone.decoder_.coef_)
    assert streamed.model_.decoder_.n_samples_seen_ == 60 and abs(streamed.reconstruct(F).sum(axis=1) - 1).max() < 1e-14
    with pytest.warns(UserWarning, match="partial_fit discards it"):
        assert clone(streamed).fit(F).partial_fit(F[:40]).model_.decoder_.n_samples_seen_ == 40
    assert not hasattr(ShiftRegistration(model()), "partial_fit")


def test_cell_weights_weigh_the_lines_in_theta():
    F, lines = bumps()[:, None] * np.ones((3, 1)), [20, 1, 1]  # the first line in 20 parts
    F[:, 1], F[:, 2] = 2 * np.roll(F[:, 0], 7, axis=1), np.roll(F[:, 0], 15, axis=1)
    thetas = []
    for split in (np.ones(3, int), np.array(lines)):
        weights = np.repeat(np.ones((3, 48)) / split[:, None], split, axis=0)
        registered = ShiftRegistration(ManifoldModel(randsmap.POD(2, cell_weights=weights, invariants=None)))
        fields = np.repeat(F, split, axis=1)
        thetas.append(registered.fit(fields).transform(fields)[:, 0])
    np.testing.assert_allclose(thetas[1], thetas[0], atol=1e-12)


@pytest.mark.parametrize(
    ("encoder", "decoder"),
    [
        (lambda w: randsmap.POD(2, cell_weights=w, invariants=None), None),
        (lambda w: randsmap.DiffusionMaps(2, cell_weights=w), randsmap.KNNDecoder(3)),
        (lambda w: randsmap.DiffusionMaps(2), lambda w: randsmap.KernelDecoder(cell_weights=w, invariants=None)),
        (lambda w: randsmap.POD(2, cell_weights=w), lambda w: randsmap.KernelDecoder(cell_weights=np.ones(len(w)))),
    ],
)
def test_weights_that_change_along_the_axis_are_refused_without_invariants_too(encoder, decoder):
    x = np.arange(12) / 12
    F = np.exp(np.cos(2 * np.pi * (x - np.linspace(0, 1, 30)[:, None])) * np.linspace(1, 2, 30)[:, None])
    for weights, same in ((np.ones(12), True), (1 + x, False)):
        given = decoder(weights) if callable(decoder) else decoder
        model = randsmap.ShiftRegistration(randsmap.ManifoldModel(encoder(weights), given))
        if same:
            assert model.fit(F).reconstruct(F).shape == F.shape
        else:
            with pytest.raises(ValueError, match="cell_weights must be the same all along the periodic axis"):
                model.fit(F)

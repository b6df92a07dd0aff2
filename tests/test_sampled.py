"""Sampled reduced models: which cells are chosen, and what the rates at them give."""

import runpy
from pathlib import Path

import numpy as np
import pytest
from scipy.integrate import solve_ivp
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression

import randsmap
from randsmap import (
    ConservativeRegressor,
    KernelDecoder,
    ManifoldModel,
    RANDSMAPDecoder,
    SampledModel,
    sample_cells,
    stencil,
)

from helpers import random_problem

EXAMPLE = Path(__file__).resolve().parent.parent / "examples" / "sampled_model.py"
CONSTANT = {3: 0.25, 11: 0.0}


def fitted(d=2, M=40, **options):
    Y, F = random_problem(n=80, M=M, d=d, constant=CONSTANT)
    decoder = KernelDecoder(length_scale=1.0, regularization=1e-3, **{"invariants": "mass", **options})
    return decoder.fit(Y, F), Y, F


class Spy:
    """A decoder that is asked for nothing but some cells."""

    def __init__(self, decoder):
        self.decoder, self.n_features_in_, self.field_shape_ = decoder, decoder.n_features_in_, decoder.field_shape_
        self.asked = 0

    def predict(self, Y, *, cells):
        self.asked = max(self.asked, len(cells) * len(Y))
        return self.decoder.predict(Y, cells=cells)

    def jacobian(self, Y, *, cells):
        self.asked = max(self.asked, len(cells) * len(Y))
        return self.decoder.jacobian(Y, cells=cells)


# -- Stencils --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "boundary, mode", [("periodic", "wrap"), ("clamp", "edge"), ("mirror", "symmetric"), ("outside", "constant")]
)
@pytest.mark.parametrize("shape", [(7,), (3, 5), (2, 3, 4), (1, 4)])
def test_neighbours_are_those_of_a_padded_field(boundary, mode, shape):
    rng = np.random.default_rng(0)
    M, far = int(np.prod(shape)), 9  # several times around the smaller axes
    field = rng.normal(size=M)
    cells = rng.choice(M, 3, replace=False)
    offsets = rng.integers(-far, far + 1, size=(6, len(shape)))
    needed, index = stencil(cells - M, shape, offsets if len(shape) > 1 else offsets[:, 0].tolist(), boundary=boundary)
    padded = np.pad(field.reshape(shape), far, mode)
    places = np.stack(np.unravel_index(cells, shape), axis=1)[:, None] + far + offsets
    assert np.array_equal(np.append(field[needed], 0.0)[index], padded[tuple(np.moveaxis(places, 2, 0))])
    assert np.array_equal(needed, np.unique(needed)) and set(index.ravel()) >= set(range(len(needed)))


def test_each_axis_has_its_boundary_and_cells_may_be_a_mask():
    mask = np.zeros((3, 4), bool)
    mask[0, 3] = True
    needed, index = stencil(mask, (3, 4), [(-1, 0), (0, 1)], boundary=["periodic", "outside"])
    assert needed.tolist() == [11] and index.tolist() == [[0, 1]]


@pytest.mark.parametrize(
    "options, error, message",
    [
        ({"shape": (3, 0)}, ValueError, "shape must be at least 1, got 0"),
        ({"shape": (3, 4.5)}, TypeError, "shape must be an integer"),
        ({"shape": (1 << 40, 1 << 40)}, ValueError, "shape must be that of a grid"),
        ({"cells": [12]}, ValueError, r"cells\[0\] is 12, out of range for 12 cells"),
        ({"offsets": [0, 1]}, ValueError, r"offsets must have shape \(p, 2\)"),
        ({"offsets": [(0, 0.5)]}, TypeError, "offsets must hold integers"),
        ({"offsets": [(0, 1 << 62)]}, TypeError, "offsets must hold integers"),
        ({"boundary": "wall"}, ValueError, "boundary must be one of 'periodic', 'clamp'"),
        ({"boundary": ["clamp"]}, ValueError, "boundary must be one rule, or one for each of 2 axes"),
    ],
)
def test_stencils_that_make_no_sense_are_refused(options, error, message):
    with pytest.raises(error, match=message):
        stencil(**{"cells": [0], "shape": (3, 4), "offsets": [(0, 1)], **options})


@pytest.mark.parametrize("bounded", [False, True])
def test_cells_that_do_not_pay_are_warned_of(bounded, recwarn):
    decoder, _, _ = fitted(bounds="nonnegative" if bounded else None)  # d = 2, M = 40
    cells = np.arange(10)
    SampledModel(decoder, lambda t, f: f, cells, stencil=np.arange(19))
    assert bounded == any("decodes 120 values and a whole field has 40" in str(w.message) for w in recwarn)
    with pytest.warns(
        UserWarning, match="more than 2.7 decodings" if bounded else "40 values .* more than 0 decodings"
    ):
        SampledModel(decoder, lambda t, f: f, cells, stencil=np.arange(20))
    with pytest.warns(UserWarning, match="sampling is faster in no case"):
        SampledModel(decoder, lambda t, f: f, np.arange(40))


# -- Cells -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("d", [1, 2, 3])
@pytest.mark.parametrize("n_cells", [3, 10, 38])
def test_cells_differ_and_none_is_constant(d, n_cells):
    decoder, Y, _ = fitted(d)
    cells = sample_cells(decoder, Y, n_cells)
    assert cells.dtype == np.intp and len(set(cells)) == len(cells) == n_cells
    assert not set(cells) & set(CONSTANT)
    np.testing.assert_array_equal(sample_cells(decoder, Y, n_cells), cells)


def test_more_cells_than_modes_are_chosen_in_rounds():
    """A line has two modes; the cells beyond them are still chosen, each once."""
    Y = np.linspace(0, 1, 20)[:, None]
    F = Y * np.arange(1.0, 31.0)
    cells = sample_cells(KernelDecoder(degree=1, regularization=1e-3).fit(Y, F), Y, 30)
    assert sorted(cells) == list(range(30))
    assert cells[0] == 29  # where the field changes most


@pytest.mark.parametrize("d", [2, 3])
def test_derivatives_in_the_cells_are_well_conditioned(d):
    decoder, Y, _ = fitted(d, M=300)
    cells = sample_cells(decoder, Y, 6 * d)
    worst = max(
        np.linalg.cond(J) / np.linalg.cond(K) for J, K in zip(decoder.jacobian(Y, cells=cells), decoder.jacobian(Y))
    )
    rng = np.random.default_rng(0)
    drawn = [rng.choice(300, 6 * d, replace=False) for _ in range(20)]
    others = [np.linalg.cond(decoder.jacobian(Y, cells=S)).max() for S in drawn]
    assert worst < 5
    assert np.linalg.cond(decoder.jacobian(Y, cells=cells)).max() < np.median(others)


def test_units_of_the_latents_do_not_matter():
    decoder, Y, F = fitted()
    scaled = KernelDecoder(length_scale=1.0, regularization=1e-3, invariants="mass").fit(Y * [1024.0, 2.0**-7], F)
    np.testing.assert_array_equal(sample_cells(scaled, Y * [1024.0, 2.0**-7], 12), sample_cells(decoder, Y, 12))


def test_points_whose_fields_overflow_are_refused():
    decoder, Y, _ = fitted(invariants=None)
    with pytest.raises(ValueError, match="0 or of magnitude"), np.errstate(all="ignore"):
        sample_cells(decoder, Y * 1e160, 5)


def test_cells_of_models_and_of_pod():
    _, Y, F = fitted()
    pod = randsmap.POD(3).fit(F)
    latents = pod.transform(F)
    cells = sample_cells(pod, latents, 7)
    np.testing.assert_array_equal(sample_cells(ManifoldModel(randsmap.POD(3)).fit(F), latents, 7), cells)
    assert np.linalg.cond(pod.inverse_jacobian(latents[:1], cells=cells)[0]) < 5
    model = ManifoldModel(randsmap.POD(2), RANDSMAPDecoder(random_state=0)).fit(F)
    assert not set(sample_cells(model, model.transform(F), 20)) & set(CONSTANT)


@pytest.mark.parametrize("shape", [(40,), (5, 8)])
def test_cells_of_labelled_fields_are_those_of_their_numbers(shape):
    xarray = pytest.importorskip("xarray")
    _, Y, F = fitted()
    F = F.reshape(-1, *shape)
    for estimator in (randsmap.POD(3), ManifoldModel(randsmap.POD(3), KernelDecoder(length_scale=1.0))):
        plain, named = estimator.fit(F), clone(estimator).fit(xarray.DataArray(F))
        latents = plain.transform(F)
        np.testing.assert_array_equal(sample_cells(named, latents, 7), sample_cells(plain, latents, 7))
        if hasattr(plain, "decoder_"):
            cells = sample_cells(plain.decoder_, latents, 7)
            np.testing.assert_array_equal(sample_cells(named.decoder_, latents, 7), cells)


@pytest.mark.parametrize(
    "n_cells, error, message",
    [
        (39, ValueError, "at most the 38 cells that vary over the latents, got 39"),
        (41, ValueError, "at most the number of cells"),
        (1, ValueError, "n_cells must be at least 2, got 1"),
        (4.0, TypeError, "n_cells must be an integer"),
    ],
)
def test_numbers_of_cells_that_cannot_be(n_cells, error, message):
    decoder, Y, _ = fitted()
    with pytest.raises(error, match=message):
        sample_cells(decoder, Y, n_cells)


def test_what_cannot_be_sampled():
    decoder, Y, F = fitted()
    with pytest.raises(TypeError, match="ConservativeRegressor"):
        sample_cells(ConservativeRegressor(LinearRegression()).fit(Y, F), Y, 5)
    with pytest.raises(ValueError, match="latents must have 2 columns, got 1"):
        sample_cells(decoder, Y[:, :1], 5)
    with pytest.raises(ValueError, match="latents must be finite"):
        sample_cells(decoder, Y * np.inf, 5)


def test_decoders_that_are_not_fitted():
    for decoder in (KernelDecoder(), randsmap.POD(2), ManifoldModel(randsmap.POD(2), KernelDecoder())):
        with pytest.raises(NotFittedError):
            sample_cells(decoder, [[0.0, 1.0]], 2)
        with pytest.raises(NotFittedError):
            SampledModel(decoder, abs, [0, 1])


def test_fields_of_one_cell():
    Y = np.linspace(0, 1, 20)[:, None]
    decoder = KernelDecoder().fit(Y, np.sin(Y[:, 0]))
    np.testing.assert_array_equal(sample_cells(decoder, Y, 1), [0])
    v = SampledModel(decoder, lambda t, f: np.cos(0.5) * np.ones(1), [0]).velocity(0.0, [0.5])
    np.testing.assert_allclose(v, np.cos(0.5) / decoder.jacobian([[0.5]]).ravel(), rtol=1e-12)


# -- Rates -----------------------------------------------------------------------------------------


def test_all_cells_give_the_projection_on_the_tangent_space():
    decoder, Y, _ = fitted()
    G = np.random.default_rng(0).normal(size=40)
    model = SampledModel(decoder, lambda t, f: G, np.arange(40))
    expected = np.linalg.lstsq(decoder.jacobian(Y[:1])[0], G, rcond=None)[0]
    np.testing.assert_allclose(model.velocity(0.0, Y[0]), expected, rtol=1e-12)


@pytest.mark.parametrize("d", [1, 2, 3])
def test_a_rate_along_the_manifold_is_found_from_any_cells(d):
    decoder, Y, _ = fitted(d)
    v = np.arange(1.0, 1 + d)
    for n_cells in (d, 3 * d):
        cells = sample_cells(decoder, Y, n_cells)
        for y in Y[:5]:
            model = SampledModel(decoder, lambda t, f: decoder.jacobian(y[None], cells=cells)[0] @ v, cells)
            np.testing.assert_allclose(model.velocity(0.0, y), v, rtol=1e-13 * model.condition(y))


def test_rhs_gets_time_and_the_field_at_the_stencil_in_its_order():
    decoder, Y, _ = fitted()
    cells, stencil, seen = [5, 20, -1], [7, 6, 6, -40], []

    def rhs(t, f):
        seen.append((t, f.copy()))
        return [1, 2, 3]

    model = SampledModel(decoder, rhs, cells, stencil=stencil)
    np.testing.assert_array_equal(model.cells, [5, 20, 39])
    v = model.velocity(0.5, list(Y[3]))
    np.testing.assert_array_equal(seen[0][1], decoder.predict(Y[3:4], cells=stencil)[0])
    assert seen[0][0] == 0.5 and v.shape == (2,)
    assert model.condition(Y[3]) == pytest.approx(np.linalg.cond(decoder.jacobian(Y[3:4], cells=cells)[0]))


def test_masks_are_cells():
    decoder, Y, _ = fitted()
    mask = np.zeros(40, bool)
    mask[[4, 9, 30]] = True
    by_mask = SampledModel(decoder, lambda t, f: f, mask, stencil=mask)
    by_index = SampledModel(decoder, lambda t, f: f, [4, 9, 30])
    np.testing.assert_array_equal(by_mask.velocity(0.0, Y[0]), by_index.velocity(0.0, Y[0]))


def test_masks_are_compared_by_their_labels_and_may_have_a_fields_shape():
    xarray = pytest.importorskip("xarray")
    _, Y, F = fitted()
    fields = xarray.DataArray(F.reshape(-1, 5, 8), dims=("n", "y", "x"), coords={"y": list("abcde"), "x": np.arange(8)})
    decoder = KernelDecoder(length_scale=1.0).fit(Y, fields)
    mask = fields[0] > fields[0].mean()
    for given in (mask, mask.values, mask.values.ravel(), mask.stack(cell=("y", "x"))):
        model = SampledModel(decoder, lambda t, f: f, given, stencil=given)
        np.testing.assert_array_equal(model.cells, np.flatnonzero(mask.values))
        np.testing.assert_array_equal(model.stencil, model.cells)
    for wrong in (mask[::-1], mask.stack(cell=("y", "x"))[::-1]):
        with pytest.raises(ValueError, match="cells has other labels along"):
            SampledModel(decoder, lambda t, f: f, wrong)
        with pytest.raises(ValueError, match="stencil: cells has other labels along"):
            SampledModel(decoder, lambda t, f: f, mask, stencil=wrong)


def test_only_the_cells_are_decoded():
    decoder, Y, _ = fitted(M=3000)
    spy = Spy(decoder)
    cells = np.array([900, 1500, 2100])
    SampledModel(spy, lambda t, f: f[:3], cells, stencil=np.concatenate([cells, cells + 1])).velocity(0.0, Y[0])
    assert spy.asked == 6


def test_a_travelling_bump_is_followed():
    x, position = (np.arange(200) + 0.5) / 200, np.linspace(0.2, 0.8, 60)[:, None]
    decoder = KernelDecoder(length_scale=0.3, regularization=1e-8).fit(
        position, np.exp(-(((x - position) / 0.05) ** 2))
    )
    cells = sample_cells(decoder, position, 20)

    def rhs(t, f):
        left, right = f.reshape(2, -1)
        return (left - right) * 100

    model = SampledModel(decoder, rhs, cells, stencil=np.concatenate([cells - 1, (cells + 1) % 200]))
    path = solve_ivp(model.velocity, (0.0, 0.4), [0.3], t_eval=np.linspace(0, 0.4, 9), rtol=1e-6)
    # central differences transport a Gaussian of 14 cells by (h / width)^2 too slowly
    np.testing.assert_allclose(path.y[0], 0.3 + path.t, atol=5e-3)


def test_cells_that_do_not_determine_the_rate():
    decoder, Y, _ = fitted()
    model = SampledModel(decoder, lambda t, f: np.ones(2), list(CONSTANT))
    assert model.condition(Y[0]) == np.inf
    with pytest.warns(RuntimeWarning, match="do not determine dz/dt"):
        np.testing.assert_array_equal(model.velocity(0.0, Y[0]), 0)
    rank_one = SampledModel(decoder, lambda t, f: np.ones(2), [3, 20])
    with pytest.warns(RuntimeWarning, match="do not determine dz/dt"):
        v = rank_one.velocity(0.0, Y[0])
    J = decoder.jacobian(Y[:1], cells=[20])[0, 0]
    np.testing.assert_allclose(v, J / (J @ J), rtol=1e-12)


@pytest.mark.parametrize(
    "result, error, message",
    [
        ([1.0, np.nan, 2.0], ValueError, r"rhs\(t, f\) must be finite, got nan at t = 0.5 for cells\[1\], cell 20"),
        ([1.0, 2.0, -np.inf], ValueError, r"got -inf at t = 0.5 for cells\[2\], cell 39"),
        ([1.0, 2.0], ValueError, r"df/dt at the 3 cells, shape \(3,\), got shape \(2,\)"),
        (np.ones((1, 3)), ValueError, r"got shape \(1, 3\)"),
        ([1j, 0, 0], TypeError, "must return real numbers, got complex128"),
        (None, TypeError, "must return real numbers, got object"),
    ],
)
def test_rates_that_are_none(result, error, message):
    decoder, Y, _ = fitted()
    with pytest.raises(error, match=message):
        SampledModel(decoder, lambda t, f: result, [5, 20, -1]).velocity(0.5, Y[0])


def test_arguments_that_do_not_fit():
    decoder, Y, F = fitted()
    with pytest.raises(ValueError, match="at least d = 2 different cells, got 1"):
        SampledModel(decoder, abs, [5, 5, -35])
    with pytest.raises(ValueError, match="cells.* is 40, out of range"):
        SampledModel(decoder, abs, [5, 40])
    with pytest.raises(ValueError, match="stencil: .* is -41, out of range"):
        SampledModel(decoder, abs, [5, 6], stencil=[-41])
    with pytest.raises(TypeError, match="rhs must be callable"):
        SampledModel(decoder, None, [5, 6])
    with pytest.raises(TypeError, match="ConservativeRegressor"):
        SampledModel(ConservativeRegressor(LinearRegression()).fit(Y, F), abs, [5, 6])
    model = SampledModel(decoder, lambda t, f: f, [5, 6])
    with pytest.raises(ValueError, match="z must have length 2, got 3"):
        model.velocity(0.0, [1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match="z must be finite"):
        model.condition([1.0, np.nan])


@pytest.mark.slow
def test_worked_example(capsys):
    """At 1e5 cells: 20 times faster than whole fields, nearly as accurate, and faster than the full model."""
    main = runpy.run_path(str(EXAMPLE))["main"]
    for name, count in (("TEST", 1), ("WIDTHS", 2), ("ANGLES", 2)):  # as few as say the same
        main.__globals__[name] = main.__globals__[name][:count]
    results = main()
    assert "faster an evaluation" in capsys.readouterr().out
    for row in results:
        assert row["sampled"][1] < 1.2 * row["jvp"][1]
        assert row["sampled"][2] < row["jvp"][2] / 10  # a busy machine; 30 on an idle one
        assert row["sampled"][0] < row["full"] / 4

"""Whatever `numpy.seterr` the caller has set, results are those of the default, and nothing of the package warns."""

import importlib
import inspect

import numpy as np
import pytest

import randsmap
from randsmap import metrics

from entry_points import ENTRY_POINTS

# fields that underflow far from a pulse, as those of many solutions do
x, u = np.linspace(0, 1, 40), np.linspace(0, 1, 24)
F = np.exp(-(((x - 0.3 - 0.4 * u[:, None]) / 0.02) ** 2))
F /= F.sum(axis=1, keepdims=True)
SINGLE = F.astype(np.float32)
Y = np.column_stack([np.cos(2 * u), np.sin(2 * u)])


def _searched(decoder, grid):
    return randsmap.tune(decoder, grid, Y[::2], F[::2], Y[1::2], F[1::2]).errors_


def _parametric():
    model = randsmap.ParametricModel(randsmap.ManifoldModel(randsmap.POD(3)), randsmap.KernelDecoder())
    return model.fit(u, F).predict(u[:-1] + 0.01)


def _float32():
    return randsmap.RANDSMAPDecoder(random_state=0).fit(Y.astype(np.float32), SINGLE).predict(Y.astype(np.float32))


CALLS = {
    "diffusion maps": lambda: randsmap.DiffusionMaps(2).fit_transform(F),
    "features": lambda: randsmap.MonomialFeatures(3).fit_transform(1e-120 * Y),
    "random features": lambda: randsmap.RANDSMAPDecoder(random_state=0).fit(Y, F).predict(Y),
    "monomials": lambda: randsmap.RANDSMAPDecoder(randsmap.MonomialFeatures(3)).fit(Y, F).predict(1e-150 * Y),
    "bounds": lambda: randsmap.KernelDecoder(bounds="nonnegative").fit(Y, F).predict(Y + 0.01),
    "k-NN": lambda: randsmap.KNNDecoder(3).fit(Y, F).predict(Y),
    "search": lambda: _searched(randsmap.KernelDecoder(), {"length_scale": [0.1, 1.0]}),
    "leave one out": lambda: randsmap.leave_one_out(randsmap.RANDSMAPDecoder(random_state=0), Y, F).mean_errors_,
    "shift": lambda: randsmap.ShiftRegistration(randsmap.ManifoldModel(randsmap.POD(2))).fit(F).reconstruct(F),
    "score": lambda: np.array(randsmap.KernelDecoder(length_scale=0.3).fit(Y, F).score(Y, F)),
    "leverage limit": lambda: np.array(randsmap.KernelDecoder(length_scale=0.01).fit(Y, F).leverage_limit_),
    "parameters": _parametric,
    "blend": lambda: randsmap.AutoDecoder(n_trials=4, random_state=0).fit(Y, F).predict(Y),
    "autotune": lambda: randsmap.autotune(F, n_components=1, n_trials=2).best_model_.reconstruct(F),
    "dimension": lambda: np.array(randsmap.encoders.estimate_n_components(F, max_components=3)),
    "metrics": lambda: metrics.scaled_linf(F, np.zeros_like(F)),
    "project bounds": lambda: randsmap.project_bounds(F - 1e-3, lower=0.0),
    "single precision": _float32,
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name == "autotune")) for name in CALLS]
)
def test_a_caller_that_raises_all_errors_gets_the_results_of_the_default(name):
    expected = CALLS[name]()
    with np.errstate(all="raise"):
        found = CALLS[name]()
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("name", ENTRY_POINTS)
def test_everything_that_takes_arrays_works_under_a_caller_that_raises_all_errors(name):
    def results():
        return [np.asarray(each) for each in ENTRY_POINTS[name](np.random.default_rng(0), lambda array: array)]

    expected = results()
    with np.errstate(all="raise"):
        found = results()
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


def test_all_public_functions_and_methods_are_quiet():
    def parts(thing):
        yield "", thing
        for name in dir(thing) if inspect.isclass(thing) else ():
            if not name.startswith("_"):
                member = inspect.getattr_static(thing, name)
                yield name, getattr(member, "__func__", getattr(member, "fn", member))

    loud = [
        (module, public, name)
        for module in randsmap._SUBMODULES
        for public in importlib.import_module(f"randsmap.{module}").__all__
        for name, part in parts(getattr(importlib.import_module(f"randsmap.{module}"), public))
        if inspect.isfunction(part) and part.__module__.startswith("randsmap") and not hasattr(part, "_is_quiet")
    ]
    assert not loud

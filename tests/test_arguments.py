"""Every array argument of every public callable, given arrays of every kind: taken as what it is, or refused by name.

The callables and their arguments are found, not listed: what is public and has an annotation of an array is called.
A new one is covered as soon as `VALUES` has values for the names of its arguments; a test names those that lack.
"""

import copy
import functools
import inspect
import re
import warnings

import numpy as np
import pytest
from sklearn.base import clone

import randsmap

N, SIDE, D, L = 24, 4, 2, 5
RNG = np.random.default_rng(0)
LATENTS = np.column_stack([np.linspace(0, 1, N), RNG.uniform(size=N)])
AT = 0.5 + 0.3 * RNG.uniform(size=(L, D))
GRID = np.linspace(0, 1, SIDE)
DISTANCE = (GRID[:, None] - LATENTS[:, 0, None, None]) ** 2 + (GRID - LATENTS[:, 1, None, None]) ** 2
FIELDS = 0.1 + np.exp(-DISTANCE / 0.2)
FIELDS /= FIELDS.sum(axis=(1, 2), keepdims=True)
FEW = FIELDS[:L] + 0.001
OPEN = np.zeros((SIDE, SIDE), bool)
OPEN[1, 2] = True


def sigmoids():
    return randsmap.SigmoidFeatures(3.0, n_features=9, latent_box=(0.0, 1.0), random_state=0)


def kernel(**options):
    return randsmap.KernelDecoder(length_scale=0.5, regularization=1e-6, **{"invariants": "mass", **options})


def _rate(t, f):
    return f - 1.0


def model():
    return randsmap.ManifoldModel(randsmap.DiffusionMaps(2), kernel())


RANDOM = {"regularization": 1e-4, "latent_scale": 1.0, "random_state": 0}
ESTIMATORS = {
    "RFNNDecoder": randsmap.RFNNDecoder(sigmoids(), **RANDOM),
    "RANDSMAPDecoder": randsmap.RANDSMAPDecoder(sigmoids(), **RANDOM),
    "KNNDecoder": randsmap.KNNDecoder(3),
    "DoubleDiffusionMapsDecoder": randsmap.DoubleDiffusionMapsDecoder(rank=4, invariants="mass"),
    "KernelDecoder": kernel(),
    "ConservativeRegressor": randsmap.ConservativeRegressor(randsmap.KNNDecoder(3)),
    "BlendedDecoder": randsmap.BlendedDecoder([kernel(invariants=None)] * 2, limit=0.1, invariants="mass"),
    "AutoDecoder": randsmap.AutoDecoder(n_trials=2, families="matern", invariants="mass", random_state=0),
    "DiffusionMaps": randsmap.DiffusionMaps(2),
    "Isomap": randsmap.Isomap(2),
    "POD": randsmap.POD(2, invariants="mass"),
    "FourierFeatures": randsmap.FourierFeatures(n_features=7, random_state=0),
    "MaternFeatures": randsmap.MaternFeatures(n_features=7, random_state=0),
    "MonomialFeatures": randsmap.MonomialFeatures(2),
    "MultiscaleFourierFeatures": randsmap.MultiscaleFourierFeatures(3.0, n_features=7, random_state=0),
    "SigmoidFeatures": sigmoids(),
    "ManifoldModel": model(),
    "ParametricModel": randsmap.ParametricModel(model(), kernel(invariants=None)),
    "LatentForecast": randsmap.LatentForecast(randsmap.POD(2), kernel(invariants=None)),
    "QuantileRegistration": randsmap.QuantileRegistration(randsmap.ManifoldModel(randsmap.POD(2))),
    "ShiftRegistration": randsmap.ShiftRegistration(randsmap.ManifoldModel(randsmap.POD(2), kernel())),
}
OTHERS = {
    "FrozenDecoder": lambda: fitted("KernelDecoder").freeze(),
    "FrozenModel": lambda: fitted("ManifoldModel").freeze(),
    "SampledModel": lambda: randsmap.SampledModel(fitted("KernelDecoder"), _rate, np.arange(6)),
    "LWRSolver": lambda: randsmap.LWRSolver(SIDE**2, domain=(0.0, 16.0), v_max=1.0, dt=0.2),
    "HughesSolver": lambda: randsmap.HughesSolver((SIDE, SIDE), lengths=(4.0, 4.0), dt=0.01),
}

# arguments that are no arrays
PLAIN = {
    "decoder": lambda: fitted("KernelDecoder"), "model": lambda: fitted("ManifoldModel"), "n_cells": lambda: 6,
    "estimator": lambda: fitted("KernelDecoder"),
    "models": lambda: [randsmap.ManifoldModel(randsmap.POD(2))], "grid": lambda: {"regularization": [1e-6, 1e-2]},
    "regularizations": lambda: [1e-6, 1e-3], "t": lambda: 0.0, "t_end": lambda: 0.2, "spacing": lambda: 0.1,
    "rhs": lambda: _rate, "n_steps": lambda: 3, "shape": lambda: (SIDE, SIDE), "lengths": lambda: (4.0, 4.0),
}  # fmt: skip
# values of arguments by name: for all callables, for methods of encoders, and for single methods or callables
VALUES = {
    "": {
        "X": LATENTS, "y": FIELDS, "cells": np.array([3, 0, 7]), "groups": np.repeat(np.arange(6), N // 6),
        "sample_weight": np.linspace(1, 2, N), "invariant_values": np.linspace(0.9, 1.1, L), "V": 0.1 + AT, "U": FEW,
        "Z": AT, "fields": FIELDS.reshape(N, -1), "latents": LATENTS, "exclude": np.arange(L), "parameters": LATENTS,
        "snapshots": FIELDS, "invariants": np.ones((SIDE, SIDE)), "cell_weights": np.ones((SIDE, SIDE)),
        "latent_scale": np.full(D, 0.5), "length_scale": np.full(D, 0.5), "latent_box": np.array([[0.0, 0], [1, 1]]),
        "F": FIELDS, "Y": LATENTS, "weights": np.ones((SIDE, SIDE)), "bounds": np.array([np.zeros(16), np.ones(16)]),
        "lower": np.zeros((SIDE, SIDE)), "upper": np.ones((SIDE, SIDE)), "total": np.ones(N), "y_true": FIELDS,
        "y_pred": FIELDS + 0.001, "reference": FEW, "obstacles": OPEN, "sources": np.array([[0, 0], [3, 3]]),
        "slowness": 1 + FIELDS, "initial": 0.5 * FIELDS.reshape(N, -1)[:2], "times": np.array([0.1, 0.2]),
        "density": FIELDS.reshape(N, -1)[0], "angles": np.linspace(0, 6, N), "image": 0.5 + FIELDS[0],
        "X_train": LATENTS[:12], "y_train": FIELDS[:12], "X_val": LATENTS[12:], "y_val": FIELDS[12:],
        "stencil": np.array([3, 0, 7]), "offsets": np.array([[0, 0], [0, 1], [-1, 0]]), "exit": np.ones(SIDE, bool),
    },
    "encoder": {"X": FIELDS, "V": FIELDS, "U": LATENTS},
    "at": {"X": AT, "parameters": AT},
    "fit": {"invariant_values": np.ones(1), "times": 0.1 * np.arange(N)},
    "vjp(cells)": {"U": FEW.reshape(L, -1)[:, :3]},
    "inverse_vjp(cells)": {"U": FEW.reshape(L, -1)[:, :3]},
}  # fmt: skip
OPTIONS = {
    "solve_eikonal": {"exits": ["right"]},
    "HughesSolver": {"n_cells": (SIDE, SIDE), "lengths": (4.0, 4.0), "dt": 0.01},
    "autotune": {"model": model(), "n_trials": 1, "families": "gaussian", "random_state": 0},
    "choose_parametric": {"n_trials": 1},
    "reconstruction_errors(parameters)": {"model": lambda: fitted("ParametricModel")},
    "calibrate": {"y": FIELDS},
}
ENCODERS = "DiffusionMaps", "Isomap", "POD"
MODELS = "ManifoldModel", "QuantileRegistration", "ShiftRegistration", "FrozenModel"
OF_FIELDS = ("fit", "fit_transform", "transform", "reconstruct", "score", "squared_distances")
AT_POINTS = re.compile(
    "predict|inverse|jacobian|jvp|vjp|leverage|transform|latents|neighbor_weights|velocity|condition"
)
LEFT_OUT = {
    "ManifoldModel.get_feature_names_out": "names of columns",
    "distributed": "dask arrays",
    "jax": "functions of JAX: test_export",
    "torch": "functions of PyTorch: test_export",
    "plotting": "draws",
    "reports": "draws",
    "studies": "draws",
}


@functools.cache
def fitted(name, labels=False):
    if name in OTHERS:
        return OTHERS[name]()
    estimator = clone(ESTIMATORS[name])
    values = values_of(name, "fit", "")
    names = [key for key in inspect.signature(estimator.fit).parameters if key in ("X", "y", "parameters", "snapshots")]
    return estimator.fit(**{key: labelled(values[key]) if labels else values[key] for key in names})


def values_of(owner, method, argument):
    """Values of the arguments of a method, or of a function (owner is "")."""
    found = {**VALUES[""], **VALUES.get(method, {}), **VALUES.get(f"{method}({argument})", {})}
    at = AT_POINTS.search(method) and not (owner in (*ENCODERS, *MODELS) and method in OF_FIELDS)
    if owner in ENCODERS and not method.startswith("inverse") or owner in MODELS and not at:
        found.update(VALUES["encoder"])
    elif owner and at:
        found.update(VALUES["at"])
    if owner == "ShiftRegistration" and at:
        found.update(X=np.column_stack([AT[:, 0], AT]), V=np.column_stack([AT[:, 0], AT]))
    if owner == "ShiftRegistration" and method == "freeze":
        found.update(latents=np.column_stack([LATENTS[:, 0], LATENTS]))
    if method in ("velocity", "condition"):
        found.update(z=AT[0])
    if owner == "QuantileRegistration":  # of fields on a line
        lines = {k: v for k, v in found.items() if getattr(v, "shape", ())[-2:] == (SIDE, SIDE)}
        found.update({k: v.reshape(*v.shape[:-2], -1) for k, v in lines.items()})
    return found


def is_array(parameter):
    annotated = re.search("ArrayLike|NDArray", str(parameter.annotation))
    return parameter.name not in ("out", "rhs") and (
        annotated or parameter.name in VALUES[""] and parameter.default is parameter.empty
    )


def public_callables():
    """{id: (owner or "", name of the method or function, its function)} of what takes arrays."""
    found = {}
    for module in randsmap._SUBMODULES:
        for name in [] if module in LEFT_OUT else getattr(randsmap, module).__all__:
            thing = getattr(getattr(randsmap, module), name)
            if inspect.isfunction(thing):
                found[name] = ("", name, thing)
            elif inspect.isclass(thing) and not issubclass(thing, Warning):
                if name not in ESTIMATORS and not name.startswith("Frozen"):  # of bytes
                    found[name] = ("", name, thing)
                for method, function in inspect.getmembers(thing, callable):
                    if method[0] != "_" and "----" in (inspect.getdoc(function) or ""):  # else of the package alone
                        found[f"{name}.{method}"] = (name, method, function)
    return {
        key: value
        for key, value in found.items()
        if key not in LEFT_OUT and "rng" not in inspect.signature(value[2]).parameters
    }


CALLABLES = public_callables()
ARGUMENTS = [
    (key, parameter.name)
    for key, (_, _, function) in CALLABLES.items()
    for parameter in inspect.signature(function).parameters.values()
    if is_array(parameter)
]
ARGUMENTS += [
    (f"{name}.fit", key)
    for name, estimator in ESTIMATORS.items()
    for key, declared in estimator._parameters.items()
    if "array" in declared.type or key == "bounds"
]


def call(key, argument, change=lambda a: a, all_labelled=False):
    """The result of a public callable, of which one argument is changed, as arrays; the others may have labels."""
    owner, method, function = CALLABLES[key]
    parameters, values = inspect.signature(function).parameters, values_of(owner, method, argument)
    given = {**OPTIONS.get(key, {}), **OPTIONS.get(f"{key}({argument})", {})}
    for name, parameter in parameters.items():
        if name != "self" and parameter.default is parameter.empty and parameter.kind not in (2, 4):
            given.setdefault(name, PLAIN[name] if name in PLAIN else values[name])
    if all_labelled:
        given = {name: labelled(v) if isinstance(v, np.ndarray) else v for name, v in given.items()}
    given = {name: value() if name in PLAIN and callable(value) else value for name, value in given.items()}
    changed = change(values[argument])
    if argument in parameters:
        given[argument] = changed
    if owner:
        thing = fitted(owner, all_labelled)
        thing = copy.deepcopy(thing) if "fit" in method else thing
        if argument not in parameters:
            thing = clone(thing).set_params(**{argument: tuple(changed) if argument == "bounds" else changed})
        function = getattr(thing, method)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return list(arrays_of(function(**given)))


def arrays_of(result):
    """The arrays of a result; of estimators what they compute."""
    if isinstance(result, dict) and "best_model_" in result:  # its tables have times
        result = result["best_model_"]
    if isinstance(result, (tuple, list, dict)):
        for part in result.values() if isinstance(result, dict) else result:
            yield from arrays_of(part)
    elif type(result).__name__ in ESTIMATORS:
        name = type(result).__name__
        if name == "LatentForecast":
            yield result.forecast(FEW, 3)
            return
        method = "predict" if hasattr(result, "predict") else "inverse_transform" if name in MODELS else "transform"
        yield np.asarray(getattr(result, method)(values_of(name, method, "")["X"]))
    elif callable(result):
        yield from arrays_of(result(1e-6))
    elif isinstance(result, randsmap.SampledModel):
        yield result.cells
    elif isinstance(result, (randsmap.FrozenDecoder, randsmap.FrozenModel)):
        yield result.predict(np.resize(AT, (L, result.n_components)))
    elif isinstance(result, randsmap.HughesSolver):
        yield from (result.mask, result.exit)
    elif hasattr(result, "fields"):
        yield result.fields
    elif np.asarray(result).dtype.kind in "fiub":
        yield np.asarray(result, dtype=float)


@functools.cache
def expected(key, argument):
    """The result for plain arrays; None if there is no such thing, which the package says."""
    try:
        return call(key, argument)
    except (AttributeError, TypeError) as error:
        assert re.search("no attribute|cannot be frozen|not fitted yet", str(error)), error
    except ValueError as error:
        assert re.search("groups are for a regressor|does not project its fields|is for models=None", str(error)), error


def masked(a):
    return np.ma.array(a, mask=np.arange(a.size).reshape(a.shape) == min(1, a.size - 1))


def spoilt(a):
    a = a.astype(object)
    a.flat[-1] = object()
    return a


def mixed(value):
    def change(a):
        a = a.astype(object)
        a.flat[-1] = value
        return a

    return change


REFUSED = {
    "dates": lambda a: np.asarray(a, dtype="i8").astype("M8[D]"),
    "durations": lambda a: np.asarray(1000 * a, dtype="i8").astype("m8[ms]"),
    "a duration among objects": mixed(np.timedelta64(3, "D")),
    "complex": lambda a: a.astype(complex),
    "masked": masked,
    "masked rows": lambda a: list(masked(a)),
    "strings": lambda a: a.astype(str),
    "bytes": lambda a: a.astype("S"),
    "objects": spoilt,
    "a complex number among objects": mixed(1j),
    "a missing value": mixed(None),
    "a record": lambda a: a.astype([("a", a.dtype)]),
}
TAKEN = {
    "byte-swapped": lambda a: a.astype(a.dtype.newbyteorder()),
    "in Fortran's order": np.asfortranarray,
    "a mask of nothing": lambda a: np.ma.array(a, mask=False),
    "read-only": lambda a: np.frombuffer(a.tobytes(), a.dtype).reshape(a.shape),
    "objects that are numbers": lambda a: a.astype(object),
    "lists": lambda a: a.tolist(),
}


def given(key, argument):
    """The result for plain arrays; a test is skipped if the class has no such method, which it says."""
    right = expected(key, argument)
    if right is None:
        pytest.skip("there is no such method, or the argument cannot be given")
    assert right, "nothing to compare: add what this returns to `arrays_of`"
    return right


def same(found, right):
    return all(np.array_equal(a, b, equal_nan=True) for a, b in zip(found, right, strict=True))


LONG = ("autotune", "choose_parametric")  # they search
each = pytest.mark.parametrize(
    ("key", "argument"),
    [pytest.param(*case, marks=pytest.mark.slow if case[0].startswith(LONG) else ()) for case in ARGUMENTS],
)


@each
def test_what_is_no_number_is_refused_by_the_name_of_the_argument(key, argument):
    given(key, argument)
    for kind, change in REFUSED.items():
        if argument == "groups" and kind not in ("complex", "masked", "a record"):  # any label will do
            continue
        with pytest.raises((TypeError, ValueError), match=rf"\b{argument}\b") as error:
            call(key, argument, change)
        if kind in ("dates", "durations"):
            assert "np.timedelta64(1, 's')" in str(error.value)


@each
def test_numbers_of_every_layout_are_the_same(key, argument):
    right = given(key, argument)
    for kind, change in TAKEN.items():
        if not (argument == "groups" and "objects" in kind):
            assert same(call(key, argument, change), right), kind


@each
def test_empty_arrays_and_single_rows_are_taken_or_refused_by_name(key, argument):
    given(key, argument)
    for rows in (0, 1):
        try:
            found = call(key, argument, lambda a, rows=rows: a[:rows])
        except (TypeError, ValueError, IndexError) as error:
            assert re.search(rf"\b({argument}|X|y|U|rows?|samples?|snapshots|shape|length|points)\b", str(error)), error
        else:
            assert all(np.isfinite(part).all() for part in found)


# -- Labels ----------------------------------------------------------------------------------------
# what is done to labelled arrays, and the axis that another array must have for it to be wrong
WRONG = {
    "lon lat": lambda X: X.transpose(..., "lon", "lat"),
    "lon": lambda X: X.isel(lon=[1, 0, 2, 3]),
    "lat": lambda X: X.isel(lat=slice(None, None, -1)),
    "time": lambda X: X.isel(time=slice(None, None, -1)),
}


def labelled(a):
    """The array with labels: of samples on its first axis, of cells on the last two if it is of fields."""
    xarray = pytest.importorskip("xarray")
    dims, coords = [f"axis{i}" for i in range(a.ndim)], {}
    if a.ndim > 1 and a.shape[-2:] == (SIDE, SIDE):
        dims[-2:] = ["lat", "lon"]
        coords = {"lat": np.datetime64("2020-01-01", "ns") + np.arange(SIDE), "lon": list("abcd")}
    if dims[0] != "lat" and len(a) in (N, N // 2, L):
        dims[0], coords["time"] = "time", np.arange(len(a)) * 0.5
    return xarray.DataArray(a, dims=dims, coords=coords)


def is_compared(key, argument, dim):
    """Whether another array of the call, or what was fitted, has the axis of an argument."""
    owner, method, function = CALLABLES[key]
    values = values_of(owner, method, argument)
    names = [p.name for p in inspect.signature(function).parameters.values() if p.default is p.empty]
    names += OPTIONS.get(key, {})
    others = [labelled(values[name]) for name in {*names} - {argument} if isinstance(values.get(name), np.ndarray)]
    if any(dim in other.dims and (dim != "time" or len(other) == len(values[argument])) for other in others):
        return True
    is_fitted = owner in ESTIMATORS and not owner.endswith("Features") and "fit" not in method and method != "spectrum"
    return dim != "time" and is_fitted


@each
def test_labels_agree_with_those_of_other_arrays_or_are_refused_by_name(key, argument):
    right = given(key, argument)
    assert same(call(key, argument, labelled, all_labelled=True), right)
    whole = labelled(values_of(*CALLABLES[key][:2], argument)[argument])
    for dims, change in WRONG.items():
        dim = dims.split()[0]
        if dim not in whole.dims:
            continue
        if is_compared(key, argument, dim):
            with pytest.raises((TypeError, ValueError), match=rf"\b{argument}\b"):
                call(key, argument, lambda a, change=change: change(labelled(a)), all_labelled=True)
        else:
            found = call(key, argument, lambda a, change=change: change(labelled(a)), all_labelled=True)
            assert same(found, call(key, argument, lambda a, change=change: change(labelled(a)).values))

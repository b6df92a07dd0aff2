"""Everything public, with arrays that lie in memory as they please, and with numbers of any size."""

from __future__ import annotations

import functools
import warnings

import numpy as np

import randsmap
from randsmap.invariants._bounds import check_bounds

from entry_points import ENTRY_POINTS
from fuzz_targets.inputs import laid_out, numbers, quiet, same_bits, size


def layouts(rng):
    """Every public function and estimator with arrays of any layout: the bits of plain ones. A result an input."""
    name = list(ENTRY_POINTS)[rng.integers(len(ENTRY_POINTS))]
    seed = int(rng.integers(2**62))

    def lay(array):
        return array if array.dtype == np.float32 else laid_out(rng, array)  # lists would be float64

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of searches that end on an edge
        expected = list(ENTRY_POINTS[name](np.random.default_rng(seed), np.array))
        found = list(ENTRY_POINTS[name](np.random.default_rng(seed), lay))
    for i, (a, b) in enumerate(zip(found, expected, strict=True)):
        assert same_bits(a, b), f"result {i} of {name} depends on the layout"
    return len(found)


# -- Numbers of any size -----------------------------------------------------------------------------
def _estimator(rng, n, M):
    bounds = (None, "nonnegative", (None, 1.0), (-1e3, 1e3))[rng.integers(4)]
    options = {"invariants": (None, "mass")[rng.integers(2)], "bounds": bounds}
    if rng.integers(3) == 0:
        options["cell_weights"] = 10.0 ** rng.uniform(-100, 100, M)
    features = (
        randsmap.FourierFeatures(1.0, n_features=9),
        randsmap.SigmoidFeatures(10.0, n_features=9),
        randsmap.MonomialFeatures(3),
    )[rng.integers(3)]
    k = int(rng.integers(1, n + 1))
    kernel = ("gaussian", "matern", "thin-plate", "multi-gaussian")[rng.integers(4)]
    lambdas = [0.0, 1e-300, 1e-9, 1.0, 1e300]
    degree = {"degree": 1} if kernel == "thin-plate" else {}
    regularization = float(rng.choice(lambdas))
    return (
        lambda: randsmap.RANDSMAPDecoder(features, regularization=regularization, random_state=0, **options),
        lambda: randsmap.RFNNDecoder(features, random_state=0),
        lambda: randsmap.KernelDecoder(kernel, regularization=regularization, **degree, **options),
        lambda: randsmap.KNNDecoder(k, latent_scale=(None, "std")[rng.integers(2)]),
        lambda: randsmap.DoubleDiffusionMapsDecoder(**options),
        lambda: randsmap.BlendedDecoder([randsmap.KernelDecoder(), randsmap.KNNDecoder(k)], limit=0.1, **options),
        lambda: randsmap.POD(int(rng.integers(1, 4)), **options),
        lambda: randsmap.DiffusionMaps(1, n_neighbors=(None, min(5, n - 1))[rng.integers(2)]),
        lambda: randsmap.ManifoldModel(randsmap.POD(1), randsmap.KernelDecoder(**options)),
    )[rng.integers(9)]()


def extremes(rng):
    """Fits to numbers of any size, and what comes of them: within the bounds, or refused. A fit an input."""
    n, M, d = size(rng, (2, 9), (10, 30)), size(rng, (1, 20)), size(rng, (1, 3))
    Y, F = numbers(rng, (n, d), 1e139), numbers(rng, (n, M), 1e139)
    estimator = _estimator(rng, n, M)
    options = estimator.get_params()
    bounds = check_bounds(options.get("bounds", options.get("decoder__bounds")), M)
    if bounds is not None:
        F = np.clip(F, *bounds)
    with warnings.catch_warnings(), quiet():
        warnings.simplefilter("ignore")
        try:
            fields, more = _decoded(rng, estimator, Y, F)
        except ValueError:
            return 1
        if bounds is not None:
            assert (fields >= bounds[0]).all() and (fields <= bounds[1]).all(), "bounds"
        for call in more:
            try:
                call()
            except ValueError:
                pass
            except TypeError as error:  # of a blend
                assert "is not known" in str(error), error
    return 1


def _decoded(rng, estimator, Y, F):
    """Fields of some latents, and calls of what else there is."""
    if hasattr(estimator, "predict"):
        estimator.fit(Y, F)
        X = Y[rng.integers(len(Y), size=4)] * (1 + 1e-3 * rng.normal(size=(4, Y.shape[1])))
        if rng.integers(2):
            X = numbers(rng, X.shape, 1e139)
        decode, derivatives = estimator.predict, [(name, X) for name in ("jacobian", "leverage")]
    else:
        latents = estimator.fit(F).transform(F)
        X = latents[:5] * (1 + rng.normal(size=latents[:5].shape))
        decode = getattr(estimator, "inverse_transform", None)
        names = ("jacobian",) if isinstance(estimator, randsmap.ManifoldModel) else ("inverse_jacobian",)
        derivatives = [(name, X) for name in names] + [(name, F[:2]) for name in {"jacobian"} - set(names)]
    fields = None if decode is None else decode(X)
    more = [functools.partial(getattr(estimator, name), x) for name, x in derivatives if hasattr(estimator, name)]
    return fields, [*more, lambda: _use_frozen(estimator, X)]


def _use_frozen(estimator, X):
    try:
        frozen = estimator.freeze()
    except (TypeError, AttributeError):  # what cannot be frozen says so
        return
    frozen.predict(X)
    frozen.jacobian(X)


TARGETS = layouts, extremes

"""What each decoder and model can do beside decoding: tried, and compared with docs/capabilities.md.

python tests/test_capabilities.py > docs/capabilities.md writes that page.
"""

import warnings
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.linear_model import LinearRegression

import randsmap as rm
from randsmap.decoders._base import why_not

PAGE = Path(__file__).parents[1] / "docs" / "capabilities.md"
N, M = 40, 24
_x = (np.arange(M) + 0.5) / M
_centre, _width = np.random.default_rng(0).uniform([0.3, 0.1], [0.7, 0.2], (N, 2)).T
FIELDS = np.exp(-(((_x - _centre[:, None]) / _width[:, None]) ** 2))
FIELDS /= FIELDS.sum(axis=1, keepdims=True)
LATENTS = np.column_stack([_centre, _width])
FEATURES = rm.SigmoidFeatures(3.0, n_features=30, latent_box=(LATENTS.min(axis=0), LATENTS.max(axis=0)))

# row of the table -> the estimator, which is fitted to latents and fields
DECODERS = {
    "`RFNNDecoder`": rm.RFNNDecoder(FEATURES, latent_scale=None, random_state=0),
    "`RANDSMAPDecoder`": rm.RANDSMAPDecoder(FEATURES, latent_scale=None, random_state=0),
    '`RANDSMAPDecoder`, `solver="krylov"`': rm.RANDSMAPDecoder(FEATURES, solver="krylov", random_state=0),
    "`RANDSMAPDecoder`, `output_rank=3`": rm.RANDSMAPDecoder(FEATURES, output_rank=3, random_state=0),
    '`RANDSMAPDecoder`, `constraint="training"`': rm.RANDSMAPDecoder(FEATURES, constraint="training", random_state=0),
    "`KernelDecoder`": rm.KernelDecoder(),
    "`DoubleDiffusionMapsDecoder`": rm.DoubleDiffusionMapsDecoder(),
    "`KNNDecoder`": rm.KNNDecoder(),
    "`BlendedDecoder` of kernels": rm.BlendedDecoder([rm.KernelDecoder(), rm.KernelDecoder("matern")]),
    "`BlendedDecoder` with a `KNNDecoder`": rm.BlendedDecoder([rm.KernelDecoder(), rm.KNNDecoder()]),
    "`AutoDecoder` that found kernels": rm.AutoDecoder(n_trials=2, families="gaussian"),
    "`AutoDecoder` that found neighbours": rm.AutoDecoder(n_trials=1, families="k-nn"),
    "`ConservativeRegressor` of a `KernelDecoder`": rm.ConservativeRegressor(rm.KernelDecoder()),
    "`ConservativeRegressor` of a `RANDSMAPDecoder`": rm.ConservativeRegressor(
        rm.RANDSMAPDecoder(FEATURES, latent_scale=None, random_state=0)
    ),
    "`ConservativeRegressor` of scikit-learn's": rm.ConservativeRegressor(LinearRegression()),
}
_features = rm.ManifoldModel(rm.DiffusionMaps(2), rm.RANDSMAPDecoder(random_state=0))
MODELS = {
    "`ManifoldModel` with a `KernelDecoder`": rm.ManifoldModel(rm.DiffusionMaps(2), rm.KernelDecoder()),
    "`ManifoldModel` with a `RANDSMAPDecoder`": _features,
    "`ManifoldModel` with a `KNNDecoder`": rm.ManifoldModel(rm.DiffusionMaps(2), rm.KNNDecoder()),
    "`ManifoldModel` of a `POD`": rm.ManifoldModel(rm.POD(2)),
    "`ManifoldModel` of scikit-learn's parts": rm.ManifoldModel(PCA(2), LinearRegression()),
    "`ShiftRegistration` with a `RANDSMAPDecoder`": rm.ShiftRegistration(_features),
    "`QuantileRegistration` with a `RANDSMAPDecoder`": rm.QuantileRegistration(_features),
    "`ParametricModel`": rm.ParametricModel(_features, rm.KernelDecoder()),
    "`ParametricModel` around a circle": rm.ParametricModel(rm.ShiftRegistration(_features), rm.KernelDecoder()),
}


def fitted(name):
    if name in DECODERS:
        return DECODERS[name].fit(LATENTS, FIELDS), LATENTS
    model = MODELS[name]
    if "circle" in name:
        angle = 2 * np.pi * np.arange(N) / N
        places = np.column_stack([np.cos(angle), np.sin(angle)])
        return model.fit(places, np.exp(np.cos(2 * np.pi * _x - angle[:, None]) * (2 + np.cos(angle[:, None])))), places
    if hasattr(model, "predict"):
        return model.fit(LATENTS, FIELDS), LATENTS
    return model, model.fit(FIELDS).transform(FIELDS)


def decode(estimator, X, **options):
    return (estimator.predict if hasattr(estimator, "predict") else estimator.inverse_transform)(X, **options)


# capability -> what calls it on a fitted estimator at points X; the names are those of methods, but for two arguments
CALLS = {
    "cells": lambda estimator, X: decode(estimator, X, cells=[1, 2]),
    "return_error": lambda estimator, X: decode(estimator, X, return_error=True)[1],
    "jacobian": lambda estimator, X: estimator.jacobian(X),
    "jvp": lambda estimator, X: estimator.jvp(X, np.ones(X.shape[1])),
    "vjp": lambda estimator, X: estimator.vjp(X, np.ones(M)),
    "smoother": lambda estimator, X: estimator.smoother(X, X[:3]),
    "leverage": lambda estimator, X: estimator.leverage(X),
    "freeze": lambda estimator, X: estimator.freeze(),
    "partial_fit": lambda estimator, X: (
        estimator.partial_fit(X, FIELDS) if hasattr(estimator, "predict") else clone(estimator).partial_fit(FIELDS)
    ),
}


def lacking(name, capability):
    """The reason why the estimator lacks it, None if it has it: its call then works."""
    estimator, X = fitted(name)
    if capability not in ("cells", "return_error", "freeze"):
        reason = why_not(estimator, capability)
        if reason is not None:
            assert not hasattr(estimator, capability)
            return reason
    try:
        result = CALLS[capability](estimator, X)
    except (TypeError, AttributeError) as error:  # says that there is no such argument, or what can be frozen
        assert capability in ("cells", "return_error", "freeze")
        return str(error)
    assert capability in ("freeze", "partial_fit") or np.isfinite(result).all()
    return None


@pytest.fixture(scope="module")
def table():
    return made()


def made():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what a small set determines badly
        return {(name, capability): lacking(name, capability) for name in (*DECODERS, *MODELS) for capability in CALLS}


def page(table):
    """The page: a table whose entries refer to the reasons below it."""
    numbers = {reason: i for i, reason in enumerate(dict.fromkeys(filter(None, table.values())), 1)}
    lines = [HEAD, f"| | {' | '.join(f'`{name}`' for name in CALLS)} |", "|---" * (len(CALLS) + 1) + "|"]
    for name in (*DECODERS, *MODELS):
        entries = [table[name, capability] for capability in CALLS]
        lines.append(f"| {name} | {' | '.join('yes' if e is None else f'no ({numbers[e]})' for e in entries)} |")
    lines += ["", "## Why not", "", *(f"{i}. {reason}." for reason, i in numbers.items())]
    return "\n".join(lines) + "\n"


HEAD = """\
# Capabilities

Every decoder decodes, in the shape of the fields it was fitted to, and models encode and decode. The table lists what
else they can do; `tests/test_capabilities.py` calls each entry and writes this page. A method that is missing is absent
from the object (`hasattr` is False), and its AttributeError has the reason as its cause. `freeze` raises a TypeError.
"""


def test_every_capability_works_or_has_a_reason(table):
    for (name, capability), reason in table.items():
        assert reason is None or "scikit-learn" in name or "is not known" not in reason, (name, capability)


def test_the_page_is_that_of_the_objects(table):
    assert PAGE.read_text() == page(table), "write it with: python tests/test_capabilities.py > docs/capabilities.md"


if __name__ == "__main__":
    print(page(made()), end="")

"""Decode latent coordinates back to physical fields without losing mass.

encoder = randsmap.DiffusionMaps(n_components=2)
decoder = randsmap.RANDSMAPDecoder(randsmap.SigmoidFeatures(slope=11.0), random_state=0)
model = randsmap.ManifoldModel(encoder, decoder).fit(snapshots)      # (n_samples, n_cells)
fields = model.inverse_transform(model.transform(new_snapshots))     # mass kept to round-off
"""

from importlib import import_module as _import_module
from importlib.util import find_spec as _find_spec

if _find_spec("randsmap._kernels") is None:
    raise ImportError(
        "randsmap is imported from a source tree without its compiled kernels. Install it "
        "(pip install .) and start Python from another folder."
    )

# public name -> module that defines it; loaded on first use, so that `import randsmap` costs nothing
_LAZY = {
    "FourierFeatures": "features",
    "MaternFeatures": "features",
    "MonomialFeatures": "features",
    "MultiscaleFourierFeatures": "features",
    "SigmoidFeatures": "features",
    "DiffusionMaps": "encoders",
    "POD": "encoders",
    "RFNNDecoder": "decoders",
    "RANDSMAPDecoder": "decoders",
    "KNNDecoder": "decoders",
    "DoubleDiffusionMapsDecoder": "decoders",
    "KernelDecoder": "decoders",
    "ConservativeRegressor": "decoders",
    "BlendedDecoder": "decoders",
    "ExtrapolationWarning": "decoders",
    "FrozenDecoder": "decoders",
    "FrozenModel": "decoders",
    "get_include": "decoders",
    "ManifoldModel": "model",
    "ParametricModel": "model",
    "SampledModel": "model",
    "ShiftRegistration": "model",
    "sample_cells": "model",
    "load": "persistence",
    "read_snapshots": "snapshots",
    "LWRSolver": "datasets",
    "HughesSolver": "datasets",
    "solve_eikonal": "datasets",
    "project_bounds": "invariants",
    "tune": "tuning",
    "leave_one_out": "tuning",
    "AutoDecoder": "decoders",
    "autotune": "tuning",
    "set_num_threads": "_parallel",
    "get_num_threads": "_parallel",
    "show_progress": "_io.progress",
}
_SUBMODULES = (
    "datasets",
    "decoders",
    "distributed",
    "encoders",
    "features",
    "invariants",
    "metrics",
    "model",
    "persistence",
    "plotting",
    "reports",
    "snapshots",
    "studies",
    "tuning",
)

__all__ = [*_LAZY, *_SUBMODULES, "__version__"]


def __getattr__(name):
    if name in _LAZY:
        value = getattr(_import_module(f"randsmap.{_LAZY[name]}"), name)
    elif name in _SUBMODULES:
        value = _import_module(f"randsmap.{name}")
    elif name == "__version__":
        from importlib.metadata import version

        value = version("randsmap")
    else:
        raise AttributeError(f"module 'randsmap' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__():
    return sorted(__all__)

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

# module -> its names that are public here too, loaded on first use, so that `import randsmap` costs nothing
_NAMES = {
    "datasets": ["LWRSolver", "HughesSolver", "solve_eikonal"],
    "decoders": [
        "RFNNDecoder",
        "RANDSMAPDecoder",
        "KNNDecoder",
        "DoubleDiffusionMapsDecoder",
        "KernelDecoder",
        "ConservativeRegressor",
        "BlendedDecoder",
        "ExtrapolationWarning",
        "FrozenDecoder",
        "FrozenModel",
        "get_include",
        "AutoDecoder",
    ],
    "distributed": [],
    "encoders": ["DiffusionMaps", "POD"],
    "features": [
        "FourierFeatures",
        "MaternFeatures",
        "MonomialFeatures",
        "MultiscaleFourierFeatures",
        "SigmoidFeatures",
    ],
    "invariants": ["project_bounds"],
    "metrics": [],
    "model": ["ManifoldModel", "ParametricModel", "SampledModel", "ShiftRegistration", "sample_cells"],
    "persistence": ["load"],
    "plotting": [],
    "reports": [],
    "snapshots": ["read_snapshots"],
    "studies": [],
    "tuning": ["tune", "leave_one_out", "autotune"],
    "_parallel": ["set_num_threads", "get_num_threads"],
    "_io.progress": ["show_progress"],
}
_LAZY = {name: module for module, names in _NAMES.items() for name in names}
_SUBMODULES = [module for module in _NAMES if not module.startswith("_")]

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

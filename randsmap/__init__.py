"""Decode latent coordinates back to physical fields without losing mass.

encoder = randsmap.DiffusionMaps(n_components=2)
decoder = randsmap.RANDSMAPDecoder(randsmap.SigmoidFeatures(slope=11.0), random_state=0)
model = randsmap.ManifoldModel(encoder, decoder).fit(snapshots)      # (n_samples, n_cells)
fields = model.inverse_transform(model.transform(new_snapshots))     # mass kept to round-off
"""

from importlib import import_module as _import_module
from importlib.util import find_spec as _find_spec

__version__ = "0.1.0"

if _find_spec("randsmap._kernels") is None or _find_spec("randsmap._kernels.linear_map") is None:
    raise ImportError(
        f"randsmap is imported from {__file__} without its compiled kernels. In a source tree: install it "
        "(pip install .) and start Python from another folder. In a zip archive, from which Python loads no compiled "
        "module: unpack it into a folder first, or leave randsmap out of it (pip install --target FOLDER randsmap). In "
        "a folder for another Python: install it for this one."
    )


def _pyinstaller_hooks():
    """The folders of hooks for PyInstaller, which asks the entry point "pyinstaller40" for them."""
    return [f"{path}/_pyinstaller" for path in __path__]


# module -> names that are also public here. They are loaded on first use, so that `import randsmap` is fast
_NAMES = {
    "datasets": ["LWRSolver", "HughesSolver", "solve_eikonal"],
    "decoders": [
        "AutoDecoder",
        "RANDSMAPDecoder",
        "RFNNDecoder",
        "KernelDecoder",
        "DoubleDiffusionMapsDecoder",
        "KNNDecoder",
        "BlendedDecoder",
        "ConservativeRegressor",
        "ExtrapolationWarning",
        "FrozenDecoder",
        "FrozenModel",
        "get_include",
    ],
    "distributed": [],
    "encoders": ["POD", "DiffusionMaps", "Isomap"],
    "export": [],
    "features": [
        "FourierFeatures",
        "MaternFeatures",
        "MonomialFeatures",
        "MultiscaleFourierFeatures",
        "SigmoidFeatures",
    ],
    "invariants": ["project_bounds"],
    "jax": [],
    "metrics": [],
    "model": [
        "ManifoldModel",
        "ParametricModel",
        "ShiftRegistration",
        "QuantileRegistration",
        "SampledModel",
        "sample_cells",
        "stencil",
        "LatentForecast",
    ],
    "persistence": ["load"],
    "plotting": [],
    "reports": [],
    "snapshots": ["read_snapshots"],
    "studies": [],
    "torch": [],
    "tuning": ["autotune", "tune", "leave_one_out"],
    "_parallel": ["set_num_threads", "get_num_threads"],
    "_io.progress": ["show_progress"],
}
_LAZY = {name: module for module, names in _NAMES.items() for name in names}
_SUBMODULES = [module for module in _NAMES if not module.startswith("_")]

__all__ = [*_LAZY, *_SUBMODULES, "__version__"]


def __getattr__(name):
    if name not in _LAZY and name not in _SUBMODULES:
        raise AttributeError(f"module 'randsmap' has no attribute {name!r}")
    module = _LAZY.get(name, name)
    if not module.startswith("_"):
        # scikit-learn comes first: within our modules its imports nest so deeply that CPython 3.11 allocates and frees
        # stack memory 14,000 times, which takes 70 ms
        _import_module("sklearn")
    value = _import_module(f"randsmap.{module}")
    if name in _LAZY:
        value = _import_module("randsmap._interface.related").with_see_also(name, getattr(value, name))
    globals()[name] = value
    return value


def __dir__():
    return sorted(__all__)

"""Kernels read and write numbers where they lie at multiples of their size, whatever lies elsewhere outside."""

import importlib
import pkgutil
import sys
import warnings

import numpy as np
import pytest

import randsmap._kernels

from entry_points import ENTRY_POINTS

pytestmark = pytest.mark.kernels


def shifted(array):
    """The same numbers one byte further on, as `np.frombuffer(..., offset=1)` gives them."""
    array = np.asarray(array)
    memory = np.zeros(array.nbytes + 1, np.uint8)[1:]
    memory = memory.view(array.dtype).reshape(array.shape)
    memory[...] = array
    return memory


def in_a_record(array):
    """The same numbers as a column of a table without gaps."""
    array = np.asarray(array)
    table = np.zeros(len(array), dtype=[("flag", "u1"), ("values", array.dtype, array.shape[1:])])
    table["values"] = array
    return table["values"]


@pytest.fixture
def misplaced(monkeypatch):
    """Kernels that were given an array that is not aligned, by name."""
    found = []

    def watched(name, function):
        def call(*args, **options):
            arrays = [a for a in (*args, *options.values()) if isinstance(a, np.ndarray)]
            found.extend(name for a in arrays if not a.flags.aligned)
            return function(*args, **options)

        return call

    def stand_in(name, kernel):
        if not isinstance(kernel, type):
            return watched(name, kernel)
        methods = {k: watched(f"{name}.{k}", f) for k, f in vars(kernel).items() if callable(f) and k[0] != "_"}
        methods.pop("row", None)  # of frozen.Decoder, which looks at the address itself
        return type(kernel.__name__, (kernel,), methods)

    users = [module for name, module in sys.modules.items() if name.startswith("randsmap.") and module is not None]
    for module in pkgutil.iter_modules(randsmap._kernels.__path__):
        module = importlib.import_module(f"randsmap._kernels.{module.name}")
        for name, kernel in list(vars(module).items()):
            if callable(kernel) and kernel.__module__ == module.__name__:
                replacement = stand_in(f"{module.__name__}.{name}", kernel)
                for user in {module, *users}:
                    for known in [k for k, value in vars(user).items() if value is kernel]:
                        monkeypatch.setattr(user, known, replacement)
    return found


@pytest.mark.parametrize("lay", [shifted, in_a_record])
@pytest.mark.parametrize("name", ENTRY_POINTS)
def test_kernels_are_given_aligned_arrays(misplaced, name, lay):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a search of two trials ends on an edge
        expected = list(ENTRY_POINTS[name](np.random.default_rng(1), np.array))
        found = list(ENTRY_POINTS[name](np.random.default_rng(1), lay))
    assert not misplaced, sorted(set(misplaced))
    assert len(found) == len(expected) > 0
    for a, b in zip(found, expected):
        np.testing.assert_array_equal(a, b, strict=True)


def test_misplaced_arrays_are_seen(misplaced):
    with pytest.raises(TypeError):  # without `out`, so that nothing is read
        randsmap._kernels.vecmath.cos(shifted(np.ones(3)))
    assert misplaced == ["randsmap._kernels.vecmath.cos"]

"""BLAS and LAPACK of whatever SciPy is there: `blas.bind` takes integers of 32 and of 64 bits, and nothing else."""

import pytest

from helpers import python

pytestmark = pytest.mark.kernels

# Stand-ins for SciPy's modules: capsules with other names, and functions that call SciPy's own.
START = """
import ctypes, re, types
import numpy as np
from scipy.linalg import cython_blas, cython_lapack
from randsmap._kernels import blas, ridge

api = ctypes.pythonapi
for function, result, arguments in (
    (api.PyCapsule_New, ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]),
    (api.PyCapsule_GetName, ctypes.c_char_p, [ctypes.py_object]),
    (api.PyCapsule_GetPointer, ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]),
):
    function.restype, function.argtypes = result, arguments
kept, faults = [], []  # what capsules point into; errors, which cannot leave a callback

def changed(module, rename, function):
    capsules = {}
    for name in blas.SIGNATURES:
        if name in module.__pyx_capi__:
            capsule = module.__pyx_capi__[name]
            signature = api.PyCapsule_GetName(capsule)
            pointer = function(signature.decode(), api.PyCapsule_GetPointer(capsule, signature))
            kept.append(rename(signature.decode()).encode())
            capsules[name] = api.PyCapsule_New(pointer, kept[-1], None)
    return types.SimpleNamespace(__name__=module.__name__, __pyx_capi__=capsules)

def widened(signature, pointer):
    is_int = [word.strip() == "int *" for word in signature[signature.index("(") + 1 : -1].split(",")]
    prototype = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * len(is_int))

    def call(*arguments):
        wide = [ctypes.c_int64.from_address(a) if i else None for i, a in zip(is_int, arguments)]
        faults.extend(w.value for w in wide if w is not None and not 0 <= w.value < 1000)
        narrow = [w and ctypes.c_int(w.value) for w in wide]
        prototype(pointer)(*(n and ctypes.addressof(n) or a for n, a in zip(narrow, arguments)))
        for n, w in zip(narrow, wide):
            if w is not None:
                w.value = n.value

    kept.append(prototype(call))
    return ctypes.cast(kept[-1], ctypes.c_void_p)

def results():
    rng = np.random.default_rng(0)
    Phi, F = rng.normal(size=(30, 7)), rng.normal(size=(30, 5))
    G, dual, H = np.zeros((7, 7)), np.zeros((30, 30)), np.zeros((7, 5))
    ridge.gram(Phi, False, False, G)
    ridge.gram(Phi, True, False, dual)
    ridge.cross(Phi, F, False, H)
    singular = ridge.solve(G - 2 * np.diag(np.diag(G)), 0.0, 0.0, H.copy())
    assert ridge.solve(G, 0.5, 0.0, H) == 0 and singular == 1
    np.testing.assert_allclose(H, np.linalg.solve(Phi.T @ Phi + 0.5 * np.eye(7), Phi.T @ F), rtol=1e-10)
    return np.concatenate([G.ravel(), dual.ravel(), H.ravel()])
"""


@pytest.mark.slow
def test_integers_of_64_bits():
    python(
        START
        + """
expected = results()
wide = lambda signature: signature.replace(" int *", " int64_t *")
blas.bind(changed(cython_blas, wide, widened), changed(cython_lapack, wide, widened))
np.testing.assert_array_equal(results(), expected)
assert not faults, faults
"""
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "blas_type, lapack_type, message",
    [
        ("long", "long", r"cython_blas\.dgemm of the installed SciPy is 'void .*long \*.*use a version of SciPy"),
        ("int64_t", "int", "integers of 32 and of 64 bits"),
    ],
)
def test_other_signatures_are_refused(blas_type, lapack_type, message):
    python(
        START
        + f"""
same = lambda signature, pointer: pointer
modules = [
    changed(module, lambda signature: signature.replace(" int *", " " + name + " *"), same)
    for module, name in ((cython_blas, {blas_type!r}), (cython_lapack, {lapack_type!r}))
]
try:
    blas.bind(*modules)
except ImportError as error:
    assert re.search({message!r}, str(error)), error
else:
    raise AssertionError("nothing was refused")
results()  # what was bound before still is
"""
    )

"""Model files and images of frozen decoders that are damaged, or forged: refused, or read without harm."""

from __future__ import annotations

import copy
import ctypes
import functools
import tempfile
import warnings
from pathlib import Path

import numpy as np

import randsmap
from randsmap import FrozenDecoder, FrozenModel
from randsmap._kernels import linear_map as kernel
from randsmap.persistence import read_archive, write_archive

from fuzz_targets.inputs import Skipped, quiet, same_bits, size
from helpers import random_problem

N, M = 24, 10
HEADER, SECTION = 64, 32  # bytes of an image's header, and of each entry of its table of sections


def _path(name):
    return Path(tempfile.gettempdir()) / name  # fuzz.py has a folder of its own there


# -- What is damaged -------------------------------------------------------------------------------
def _fitted():
    """Fitted objects of every kind of content, by name."""
    rng = np.random.default_rng(0)
    Y, F = random_problem(N, M, 2, seed=1, constant={4: 0.02})
    many = random_problem(200, M, 2, seed=2)
    C = np.stack([np.ones(M), 2 * np.ones(M), np.zeros(M)], axis=1)
    weights = rng.uniform(0.5, 2, M)
    sigmoid, kernels = randsmap.SigmoidFeatures(slope=3.0, n_features=9), randsmap.KernelDecoder
    decoder, knn, model = randsmap.RANDSMAPDecoder, randsmap.KNNDecoder, randsmap.ManifoldModel
    weighted = F / (F @ weights)[:, None]
    yield "features", decoder(sigmoid, random_state=0).fit(Y, F)
    yield "several", decoder(randsmap.FourierFeatures(0.5, n_features=7), invariants=C, random_state=0).fit(Y, F)
    yield "weights", decoder(sigmoid, cell_weights=weights, random_state=0).fit(Y, weighted)
    yield "bounds", decoder(sigmoid, bounds="nonnegative", random_state=0).fit(Y, F)
    yield "monomials", randsmap.RFNNDecoder(randsmap.MonomialFeatures(2)).fit(Y, F)
    yield "one cell", randsmap.RFNNDecoder(sigmoid).fit(Y, F[:, 0])
    yield "matern", kernels("matern", nu=2.5, length_scale=[0.3, 0.7], degree=1, invariants="mass").fit(Y, F)
    yield "thin plate", kernels("thin-plate", degree=1, bounds=(0.0, None)).fit(Y, F)
    yield "multi-Gaussian", kernels("multi-gaussian", max_frequency=4.0).fit(Y, F)
    yield "harmonics", randsmap.DoubleDiffusionMapsDecoder(epsilon=1.0, rank=4, invariants="mass").fit(Y, F)
    yield "expanded", randsmap.DoubleDiffusionMapsDecoder(invariants="mass", bounds=(0.0, 1.0)).fit(Y, F)
    yield "k-NN", knn(3, latent_scale=[0.3, 2.0]).fit(*many)
    yield "k-NN in 8-D", knn(3).fit(rng.uniform(-1, 1, (N, 8)), F)
    yield "blend", randsmap.BlendedDecoder([kernels(), knn(2)], limit=0.1, invariants="mass").fit(Y, F)
    yield "sparse", randsmap.DiffusionMaps(2, n_neighbors=12, select="non-harmonic").fit(F)
    yield "POD", randsmap.POD(3, invariants="mass", bounds=(None, 1.0)).fit(F)
    yield "model", model(randsmap.DiffusionMaps(2), decoder(sigmoid, random_state=0)).fit(F)
    yield "POD model", model(randsmap.POD(2), kernels(invariants="mass")).fit(F)
    yield "Isomap", model(randsmap.Isomap(2, cell_weights=weights), kernels(), projection=2).fit(F)
    yield "encoder", model(randsmap.DiffusionMaps(2), knn(3, objective="encoder")).fit(F)
    yield "shift", randsmap.ShiftRegistration(model(randsmap.POD(2), kernels())).fit(F)
    yield "quantiles", randsmap.QuantileRegistration(model(randsmap.POD(2))).fit(np.abs(F))
    yield "forecast", randsmap.LatentForecast(randsmap.POD(2), kernels()).fit(F)
    yield "parametric", randsmap.ParametricModel(model(randsmap.POD(2)), kernels()).fit(Y, F)


@functools.cache
def _models():
    """Of each fitted object the bytes of its file, its manifest and its arrays."""
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, fitted in _fitted():
            randsmap.persistence.save(fitted, _path("whole.npz"))
            found.append((name, _path("whole.npz").read_bytes(), *read_archive(_path("whole.npz"))))
    return found


@functools.cache
def _images():
    """Images of every kind of section, as bytes."""
    images = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _, fitted in _fitted():
            for options in ({}, {"precision": "float32"}, {"kind": "table", "tol": 1e-2}, {"tol": 1e-3}):
                try:
                    images.append(bytes(fitted.freeze(**options).linear_map.kernel.source))
                except (TypeError, ValueError, AttributeError):
                    pass  # what cannot be frozen says so: tests/test_frozen.py
    return [image for image in images if len(image) < 200_000]


def damaged(rng, whole):
    """Bytes with bits flipped, parts overwritten, left out, repeated or added; never the same."""
    data = bytearray(whole)
    for _ in range(size(rng, (1, 1), (1, 4))):
        at, kind = int(rng.integers(len(data) + 1)), rng.integers(6)
        if kind == 0 and at < len(data):
            data[at] ^= 1 << rng.integers(8)
        elif kind == 1:
            data[at : at + 8] = rng.choice([b"\0" * 8, b"\xff" * 8, b"PK\5\6\0\0\0\0", b"\0\0\0\0\0\0\0\x80"])
        elif kind == 2:
            del data[at:]
        elif kind == 3:
            del data[at : at + int(rng.integers(1, 40))]
        elif kind == 4:
            data[at:at] = rng.bytes(int(rng.integers(1, 40)))
        else:
            other = int(rng.integers(len(data) + 1))
            data[at : at + 64] = data[other : other + 64]
        if not data:
            break
    return bytes(data)


# -- Model files -----------------------------------------------------------------------------------
def models(rng):
    """Model files: damaged ones are refused, forged ones are refused or compute. A file an input."""
    name, whole, manifest, arrays = _models()[rng.integers(len(_models()))]
    path = _path("model.npz")
    with warnings.catch_warnings(), quiet():
        warnings.simplefilter("ignore")
        if rng.integers(3) == 0:
            data = damaged(rng, whole)
            path.write_bytes(data)
            try:
                randsmap.load(path)
            except ValueError:
                return 1
            assert data == whole, f"damage of {name} was not found"
            return 1
        manifest, arrays = copy.deepcopy(manifest), dict(arrays)
        _forge(rng, manifest, arrays)
        with open(path, "w+b") as file:
            write_archive(file, manifest, arrays)
        try:
            _use(randsmap.load(path))
        except ValueError:
            pass
    return 1


VALUES = [
    *(None, True, False, 0, -1, 1, 2, 3, 2**31, 2**40, 2**63, 10**30, 0.5, -1e308, 1e-320),
    *("", "mass", "svd", "latent", "gaussian", [], [1], [[1]], {}, {"array": "x"}, {"object": 0}, {"object": 3}),
    *({"float": "nan"}, {"float": "inf"}, {"float": "1e400"}, {"tuple": [1, {"object": 1}]}, {"array": ["x"]}),
]
ARRAYS = [
    lambda a, rng: a[:-1],
    lambda a, rng: a[..., :-1],
    lambda a, rng: a.T,
    lambda a, rng: a[:0],
    lambda a, rng: a.ravel(),
    lambda a, rng: a[None],
    lambda a, rng: np.concatenate([a, a]),
    lambda a, rng: np.zeros_like(a),
    lambda a, rng: ~a if a.dtype == bool else -a,
    lambda a, rng: a.astype(rng.choice([float, np.intp, bool, np.float32, np.uint8])),
    lambda a, rng: a * 10.0 ** rng.integers(-300, 300),
    lambda a, rng: a + rng.integers(-3, 4),
    lambda a, rng: a.astype(np.intp) + 10**12,
    lambda a, rng: np.full(a.shape, rng.choice([np.nan, np.inf, 1e308, 5e-324, -1.0])),
    lambda a, rng: np.array(1.0),
    lambda a, rng: np.zeros((0, 0)),
    lambda a, rng: _with_one_changed(a, rng),
    lambda a, rng: _with_one_changed(a, rng),
]


def _with_one_changed(a, rng):
    a = a.copy()
    value = rng.choice([0.0, -1.0, 1.0, 1e300, -1e300, 5e-324, np.nan, np.inf, 2.0**40, 7.0])
    a.flat[rng.integers(a.size)] = value if a.dtype.kind == "f" else np.nan_to_num(value, posinf=9, neginf=-9) % 2**62
    return a


def _places(value):
    """All (container, key) places of a JSON value."""
    for key in list(value) if isinstance(value, dict) else range(len(value)):
        yield value, key
        if isinstance(value[key], (dict, list)):
            yield from _places(value[key])


def _forge(rng, manifest, arrays):
    for _ in range(size(rng, (1, 1), (1, 3))):
        if rng.integers(2) and arrays:
            name = sorted(arrays)[rng.integers(len(arrays))]
            try:
                arrays[name] = ARRAYS[rng.integers(len(ARRAYS))](arrays[name], rng)
            except (IndexError, ValueError, TypeError):
                pass  # no such change of that array
            continue
        places = list(_places(manifest))
        if not places:
            return
        container, key = places[rng.integers(len(places))]
        what = rng.integers(4)
        if what == 0:
            del container[key]
        elif what == 1:
            other, place = places[rng.integers(len(places))]
            container[key] = copy.deepcopy(other[place])
        elif isinstance(container, dict) and what == 2 and rng.integers(3) == 0:
            container[str(rng.choice(["coef_", "__class__", "x", "encoder_"]))] = container[key]
        else:
            container[key] = copy.deepcopy(VALUES[rng.integers(len(VALUES))])


def _use(model):
    """Everything it computes, on input of its own width; ValueError is an answer."""
    width = getattr(model, "n_features_in_", None)
    if not isinstance(width, (int, np.integer)) or not 0 < width < 10_000:
        return
    X = np.random.default_rng(5).uniform(-2, 2, (3, width))
    U = np.ones((3, M))
    for name, arguments in (
        ("transform", (X,)),
        ("inverse_transform", (X[:, :2],)),
        ("reconstruct", (X,)),
        ("predict", (X,)),
        ("jacobian", (X[:1],)),
        ("jvp", (X, X)),
        ("vjp", (X, U)),
        ("forecast", (X, 2)),
        ("freeze", ()),
    ):
        method = getattr(model, name, None)
        if method is not None:
            try:
                method(*arguments)
            except ValueError:
                pass
            except TypeError as error:  # of a blend, say
                assert "is not known" in str(error) or "cannot be frozen" in str(error), error
            except AttributeError as error:  # of a model whose part lacks what is asked of it
                missing = ("inverse_transform", "jacobian", "jvp", "vjp")
                assert any(f"has no attribute '{name}'" in str(error) for name in missing), error


# -- Images ----------------------------------------------------------------------------------------
def _forged_image(rng, whole):
    """An image with counts, parameters, indices or numbers of a forger's choice, and the right checksum."""
    memory = np.zeros(len(whole) + 64, np.uint8)
    image = memory[-memory.ctypes.data % 64 :][: len(whole)]
    image[:] = np.frombuffer(whole, np.uint8)
    sections = int(image[32:36].view(np.uint32)[0])
    table = HEADER + SECTION * sections
    for _ in range(size(rng, (1, 1), (1, 3))):
        kind = rng.integers(5)
        if kind == 0:  # a number of the header or of the table
            place = 12 + 4 * int(rng.integers((table - 12) // 4))
            image[place : place + 4].view(np.uint32)[0] = _tempting(rng, len(whole)) & 0xFFFFFFFF
        elif kind == 1:
            place = 16 + 8 * int(rng.integers((table - 16) // 8))
            image[place : place + 8].view(np.uint64)[0] = _tempting(rng, len(whole))
        elif kind == 2:  # a parameter or an index
            place = table + 8 * int(rng.integers((len(whole) - table) // 8))
            image[place : place + 8].view(np.uint64)[0] = _tempting(rng, len(whole))
        elif kind == 3:
            place = table + 8 * int(rng.integers((len(whole) - table) // 8))
            odd = [np.nan, np.inf, -np.inf, 0.0, 1e308, -1e308, 5e-324, -1.0]
            image[place : place + 8].view(float)[0] = odd[rng.integers(len(odd))]
        else:
            image[rng.integers(len(whole))] ^= 1 << rng.integers(8)
    _seal(image)
    return image


def _seal(image):
    """The checksums of the parts of an image, and its own."""
    for entry in range(HEADER, min(HEADER + SECTION * int(image[32:36].view(np.uint32)[0]), len(image) - 31), SECTION):
        number = int(image[entry : entry + 4].view(np.uint32)[0])
        offset, _, columns = (int(n) for n in image[entry + 8 : entry + 32].view(np.uint64))
        if (
            number not in (kernel.SECTIONS["parts"], kernel.SECTIONS["input"])
            or offset % 8
            or offset + 8 * columns > len(image)
        ):
            continue
        images = image[offset : offset + 8 * columns]
        while len(images) >= HEADER:
            length = int(images[16:24].view(np.uint64)[0])
            if length % 8 or not HEADER <= length <= len(images):
                break
            _seal(images[:length])
            images = images[length:]
    image[24:32].view(np.uint64)[0] = kernel.checksum(image)


def _tempting(rng, length):
    values = [0, 1, 2, 3, 7, 8, 9, 63, 64, 65, 2**16, 2**32 - 1, 2**32, 2**60, 2**61, 2**63, 2**64 - 1, 2**64 - 63]
    values += [2**63 - 1, length, length // 8, int(rng.integers(100))]
    return values[rng.integers(len(values))]


def images(rng):
    """Images of frozen decoders, in memory: damaged ones are refused, forged ones refused or decoded. An image an
    input."""
    whole = _images()[rng.integers(len(_images()))]
    if rng.integers(3) == 0:
        data = damaged(rng, whole)
        try:
            FrozenDecoder(data)
        except ValueError:
            return 1
        assert data == whole, "damage was not found"
        return 1
    image = _forged_image(rng, whole)
    with warnings.catch_warnings(), quiet():
        warnings.simplefilter("ignore")
        try:
            frozen = FrozenDecoder(image)
        except ValueError:
            return 1
        _use_frozen(rng, frozen)
        if rng.integers(4) == 0:
            _use_frozen(rng, FrozenModel(image) if frozen.linear_map.kernel.has_encoder else frozen)
    return 1


def _use_frozen(rng, frozen):
    d, cells, q = frozen.n_components, frozen.n_cells, frozen.n_invariants
    if max(d, cells, q) > 4096:
        return
    L = size(rng, (1, 9), (10, 20))
    X, single = rng.uniform(-1, 2, (L, d)) * rng.choice([1.0, 1.0, 1e3]), frozen.linear_map.kernel.single
    for call in (
        lambda: frozen.predict(X),
        lambda: frozen.predict(X, out=np.empty(L if single else (L, cells))),
        lambda: frozen.predict(X, invariant_values=np.ones((L, q))),
        lambda: frozen.jacobian(X[:2]),
        lambda: frozen.jvp(X, X),
        lambda: frozen.vjp(X, np.ones(L if single else (L, cells))),
        lambda: getattr(frozen, "transform", frozen.predict)(np.ones((L, cells))),
    ):
        try:
            result = call()
        except ValueError:
            continue
        assert result.shape[0] in (2, L)


# -- The C interface -------------------------------------------------------------------------------
@functools.cache
def _library():
    try:
        library = ctypes.CDLL(randsmap.decoders.library_path())
    except FileNotFoundError:
        raise Skipped("a source tree has no librandsmap: install the package, and run it from there") from None
    library.randsmap_work.restype = ctypes.c_ssize_t
    return library


class _Info(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t)] + [
        (name, ctypes.c_int64) for name in ("d", "cells", "q", "features", "kind", "precision")
    ]


CANARY = 8.25e-87  # behind each array that C writes to


def _room(n):
    memory = np.full(max(int(n), 0) + 4, CANARY)
    return memory


def _pointer(array):
    return array.ctypes.data_as(ctypes.c_void_p)


def c_images(rng):
    """The same through randsmap.h: files opened by C, decoded into arrays of the exact length. An image an input."""
    library = _library()
    whole = _images()[rng.integers(len(_images()))]
    kind = rng.integers(4)
    data = whole if kind == 0 else damaged(rng, whole) if kind == 1 else _forged_image(rng, whole).tobytes()
    path = _path("image.rsm")
    path.unlink(missing_ok=True)  # replaced, not overwritten: a decoder maps its file
    path.write_bytes(data)
    decoder = ctypes.c_void_p()
    status = library.randsmap_open(str(path).encode(), ctypes.byref(decoder))
    assert (status == 0) == bool(decoder.value)
    if kind == 1:
        assert status != 0 or data == whole, "damage was not found"
    try:
        if status == 0:
            _use_c(rng, library, decoder, data if kind == 0 else None)
    finally:
        library.randsmap_close(decoder)
    return 1


def _use_c(rng, library, decoder, whole):
    info = _Info(size=ctypes.sizeof(_Info))
    assert library.randsmap_info(decoder, ctypes.byref(info)) == 0
    d, cells, q = info.d, info.cells, info.q
    if max(d, cells, q) > 4096:
        return
    n = size(rng, (1, 3), (4, 20))
    y = rng.uniform(-1, 2, (n, d)) * rng.choice([1.0, 1.0, 1e3])
    m, u = np.ones((n, q)), rng.normal(size=cells)
    out, J, latents, gradient = _room(n * cells), _room(n * cells), _room(n * d), _room(d)
    work = _room(library.randsmap_work(decoder, ctypes.c_ssize_t(n)))
    one = _room(library.randsmap_work(decoder, ctypes.c_ssize_t(1)))
    count = ctypes.c_ssize_t(n)
    status = library.randsmap_decode(decoder, _pointer(y), count, _pointer(out), _pointer(work))
    if whole is not None:
        frozen = FrozenDecoder(whole)
        if status == 0:
            assert same_bits(out[:-4].reshape(n, cells), frozen.predict(y).reshape(n, cells)), "C beside Python"
    fields = out.copy()
    library.randsmap_decode_values(decoder, _pointer(y), _pointer(m), count, _pointer(out), _pointer(work))
    library.randsmap_encode(decoder, _pointer(fields), count, _pointer(latents), _pointer(work))
    steps = ctypes.c_ssize_t(size(rng, (-1, 3)))
    library.randsmap_encode_steps(decoder, _pointer(fields), count, steps, _pointer(latents), _pointer(work))
    library.randsmap_decode_jvp(decoder, _pointer(y), _pointer(y), count, _pointer(out), _pointer(J), _pointer(work))
    library.randsmap_vjp(decoder, _pointer(y), _pointer(u), _pointer(gradient), _pointer(one))
    for array in (out, J, latents, gradient, work, one):
        assert (array[-4:] == CANARY).all(), "written beyond an array"


TARGETS = models, images, c_images

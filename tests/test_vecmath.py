"""cos, exp, log and logistic of the kernels, in units in the last place, at every instruction level."""

import functools

import mpmath
import numpy as np
import pytest

from randsmap._kernels import vecmath

from helpers import python
from oracles import ELEMENTARY, ulp

pytestmark = pytest.mark.kernels

REACH = 1e7  # RK_COS_REACH
TINY = 5e-324
EPS = np.finfo(float).eps
STEPS = range(-4, 5)
FUNCTIONS = {"cos": mpmath.cos, "exp": mpmath.exp, "log": mpmath.log, "logistic": lambda x: 1 / (1 + mpmath.exp(-x))}

CHILD = """
import sys
import numpy as np
from randsmap._kernels import vecmath
given = np.load("given.npz")
results = {}
for key in given.files:
    x = np.ascontiguousarray(given[key])
    out = np.empty_like(x)
    getattr(vecmath, key.split("/")[0])(x, out)
    results[key] = out
np.savez("results.npz", **results)
print(vecmath.cpu_level())
"""


def signed_powers(rng, low, high, n):
    return 10.0 ** rng.uniform(low, high, n) * rng.choice([-1.0, 1.0], n)


def hardest():
    """Doubles closest to multiples of pi/2, where the reduction cancels most.

    p 2^e is close to q pi/2 when p/q is a convergent of the continued fraction of 2^-e pi/2.
    """
    found = []
    with mpmath.workprec(300):
        for e in range(-60, -29):
            rest = mpmath.ldexp(mpmath.pi / 2, -e)
            (p, q), (p0, q0) = (int(mpmath.floor(rest)), 1), (1, 0)
            while p < 2**53:
                found.append(float(p) * 2.0**e)
                rest = 1 / (rest - mpmath.floor(rest))
                a = int(mpmath.floor(rest))
                (p, q), (p0, q0) = (a * p + p0, a * q + q0), (p, q)
    return np.array(found)


@functools.cache
def arguments():
    rng = np.random.default_rng(0)
    n = 1500
    multiples = np.concatenate([np.arange(-40, 41), rng.integers(-6_300_000, 6_300_000, n)])
    with mpmath.workprec(200):
        near = np.array([float(mpmath.pi / 2 * int(m)) for m in multiples])
    near = np.concatenate([near, np.nextafter(near, np.inf), hardest()])
    near = near[np.abs(near) <= REACH]
    log_max = 709.782712893384
    return {
        "cos/period": rng.uniform(-7, 7, n),
        "cos/usual": rng.uniform(-1000, 1000, n),
        "cos/reach": np.append(rng.uniform(-REACH, REACH, n), [REACH, -REACH]),
        "cos/near": near,
        "cos/tiny": np.append(signed_powers(rng, -323, 0, n), [0.0, -0.0, TINY, 2.0**-1022]),
        "cos/beyond": np.append(signed_powers(rng, 7, 308, n), np.nextafter(REACH, np.inf)),
        "exp/usual": rng.uniform(-2, 2, n),
        "exp/wide": rng.uniform(-708, 709, n),
        "exp/underflow": np.append(rng.uniform(-746, -700, n), [-745.1332191019411, -750, -1e300]),
        "exp/overflow": np.append(rng.uniform(700, log_max, n), [log_max]),
        "exp/tiny": np.append(signed_powers(rng, -323, 0, n), [0.0, -0.0, TINY]),
        "log/usual": rng.uniform(0, 10, n),
        "log/near one": np.concatenate([1 + signed_powers(rng, -16, -0.6, n), np.nextafter(1.0, [0, 2]), [1.0]]),
        "log/change of exponent": np.concatenate(
            [np.sqrt(0.5) * 2.0 ** np.arange(-3, 4) * (1 + k * EPS) for k in STEPS]
        ),
        "log/wide": np.append(10.0 ** rng.uniform(-307, 308, n), [2.0**-1022, np.finfo(float).max]),
        "logistic/usual": rng.uniform(-5, 5, n),
        "logistic/wide": rng.uniform(-60, 60, n),
        "logistic/underflow": np.append(rng.uniform(-746, -60, n), [-744.5, -750, -1e300]),
        "logistic/tiny": np.append(signed_powers(rng, -323, 0, n), [0.0, -0.0, TINY, 1e300]),
    }


SPECIAL = np.array([np.inf, -np.inf, np.nan, 0.0, -0.0, 1.0])


def dense(name):
    """A million arguments where rounding shows most, with the long double result."""
    rng = np.random.default_rng(1)
    x = rng.uniform(*{"cos": (-20, 20), "exp": (-3, 3), "log": (0.3, 3), "logistic": (-10, 3)}[name], 1_000_000)
    return x, ELEMENTARY[name](x.astype(np.longdouble))


@pytest.fixture(scope="module")
def results(level, tmp_path_factory):
    """What a process forced to one level computes for all the arguments of this file."""
    folder = tmp_path_factory.mktemp(level)
    given = dict(arguments())
    for name in FUNCTIONS:
        given[f"{name}/special"] = SPECIAL
        given[f"{name}/dense"] = dense(name)[0]
    np.savez(folder / "given.npz", **given)
    python(CHILD, level=level, cwd=folder, timeout=300)
    return dict(np.load(folder / "results.npz"))


@functools.cache
def exact_values(key):
    function = FUNCTIONS[key.split("/")[0]]
    with mpmath.workprec(1300 if "beyond" in key else 260):  # bits of the argument
        return [function(mpmath.mpf(float(x))) for x in arguments()[key]]


@pytest.mark.slow
@pytest.mark.parametrize("key", sorted(arguments()))
def test_within_two_ulp(results, key):
    with mpmath.workprec(260):
        for argument, exact, value in zip(arguments()[key], exact_values(key), results[key]):
            error = abs(mpmath.mpf(float(value)) - exact) / mpmath.mpf(float(ulp(float(exact))))
            assert error <= 2, f"{key}: {argument!r} gives {value!r}, {float(error):.3f} ulp off"


@pytest.mark.slow
@pytest.mark.skipif(np.finfo(np.longdouble).nmant < 63, reason="no wide long double")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_within_two_ulp_densely(results, name):
    _, exact = dense(name)
    error = np.abs(results[f"{name}/dense"] - exact) / ulp(exact.astype(float))
    assert error.max() <= 2


def test_special_values_as_libm(results):
    with np.errstate(invalid="ignore"):
        assert np.array_equal(results["cos/special"], np.cos(SPECIAL), equal_nan=True)
    for name, expected in (("exp", [np.inf, 0.0, np.nan, 1.0, 1.0]), ("logistic", [1.0, 0.0, np.nan, 0.5, 0.5])):
        got = results[f"{name}/special"][:5]
        assert np.array_equal(got, expected, equal_nan=True)
        assert not np.signbit(got[1])


def test_exp_overflows_to_infinity_and_underflows_gradually():
    x = np.array([709.782712893384, 709.7827128933841, 710.0, 1e308, -745.0, -745.2, -746.0, -1e308])
    out = np.empty_like(x)
    vecmath.exp(x, out)
    assert out[0] < np.inf and (out[1:4] == np.inf).all()
    assert out[4] == TINY and (out[5:] == 0).all()


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("n", [0, 1, 2, 3, 7, 8, 9, 255, 256, 257, 1001])
def test_any_length_and_in_place(name, n):
    x = np.random.default_rng(n).uniform(0 if name == "log" else -30, 30, n)
    reference = ELEMENTARY[name](x)
    guarded = np.full(n + 2, 7.0)
    function = getattr(vecmath, name)
    function(x, guarded[1:-1])
    assert np.all(np.abs(guarded[1:-1] - reference) <= 4 * ulp(reference))  # both sides round
    assert guarded[0] == guarded[-1] == 7.0
    inside = x.copy()
    function(inside, inside)
    assert np.array_equal(inside, guarded[1:-1])


def test_an_element_beyond_the_reach_changes_no_other():
    x = np.random.default_rng(0).uniform(-100, 100, 600)
    alone, mixed = np.empty_like(x), np.empty_like(x)
    vecmath.cos(x, alone)
    x[300] = 1e15
    vecmath.cos(x, mixed)
    assert mixed[300] == pytest.approx(np.cos(1e15), abs=1e-15)
    assert np.array_equal(np.delete(mixed, 300), np.delete(alone, 300))


def test_read_only_input():
    x = np.linspace(-1, 1, 5)
    x.setflags(write=False)
    out = np.empty(5)
    vecmath.exp(x, out)
    assert np.all(np.abs(out - np.exp(x)) <= 2 * ulp(out))

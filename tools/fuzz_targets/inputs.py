"""What the targets share: hostile numbers, arrays of every layout, exact sums, errors that must be raised."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager

import numpy as np

EPS = np.finfo(float).eps
UNIT = np.finfo(float).smallest_subnormal
SMALLEST, LARGEST = 1e-140, 1e140  # the numeric domain: magnitudes that public functions take
WIDE = np.longdouble  # of the oracles: round-off of theirs is nothing beside that of doubles
if np.finfo(WIDE).eps >= EPS:
    raise ImportError("the oracles need an extended precision, which this platform's long double is not")


class Skipped(Exception):
    """A target cannot run here."""


@contextmanager
def quiet():
    """The oracle's own overflows are no fault of the package."""
    with np.errstate(all="ignore"):
        yield


# -- Numbers ---------------------------------------------------------------------------------------
def numbers(rng, shape, largest=LARGEST):
    """An array of numbers of a kind that has made programs fail."""
    n = shape[0]
    kind = rng.integers(12)
    X = rng.normal(size=shape)
    if kind == 1:
        X = rng.integers(-3, 4, shape) / 4  # ties
    elif kind == 2 and n:
        X = X[rng.integers(n, size=n)]  # repeated rows
    elif kind == 3:
        X *= 10.0 ** rng.uniform(-12, 12, shape)
    elif kind == 4:
        X = rng.integers(-9, 10, shape) * SMALLEST
    elif kind == 5:
        X *= 10.0 ** rng.uniform(-130, -100)
    elif kind == 6:
        X *= largest / 8
    elif kind == 7:
        X += 10.0 ** rng.integers(1, 9)  # the spread is small beside the offset
    elif kind == 8:
        X[:] = rng.normal()
    elif kind == 9:
        X[rng.random(shape) < 0.5] = 0.0 * rng.choice([1, -1])
    elif kind == 10 and n:
        X[rng.integers(n)] *= min(1e6, largest)  # one far away
    elif kind == 11:
        X = np.round(X, 1) * rng.choice([1e-3, 1.0, 1e3])
    return np.clip(X, -largest, largest)


def size(rng, *ranges):
    """A whole number of one of the ranges [a, b]."""
    low, high = ranges[rng.integers(len(ranges))]
    return int(rng.integers(low, high + 1))


# -- Arrays ----------------------------------------------------------------------------------------
def laid_out(rng, X):
    """The same numbers, as an array of another layout, byte order or kind."""
    kind = rng.integers(9)
    if kind == 1:
        return np.asfortranarray(X)
    if kind == 2:
        return np.repeat(X, 2, axis=-1)[..., ::2]
    if kind == 3:
        return np.flip(np.flip(X).copy())
    if kind == 4:
        X = X.copy()
        X.flags.writeable = False
        return X
    if kind == 5:
        memory = np.zeros(X.nbytes + 1, np.uint8)[1:]  # not aligned
        shifted = memory.view(X.dtype).reshape(X.shape)
        shifted[...] = X
        return shifted
    if kind == 6:
        return X.astype(X.dtype.newbyteorder())
    if kind == 7 and X.size < 300:
        return X.tolist() if X.size else X
    if kind == 8:
        column = np.zeros(X.shape, [("flag", "u1"), ("value", X.dtype)])["value"]  # of a table without gaps
        column[...] = X
        return column
    return X


def in_single(rng, X):
    """X, or in one of four cases what float32 keeps of it, and that as float64."""
    with quiet():
        single = X.astype(np.float32)
    if rng.integers(4) or not np.isfinite(single).all():
        return X, X
    return single, single.astype(np.float64)


def spoiled(rng, X):
    """A copy with a number that is none."""
    X = np.array(X, dtype=float)
    X.flat[rng.integers(X.size)] = rng.choice([np.nan, np.inf, -np.inf])
    return X


# -- Checks ----------------------------------------------------------------------------------------
def refused(call: Callable[[], object], *texts: str, errors=(ValueError, TypeError)):
    """The call must raise one of the errors, with one of the texts."""
    try:
        call()
    except errors as error:
        assert not texts or any(text in str(error) for text in texts), f"an error of another kind: {error}"
        return
    raise AssertionError(f"not refused; expected an error with {' or '.join(texts)!r}")


def same_bits(a, b):
    """Whether two arrays are equal to the bit but for the sign of zero."""
    return a.dtype == b.dtype and a.shape == b.shape and np.array_equal(a, b)


def within(got, exact, bound, what):
    """|got - exact| <= bound everywhere; inf equals inf."""
    with quiet():
        wrong = np.asarray((np.abs(got - exact) > bound) | np.isnan(got)) & (np.asarray(got) != exact)
    if wrong.any():
        at = np.unravel_index(int(np.argmax(wrong)), wrong.shape)
        bound = np.broadcast_to(bound, wrong.shape)
        raise AssertionError(
            f"{what}: {np.asarray(got)[at]!r} at {tuple(map(int, at))}, expected "
            f"{np.broadcast_to(exact, wrong.shape)[at]!r} within {bound[at]!r}"
        )


def violation(F, C, m):
    """|C_j^T f - m_j| / (|C_j|^T |f| + |m_j|) of each field and invariant (n, q)."""
    F, C, m = (np.asarray(x, WIDE) for x in (F, C, m))
    defect, scale = np.abs(F @ C - m), np.abs(F) @ np.abs(C) + np.abs(m)
    return np.where(scale > 0, defect / np.where(scale > 0, scale, 1), defect)

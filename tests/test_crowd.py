"""Kernel `crowd`: the same bits at every instruction level and in every lane."""

import functools
import hashlib
from pathlib import Path

import numpy as np
import pytest

from randsmap._kernels import crowd

from helpers import python

pytestmark = pytest.mark.kernels

NX, NY = 24, 11


def crowds(n=crowd.LANES, seed=0):
    """Densities (n, NX, NY) and walls; dense enough for jams."""
    rng = np.random.default_rng(seed)
    walls = np.zeros((NX, NY), bool)
    walls[10:13, 4:7] = True
    return rng.uniform(0, 5, (n, NX, NY)) * ~walls, walls


def advance(densities, walls, n_steps, aspect=1.0, normalised=False, fraction=0.0):
    """Lanes of `run` after n_steps, for at most LANES densities."""
    dx, dy = 0.1, 0.1 * aspect
    free = ~walls
    state = np.zeros((NX, NY, crowd.LANES))
    state[..., : len(densities)] = np.moveaxis(densities, 0, -1)
    kind = np.where(free, crowd.FREE, crowd.WALL).astype(np.uint8)
    exits = np.repeat(np.array([0, 1, 0, 0], np.uint8), [NY, NY, 1, 1])
    open_x = np.ones((NX + 1, NY))
    open_x[0] = 0
    open_x[1:-1] = free[1:] & free[:-1]
    open_y = np.zeros((NX, NY + 1))
    open_y[:, 1:-1] = (free[:, 1:] & free[:, :-1]) * (dx / dy)
    work = np.full(crowd.run_work_size(NX, NY), np.nan)  # what is read before it is written shows
    out = np.full((crowd.LANES + 1, NX * NY), np.nan)
    rows = np.arange(crowd.LANES)[None]
    crowd.run(
        state,
        work,
        kind,
        exits,
        open_x,
        open_y,
        dx,
        dy,
        0.02,
        1.0,
        5.0,
        1e-3,
        np.array([n_steps]),
        np.array([fraction]),
        rows,
        normalised,
        out,
    )
    assert np.isnan(out[-1]).all()
    return out[: len(densities)], state


def potentials(densities, walls, sweeping=False, aspect=1.0):
    kind = np.where(walls, crowd.WALL, crowd.FREE).astype(np.uint8)
    exits = np.repeat(np.array([0, 1, 0, 0], np.uint8), [NY, NY, 1, 1])
    out = np.full(densities.shape, np.nan)
    work = np.full(crowd.eikonal_work_size(len(densities), NX, NY), np.nan)
    crowd.eikonal(1 / np.maximum(1 - densities / 5, 1e-3), kind, exits, 0.1, aspect, NX, sweeping, work, out)
    return out


@functools.cache
def digest():
    """Bits of everything the kernel computes, on fixed data."""
    parts = []
    for aspect in (1.0, 0.6):
        densities, walls = crowds()
        parts.append(advance(densities, walls, 60, aspect)[0])
        parts.append(advance(densities, walls, 3, aspect, True, 0.5)[0])
        for n in (1, 8):
            parts += [potentials(densities[:n], walls, s, aspect) for s in (False, True)]
    return hashlib.sha256(b"".join(p.tobytes() for p in parts)).hexdigest()


def test_instruction_levels_give_the_same_bits(level):
    code = f"import sys; sys.path.append({str(Path(__file__).parent)!r}); import test_crowd; print(test_crowd.digest())"
    assert python(code, level=level).strip() == digest()


def test_lanes_do_not_influence_one_another():
    densities, walls = crowds()
    together, _ = advance(densities, walls, 40)
    for k in range(len(densities)):
        alone, _ = advance(densities[k : k + 1], walls, 40)
        assert np.array_equal(alone[0], together[k])
    shuffled, _ = advance(densities[::-1], walls, 40)
    assert np.array_equal(shuffled[::-1], together)


def test_one_lane_and_eight_give_the_same_potential():
    densities, walls = crowds()
    for sweeping in (False, True):
        together = potentials(densities, walls, sweeping)
        assert np.array_equal(np.isinf(together[0]), walls)
        for k in range(len(densities)):
            assert np.array_equal(potentials(densities[k : k + 1], walls, sweeping)[0], together[k])


def test_extract_normalises_and_leaves_the_state_alone():
    densities, walls = crowds()
    out, state = advance(densities, walls, 0)
    assert np.array_equal(out, densities.reshape(len(densities), -1))
    out, _ = advance(densities, walls, 0, normalised=True)
    np.testing.assert_allclose(out.sum(axis=1), 1, rtol=1e-14)
    # a fraction of a step is taken aside
    _, after = advance(densities, walls, 0, fraction=0.5)
    assert np.array_equal(after, state)


def test_no_event_and_no_output_do_nothing():
    state = np.ones((NX, NY, crowd.LANES))
    empty = np.empty((0, crowd.LANES), np.intp)
    mask, vector = np.zeros((NX, NY), np.uint8), np.zeros(2 * NY + 2, np.uint8)
    crowd.run(
        state,
        np.empty(0),
        mask,
        vector,
        np.zeros((NX + 1, NY)),
        np.zeros((NX, NY + 1)),
        1.0,
        1.0,
        0.1,
        1.0,
        5.0,
        1e-3,
        np.empty(0, np.intp),
        np.empty(0),
        empty,
        False,
        np.empty((1, NX * NY)),
    )
    assert (state == 1).all()
    crowd.eikonal(
        np.empty((0, 3, 3)),
        np.zeros((3, 3), np.uint8),
        np.zeros(8, np.uint8),
        1.0,
        1.0,
        0,
        False,
        np.empty(0),
        np.empty((0, 3, 3)),
    )

"""Swiss roll and S-curve, the data sets without an invariant (paper, Appendices SR and SC20)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import Bunch

from randsmap._interface.parameters import check_count, check_number, check_random_state
from randsmap.datasets import _common


def swiss_roll(theta: NDArray[np.float64], z: NDArray[np.float64]) -> NDArray[np.float64]:
    """Points of the Swiss roll, (n, 3), from angles and heights (n,) (paper, Eq. E.1)."""
    radius = (theta + 0.1 * z) / 4
    return np.column_stack((radius * np.sin(theta), radius * np.cos(theta), z))


def s_curve(theta: NDArray[np.float64], w: NDArray[np.float64]) -> NDArray[np.float64]:
    """Points of the S-curve, (n, 3), from angles and widths (n,) (paper, Eq. F.1)."""
    return np.column_stack((np.sin(theta), w, np.sign(theta) * (np.cos(theta) - 1)))


@_common.documented
def make_swiss_roll(
    n_samples: int = 10000,
    *,
    noise: float = 0.05,
    random_state: _common.RandomState = None,
    out: _common.Output = None,
    progress: bool = False,
) -> Bunch:
    """Points of a Swiss roll in 3 dimensions: the data of the paper's Appendix E.

    x1 = (theta + 0.1 z) sin(theta) / 4, x2 = (theta + 0.1 z) cos(theta) / 4, x3 = z, plus N(0, noise^2) on each;
    theta ~ U[pi, 4 pi), z ~ U[-5, 5) (paper, Eq. E.1).

    {n_points} {noise} {seed} {out}

    Returns
    -------
    Bunch
        ``data`` (n_samples, 3); ``coordinates`` (n_samples, 2): the angle theta in radians and the height z;
        ``coordinate_names``; ``DESCR``.

    {raises} {example}
    """
    options = {"random_state": random_state, "out": out, "progress": progress}
    about = "Swiss roll", ("theta", "z"), make_swiss_roll.__doc__
    return _make(swiss_roll, ([np.pi, -5.0], [4 * np.pi, 5.0]), n_samples, noise, *about, **options)


@_common.documented
def make_s_curve(
    n_samples: int = 10000,
    *,
    n_features: int = 20,
    noise: float = 0.01,
    random_state: _common.RandomState = None,
    out: _common.Output = None,
    progress: bool = False,
) -> Bunch:
    """Points of an S-curve in a space of many dimensions: the data of the paper's Appendix F.

    z1 = sin(theta), z2 = w, z3 = sign(theta) (cos(theta) - 1), plus N(0, noise^2) on each; x = R z;
    theta ~ U[-3 pi/2, 3 pi/2), w ~ U[0, 1) (paper, Eq. F.1).

    Parameters
    ----------
    {n_points}
    n_features : int, default 20
        Dimension of the space, at least 3.
    {noise}
    {seed}
    {out}

    Returns
    -------
    Bunch
        ``data`` (n_samples, n_features); ``coordinates`` (n_samples, 2): the angle theta in radians and the width w;
        ``coordinate_names``; ``embedding`` (n_features, 3): R, so that ``data @ embedding`` are the points in three
        dimensions; ``DESCR``.

    {raises}

    Notes
    -----
    R is the orthogonal polar factor U V^T of a Gaussian matrix U S V^T: uniformly distributed, and unlike U alone free
    of the signs that an SVD routine happens to choose.

    {example}
    """
    n_features = check_count(n_features, "n_features", low=3)
    check_count(n_samples, "n_samples")
    # R has its own seed, drawn first: a seed gives the same R for every n_samples
    random_state = check_random_state(random_state)
    (rng,) = _common.random_streams(random_state, 1)
    U, _, Vt = np.linalg.svd(rng.standard_normal((n_features, 3)), full_matrices=False)
    options = {"random_state": random_state, "out": out, "progress": progress, "embedding": U @ Vt}
    about = "S-curve", ("theta", "w"), make_s_curve.__doc__
    return _make(s_curve, ([-1.5 * np.pi, 0.0], [1.5 * np.pi, 1.0]), n_samples, noise, *about, **options)


def _make(surface, ranges, n_samples, noise, description, names, descr, *, random_state, out, progress, embedding=None):
    """Noisy points surface(*coordinates), the coordinates uniform in these ranges, perhaps embedded by a matrix."""
    n_samples = check_count(n_samples, "n_samples")
    noise = check_number(noise, "noise", low=0.0)
    block_size = 8192  # rows per random stream: the data do not depend on the number of threads
    streams = _common.random_streams(random_state, -(-n_samples // block_size))
    coordinates = np.empty((n_samples, 2))

    def fill(data, rows):
        rng = streams[rows.start // block_size]
        coordinates[rows] = rng.uniform(*ranges, size=(rows.stop - rows.start, 2))
        x = surface(*coordinates[rows].T)
        x += noise * rng.standard_normal(x.shape)
        if embedding is None:
            data[rows] = x
        else:  # three terms instead of BLAS: bit-identical for any number of threads
            data[rows] = x[:, :1] * embedding[:, 0] + x[:, 1:2] * embedding[:, 1] + x[:, 2:] * embedding[:, 2]

    shape = n_samples, 3 if embedding is None else len(embedding)
    data = _common.fill_blocks(out, shape, fill, block_size, description=description, progress=progress)
    more = {} if embedding is None else {"embedding": embedding}
    return Bunch(data=data, coordinates=coordinates, coordinate_names=names, DESCR=descr or "", **more)

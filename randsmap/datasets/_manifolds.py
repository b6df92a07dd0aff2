"""Swiss roll and S-curve, the data sets without an invariant (paper, Appendices SR and SC20)."""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import Bunch

from randsmap._interface.parameters import check_count, check_number, check_random_state
from randsmap.datasets import _common

_SWISS_ROLL_DESCR = """\
Swiss roll in 3 dimensions (paper, Eq. SwissRolleq).

x1 = (theta + 0.1 z) sin(theta) / 4, x2 = (theta + 0.1 z) cos(theta) / 4, x3 = z, plus N(0, noise^2)
on each, theta ~ U[pi, 4 pi), z ~ U[-5, 5). coordinates: theta, z.
"""

_S_CURVE_DESCR = """\
S-curve (paper, Eq. SCurveeq), carried into n_features dimensions by orthonormal columns R.

z1 = sin(theta), z2 = w, z3 = sign(theta) (cos(theta) - 1), plus N(0, noise^2) on each; x = R z;
theta ~ U[-3 pi/2, 3 pi/2), w ~ U[0, 1). coordinates: theta, w.
"""


def swiss_roll(theta: NDArray[np.float64], z: NDArray[np.float64]) -> NDArray[np.float64]:
    """Points of the Swiss roll, (n, 3), from angles and heights (n,) (paper, Eq. SwissRolleq)."""
    radius = (theta + 0.1 * z) / 4
    return np.column_stack((radius * np.sin(theta), radius * np.cos(theta), z))


def s_curve(theta: NDArray[np.float64], w: NDArray[np.float64]) -> NDArray[np.float64]:
    """Points of the S-curve, (n, 3), from angles and widths (n,) (paper, Eq. SCurveeq)."""
    return np.column_stack((np.sin(theta), w, np.sign(theta) * (np.cos(theta) - 1)))


@partial(_common.documented, description=_SWISS_ROLL_DESCR)
def make_swiss_roll(
    n_samples: int = 10000,
    *,
    noise: float = 0.05,
    random_state: _common.RandomState = None,
    out: _common.Output = None,
    progress: bool = False,
) -> Bunch:
    """Points of a Swiss roll: the data of the paper's Appendix SR.

    {description}

    Parameters
    ----------
    n_samples : int, default 10000
        Number of points.
    noise : float, default 0.05
        Standard deviation of the Gaussian noise on each of the three coordinates.
    {seed}
    {out}

    Returns
    -------
    Bunch
        ``data`` (n_samples, 3); ``coordinates`` (n_samples, 2): the angle theta in radians and the height z;
        ``coordinate_names``; ``DESCR``.

    {raises}

    Examples
    --------
    >>> from randsmap.datasets import make_swiss_roll
    >>> roll = make_swiss_roll(500, random_state=0)
    >>> roll.data.shape, roll.coordinates.shape
    ((500, 3), (500, 2))
    """

    options = {"random_state": random_state, "out": out, "progress": progress}
    ranges = [np.pi, -5.0], [4 * np.pi, 5.0]
    return _make(swiss_roll, ranges, n_samples, noise, "Swiss roll", ("theta", "z"), _SWISS_ROLL_DESCR, **options)


@partial(_common.documented, description=_S_CURVE_DESCR)
def make_s_curve(
    n_samples: int = 10000,
    *,
    n_features: int = 20,
    noise: float = 0.01,
    random_state: _common.RandomState = None,
    out: _common.Output = None,
    progress: bool = False,
) -> Bunch:
    """Points of an S-curve in a space of many dimensions: the data of the paper's Appendix SC20.

    {description}

    Parameters
    ----------
    n_samples : int, default 10000
        Number of points.
    n_features : int, default 20
        Dimension of the space, at least 3.
    noise : float, default 0.01
        Standard deviation of the Gaussian noise, added to each coordinate in three dimensions.
    {seed}
    {out}

    Returns
    -------
    Bunch
        ``data`` (n_samples, n_features); ``coordinates`` (n_samples, 2): the angle theta in radians and the width w;
        ``coordinate_names``; ``embedding`` (n_features, 3): the matrix R, so that ``data @ embedding`` are the points
        in three dimensions; ``DESCR``.

    {raises}

    Notes
    -----
    R is the orthogonal polar factor U V^T of a Gaussian matrix U S V^T: uniformly distributed, and unlike U alone free
    of the signs that an SVD routine happens to choose.

    Examples
    --------
    >>> from randsmap.datasets import make_s_curve
    >>> curve = make_s_curve(500, random_state=0)
    >>> curve.data.shape, curve.coordinates.shape
    ((500, 20), (500, 2))
    """
    n_features = check_count(n_features, "n_features", low=3)
    check_count(n_samples, "n_samples")
    # a seed of its own, drawn first: the same n_samples or not, a seed gives the same R
    random_state = check_random_state(random_state)
    (rng,) = _common.random_streams(random_state, 1)
    U, _, Vt = np.linalg.svd(rng.standard_normal((n_features, 3)), full_matrices=False)
    embedding = U @ Vt

    options = {"random_state": random_state, "out": out, "progress": progress, "embedding": embedding}
    ranges = [-1.5 * np.pi, 0.0], [1.5 * np.pi, 1.0]
    curve = _make(s_curve, ranges, n_samples, noise, "S-curve", ("theta", "w"), _S_CURVE_DESCR, **options)
    curve.embedding = embedding
    return curve


def _make(surface, ranges, n_samples, noise, description, names, descr, *, random_state, out, progress, embedding=None):
    """Noisy points surface(*coordinates), the coordinates uniform in these ranges, perhaps embedded by a matrix."""
    n_samples = check_count(n_samples, "n_samples")
    noise = check_number(noise, "noise", low=0.0)
    block_size = 8192  # rows of one random stream: the data do not depend on the number of threads
    streams = _common.random_streams(random_state, -(-n_samples // block_size))
    coordinates = np.empty((n_samples, 2))

    def fill(data, rows):
        rng = streams[rows.start // block_size]
        coordinates[rows] = rng.uniform(*ranges, size=(rows.stop - rows.start, 2))
        x = surface(*coordinates[rows].T)
        x += noise * rng.standard_normal(x.shape)
        if embedding is None:
            data[rows] = x
        else:  # three terms, not a BLAS call: bit-identical for any number of threads
            data[rows] = x[:, :1] * embedding[:, 0] + x[:, 1:2] * embedding[:, 1] + x[:, 2:] * embedding[:, 2]

    shape = n_samples, 3 if embedding is None else len(embedding)
    data = _common.fill_blocks(out, shape, fill, block_size, description=description, progress=progress)
    return Bunch(data=data, coordinates=coordinates, coordinate_names=names, DESCR=descr)

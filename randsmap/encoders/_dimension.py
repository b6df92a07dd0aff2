"""Number of coordinates that snapshots need, from the spectrum of their diffusion maps."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from randsmap._interface.fields import flattened
from randsmap._interface.parameters import check_count
from randsmap._linalg.distances import gaussian_kernel, squared_distances
from randsmap._linalg.rows import Rows
from randsmap._linalg.scales import check_cell_weights, in_norm
from randsmap.encoders._diffusion_maps import CANDIDATES, SMALLEST_EIGENVALUE, diffusion_modes
from randsmap.encoders._harmonics import neighbor_residual

_EPS = np.finfo(float).eps


def estimate_n_components(
    snapshots: ArrayLike,
    *,
    max_components: int = CANDIDATES,
    max_samples: int = 2000,
    cell_weights: ArrayLike | None = None,
) -> int:
    """Estimate the number of latent coordinates of snapshots: the independent eigenvectors of diffusion maps.

    Parameters
    ----------
    snapshots : array-like of shape (n, M)
        Fields, one per row; at least 3. May be memory-mapped.
    max_components : int, default=15
        The largest number returned.
    max_samples : int, default=2000
        Rows used: above this number, a subset drawn with a fixed seed.
    cell_weights : array-like of shape (M,) or None, default=None
        Positive weights, such as cell volumes, of the distances between fields.

    Returns
    -------
    int
        At least 1. 2 for a closed curve, which has no single coordinate.

    Raises
    ------
    ValueError, TypeError
        If the snapshots are not a finite array of at least 3 rows or are all the same, or a number is out of range.

    Notes
    -----
    The leading eigenvectors, at most 15 and one for every ten samples, are tested in turn. Local linear regression from
    the nearest other samples predicts each eigenvector from the independent ones before it. It is independent if the
    norm of the residual is at least 0.6 of its norm. The count ends at a gap of the spectrum, where the rate -log xi
    exceeds 100 times the rate of the last independent one: the rest is noise. Eigenvectors localised on less than 5 %
    of the samples do not count.

    The kernel's width is the median distance to the seventh neighbour, or more if parts of at least 2 % of the samples
    are further apart. The result is the smaller count at this width and at 1.5 times it: too wide a kernel joins the
    sheets of a rolled-up manifold, too narrow a kernel separates trajectories.

    References
    ----------
    C. J. Dsilva, R. Talmon, R. R. Coifman and I. G. Kevrekidis, Parsimonious representation of nonlinear dynamical
    systems through manifold learning, Appl. Comput. Harmon. Anal. 44 (2018): the residual, there from all eigenvectors
    before.

    Examples
    --------
    >>> import numpy as np, randsmap
    >>> t = np.linspace(0, 1, 100)
    >>> randsmap.encoders.estimate_n_components(np.column_stack([t, t**2, np.sin(3 * t)]))
    1
    >>> randsmap.encoders.estimate_n_components(np.column_stack([np.cos(6.2 * t), np.sin(6.2 * t)]))
    2
    """
    max_components = check_count(max_components, "max_components")
    max_samples = check_count(max_samples, "max_samples", low=3)
    F = _sample(snapshots, max_samples)
    F = in_norm(F, check_cell_weights(cell_weights, flattened(snapshots, "snapshots")[1]))
    width = _kernel_width(F)
    # too wide a kernel and too narrow a one both count too many: a direction shows at both widths
    return min(_directions(F, factor * width, max_components) for factor in (1.0, 1.5))


def _directions(F: NDArray[np.float64], width: float, most: int) -> int:
    """Number of leading eigenvectors that are new directions."""
    smallest_residual = 0.6  # least residual of a new direction
    gap = 100.0  # rates go with the square of the inverse length: the next direction is about ten times shorter
    share = 0.05  # eigenvectors on fewer of the samples only separate these from the others
    wanted = max(1, min(CANDIDATES, len(F) // 10))  # ten samples per eigenvector resolve its oscillations
    _, eigenvalues, V = diffusion_modes(gaussian_kernel(F, epsilon=width), 1.0, wanted)
    determined = max(1, int(np.count_nonzero(eigenvalues >= SMALLEST_EIGENVALUE)))
    V, rates = V[:, :determined], -np.log(np.clip(eigenvalues[:determined], np.finfo(float).tiny, 1 - _EPS))
    spread = (V**2).sum(axis=0) ** 2 / (V**4).sum(axis=0)  # number of samples on which an eigenvector is not small
    found: list[int] = []
    for k in map(int, np.flatnonzero(spread >= share * len(V))):
        if found and (len(found) == most or rates[k] > gap * rates[found[-1]]):
            break
        if not found or neighbor_residual(V[:, found], V[:, k]) >= smallest_residual:
            found.append(k)
    return max(1, len(found))


def _sample(snapshots: ArrayLike, max_samples: int) -> NDArray[np.float64]:
    F = Rows.of(flattened(snapshots, "snapshots")[0], "snapshots", min_rows=3)
    if len(F) <= max_samples:
        return F.whole()
    return F[np.sort(np.random.default_rng(0).choice(len(F), max_samples, replace=False))]


def _kernel_width(F: NDArray[np.float64]) -> float:
    """Median distance to the seventh neighbour, or the distance that joins the parts of the samples, if larger."""
    from scipy.cluster.hierarchy import linkage
    from scipy.spatial.distance import squareform

    D, joined = np.sqrt(squared_distances(F)), 0.02  # parts of at least this share of the samples are joined
    k = min(7, len(D) - 1)
    near = float(np.median(np.partition(D, k, axis=1)[:, k]))
    tree = linkage(squareform(D, checks=False), "single")
    sizes = np.concatenate([np.ones(len(D)), tree[:, 3]])
    smaller = sizes[tree[:, :2].astype(int)].min(axis=1)
    joins = tree[smaller >= max(2, joined * len(D)), 2]
    width = max(near, float(joins.max(initial=0.0)))
    if width == 0:  # more than half of the samples have copies
        width = float(D.max())
    if width == 0:
        raise ValueError("all snapshots are equal: no coordinate can distinguish them")
    return width

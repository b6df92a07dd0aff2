"""Reduced models that see a field in a few cells only, and the choice of these cells."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from randsmap._interface.arrays import as_array, latent_names, real_numbers
from randsmap._interface.callers import warn_caller
from randsmap._interface.fields import FieldShape
from randsmap._interface.parameters import check_choice, check_count
from randsmap._linalg.low_rank_ridge import farthest_points
from randsmap._linalg.scales import in_norm, standard_deviations
from randsmap._parallel import blas_threads
from randsmap.decoders._conservative import ConservativeRegressor
from randsmap.invariants import decoding_part, norm_weights
from randsmap.maps.frozen import FrozenDecoder
from randsmap.model._base import TangentDerivatives, model_texts

_Values = NDArray[np.float64]
_Map = Callable[..., _Values]


def latent_map(decoder: Any, *derivatives: str) -> tuple[Any, ...]:
    """Of a decoder, a model or POD: the map from latents to fields, derivatives such as "jacobian", d and M. The map is
    the one that has these derivatives: without the consistency steps of a model."""
    if hasattr(decoder, "fit"):
        check_is_fitted(decoder)
    methods = [getattr(decoder, f"inverse_{name}", None) or getattr(decoder, name, None) for name in derivatives]
    decode: Any = getattr(decoder, "predict", None) or getattr(decoder, "inverse_transform", None)
    if None in (*methods, decode):
        needed = f"derivatives (`{'`, `'.join(derivatives)}`)"
        raise TypeError(f"decoder must be a decoder or model with {needed}, got {type(decoder).__name__}")
    inner = decoder
    while hasattr(inner, "model_"):
        inner = inner.model_
    if getattr(inner, "consistency", 0):
        decode = partial(decode, consistency=0)
    if hasattr(decoder, "predict"):
        d = getattr(decoder, "n_features_in_", None) or decoder.n_components  # an image has the latter
    else:
        names = latent_names(decoder)
        d = decoding_part(decoder).n_features_in_ if names is None else len(names)
    return decode, *methods, int(d), math.prod(decoder.field_shape_)


@model_texts
def sample_cells(decoder: Any, latents: ArrayLike, n_cells: int) -> NDArray[np.intp]:
    """Select sampling points: the cells that best determine the latent coordinates of decoded fields, and their rates.

    Parameters
    ----------
    decoder : fitted decoder with `jacobian`, `ManifoldModel` or `POD`
    latents : array-like (n, d)
        Latent points whose fields the cells must distinguish, such as those of the training fields.
    n_cells : int
        Number k of cells, at least d, at most the number of cells that vary over these points. With 20 to 60 cells per
        latent coordinate, results are close to those with all cells.

    Returns
    -------
    cells : ndarray (k,) of np.intp
        Different indices, the most important first. They do not depend on a seed or on the units of the latents.

    {raises_derivatives}

    Notes
    -----
    The cells are the pivots of QR factorisations (Q-DEIM with modes weighted by their singular values), each of at most
    128 cells. The rows of the matrix are differences of decoded fields, and derivatives in units of the spread of the
    latents, at up to 64 points far apart. More than k + 10 rows are replaced by k + 10 random combinations.

    References
    ----------
    Z. Drmac and S. Gugercin, SIAM J. Sci. Comput. 38 (2016) (Q-DEIM); N. Halko, P.-G. Martinsson and J. A. Tropp, SIAM
    Rev. 53 (2011) (random combinations).

    Examples
    --------
    >>> import numpy as np, randsmap
    >>> x, position = np.linspace(0, 1, 200), np.linspace(0.4, 0.6, 30)[:, None]
    >>> bumps = np.exp(-(((x - position) / 0.05) ** 2))
    >>> decoder = randsmap.KernelDecoder(length_scale=1.0, regularization=1e-8).fit(position, bumps)
    >>> cells = randsmap.sample_cells(decoder, position, 5)
    >>> cells.shape, bool((abs(x[cells] - 0.5) < 0.2).all())
    ((5,), True)
    """
    decode, jacobian, d, M = latent_map(decoder, "jacobian")
    Y = as_array(latents, "latents", (None, d))
    n_cells = check_count(n_cells, "n_cells", low=d, high=M, high_name="the number of cells")
    most = 128  # cells of one factorisation, whose time grows with the square of its rows
    rows = _sketch(decode, jacobian, Y, M, min(n_cells, most))
    if not np.isfinite(rows).all():
        raise ValueError("fields or their derivatives at the latents overflow: sampling points cannot be selected")
    varying = np.flatnonzero(rows.any(axis=0))
    if len(varying) < n_cells:
        raise ValueError(f"n_cells must be at most the {len(varying)} cells that vary over the latents, got {n_cells}")
    # Each pivot is the column farthest from the span of those before it, which keeps the derivatives in the chosen
    # cells well conditioned. Pivots within the round-off of the factorisation would be arbitrary: new ones are found
    # among the cells that are left.
    rows = rows[:, varying]
    chosen: list[NDArray[np.intp]] = []
    while n_cells:
        with blas_threads():
            R, pivots = scipy.linalg.qr(rows, mode="r", pivoting=True, check_finite=False)
        telling = np.abs(R.diagonal()) > len(rows) * np.finfo(float).eps * abs(R[0, 0])
        pivots = pivots[: max(1, min(n_cells, np.count_nonzero(telling), most))]
        chosen.append(varying[pivots])
        rows, varying = np.delete(rows, pivots, axis=1), np.delete(varying, pivots)
        n_cells -= len(pivots)
    return np.concatenate(chosen).astype(np.intp)


def _sketch(decode: _Map, jacobian: _Map, Y: _Values, M: int, rank: int) -> _Values:
    """Random combinations (rank + 10, M) of differences of fields and tangents, or all; 0 where a cell never varies."""
    # differences from one of the fields: a cell that never varies is then exactly 0, however large it is
    spread = standard_deviations(Y)
    some = islice(farthest_points((Y - Y.mean(axis=0)) / spread), 64)  # documented; each costs a field and its tangents
    Y = Y[list(some) or [0]]
    reference, each = np.reshape(np.asarray(decode(Y[:1])), (1, M)), Y.shape[1] + 1
    total, size = len(Y) * each, rank + 10  # 5 to 10 more rows than the rank suffice (Halko et al. 2011, Sec. 4.2)
    # a fixed seed: the cells must not depend on anything but the arguments
    weights = np.random.default_rng(0).standard_normal((size, total)) if size < total else np.eye(total)
    held = 1 << 24  # numbers of fields and tangents at a time, 128 MB
    sketch, rows = np.zeros((len(weights), M)), max(1, held // (each * M))
    for start in range(0, len(Y), rows):
        part = Y[start : start + rows]
        block = np.empty((len(part), each, M))
        block[:, 0] = np.reshape(np.asarray(decode(part)), (-1, M)) - reference
        block[:, 1:] = np.reshape(jacobian(part), (len(part), M, -1)).transpose(0, 2, 1) * spread[:, None]
        with blas_threads():
            columns = slice(start * each, (start + len(part)) * each)
            sketch += weights[:, columns] @ block.reshape(-1, M)
    return sketch


def stencil(
    cells: ArrayLike, shape: int | Sequence[int], offsets: ArrayLike, *, boundary: str | Sequence[str] = "periodic"
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The cells and neighbours, each once, that a right-hand side needs in some cells of a grid.

    Parameters
    ----------
    cells : array-like of int (k,), or of bool (M,) or of that shape
        Cells of the flattened, row-major field, such as those of `sample_cells`.
    shape : int or sequence of int
        Shape of the grid, such as (ny, nx); M is the product.
    offsets : array-like of int (p, number of axes), on a line also (p,)
        Steps to the neighbours along each axis, such as [(0, 0), (0, -1), (0, 1)].
    boundary : {"periodic", "clamp", "mirror", "outside"} or one of them for each axis, default="periodic"
        What lies beyond the first and last cells: the other end, the last cell again, or the cells before the wall in
        reverse order. "outside" has index s: give the value there as ``np.append(f, value)[index]``.

    Returns
    -------
    needed : ndarray (s,) of np.intp
        The different cells, in ascending order: the `stencil` of `SampledModel`.
    index : ndarray (k, p) of np.intp
        Positions in `needed`: for values f (s,) in these cells, ``f[index]`` are the values at the offsets.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.

    Examples
    --------
    >>> import randsmap
    >>> needed, index = randsmap.stencil([0, 5], (3, 4), [(0, 0), (0, 1), (-1, 0)])  # itself, right, above
    >>> needed
    array([0, 1, 5, 6, 8])
    >>> needed[index]
    array([[0, 1, 8],
           [5, 6, 1]])
    """
    lengths = np.atleast_1d(real_numbers(shape, "shape")).tolist()
    shape = tuple(check_count(length, "shape") for length in lengths)
    if math.prod(shape) > np.iinfo(np.intp).max:
        raise ValueError(f"shape must be that of a grid whose cells can be numbered, got {shape}")
    cells, steps, n_axes = FieldShape(shape).cells(cells), real_numbers(offsets, "offsets"), len(shape)
    if n_axes == 1 and steps.ndim == 1:
        steps = steps[:, None]
    if steps.ndim != 2 or steps.shape[1] != n_axes:
        raise ValueError(f"offsets must have shape (p, {n_axes}), a step along each axis, got {steps.shape}")
    if steps.size and (steps.dtype.kind not in "iu" or np.abs(steps.astype(float)).max() > 1 << 40):
        raise TypeError(f"offsets must hold integers of at most 2**40, got {offsets!r}")
    rules = list(boundary) if isinstance(boundary, (list, tuple)) else [boundary] * n_axes
    if len(rules) != n_axes:
        raise ValueError(f"boundary must be one rule, or one for each of {n_axes} axes, got {boundary!r}")
    places, inside = [], np.ones((len(cells), len(steps)), bool)
    for n, rule, start, step in zip(shape, rules, np.unravel_index(cells, shape), steps.T.astype(np.intp)):
        check_choice(rule, "boundary", ("periodic", "clamp", "mirror", "outside"))
        place = start[:, None] + step
        if rule == "outside":
            inside &= (place >= 0) & (place < n)
        elif rule == "mirror":
            place %= 2 * n
            place = np.minimum(place, 2 * n - 1 - place)
        places.append(place % n if rule == "periodic" else np.clip(place, 0, n - 1))
    flat = np.ravel_multi_index(tuple(places), shape)
    needed, index = np.unique(flat[inside], return_inverse=True)
    found = np.full(flat.shape, len(needed), np.intp)
    found[inside] = index
    return needed.astype(np.intp), found


@model_texts
@dataclass(eq=False, repr=False)
class SampledModel:
    """A reduced model of df/dt = g(f) that evaluates g in sampling points only, at a cost independent of M.

    Use it for local equations in many cells; `sample_cells` selects the cells. If g is not local, evaluate it in
    all cells and use the `jvp` of the encoder.

    dz/dt is the vector v that minimises ``|J_S(z) v - g_S|`` in the norm of the decoder's `cell_weights`. J_S holds the
    derivatives of the decoded field in the cells S.

    Parameters
    ----------
    decoder : fitted decoder with `jacobian`, `ManifoldModel` or `POD`
    rhs : callable
        ``rhs(t, f)``, the full model's right-hand side: gets the decoded values (s,) at `stencil` and returns
        df/dt (k,) at `cells`.
    cells : array-like of int (k,), or of bool (M,)
        S, at least d different ones; see `sample_cells`.
    stencil : array-like of int (s,), or of bool (M,), default=None
        The cells that rhs needs, in its order; cells may be repeated. None: `cells`. Both are kept as indices.

    {raises_derivatives}

    Warns
    -----
    UserWarning
        If `velocity` decodes more values than a field has cells; the message states for which rhs it is still faster.

    Notes
    -----
    `velocity` decodes s values of the field and d k derivatives, without the consistency steps of a model. The cost
    grows with M if cells depend on all others (bounds, shifts, a regressor of all cells), and for `ParametricModel` and
    `FrozenDecoder`, which decode whole fields.

    References
    ----------
    B. Peherstorfer, Z. Drmac and S. Gugercin, SIAM J. Sci. Comput. 42 (2020), on more cells than unknowns.

    Examples
    --------
    Advection to the right, on a ring of 200 cells.

    >>> import numpy as np, randsmap
    >>> from scipy.integrate import solve_ivp
    >>> x, position = (np.arange(200) + 0.5) / 200, np.linspace(0.2, 0.8, 60)[:, None]
    >>> bumps = np.exp(-(((x - position) / 0.05) ** 2))
    >>> decoder = randsmap.KernelDecoder(length_scale=0.3, regularization=1e-8).fit(position, bumps)
    >>> cells = randsmap.sample_cells(decoder, position, 20)
    >>> needed, beside = randsmap.stencil(cells, 200, [-1, 1])
    >>> def rhs(t, f):
    ...     left, right = f[beside].T
    ...     return -(right - left) * 100
    >>> model = randsmap.SampledModel(decoder, rhs, cells, stencil=needed)
    >>> solve_ivp(model.velocity, (0.0, 0.4), [0.3]).y[:, -1].round(2)
    array([0.7])
    """

    decoder: Any
    rhs: Callable[[float, _Values], ArrayLike]
    cells: Any
    _: KW_ONLY
    stencil: Any = None

    def __post_init__(self) -> None:
        decoder = self.decoder
        self._decode, self._jacobian, self._d, M = latent_map(decoder, "jacobian")
        if not callable(self.rhs):
            raise TypeError(f"rhs must be callable as rhs(t, f), got {self.rhs!r}")
        # cells by their labels, if the decoder has labels
        layout = getattr(decoder, "_field_shape", None) or FieldShape(decoder.field_shape_)
        self.cells = layout.cells(self.cells)
        self.stencil = self.cells if self.stencil is None else layout.cells(self.stencil, "stencil: cells")
        self._root = in_norm(np.ones(M), norm_weights(decoder.field_shape_, decoder))[self.cells]
        if (different := len(np.unique(self.cells))) < self._d:
            raise ValueError(f"cells must hold at least d = {self._d} different cells, got {different}")
        # measured: a derivative costs 0.6 to 1 times as much as the field (docs/reduced-models.md)
        k, part = len(self.cells), decoding_part(decoder)
        whole = isinstance(part, (ConservativeRegressor, FrozenDecoder)) or isinstance(decoder, TangentDerivatives)
        whole = whole or getattr(part, "bounds", None) is not None
        decoded = (1 + self._d) * M if whole else len(self.stencil) + self._d * k
        if decoded >= M:
            when = f"if rhs costs more than {(decoded - M) / (M - k):.2g} decodings per cell" if k < M else "in no case"
            warn_caller(
                f"velocity decodes {decoded} values and a whole field has {M}: sampling is faster {when}. Use "
                "fewer cells, a decoder of single cells (without bounds), or whole fields (encoder.jvp)"
            )

    def velocity(self, t: float, z: ArrayLike) -> _Values:
        """dz/dt at a latent point; for `scipy.integrate.solve_ivp`, among others.

        Parameters
        ----------
        t : float
            Time, handed to rhs.
        z : array-like (d,)
            Latent point.

        Returns
        -------
        ndarray (d,)

        {raises_derivatives}
            Also if rhs does not return finite numbers (k,).

        Warns
        -----
        RuntimeWarning
            If the derivatives in the cells do not determine dz/dt: the solution of least norm is returned.
        """
        Y = self._point(z)
        g = self._rate(t, np.ravel(self._decode(Y, cells=self.stencil)))
        # more cells than unknowns: least squares
        v, _, rank, _ = np.linalg.lstsq(self._derivatives(Y), self._root * g, rcond=None)
        if rank < len(v):
            warn_caller(
                "the derivatives of the decoded field in the sampled cells do not determine dz/dt: the solution of "
                "smallest norm is returned. Choose more or other cells, or fewer latent coordinates",
                RuntimeWarning,
            )
        return np.asarray(v, dtype=np.float64)

    def condition(self, z: ArrayLike) -> float:
        """Ratio of the largest to the smallest singular value of J_S(z).

        Parameters
        ----------
        z : array-like (d,)
            A latent point.

        Returns
        -------
        float
            The largest factor by which relative errors of g_S grow; above 1e15, the cells do not determine dz/dt.

        {raises_derivatives}
        """
        return float(np.linalg.cond(self._derivatives(self._point(z))))

    def _point(self, z: ArrayLike) -> _Values:
        return as_array(z, "z", (self._d,))[None]

    def _derivatives(self, Y: _Values) -> _Values:
        return self._root[:, None] * np.reshape(self._jacobian(Y, cells=self.cells), (-1, self._d))

    def _rate(self, t: float, f: _Values) -> _Values:
        """Checked values of rhs for the field in the stencil."""
        given = np.asarray(self.rhs(t, f))
        if given.dtype.kind not in "biuf":
            raise TypeError(f"rhs(t, f) must return real numbers, got {given.dtype}")
        if given.shape != self.cells.shape:
            shape = f"df/dt at the {len(self.cells)} cells, shape {self.cells.shape}"
            raise ValueError(f"rhs(t, f) must return {shape}, got shape {given.shape}")
        g: _Values = given.astype(np.float64, copy=False)
        for i in np.flatnonzero(~np.isfinite(g))[:1]:
            raise ValueError(f"rhs(t, f) must be finite, got {g[i]} at t = {t} for cells[{i}], cell {self.cells[i]}")
        return g

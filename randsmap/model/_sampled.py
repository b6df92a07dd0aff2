"""Reduced models that see a field in a few cells only, and the choice of these cells."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from randsmap._interface.arrays import as_array, check_cells
from randsmap._interface.parameters import check_count
from randsmap._linalg.scales import standard_deviations
from randsmap._parallel import blas_threads


class _Decoding:
    """What a decoder, a model or POD calls its fields and their derivatives; d latents, M cells."""

    def __init__(self, decoder: Any) -> None:
        if hasattr(decoder, "fit"):
            check_is_fitted(decoder)
        if hasattr(decoder, "inverse_jacobian"):  # POD
            self._decode, self._jacobian = decoder.inverse_transform, decoder.inverse_jacobian
        elif hasattr(decoder, "jacobian") and (hasattr(decoder, "predict") or hasattr(decoder, "inverse_transform")):
            self._decode = decoder.predict if hasattr(decoder, "predict") else decoder.inverse_transform
            self._jacobian = decoder.jacobian
        else:
            raise TypeError(
                f"decoder must be a decoder or model with derivatives (`jacobian`), got {type(decoder).__name__}"
            )
        regressor = hasattr(decoder, "predict")
        part = decoder if getattr(decoder, "decoder_", None) is None else decoder.decoder_
        self.d = int(part.n_features_in_ if hasattr(part, "predict") else len(part.get_feature_names_out()))
        self.M = math.prod(decoder.field_shape_) if regressor else int(decoder.n_features_in_)

    def fields(self, Y: NDArray[np.float64], **cells: Any) -> NDArray[np.float64]:
        """Rows (n, M) at points Y (n, d), or of the cells alone."""
        return np.asarray(self._decode(Y, **cells)).reshape(len(Y), -1)

    def jacobian(self, Y: NDArray[np.float64], **cells: Any) -> NDArray[np.float64]:
        """Their derivatives (n, M, d)."""
        return np.asarray(self._jacobian(Y, **cells)).reshape(len(Y), -1, self.d)


def sample_cells(decoder: Any, Y: ArrayLike, n_cells: int) -> NDArray[np.intp]:
    """Choose the cells that determine latent coordinates of a decoder's fields, and their rates, best.

    Parameters
    ----------
    decoder : fitted decoder with `jacobian`, `ManifoldModel` or `POD`
    Y : array-like (n, d)
        Latent points of the fields that the cells must distinguish, such as the training latents.
    n_cells : int
        Number of cells k, at least d. With 20 to 60 cells per latent coordinate, results are near those of all cells.

    Returns
    -------
    cells : ndarray (k,) of np.intp
        Different indices, the most important first. Cells that do not vary over Y are never chosen. The result does
        not depend on a seed or on the units of Y.

    Raises
    ------
    sklearn.exceptions.NotFittedError
        If the decoder is not fitted.
    TypeError
        If it has no derivatives.
    ValueError
        If Y is not a finite array (n, d), or n_cells is less than d or more than there are cells that vary.

    Notes
    -----
    The cells are the pivots of a QR factorisation (Q-DEIM with modes weighted by their singular values). Its rows are
    differences of decoded fields, and tangents in units of the spread of Y, at up to 64 of the points Y that are far
    from one another. More than k + 10 rows are replaced by k + 10 random combinations. One factorisation chooses at
    most 128 cells. At M = 1e5, 100 cells take a few seconds.

    References
    ----------
    Z. Drmac and S. Gugercin, A new selection operator for the discrete empirical interpolation method, SIAM J. Sci.
    Comput. 38 (2016). N. Halko, P.-G. Martinsson and J. A. Tropp, Finding structure with randomness, SIAM Rev. 53
    (2011), for the random combinations.

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
    decoding = _Decoding(decoder)
    Y = as_array(Y, "Y", (None, decoding.d))
    n_cells = check_count(n_cells, "n_cells", low=decoding.d, high=decoding.M, high_name="the number of cells")
    most = 128  # cells of one factorisation, whose time grows with the square of its rows
    with np.errstate(over="ignore", invalid="ignore"):
        rows = _sketch(decoding, Y, min(n_cells, most))
    if not np.isfinite(rows).all():
        raise ValueError("fields or their derivatives at the points Y overflow: cells cannot be told apart")
    varying = np.flatnonzero(rows.any(axis=0))
    if len(varying) < n_cells:
        raise ValueError(f"n_cells must be at most the {len(varying)} cells that vary over Y, got {n_cells}")
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


def _sketch(decoding: _Decoding, Y: NDArray[np.float64], rank: int) -> NDArray[np.float64]:
    """Random combinations (rank + 10, M) of the differences of fields and of the tangents, or they themselves if
    they are no more; exactly 0 in a cell that is the same in all fields.
    """
    # differences from one of the fields: a cell that never varies is then exactly 0, however large it is
    spread = standard_deviations(Y)
    Y = Y[_far_apart(Y / spread, 64)]  # documented; each point costs a field and its tangents
    reference, each = decoding.fields(Y[:1]), decoding.d + 1
    total, size = len(Y) * each, rank + 10  # 5 to 10 more rows than the rank suffice (Halko et al. 2011, Sec. 4.2)
    # a fixed seed: the cells must not depend on anything but the arguments
    weights = np.random.default_rng(0).standard_normal((size, total)) if size < total else np.eye(total)
    held = 1 << 24  # numbers of fields and tangents at a time, 128 MB
    sketch, rows = np.zeros((len(weights), decoding.M)), max(1, held // (each * decoding.M))
    for start in range(0, len(Y), rows):
        part = Y[start : start + rows]
        block = np.empty((len(part), each, decoding.M))
        block[:, 0] = decoding.fields(part) - reference
        block[:, 1:] = decoding.jacobian(part).transpose(0, 2, 1) * spread[:, None]
        with blas_threads():
            columns = slice(start * each, (start + len(part)) * each)
            sketch += weights[:, columns] @ block.reshape(-1, decoding.M)
    return sketch


def _far_apart(Y: NDArray[np.float64], count: int) -> NDArray[np.intp]:
    """Up to so many of the points Y (n, d), by index: the most central, then the farthest from all before."""
    chosen = np.empty(min(count, len(Y)), np.intp)
    distances = ((Y - Y.mean(axis=0)) ** 2).sum(axis=1)
    for i in range(len(chosen)):
        chosen[i] = distances.argmax() if i else distances.argmin()
        nearer = ((Y - Y[chosen[i]]) ** 2).sum(axis=1)
        distances = np.minimum(distances, nearer) if i else nearer
    return chosen


class SampledModel:
    """A reduced model dy/dt of df/dt = g(f) that evaluates g in some cells only, at a cost without M.

    dy/dt is the v of least ``|J_S(y) v - g_S|``, with J_S the derivatives of the decoded field in the cells S.

    Parameters
    ----------
    decoder : fitted decoder with `jacobian`, `ManifoldModel` or `POD`
        Decodes latents (d,) to fields (M,).
    rhs : callable
        ``rhs(t, f)``, the full model's right-hand side: gets the decoded values (s,) at `stencil` and returns
        df/dt (k,) at `cells`.
    cells : array-like of int (k,), or of bool (M,)
        S, at least d different ones; see `sample_cells`.
    stencil : array-like of int (s,), or of bool (M,), default=None
        The cells that rhs needs, in its order; cells may be repeated. None: `cells`.

    Attributes
    ----------
    cells, stencil : ndarray of np.intp

    Raises
    ------
    sklearn.exceptions.NotFittedError
        If the decoder is not fitted.
    TypeError, ValueError
        If it has no derivatives, rhs is not callable, or cells or stencil do not fit.

    Notes
    -----
    With bounds every cell of a field depends on all others, so a decoder with bounds decodes whole fields for its
    few cells; the cost then grows with M.

    References
    ----------
    B. Peherstorfer, Z. Drmac and S. Gugercin, Stability of discrete empirical interpolation and gappy proper
    orthogonal decomposition with randomized and deterministic sampling points, SIAM J. Sci. Comput. 42 (2020), on
    more cells than unknowns.

    Examples
    --------
    Advection to the right, on a ring of 200 cells.

    >>> import numpy as np, randsmap
    >>> from scipy.integrate import solve_ivp
    >>> x, position = (np.arange(200) + 0.5) / 200, np.linspace(0.2, 0.8, 60)[:, None]
    >>> bumps = np.exp(-(((x - position) / 0.05) ** 2))
    >>> decoder = randsmap.KernelDecoder(length_scale=0.3, regularization=1e-8).fit(position, bumps)
    >>> cells = randsmap.sample_cells(decoder, position, 20)
    >>> def rhs(t, f):
    ...     left, right = f.reshape(2, -1)
    ...     return -(right - left) * 100
    >>> model = randsmap.SampledModel(decoder, rhs, cells, stencil=np.concatenate([cells - 1, (cells + 1) % 200]))
    >>> y = solve_ivp(model.velocity, (0.0, 0.4), [0.3]).y[:, -1]
    >>> y.round(2)
    array([0.7])
    """

    def __init__(
        self,
        decoder: Any,
        rhs: Callable[[float, NDArray[np.float64]], ArrayLike],
        cells: ArrayLike,
        *,
        stencil: ArrayLike | None = None,
    ) -> None:
        decoding = _Decoding(decoder)
        if not callable(rhs):
            raise TypeError(f"rhs must be callable as rhs(t, f), got {rhs!r}")
        self.decoder, self.rhs = decoder, rhs
        self.cells = check_cells(cells, decoding.M)
        self.stencil = self.cells if stencil is None else _check_stencil(stencil, decoding.M)
        different = len(np.unique(self.cells))
        if different < decoding.d:
            raise ValueError(
                f"cells must be at least as many different ones as there are latent coordinates, {decoding.d}, "
                f"got {different}"
            )
        self._decoding = decoding

    def velocity(self, t: float, y: ArrayLike) -> NDArray[np.float64]:
        """dy/dt at a latent point; for `scipy.integrate.solve_ivp`, among others.

        Parameters
        ----------
        t : float
            Time, handed to rhs.
        y : array-like (d,)
            Latent point.

        Returns
        -------
        ndarray (d,)

        Raises
        ------
        ValueError, TypeError
            If y is not finite or of another length, or what rhs returns is not finite numbers (k,); the message
            names the cell.

        Warns
        -----
        RuntimeWarning
            If the derivatives in the cells do not determine dy/dt: the solution of least norm is returned.
        """
        Y = self._point(y)
        g = self._rate(t, self._decoding.fields(Y, cells=self.stencil)[0])
        v, _, rank, _ = np.linalg.lstsq(self._derivatives(Y), g, rcond=None)
        if rank < len(v):
            warnings.warn(
                "the derivatives of the decoded field in the sampled cells do not determine dy/dt, whose least "
                "norm is taken: choose more or other cells, or fewer latent coordinates",
                RuntimeWarning,
                stacklevel=2,
            )
        return np.asarray(v, dtype=np.float64)

    def condition(self, y: ArrayLike) -> float:
        """Ratio of the largest to the least singular value of J_S(y).

        Parameters
        ----------
        y : array-like (d,)
            A latent point.

        Returns
        -------
        float
            The largest amplification of relative errors of g_S; infinite, or beyond 1e15, if the cells do not determine
            dy/dt.

        Raises
        ------
        ValueError, TypeError
            If y is not finite or of another length.
        """
        return float(np.linalg.cond(self._derivatives(self._point(y))))

    def _point(self, y: ArrayLike) -> NDArray[np.float64]:
        return as_array(y, "y", (self._decoding.d,))[None]

    def _derivatives(self, Y: NDArray[np.float64]) -> NDArray[np.float64]:
        return self._decoding.jacobian(Y, cells=self.cells)[0]

    def _rate(self, t: float, f: NDArray[np.float64]) -> NDArray[np.float64]:
        """What rhs makes of the field in the stencil, checked."""
        given = np.asarray(self.rhs(t, f))
        if given.dtype.kind not in "biuf":
            raise TypeError(f"rhs(t, f) must return real numbers, got {given.dtype}")
        if given.shape != self.cells.shape:
            raise ValueError(
                f"rhs(t, f) must return df/dt at the {len(self.cells)} cells, shape {self.cells.shape}, "
                f"got shape {given.shape}"
            )
        g: NDArray[np.float64] = given.astype(np.float64, copy=False)
        for i in np.flatnonzero(~np.isfinite(g))[:1]:
            raise ValueError(f"rhs(t, f) must be finite, got {g[i]} at t = {t} for cells[{i}], cell {self.cells[i]}")
        return g


def _check_stencil(stencil: ArrayLike, M: int) -> NDArray[np.intp]:
    try:
        return check_cells(stencil, M)
    except (TypeError, ValueError) as error:
        raise type(error)(f"stencil: {error}") from None

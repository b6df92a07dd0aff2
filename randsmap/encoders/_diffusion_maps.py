"""Diffusion maps: coordinates of fields from a Markov chain on them (paper, App. C).

The kernel of all pairs is made in `randsmap._linalg.distances`, that of neighbours and coordinates of new fields in
`_nystroem`, and the eigenvectors are chosen in `_harmonics`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from randsmap import _parallel
from randsmap._interface.arrays import as_array, check_domain
from randsmap._interface.callers import warn_caller
from randsmap._interface.fields import FIELD_STATE, field_rows
from randsmap._interface.parameters import Parameter, check_count, check_parameters, estimator, parameter
from randsmap._interface.state import Array, Count, Part, check_fitted, restored_on_error
from randsmap._interface.texts import shared_texts
from randsmap._linalg import distances as _distances
from randsmap._linalg.large_graphs import inverted_eigenpairs, neighbor_index
from randsmap._linalg.products import multiply
from randsmap._linalg.rows import Rows
from randsmap._linalg.svd import leading_eigenpairs, truncated_svd
from randsmap.encoders._base import FieldEncoder
from randsmap.encoders._harmonics import non_harmonic_selection
from randsmap.encoders._nystroem import NystroemExtension, neighbor_kernel

# Modes with smaller eigenvalues raise an error: the Nystroem extension divides by the eigenvalue.
SMALLEST_EIGENVALUE = 1e-8
# Eigenvectors among which select="non-harmonic" chooses, or three for each component
CANDIDATES = 15
_Values = NDArray[np.float64]


@shared_texts
@estimator
class DiffusionMaps(FieldEncoder):
    """Diffusion maps with the Nystroem extension to new points.

    Use it for data near a curved manifold of few dimensions; `autotune` selects its width. Use `POD` for nearly
    linear data, and `Isomap` if distances along the manifold matter.

    Parameters
    ----------
    n_components
        Number of latent coordinates, at most n_samples - 1.
    alpha
        Exponent of the density normalisation: 1 (Laplace-Beltrami) removes the effect of uneven sampling, 0
        (Fokker-Planck) keeps it.
    epsilon
        Kernel width, in the unit of the data. None: `epsilon_scale` times the median distance.
    epsilon_scale
        Factor of the median distance between training samples; the paper's w_1. Not used if epsilon is given.
    diffusion_time
        Power t of the eigenvalues in the coordinates xi^t v. The paper prints t = 1, but its tuned hyperparameters
        are those of t = 0.
    select
        Which eigenvectors become coordinates: the first n_components after the trivial one ("leading"), those that are
        not functions of the ones before them ("non-harmonic"), or 1-based indices.
    n_neighbors
        Evaluate the kernel only between each sample and its n_neighbors nearest others, in both directions: a sparse
        matrix, for 1e5 samples and more. None, or n_samples - 1 and more: all pairs.
    cell_weights
        Positive weights v, such as cell volumes, of the distances: |f - g|^2 is the sum of v_i (f_i - g_i)^2. They may
        have the fields' shape. In a `ManifoldModel`, None means those of the decoder.
    copy
        False: large memory-mapped training fields (see Notes) stay in their file instead of being copied. Not with
        n_neighbors.

    Attributes
    ----------
    epsilon_ : float
        Kernel width used.
    eigenvalues_ : ndarray of shape (n_modes,)
        Eigenvalues xi of the Markov matrix in descending order, without the trivial 1, up to the last one selected.
    eigenvectors_ : ndarray of shape (n_samples, n_modes)
        Its right eigenvectors v, scaled so that the trivial one would be 1 everywhere.
    selected_ : ndarray of shape (n_components,)
        1-based indices of the modes that are the coordinates.
    n_features_in_ : int
        Number of cells of a field.

    Warns
    -----
    UserWarning
        If the samples fall into separate components: the eigenvalue 1 is repeated, or the graph of the neighbours is
        not connected.

    Notes
    -----
    The kernel is exp(-|f_i - f_j|^2 / epsilon^2); values below 1e-300 are set to 0. The median distance is exact up to
    20000 samples, beyond it is estimated from 250000 pairs drawn with a fixed seed (with n_neighbors: beyond 2000).

    The kernel needs memory for n_samples^2 numbers, with n_neighbors for about n_samples * n_neighbors; the training
    data are copied. With copy=False, memory-mapped fields (`numpy.load` with mmap_mode) of 64 MB and more stay in their
    file, which must not change. A pickle then holds its name; a model file cannot hold such an encoder. For many fields
    see `encoder_samples` of `ManifoldModel`.

    With n_neighbors, two points are joined if their distance is at most the radius of one of them: its distance to the
    (n_neighbors + 1)-th nearest sample, itself included. Coordinates of new points have small jumps where the
    neighbours change unless the kernel is small at the radius. The search is exact.

    select="non-harmonic" predicts each of the leading max(15, 3 n_components) eigenvectors from the preceding ones by
    local linear regression, and selects those with the largest residuals. For example, cos 2x is a function of cos x.

    Signs do not depend on the order of the samples, unless eigenvalues are repeated.

    Modes with eigenvalues below 1e-8 are an error. If the kernel underflows at a new point, the limit of the Nystroem
    formula is used: the coordinates of the nearest training points. They may be wrong.

    References
    ----------
    Paper, App. C, Eq. C.4 and Eq. C.6. Coifman and Lafon, Diffusion maps, Appl. Comput. Harmon.
    Anal. 21 (2006). Non-harmonic selection: Dsilva, Talmon, Coifman and Kevrekidis, Parsimonious representation of
    nonlinear dynamical systems through manifold learning, Appl. Comput. Harmon. Anal. 44 (2018).

    Examples
    --------
    >>> import numpy as np, randsmap
    >>> angle = np.linspace(0, np.pi, 30)
    >>> arc = np.column_stack([np.cos(angle), np.sin(angle)])
    >>> latents = randsmap.DiffusionMaps(n_components=1).fit_transform(arc)
    >>> bool((np.diff(latents[:, 0]) > 0).all() or (np.diff(latents[:, 0]) < 0).all())
    True
    """

    _state = {
        "n_features_in_": Count("M"),
        "epsilon_": Parameter(float, low=_distances.EPSILON_RANGE[0], high=_distances.EPSILON_RANGE[1]),
        "eigenvalues_": Array("modes"),
        "eigenvectors_": Array("n", "modes"),
        "selected_": Array("d", dtype=np.intp, low=1, high="modes"),
        "_n_features_out": Count("d"),
        "_encoding": Part(NystroemExtension, M="M", n="n", d="d"),
        **FIELD_STATE,
    }

    n_components: int = parameter(int, default=2, kw_only=False, low=1)
    alpha: float = parameter(float, default=1.0, low=0, high=1)
    epsilon: float | None = parameter(float, default=None, low=0, strict=True, words=(None,))
    epsilon_scale: float = parameter(float, default=1.0, low=0, strict=True)
    diffusion_time: float = parameter(float, default=0, low=0)
    select: str | Sequence[int] = parameter(default="leading", shown='"leading", "non-harmonic" or list of int')
    n_neighbors: int | None = parameter(int, default=None, low=1, words=(None,))
    cell_weights: ArrayLike | None = parameter(default=None, shown="array (M,) or None")
    copy: bool = parameter(bool, default=True)

    def fit_transform(self, X: ArrayLike, y: Any = None) -> _Values:
        """`fit`, then the coordinates of the same fields, which `transform` gives to 1e-12 over the eigenvalue.

        Parameters
        ----------
        X, y
            As for `fit`.

        Returns
        -------
        ndarray (n_samples, n_components)

        Raises
        ------
        ValueError, TypeError
            As `fit`.
        """
        self.fit(X)
        modes = self.selected_ - 1
        return diffusion_coordinates(self.eigenvalues_[modes], self.eigenvectors_[:, modes], self.diffusion_time)

    def transform(self, X: ArrayLike) -> _Values:
        check_fitted(self, "_encoding")
        if not self._encoding.in_file:
            return super().transform(X)
        return self._encoding.coordinates_by_columns(Rows.validated(self, field_rows(self, X), reset=False))

    def nystroem_weights(self) -> tuple[_Values, _Values]:
        """The weights of the Nystroem extension: coordinates as means over the training fields.

        The coordinates of a field x are y_p = sum_j P_j c_pj, P_j ~ w_j exp(-|x - f_j|^2 / epsilon_^2) the transition
        probabilities to the training fields f_j (paper, App. C).

        Returns
        -------
        density_weights : ndarray (n_samples,)
            w = q^-alpha, positive.
        values : ndarray (n_components, n_samples)
            c.

        Raises
        ------
        sklearn.exceptions.NotFittedError
            Before `fit`.
        ValueError
            With n_neighbors: the sum is then over the neighbours of x alone.

        Examples
        --------
        >>> import numpy as np, randsmap
        >>> fields = np.random.default_rng(0).random((30, 5))
        >>> encoder = randsmap.DiffusionMaps(2).fit(fields)
        >>> weights, values = encoder.nystroem_weights()
        >>> P = weights * np.exp(-encoder.squared_distances(fields[:3]) / encoder.epsilon_**2)
        >>> P /= P.sum(axis=1, keepdims=True)
        >>> bool(abs(P @ values.T - encoder.transform(fields[:3])).max() < 1e-12)
        True
        """
        check_fitted(self, "_encoding")
        encoding = self._encoding
        if encoding.n_neighbors is not None:
            raise ValueError(f"weights need a dense kernel (n_neighbors=None), got n_neighbors={encoding.n_neighbors}")
        return encoding.weights[0], encoding.values

    def squared_distances(self, X: ArrayLike) -> _Values:
        """Squared distances of fields to the training fields.

        Parameters
        ----------
        {fields}

        Returns
        -------
        ndarray (n, n_samples)

        {raises}
        """
        check_fitted(self, "_encoding")
        X = as_array(field_rows(self, X), "X", (None, self.n_features_in_), min_rows=0)
        return self._encoding.squared_distances(X)

    def fit(self, X: ArrayLike, y: Any = None) -> Self:
        with restored_on_error(self):
            parameters = check_parameters(self)
            if not self.copy and self.n_neighbors is not None:
                raise ValueError("copy=False needs a kernel of all pairs, n_neighbors=None: others are found in memory")
            fields, root = self._weighted(X)
            in_file, n = fields.mapped and not self.copy, len(fields)
            F: Any = fields if in_file else fields.whole()
            if not in_file:
                check_domain(F, "X")
            n_modes, selected = self._wanted_modes(n, parameters["n_components"])
            # all pairs: the matrix is full
            n_neighbors = self.n_neighbors if self.n_neighbors is not None and self.n_neighbors < n - 1 else None
            points, index, radii, epsilon = None, None, None, self.epsilon
            if n_neighbors is None:
                K, epsilon = _distances.gaussian_of_data(F, epsilon, self.epsilon_scale)
            else:
                if epsilon is None:  # a sample of the pairs for many rows
                    epsilon = self.epsilon_scale * _distances.median_distance(F, exact_rows=2000)
                points = _distances.centred_points(F)
                index = neighbor_index(points[0], n_neighbors + 2)
                K, radii = neighbor_kernel(F, points, index, n_neighbors, epsilon)
            density, eigenvalues, eigenvectors = diffusion_modes(K, self.alpha, n_modes)
            if selected is None:
                selected = self._least_harmonic(eigenvalues, eigenvectors)
                n_modes = int(selected.max())
                eigenvalues, eigenvectors = eigenvalues[:n_modes].copy(), eigenvectors[:, :n_modes].copy()
            self._check_modes(eigenvalues, selected, epsilon)
            self._warn_of_components(eigenvalues, epsilon, K if n_neighbors else None)
            eigenvectors *= eigenvector_signs(eigenvectors, F.array if in_file else F)
            del K  # free the memory before the data are copied
            if points is None:
                points = (F, None, None) if in_file else _distances.centred_points(F)

            self.epsilon_ = float(epsilon)
            self.eigenvalues_, self.eigenvectors_, self.selected_ = eigenvalues, eigenvectors, selected
            self._n_features_out = len(selected)
            modes = selected - 1
            xi, v = eigenvalues[modes], eigenvectors[:, modes]
            # of kernel sums (paper, App. C, last paragraph): y(x) = xi^t v(x), v(x) = (1/xi) sum_j p_j(x) v_j, p_j(x) =
            # k(x, f_j) q_j^-alpha over their sum, which the first row gives
            weights = np.vstack([density, density * (diffusion_coordinates(xi, v, self.diffusion_time) / xi).T])
            rows, norms, centre = points
            self._encoding = NystroemExtension(rows, norms, centre, weights, self.epsilon_, root, n_neighbors, radii)
            if index is not None:
                vars(self._encoding)["index"] = index
        return self

    def _wanted_modes(self, n, n_components):
        """Number of modes to compute, and those selected (None: to be chosen)."""
        expected = "select must be 'leading', 'non-harmonic' or a list of 1-based indices of eigenvectors"
        if isinstance(self.select, str):
            if self.select not in ("leading", "non-harmonic"):
                raise ValueError(f"{expected}, got {self.select!r}")
            selected = np.arange(1, n_components + 1)
        else:
            try:
                indices = list(self.select)
            except TypeError:
                raise TypeError(f"{expected}, got {self.select!r}") from None
            selected = np.array([check_count(i, "an index in select") for i in indices], dtype=int)
            if len(selected) != n_components or len(set(indices)) != n_components:
                raise ValueError(
                    f"select must hold n_components = {n_components} different indices, got {self.select!r}"
                )
        if selected.max() > n - 1:
            what = "n_components" if isinstance(self.select, str) else "an index in select"
            raise ValueError(f"{what} must be at most n_samples - 1 = {n - 1}, got {selected.max()} (n_samples = {n})")
        if isinstance(self.select, str) and self.select == "non-harmonic":
            return min(n - 1, max(CANDIDATES, 3 * n_components)), None
        return int(selected.max()), selected

    def _check_modes(self, eigenvalues, selected, epsilon):
        small = [int(i) for i in selected if i > len(eigenvalues) or not eigenvalues[i - 1] >= SMALLEST_EIGENVALUE]
        remedy = f"at epsilon = {epsilon:.6g}. Ask for fewer components or a smaller epsilon"
        if small and small[0] > len(eigenvalues):
            raise ValueError(f"the data determine {len(eigenvalues)} coordinates, not {small[0]}, {remedy}")
        if small:
            found = f"eigenvalue {small[0]} is {eigenvalues[small[0] - 1]:.3g}, below {SMALLEST_EIGENVALUE:g}"
            raise ValueError(f"{found}: the data determine no such coordinate {remedy}")

    def _least_harmonic(self, eigenvalues, eigenvectors):
        """Modes selected by Dsilva et al. 2018 among those that may be coordinates."""
        n_candidates = int((eigenvalues >= SMALLEST_EIGENVALUE).sum())
        if n_candidates <= self.n_components:  # no choice; too few modes raise an error later
            return np.arange(1, self.n_components + 1)
        return non_harmonic_selection(eigenvectors[:, :n_candidates], self.n_components)[0]

    def _warn_of_components(self, eigenvalues, epsilon, graph=None):
        n_repeated = int((eigenvalues >= 1 - 1e-10).sum())  # eigenvalues 1, up to the round-off of the kernel
        n_components = 1 if graph is None else connected_components(graph, directed=False)[0]
        if n_components > 1:
            warn_caller(
                f"the graph of n_neighbors = {self.n_neighbors} nearest neighbours has {n_components} separate "
                "components, so the eigenvalue 1 is repeated and the leading coordinates only distinguish the "
                "components. Increase n_neighbors, or epsilon if kernel values underflow"
            )
        elif n_repeated:
            warn_caller(
                f"eigenvalue 1 is repeated: {n_repeated} of the modes computed have it besides the trivial one, so at "
                f"epsilon = {epsilon:.6g} the samples fall into separate components and these coordinates only "
                "distinguish the components. Increase epsilon or epsilon_scale"
            )

    def frozen_encoder(self, precision, tol):
        check_fitted(self, "_encoding")
        encoding = self._encoding
        if encoding.n_neighbors is not None or encoding.in_file:
            raise TypeError(
                "an encoder with n_neighbors, or whose training fields stayed in their file (copy=False), cannot be "
                "frozen: C sums over all training fields, in memory"
            )
        rows, centre, root = encoding.rows, encoding.centre, encoding.root
        image = {"encoder_weights": encoding.weights, "encoder_width": self.epsilon_}
        if tol is not None or root is not None:
            modes, coordinates = self._leading_coordinates(tol)
            if root is not None or len(modes) * sum(rows.shape) < rows.size:
                rows, modes = coordinates, encoding.scaled(modes)  # modes include the cell weights
                image["encoder_modes"] = modes.T.astype(precision, order="C")
                centre = centre if root is None else centre / root
        return {**image, "encoder_centre": centre, "encoder_rows": rows.astype(precision)}

    def _leading_coordinates(self, tol):
        """As few principal directions (r, M) of the training fields as give their latents to `tol` of the largest, or
        all (None), and the fields' coordinates (n, r)."""
        points, weights = self._encoding.rows, self._encoding.weights

        def latents(rows):
            norms = np.einsum("ij,ij->i", rows, rows)
            near = rows, norms, np.zeros(rows.shape[1])
            sums = _distances.kernel_sums(rows, near, weights, self.epsilon_)
            return sums[:, 1:] / sums[:, :1]

        modes = np.ascontiguousarray(truncated_svd(Rows(points), lambda sigma, *_: len(sigma))[1])
        coordinates, exact = multiply(points, modes.T), latents(points)
        allowed, rank = (tol or 0.0) * np.abs(exact).max(), len(modes) if tol is None else 8
        while rank < len(modes):
            if np.abs(latents(np.ascontiguousarray(coordinates[:, :rank])) - exact).max() <= allowed:
                break
            rank *= 2
        return modes[:rank], np.ascontiguousarray(coordinates[:, :rank])


def diffusion_modes(K: _Values | csr_array, alpha: float, n_modes: int) -> tuple[_Values, _Values, _Values]:
    """Modes of the alpha-normalised kernel q_i^-alpha K_ij q_j^-alpha (paper, App. C), q the sums of K. The density
    weights q^-alpha (n,); leading nontrivial eigenvalues (n_modes,), in descending order, and right eigenvectors v (n,
    n_modes) of its Markov matrix T = D^-1 A K A with A = diag(q^-alpha) and D the sums of A K A (paper, Eq. C.4)."""
    density = K.sum(axis=1) ** -alpha if alpha else np.ones(K.shape[0])
    # our own products have their threads; with one of BLAS the bits are the same for any number
    with _parallel.blas_threads(1):
        return density, *_markov_modes(K, density, density * (K @ density), n_modes)


def _markov_modes(K, density, degrees, n_modes):
    """The eigenvalues and v of `diffusion_modes`."""
    # T has the eigenvalues of the symmetric S = D^-1/2 A K A D^-1/2 (the paper prints S for alpha = 0) and the right
    # eigenvectors u / u_0, where u_0 = (degrees / sum(degrees))^1/2 is the trivial eigenvector of S. So v_0 = 1, and
    # sum_i pi_i v_i^2 = 1 in the stationary measure pi = u_0^2.
    n = K.shape[0]
    scale = density / np.sqrt(degrees)
    trivial = np.sqrt(degrees / degrees.sum())
    # the full symmetric solver is the faster one for few samples, or many modes
    if n <= 300 or n_modes > n // 10:
        S = (K.toarray() if isinstance(K, csr_array) else K) * scale[:, None]
        S *= scale
        # moves the trivial eigenvalue from 1 to -1, where there is none, for S has a positive diagonal
        S -= 2 * np.outer(trivial, trivial)
        wanted = [n - n_modes, n - 1]
        eigenvalues, U = scipy.linalg.eigh(S, subset_by_index=wanted, overwrite_a=True, check_finite=False)
    else:
        pairs = None
        if isinstance(K, csr_array):
            S = csr_array((K.data * np.repeat(scale, np.diff(K.indptr)), K.indices, K.indptr), shape=K.shape)
            S.data *= scale[K.indices]
            pairs = inverted_eigenpairs(S, n_modes, trivial)
            apply = S.__matmul__
        else:

            def apply(X):
                return (_distances.symmetric_product(K, X.T * scale) * scale).T

        eigenvalues, U = pairs or leading_eigenpairs(apply, n, n_modes, trivial)
    order = np.argsort(-eigenvalues, kind="stable")
    eigenvalues, U = eigenvalues[order], U[:, order]
    return eigenvalues, U / trivial[:, None]


def eigenvector_signs(V: _Values, X: _Values) -> _Values:
    """Sign of each column of V (n, n_modes) by the rule of `DiffusionMaps`, for the data X."""
    signs = np.ones(V.shape[1])
    for mode, v in enumerate(V.T):
        size = abs(v)
        # neither rounding nor the order of the samples changes the ties or their order by the data
        tied = np.flatnonzero(size >= (1 - 1e-8) * size.max())
        for column in range(X.shape[1]):  # in most cases the first decides: rows may be long, and in a file
            if len(tied) == 1:
                break
            values = X[tied, column]
            tied = tied[values == values.max()]
        signs[mode] = -1.0 if v[tied[0]] < 0 else 1.0
    return signs


def diffusion_coordinates(eigenvalues: _Values, eigenvectors: _Values, diffusion_time: float) -> _Values:
    """Coordinates xi^t v (paper, Eq. C.6, where t = 1)."""
    return eigenvectors * eigenvalues**diffusion_time

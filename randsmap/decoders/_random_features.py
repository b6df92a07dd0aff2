"""Random-feature decoders: f(y) = [1 | phi(y)] A, without and with exact invariants."""

import numpy as np
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin, clone

from randsmap._kernels import decode as _kernel
from randsmap._parallel import blas_threads, parallel_for
from randsmap._validation import (
    check_choice,
    check_fitted,
    check_matrix,
    check_number,
    check_out,
    validate_data,
)
from randsmap.decoders._ridge import (
    FeatureRows,
    feature_matrix,
    filtered_solution,
    ridge,
    singular_system,
)
from randsmap.invariants import AffineInvariants

__all__ = ["RFNNDecoder", "RANDSMAPDecoder"]

# Rows a decoding task takes. BLAS packs A anew for each task, which costs about as much as 30 rows;
# eight tasks or more share the work between threads.
_MIN_TILE, _MAX_TILE, _TILES = 128, 1024, 8
_CHUNK = 8192


def _tiles(n):
    """Number of tiles for n rows; depends on n alone, so that results do not depend on threads."""
    rows = min(max(-(-n // _TILES), _MIN_TILE), _MAX_TILE)
    return -(-n // rows)


def _for_tiles(task, n):
    """Call task(start, stop) over tiles of n rows, in parallel; a few rows are one task."""
    if n <= _kernel.FEW:
        task(0, n)
        return
    tiles = _tiles(n)
    with blas_threads(1):
        parallel_for(lambda i: task(i * n // tiles, (i + 1) * n // tiles), tiles)


def decode(features, A, X, projection, out):
    """Fields [1 | features(X)] A into out (n, M), each row projected; projection may be None.

    ValueError if a row is so far away that it overflows: it cannot satisfy its invariants.
    """
    if hasattr(features, "_kernel_map"):
        activation, weights, offsets, scale = features._kernel_map()

        def task(a, b):
            bad = _kernel.decode(activation, X[a:b], weights, offsets, scale, A, projection, out[a:b])
            _check_projected(bad, X[a:b])

        _for_tiles(task, len(X))
        return
    for start in range(0, len(X), _CHUNK):  # `transform` of so many rows at a time: bounded memory
        part = out[start : start + _CHUNK]
        Z = feature_matrix(features, X[start : start + _CHUNK], len(A) - 1)

        def task(a, b, start=start, Z=Z, part=part):
            bad = _kernel.decode_features(Z[a:b], A, projection, part[a:b])
            _check_projected(bad, X[start + a : start + b])

        _for_tiles(task, len(part))


def _check_projected(bad, X):
    if bad >= 0:
        raise ValueError(f"the field at the latent point {X[bad]} is too large for floating-point "
                         "numbers, so it cannot satisfy its invariants")


class _RandomFeatureDecoder(MultiOutputMixin, RegressorMixin, BaseEstimator):
    """What RFNNDecoder and RANDSMAPDecoder share: feature maps, validation, prediction."""

    def fit(self, X, y):
        """Fit the coefficients by ridge regression.

        Parameters
        ----------
        X : array-like (n, d)
            Latent coordinates, n >= 2.
        y : array-like (n, M)
            Fields, one a row; (n,) for a single cell, and `predict` then returns (n,) too.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If X or y is not a finite array of numbers of these shapes, if a parameter is out of
            range, if the fields do not satisfy the invariants (RANDSMAPDecoder), or
            (numpy.linalg.LinAlgError) if solver="cholesky" fails. The estimator then keeps the
            state it had.
        """
        before = self.__dict__.copy()
        try:
            self._fit(X, y)
        except BaseException:
            self.__dict__.clear()
            self.__dict__.update(before)
            raise
        return self

    def _fit(self, X, y):
        regularization = check_number(self.regularization, "regularization", low=0)
        check_choice(self.solver, "solver", ("auto", "cholesky", "svd"))
        X = validate_data(self, X, reset=True, min_samples=2)
        F, dtype, single = _check_fields(y, len(X))
        invariants = self._invariants(F, dtype)
        features = self._fit_features(X)
        A, solver = self._coefficients(FeatureRows(features, X), F, regularization, invariants)
        self.features_, self.coef_, self.solver_ = features, A, solver
        self._single = single
        self._store_invariants(invariants)

    def _fit_features(self, X):
        if self.features is None:
            from randsmap.features import SigmoidFeatures

            features = SigmoidFeatures()
        else:
            features = clone(self.features)
        if self.random_state is not None:
            names = [name for name in features.get_params()
                     if name == "random_state" or name.endswith("__random_state")]
            features.set_params(**dict.fromkeys(names, self.random_state))
        return features.fit(X)

    def predict(self, X, *, out=None):
        """Decode latent points.

        Parameters
        ----------
        X : array-like (n, d)
            Latent coordinates.
        out : ndarray (n, M), float64, C-contiguous, or None
            Where to put the fields.

        Returns
        -------
        fields : ndarray (n, M), float64
            `out` if given. (n,) if y was one-dimensional.

        Raises
        ------
        sklearn.exceptions.NotFittedError
            Before `fit`.
        ValueError, TypeError
            If X is not a finite array (n, d) with n >= 1, out has the wrong shape, type or
            layout or shares memory with X, or a field that has invariants to satisfy overflows.

        Notes
        -----
        A row's result depends on the other rows only by round-off (relative 1e-12): a few rows
        are decoded by a loop that reads A once, more by matrix products.
        """
        check_fitted(self, "coef_")
        A = self.coef_
        X = validate_data(self, X, reset=False)
        shape = (len(X),) if self._single else (len(X), A.shape[1])
        if out is not None and np.may_share_memory(out, X):
            raise ValueError("out must not share memory with X")
        out = check_out(out, shape)
        decode(self.features_, A, X, self._projection(), out.reshape(len(X), A.shape[1]))
        return out


def _check_fields(y, n):
    """y as contiguous float64 (n, M), the number type it came in, and whether it was 1-D."""
    if y is None:
        raise ValueError("y must hold the fields of the latent points X (n, M), got None; this "
                         "estimator requires y to be passed, but the target y is None")
    if not hasattr(y, "toarray"):
        y = np.asanyarray(y)  # a mask is refused below, not dropped
    dtype = getattr(y, "dtype", np.dtype(float))
    single = getattr(y, "ndim", 2) == 1
    F = check_matrix(y[:, None] if single else y, "y")
    if len(F) != n:
        raise ValueError(f"X and y must have the same number of rows, got {n} and {len(F)}")
    return F, dtype, single


class RFNNDecoder(_RandomFeatureDecoder):
    """Random-feature decoder without invariants: ridge regression on random features.

    Parameters
    ----------
    features : transformer or None
        Feature map: `SigmoidFeatures`, `FourierFeatures`, `MultiscaleFourierFeatures`, or any
        scikit-learn transformer (its `transform` then gives the features). It is cloned, not
        changed. None: ``SigmoidFeatures()``.
    regularization : float, default=1e-3
        lambda >= 0.
    solver : {"auto", "cholesky", "svd"}, default="auto"
        "auto": Cholesky if lambda > 10 eps trace(Phi^T Phi), otherwise, or when that fails, the
        minimum-norm solution by a singular value decomposition.
    random_state : int, RandomState instance or None
        If not None, set as the feature map's random_state before it is fitted.

    Attributes
    ----------
    features_ : transformer
        The fitted clone of `features`.
    coef_ : ndarray (P+1, M)
        A, float64; the first row is the bias.
    solver_ : {"cholesky", "dual", "svd"}
        What was used; "dual" is Cholesky of Phi Phi^T + lambda I, for n < P+1.
    n_features_in_ : int
        d, the number of latent coordinates.

    Notes
    -----
    f(y) = [1 | phi(y)] A with A = argmin |F - Phi A|^2 + lambda |A|^2 (paper Eqs. RFNN,
    vanillaTikhonov, dualform). Mass is not conserved: see `RANDSMAPDecoder`.

    Examples
    --------
    >>> import numpy as np
    >>> from randsmap import RFNNDecoder, SigmoidFeatures
    >>> latents = np.linspace(0, 1, 20)[:, None]
    >>> fields = np.hstack([latents, 1 - latents])
    >>> decoder = RFNNDecoder(SigmoidFeatures(slope=3.0), random_state=0).fit(latents, fields)
    >>> bool(abs(decoder.predict([[0.25]]) - [0.25, 0.75]).max() < 0.02)
    True
    """

    def __init__(self, features=None, *, regularization=1e-3, solver="auto", random_state=None):
        self.features = features
        self.regularization = regularization
        self.solver = solver
        self.random_state = random_state

    def _invariants(self, F, dtype):
        return None

    def _coefficients(self, rows, F, regularization, invariants):
        return ridge(rows, F, regularization, self.solver)

    def _store_invariants(self, invariants):
        pass

    def _projection(self):
        return None


class RANDSMAPDecoder(_RandomFeatureDecoder):
    """Random-feature decoder whose fields satisfy linear invariants exactly, mass for one.

    Every decoded field f satisfies |C_j^T f - m_j| <= a few ulp of |C_j|^T |f| + |m_j|, at any
    latent point, near or far from the training data, for any regularization and solver. Cells that
    are constant over the training fields get exactly their value.

    Parameters
    ----------
    features : transformer or None
        Feature map, as for `RFNNDecoder`.
    regularization : float, default=1e-3
        lambda >= 0.
    invariants : "mass", array (M,) or (M, q), or None, default="mass"
        C. "mass" is the sum of the cells, weighted by cell_weights if they are given. Several
        columns are several invariants; dependent or zero columns are allowed. None: no
        invariant, only the constant cells.
    invariant_values : float, array (q,) or None
        m. None: taken from the training fields (their mean).
    invariant_tol : float or None
        The training fields must satisfy |C_j^T f_i - m_j| <= tol |C_j|^T |f_i|. None: 1e-6; 1e-4
        for float32 and 1e-2 for float16 fields.
    constraint : {"everywhere", "training"}, default="everywhere"
        "everywhere": C^T f(y) = m for every y. "training": the paper's closed form (Eq.
        ShurAfinal0), which imposes it at the n training points only, up to the truncation of singular
        values at 1e-8; kept to reproduce the paper. It neither treats constant cells nor projects rows.
    cell_weights : array (M,) or None
        Positive weights, such as cell volumes, of the norm in which the correction is smallest.
    solver : {"auto", "cholesky", "svd"}, default="auto"
        As for `RFNNDecoder`; constraint="training" always uses "svd".
    random_state : int, RandomState instance or None
        If not None, set as the feature map's random_state before it is fitted.

    Attributes
    ----------
    features_, coef_, solver_, n_features_in_
        As for `RFNNDecoder`.
    invariant_values_ : ndarray (q,)
        m; the values of dependent columns are those that the others imply.
    invariant_matrix_ : ndarray (M, q)
        C.
    constant_cells_ : ndarray (M,) of bool
        Cells with one value in all training fields (all False for constraint="training").
    invariants_ : AffineInvariants
        All of these, with the projection of fields on them.

    Notes
    -----
    With R a ridge solution, S the cells that are not constant and c the values of the constant
    ones, A = e_bias c^T on the constant cells, and on S::

        A_S = R_S + (e_bias m^T - A C)(C_S^T V_S^-1 C_S)^-1 C_S^T V_S^-1

    the orthogonal projection in the V-weighted norm: a field that satisfies the invariants and the
    constants is never decoded worse in that norm than without it.

    The paper's form is the same correction with (Phi^+ 1) m^T in place of e_bias m^T. The two
    agree only where Phi has full column rank - never for P >= n - so its mass error at a new point y
    is ``|phi(y) Phi^+ 1 - 1| |m|``, about 1e-9 to 4e-3.

    Examples
    --------
    >>> import numpy as np
    >>> from randsmap import RANDSMAPDecoder, SigmoidFeatures
    >>> latents = np.linspace(0, 1, 20)[:, None]
    >>> fields = np.hstack([latents**2, 1 - latents**2])
    >>> decoder = RANDSMAPDecoder(SigmoidFeatures(slope=3.0), random_state=0).fit(latents, fields)
    >>> bool(abs(decoder.predict([[100.0]]).sum() - 1) < 1e-14)
    True
    """

    def __init__(self, features=None, *, regularization=1e-3, invariants="mass",
                 invariant_values=None, invariant_tol=None, constraint="everywhere",
                 cell_weights=None, solver="auto", random_state=None):
        self.features = features
        self.regularization = regularization
        self.invariants = invariants
        self.invariant_values = invariant_values
        self.invariant_tol = invariant_tol
        self.constraint = constraint
        self.cell_weights = cell_weights
        self.solver = solver
        self.random_state = random_state

    def _invariants(self, F, dtype):
        check_choice(self.constraint, "constraint", ("everywhere", "training"))
        everywhere = self.constraint == "everywhere"
        if not everywhere and self.solver == "cholesky":
            raise ValueError("constraint='training' needs singular values down to 1e-8, which a "
                             "Gram matrix does not resolve: use solver='auto' or 'svd'")
        return AffineInvariants.from_data(
            F, invariants=self.invariants, values=self.invariant_values, tol=self.invariant_tol,
            cell_weights=self.cell_weights, keep_constant_cells=everywhere, dtype=dtype,
        )

    def _coefficients(self, rows, F, regularization, invariants):
        if self.constraint == "training":
            return _training_constrained(rows, F, regularization, invariants), "svd"
        R, solver = ridge(rows, F, regularization, self.solver)
        return _constrained_everywhere(R, invariants), solver

    def _store_invariants(self, invariants):
        self.invariants_ = invariants
        self.invariant_values_ = invariants.values
        self.invariant_matrix_ = invariants.matrix
        self.constant_cells_ = invariants.constant
        self._exact = self.constraint == "everywhere"

    def _projection(self):
        return self.invariants_.projection if self._exact else None


def _constrained_everywhere(R, invariants):
    """Ridge coefficients R (P+1, M) corrected, in place, so that A C = e_bias m^T.

    Then C^T f(y) = m for every y, since the bias column of [1 | phi(y)] is 1.
    """
    A = invariants.assign_constants(R)
    B = np.zeros((len(A), len(invariants.values)))
    B[0] = invariants.values
    return invariants.correct_coefficients(A, B)


_TRUNCATION = 1e-8  # relative cut of singular values, delta_S in the paper's implementation details


def _training_constrained(rows, F, regularization, invariants):
    """The paper's closed form (Eq. ShurAfinal0): A C = (Phi^+ 1) m^T, by a truncated SVD of Phi.

    For mass it equals the printed
    V (Sigma^2 + lambda)^-1 Sigma U^T (F - [1 - U (1 + lambda Sigma^-2) U^T 1] 1^T / M); this form
    holds for any C and V.
    """
    sigma, Vt, UtF, _ = singular_system(rows, np.hstack([F, np.ones((rows.n, 1))]))
    A = filtered_solution(sigma, Vt, UtF[:, :-1], _TRUNCATION, regularization)
    pseudo_bias = filtered_solution(sigma, Vt, UtF[:, -1:], _TRUNCATION, 0.0)
    return invariants.correct_coefficients(A, pseudo_bias * invariants.values)

"""Random-feature decoders: f(y) = [1 | phi(y)] A, without and with exact invariants."""

import numpy as np
from sklearn.base import clone

from randsmap._state import Array, Choice, Count, Flag, Transformer
from randsmap._validation import check_choice, check_number, validate_data
from randsmap.decoders._base import check_fields, decode
from randsmap.decoders._jacobian import DifferentiableDecoder, feature_basis
from randsmap.decoders._ridge import FeatureRows, filtered_solution, ridge, singular_system
from randsmap.invariants import InvariantParameters, document_invariants

__all__ = ["RFNNDecoder", "RANDSMAPDecoder"]

class _RandomFeatureDecoder(DifferentiableDecoder):
    """What RFNNDecoder and RANDSMAPDecoder share: the feature map and the ridge regression."""

    _state = {
        "n_features_in_": Count("d"),
        "features_": Transformer("d", "P"),
        "coef_": Array("P+1", "M"),
        "solver_": Choice("cholesky", "dual", "svd"),
        "_single": Flag(),
    }

    def _fit(self, X, y):
        regularization = check_number(self.regularization, "regularization", low=0)
        check_choice(self.solver, "solver", ("auto", "cholesky", "svd"))
        X = validate_data(self, X, reset=True, min_samples=2)
        F, dtype, single = check_fields(y, len(X))
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
        elif hasattr(self.features, "transform") and not isinstance(self.features, type):
            features = clone(self.features)
        else:
            raise TypeError("features must be a feature map such as SigmoidFeatures(slope=10.0), a "
                            f"scikit-learn transformer or None, got {self.features!r}")
        if self.random_state is not None:
            names = [name for name in features.get_params()
                     if name == "random_state" or name.endswith("__random_state")]
            features.set_params(**dict.fromkeys(names, self.random_state))
        return features.fit(X)

    def _decode(self, A, projection, X, out):
        decode(self.features_, A, X, projection, out)

    def _basis(self):
        return feature_basis(self.features_)


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
    vanillaTikhonov, dualform). Mass is not conserved and there are no bounds: see `RANDSMAPDecoder`.

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

    def _linear_map(self):
        return self.coef_, None


@document_invariants
class RANDSMAPDecoder(InvariantParameters, _RandomFeatureDecoder):
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
    {invariant_parameters}
    constraint : {"everywhere", "training"}, default="everywhere"
        "everywhere": C^T f(y) = m for every y. "training": the paper's closed form (Eq.
        ShurAfinal0), which imposes it at the n training points only, up to the truncation of singular
        values at 1e-8; kept to reproduce the paper. It neither treats constant cells nor projects rows.
    {cell_weights}
    {bounds}
    solver : {"auto", "cholesky", "svd"}, default="auto"
        As for `RFNNDecoder`; constraint="training" always uses "svd".
    random_state : int, RandomState instance or None
        If not None, set as the feature map's random_state before it is fitted.

    Attributes
    ----------
    features_, coef_, solver_, n_features_in_
        As for `RFNNDecoder`.
    {invariant_attributes}

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

    _state = {
        **_RandomFeatureDecoder._state,
        **InvariantParameters._invariant_state,
        "_exact": Flag(),
    }

    def __init__(self, features=None, *, regularization=1e-3, invariants="mass",
                 invariant_values=None, invariant_tol=None, constraint="everywhere",
                 cell_weights=None, bounds=None, solver="auto", random_state=None):
        self.features = features
        self.regularization = regularization
        self.invariants = invariants
        self.invariant_values = invariant_values
        self.invariant_tol = invariant_tol
        self.constraint = constraint
        self.cell_weights = cell_weights
        self.bounds = bounds
        self.solver = solver
        self.random_state = random_state

    def _invariants(self, F, dtype):
        check_choice(self.constraint, "constraint", ("everywhere", "training"))
        everywhere = self.constraint == "everywhere"
        if not everywhere and self.solver == "cholesky":
            raise ValueError("constraint='training' needs singular values down to 1e-8, which a "
                             "Gram matrix does not resolve: use solver='auto' or 'svd'")
        if not everywhere and self.bounds is not None:
            raise ValueError("bounds need the projection of every row, which constraint='training' does "
                             "not have: use constraint='everywhere'")
        return self._fit_invariants(F, dtype, keep_constant_cells=everywhere)

    def _coefficients(self, rows, F, regularization, invariants):
        if self.constraint == "training":
            return _training_constrained(rows, F, regularization, invariants), "svd"
        R, solver = ridge(rows, F, regularization, self.solver)
        return invariants.constrain_coefficients(R), solver

    def _store_invariants(self, invariants):
        super()._store_invariants(invariants)
        self._exact = self.constraint == "everywhere"

    def _linear_map(self):
        return self.coef_, self.invariants_ if self._exact else None


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

"""Random-feature decoders: f(z) = [1 | phi(z)] A, without and with exact invariants."""

from __future__ import annotations

import copy
import numbers
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from randsmap._interface.arrays import check_samples, validate_data
from randsmap._interface.callers import warn_caller
from randsmap._interface.fields import field_rows
from randsmap._interface.parameters import check_count, check_number, check_parameters, estimator, parameter
from randsmap._interface.state import NOT_SAVED, Part, restored_on_error
from randsmap._interface.texts import shared_texts
from randsmap._linalg.gram import NormalEquations, Solution
from randsmap._linalg.products import multiply
from randsmap._linalg.ridge import RidgeFactor
from randsmap._linalg.rows import FeatureRows, Rows
from randsmap._linalg.scales import error_scales, in_norm
from randsmap._linalg.spectral import Spectral, lambda_path
from randsmap._linalg.svd import field_modes, principal_coordinates, sketched
from randsmap._parallel import blas_threads
from randsmap.decoders import _base
from randsmap.decoders import _ridge_fit as ridge
from randsmap.features import FourierFeatures, SigmoidFeatures
from randsmap.invariants import InvariantParameters, RunningInvariants
from randsmap.maps.error_bar import judged_rows
from randsmap.maps.linear_map import TransformerBasis, in_units
from randsmap.metrics import field_norms


def held_out_regularization(rows: FeatureRows, F: Any, weights: NDArray[np.float64] | None) -> float:
    """lambda for feature rows (n, P) and fields F (n, M), by leave-one-out errors in the cells' weights. Of more than
    300 samples those of 300 at random. A sample that has a weight is left out with all of it, and its error counts as
    much."""
    # a factorisation of 300 x 300 costs much less than a fit
    some = np.sort(np.random.RandomState(0).permutation(len(F))[:300])
    fields, taken = F.take(some) if isinstance(F, Rows) else Rows(F[some]), rows.without_bias().take(some)
    root = np.ones(len(some)) if taken.root is None else taken.root
    sizes = error_scales(field_norms(fields, cell_weights=weights)) * root
    with blas_threads(1):
        G = principal_coordinates(fields, weights)[1] * root[:, None]
        hat = Spectral(taken).hat()
    lambdas = np.array([regularization for _, regularization in lambda_path(hat.largest)])
    errors = hat.distances(G, np.arange(G.shape[1]), lambdas) / sizes
    # the error of a field counts as 1 at most
    means = np.average(np.where(errors < 1, errors, 1.0), axis=1, weights=root**2)
    # eigenvalues of Phi^T Phi, and lambda with them, grow with the number of samples, or with their weight
    return float(lambdas[np.argmin(means)] * rows.total / taken.total)


def _training_constrained(rows, invariants, F, regularization):
    """The paper's closed form (Eq. 49): A C = (Phi^+ 1) m^T, by a truncated SVD of Phi. For mass it equals the printed
    V (Sigma^2 + lambda)^-1 Sigma U^T (F - [1 - U (1 + lambda Sigma^-2) U^T 1] 1^T / M); this form holds for any C and
    V."""
    fields, spectral = np.hstack([F[:], np.ones((rows.n, 1))]), Spectral(rows, always=True)
    # singular values are cut at 1e-8 of the largest, delta_S in the paper's implementation details
    A, pseudo = (spectral.solve(fields, value, 1e-8).coefficients for value in (regularization, 0.0))
    return Solution(invariants.correct_coefficients(A[:, :-1], pseudo[:, -1:] * invariants.values), "svd")


def _of_latest(name):
    """A fitted attribute that is known before the solution of the batches."""
    return property(lambda self: getattr(self.stream or self.fitted, name))


@shared_texts
@estimator
class RandomFeatureRegression(_base.RidgeDecoder):
    """Ridge regression on random features, of one batch or of many.

    Parameters
    ----------
    features
        Feature map: `SigmoidFeatures`, `FourierFeatures`, `MultiscaleFourierFeatures`, or any scikit-learn
        transformer. It is cloned, not changed. None: ``FourierFeatures()``, of length scale 1
        (``SigmoidFeatures()`` with constraint="training").
    regularization
        lambda >= 0. "auto": the best of 17 values by leave-one-out errors (of at most 300 samples); the fit is then not
        linear in the fields. None: "auto" without `features`, and the paper's 1e-3 with them and for `partial_fit`.
    solver
        "auto": "lowrank" or "krylov" if these are cheaper (docs/low-rank.md, docs/krylov.md), "cholesky" while
        eps |Phi|^2 <= 1e-6 lambda, then QR. For lambda near round-off, the minimum-norm solution by "svd". "lowrank"
        and "krylov" need lambda > 0.
    tol
        Tolerance of "lowrank" (None: 1e-8) and "krylov" (None: 1e-7): bound of |Phi (A - A*)| / |F| over the training
        set, with the exact ridge solution A*. With other solvers it must be None.
    max_iter
        Iterations of "krylov" before a ConvergenceWarning. None: 500. With other solvers it must be None.
    output_rank
        Keep the coefficients as B U^T with r modes U of the fields, for fields of many cells (docs/low-rank.md): a
        number r, or the largest relative L2 error of a training field, such as 1e-6. Needs `center`.
    random_state
        If not None, set as the feature map's random_state before it is fitted.

    Attributes
    ----------
    features_ : transformer
        The fitted clone of `features`, in a `TransformerBasis` if it is no random map.
    coef_ : ndarray (P+1, M)
        A, the first row the bias. With `output_rank` it is computed when it is read.
    output_coef_ : ndarray (P+1, r) or None
        B, the first row the bias. This and the next two are None without `output_rank`.
    output_basis_ : ndarray (M, r) or None
        U, orthonormal columns by energy, zero on constant cells and orthogonal to the invariants.
    output_mean_ : ndarray (M,) or None
        The mean of the training fields, which satisfies the invariants: f = output_mean_ + U B^T [1 | phi(z)].
    solver_ : {"cholesky", "dual", "qr", "svd", "lowrank", "krylov", "eigh"}
        The solver used. "dual" is Cholesky of Phi Phi^T + lambda I, for n < P+1; for "eigh" see `partial_fit`.
    rank_ : int or None
        Latent points whose features were combined by "lowrank"; None for other solvers.
    error_bound_ : float or None
        Of "lowrank": the bound of `tol` that was reached.
    n_iter_ : int
        Iterations of "krylov"; 1 for the direct solvers.
    n_samples_seen_ : int
        Samples of the fit, or of all batches.
    """

    constraint = "everywhere"  # a parameter of RANDSMAPDecoder

    features: Any = parameter(default=None, kw_only=False, shown="transformer or None", of_columns=True)
    regularization: float | str | None = parameter(default=None, shown='float, "auto" or None')
    solver: str = parameter(str, default="auto", words=("auto", "cholesky", "svd", "lowrank", "krylov"))
    tol: float | None = parameter(float, default=None, low=0, strict=True, words=(None,))
    max_iter: int | None = parameter(int, default=None, low=1, words=(None,))
    output_rank: int | float | None = parameter(default=None, shown="int, float or None")
    random_state: Any = parameter(default=None, shown="int, RandomState instance or None")

    _fitted: Any = None  # a RidgeFit
    _stream: Any = None  # the unsolved fit of the batches; None before the first batch and after `fit`
    # a model file holds the fit without the sums, which take more memory and are not needed to decode
    _state = {**_base.FIT_STATE, "_fitted": Part(ridge.RidgeFit, d="d"), "_stream": NOT_SAVED}

    @property
    def fitted(self) -> ridge.RidgeFit:
        """The fit; after batches it is solved for."""
        self.solve()
        return self._fitted

    stream = property(lambda self: self._stream)
    features_ = _of_latest("features")
    latent_scale_ = _of_latest("latent_scale")
    coef_ = _base.of_fit("A")
    output_coef_ = property(lambda self: self.fitted.modes[0])
    output_basis_ = property(lambda self: self.fitted.modes[1])
    output_mean_ = property(lambda self: self.fitted.modes[2])
    solver_ = _base.of_fit("solver")
    n_iter_ = _base.of_fit("n_iter")
    rank_ = _base.of_fit("rank")
    error_bound_ = _base.of_fit("bound")
    regularization_ = _base.of_fit("regularization")

    n_samples_seen_ = property(lambda self: self.fitted.n_samples if self._sums is None else self._sums.n)
    _sums = property(lambda self: None if self._stream is None else self._stream.sums)
    _centred = property(lambda self: self.center and self.constraint == "everywhere")

    def __sklearn_is_fitted__(self) -> bool:
        return self._fitted is not None or self._sums is not None

    def storable(self) -> Self:
        """The decoder as a model file holds it, solved for."""
        return self.solve() if self.__sklearn_is_fitted__() else self

    # -- Fit -------------------------------------------------------------------------------------------
    def fit_state(self, X, y, sample_weight=None):
        (regularization,), fit_with = self.regression(X, y, [ridge.fixed_regularization(self)], sample_weight)
        fit = fit_with(regularization)
        self._stream = None
        return fit

    def regression(self, X, y, regularizations, sample_weight=None):
        """The lambdas, chosen by cross-validation if they are None, and a function from one of them to its fit."""
        self._check_parameters(weighted=sample_weight is not None)
        X, F, weights, invariants = self._training_data(X, y, sample_weight)
        everywhere = self.constraint == "everywhere"
        if not everywhere and invariants.varying:
            raise ValueError(
                "constraint='training' imposes one value of the invariants on all fields: give invariant_values, or "
                "use constraint='everywhere' for fields whose values vary (invariant_tol >= 1)"
            )
        features, scale = self._fit_map(X, weights)
        rows = FeatureRows(features, X, bias=not self._centred, weights=weights)
        # by errors of the fields themselves, before they become coordinates in modes
        cell_weights = getattr(invariants, "cell_weights", None)
        if None in regularizations:
            regularizations = [held_out_regularization(rows, F, cell_weights)]
        some, judged = _base.full_fields(F), judged_rows(len(X))
        some = some if isinstance(some, Rows) else Rows(some)  # a file is read by blocks
        some = some.take(judged) if len(judged) < len(X) else some
        if self.output_rank is None:
            known = {"sketch": sketched(some, cell_weights)}
        else:
            synthesis, F = self._field_modes(F, invariants)
            modes, root = F[judged], None if cell_weights is None else np.sqrt(cell_weights)
            rest = some.less(synthesis[0], scale=root).norms2() - np.square(modes).sum(1)
            known = {"synthesis": synthesis, "sketch": modes, "truncated": np.sqrt(np.maximum(rest, 0))}
        if everywhere:
            limits = {"tol": self.tol, "max_iter": self.max_iter or 500}
            solution = RidgeFactor(rows, regularizations, self.solver, cells=F.shape[1], **limits).solve
        else:
            F, solution = _base.full_fields(F), partial(_training_constrained, rows, invariants)
        # the points are kept for the leverage, while the caller may change X
        known |= {"invariants": invariants, "points": X.copy(), "n_samples": len(X), "weights": weights}
        fit = self._begin(features, scale, **known)

        def fit_with(regularization):
            return fit.completed(solution(_base.coordinates_of(F), regularization), regularization, F)

        return regularizations, fit_with

    def _begin(self, features, scale, **known):
        """The fit without its coefficients."""
        projected = isinstance(self, InvariantParameters) and self.constraint == "everywhere"
        return ridge.RidgeFit(features, scale, self._centred, projected, **known)

    def _field_modes(self, F, invariants):
        """Mean and modes of the fields, and their coordinates in them."""
        rank, weights, options = self.output_rank, getattr(invariants, "cell_weights", None), {}
        if not self._centred:
            raise ValueError(
                "output_rank needs center=True, and no constraint='training': modes are of the fields less their mean"
            )
        if isinstance(rank, numbers.Integral):
            rank = check_count(rank, "output_rank")
        else:
            rank = check_number(rank, "output_rank", low=0, high=1, strict_low=True)
        if invariants is not None:
            normals = in_norm(invariants.directions, weights)  # orthonormal rows, and 0 on the constant cells
            options = {"corrected": invariants.project, "normals": normals, "constant": invariants.constant}
        norms = field_norms(F, cell_weights=weights)
        return field_modes(F if isinstance(F, Rows) else Rows(F), rank, norms, weights=weights, **options)

    def _fit_map(self, X, weights=None):
        """The feature map, fitted to latents X, and their units."""
        own_form = self.constraint == "everywhere"
        if self.features is None:
            features = FourierFeatures() if own_form else SigmoidFeatures()
        elif ridge.is_map(self.features):
            features = clone(self.features)
        else:
            raise TypeError(f"features must be a feature map, a transformer or None, got {self.features!r}")
        if self.random_state is not None:
            names = [name for name in features.get_params() if name.rpartition("__")[2] == "random_state"]
            features.set_params(**dict.fromkeys(names, self.random_state))
        scale = _base.fitted_scale(self.latent_scale if own_form else None, X, weights)
        if (scale == 1).all():
            return features.fit(X), scale
        if hasattr(features, "activation_parameters"):  # our maps put units into their weights
            return features.fit(X, latent_scale=scale), scale
        return TransformerBasis(features.fit(in_units(X, scale)), scale), scale

    def _check_parameters(self, weighted=False):
        check_parameters(self)
        readers = {"tol": ("auto", "lowrank", "krylov"), "max_iter": ("auto", "krylov")}
        unread = [name for name, solvers in readers.items() if self.solver not in solvers]
        _base.check_unread(self, unread, f"by solver={self.solver!r}")
        if self.constraint != "everywhere" and self.solver in ("cholesky", "krylov", "lowrank"):
            raise ValueError(
                "constraint='training' needs singular values down to 1e-8, which a Gram matrix does not resolve: use "
                "solver='auto' or 'svd'"
            )
        if self.constraint != "everywhere" and self.bounds is not None:
            raise ValueError("constraint='training' has no projection, which bounds need: use constraint='everywhere'")
        if weighted:
            names = [name for name in ("output_rank", "constraint") if name in self.get_params(deep=False)]
            _base.check_unread(self, names, "with sample_weight")
            if self.solver == "lowrank":
                raise ValueError("solver='lowrank' accepts no sample_weight: use 'auto', 'cholesky', 'svd' or 'krylov'")

    def fit_path(self, X: ArrayLike, y: ArrayLike, regularizations: Sequence[float]) -> Callable[[float], Self]:
        """Decoders for several lambdas, which share the features and their products.

        Parameters
        ----------
        X, y
            As of `fit`. They must not change until the last decoder is asked for.
        regularizations : sequence of float
            Values of lambda >= 0.

        Returns
        -------
        callable
            It takes one of the regularizations and returns a decoder fitted with it, or raises its error. This decoder
            is not changed.

        {raises_as_fit}
        """
        fresh = clone(self)
        check_samples(X=X, y=y)
        _, fit_with = fresh.regression(
            X, y, [check_number(value, "regularization", low=0) for value in regularizations]
        )

        def fitted(regularization):
            given = check_number(regularization, "regularization", low=0)
            return _base.holding(fresh, fit_with(given).rounded(self.dtype)).set_params(regularization=regularization)

        return fitted

    # -- Batches ---------------------------------------------------------------------------------------
    def fit_features(self, X: ArrayLike) -> Self:
        """Fit the feature map and the latent scale, as `fit` does, before the fields come by `partial_fit`.

        Parameters
        ----------
        X : array-like (n, d)
            Latent coordinates of all batches, n >= 2; they take little memory.

        Returns
        -------
        self
            An earlier fit is dropped. Pickle it to fit parts of the fields elsewhere, see `merge`.

        {raises_as_fit}
        """
        with restored_on_error(self):
            self.__dict__.pop("_field_shape", None)
            features, scale = self._fit_map(validate_data(self, X, reset=True, min_samples=2))
            self._fitted, self.calibrated_, self._stream = None, None, self._begin(features, scale)
        return self

    @_base.available_if(ridge.check_streamable)
    def partial_fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Fit to one more batch of latent points and fields.

        Parameters
        ----------
        X : array-like (n, d)
            Latent coordinates, n >= 1.
        y : array-like (n, M)
            Fields, as in `fit`.

        {result_of_fit}
            Also if all fields so far do not have the same values of the invariants, or an earlier call was interrupted.
        AttributeError
            If the parameters do not allow batches: ``hasattr(decoder, "partial_fit")`` is then False. The cause of the
            error, a ValueError, has the reason.

        Warns
        -----
        UserWarning
            If the estimator comes from `fit` or from a model file, which store no sums: the fit starts anew.

        Notes
        -----
        The first batch determines features, invariants, bounds, d and M. The features must not depend on later batches.
        Use a map that is fitted already (in its own units), or `FourierFeatures`, `MaternFeatures` or
        `MultiscaleFourierFeatures` with an integer n_features. `SigmoidFeatures` also need a `latent_box`. latent_scale
        must be None, a number or an array. After `fit_features` any map is possible. `partial_fit` needs
        constraint="everywhere" and solver "auto" or "cholesky".

        Memory is O(P^2 + P M) for any number of samples. The coefficients are computed when they are first needed
        (docs/distributed.md states when they equal those of `fit`). For small lambda `fit` is more accurate: it factors
        Phi itself. For lambda <= 10 eps trace(Phi^T Phi), solver_ is "eigh": the minimum-norm solution from the
        eigenvectors of Phi^T Phi, without singular values of Phi below about 1e-7 of the largest. A pickle stores the
        sums, a model file does not.

        Examples
        --------
        >>> import numpy as np
        >>> from randsmap import FourierFeatures, RANDSMAPDecoder
        >>> decoder = RANDSMAPDecoder(FourierFeatures(0.5, n_features=20), latent_scale=None, random_state=0)
        >>> for batch in np.array_split(np.linspace(0, 1, 200)[:, None], 4):
        ...     decoder = decoder.partial_fit(batch, np.hstack([batch**2, 1 - batch**2]))
        >>> decoder.n_samples_seen_, bool(abs(decoder.predict([[3.0]]).sum() - 1) < 1e-14)
        (200, True)
        """
        with restored_on_error(self):
            check_samples(X=X, y=y)
            if self._stream is None and self._fitted is not None:
                warn_caller(
                    f"this {type(self).__name__} comes from fit or a model file, which keep no sums of batches: "
                    "partial_fit discards that fit"
                )
            ridge.batch_regularization(self)
            self._check_parameters()
            X = validate_data(self, X, reset=self._stream is None)
            F, dtype, layout = _base.check_fields(y, len(X), blocks=True)
            before, M = self._stream or self._begin(*self._streamed_map(X)), F.shape[1]
            if before.sums is None:
                self._field_shape = layout
                sums = NormalEquations(before.features, X.shape[1], M, centred=self._centred)
                running = RunningInvariants.of(self, M) if isinstance(self, InvariantParameters) else None
                # parameters may have been set since `fit_features`
                new = {"free_bias": sums.centred, "projected": running is not None}
                before = replace(before, sums=sums, running=running, **new)
            else:
                field_rows(self, y, name="y")  # in the layout of the first batch
                if M != before.sums.cells:
                    raise ValueError(f"y must have {before.sums.cells} columns, as in the first batch, got {M}")
            after = before.with_fields(F, dtype)
            after.sums.check(X)
            # the sums change after this: they note an interrupt, and a later call raises
            self._fitted, self.calibrated_, self._stream = None, None, after
            after.sums.add(X, F)
        return self

    def _streamed_map(self, X):
        """As `_fit_map`, for the first batch."""
        if isinstance(self.latent_scale, str):
            raise ValueError(
                f"partial_fit cannot know the spread of all latent points, latent_scale={self.latent_scale!r}: give "
                "latent_scale=None, or a number or an array, or all latent points to fit_features before"
            )
        if ridge.is_map(self.features) and _base.is_fitted(self.features):
            return copy.deepcopy(self.features), np.ones(X.shape[1])
        return self._fit_map(X)

    def merge(self, other: Self) -> Self:
        """Add all samples that another decoder has got by `partial_fit`, in another process or on another machine.

        Both start from the same features (a map that is fitted already, or the same `random_state`), and pickle.
        `randsmap.distributed` merges them for dask arrays.

        Parameters
        ----------
        other : decoder of the same class
            After `partial_fit`, with the same features and parameters. It is not changed.

        Returns
        -------
        self
            `coef_` has the same bits for any tree and order of decoders that have each seen whole blocks of 4096
            samples; one may have seen any number.

        Raises
        ------
        TypeError, ValueError
            If one of the two has no sums, if they differ (the message names in what), or if the fields of both do not
            satisfy the invariants together. The estimator then keeps the state it had.
        """
        ridge.check_mergeable(self, other)
        self._fitted, self.calibrated_, self._stream = None, None, self.stream.merged(other.stream)
        return self

    def solve(self) -> Self:
        """Solve for the coefficients of all batches so far; what needs them, such as `predict`, does it as well.

        Returns
        -------
        self

        Raises
        ------
        sklearn.exceptions.NotFittedError
            Before `fit` and `partial_fit`.
        numpy.linalg.LinAlgError, ValueError
            If solver="cholesky" and the factorisation fails (the message names lambda), or an earlier `partial_fit` was
            interrupted, so that the sums are incomplete.
        """
        if self._fitted is None:
            if self._sums is None:
                check_is_fitted(self)
            self._fitted = self._stream.solve(ridge.batch_regularization(self), self.solver, self.dtype)
        return self

    def check_available(self, capability):
        if capability != "smoother":
            return True
        if self.solver == "krylov":
            raise AttributeError("solver='krylov' stops at a tolerance that depends on the fields")
        if self.output_rank is not None:
            raise AttributeError("output_rank selects modes that depend on the fields")
        if self.constraint != "everywhere":
            raise AttributeError(f"the correction of constraint={self.constraint!r} differs from point to point")
        if ridge.fixed_regularization(self) is None:
            raise AttributeError("lambda is selected by cross-validation errors, which depend on the fields")
        return True

    def weights_of(self, X, Z, fields):
        regularization = ridge.fixed_regularization(self)
        return self._smoother(X, Z, fields, [regularization])(regularization)

    def _smoother(self, X, Z, fields, regularizations):
        """The result of `smoother_path` for checked arrays."""
        self._check_parameters()
        features, _ = self._fit_map(X)
        rows, points = (FeatureRows(features, Y, bias=not self._centred) for Y in (X, Z))
        factor = RidgeFactor(rows, regularizations, self.solver, tol=self.tol)
        if fields is None:
            return partial(factor.weights, points)
        Phi = points.without_bias().whole()

        def decoded(regularization):
            """Decode by the coefficients of few fields, which is cheaper than their product with W (L, n)."""
            A = factor.solve(fields, regularization).coefficients
            with blas_threads():
                return multiply(Phi, A[1:]) + A[0]

        return decoded

    @_base.available_if(lambda self: self.check_available("smoother"))
    def smoother_path(
        self, X: ArrayLike, Z: ArrayLike, regularizations: Sequence[float], *, fields: NDArray[np.float64] | None = None
    ) -> Callable[[float], NDArray[np.float64]]:
        """Weights of the training fields in the decoded ones, as `smoother`, for several lambdas.

        Parameters
        ----------
        X, Z, fields
            As of `smoother`.
        regularizations : sequence of float
            Values of lambda >= 0.

        Returns
        -------
        callable
            It takes one of the regularizations and returns W (L, n), or W times the fields (L, k), float64.

        {raises_as_fit}
        """
        fresh, *given = self._without_fit(X, Z, fields)
        return fresh._smoother(*given, [check_number(value, "regularization", low=0) for value in regularizations])

    def eigenpairs(self, X, least):
        self._check_parameters()
        rows = FeatureRows(self._fit_map(X)[0], X, bias=not self._centred)
        hat = RidgeFactor(rows, [least], self.solver, tol=self.tol).hat()
        return hat.U, hat.squares


@shared_texts
@estimator
class RFNNDecoder(RandomFeatureRegression, _base.FieldRegressor):
    """Random-feature decoder without invariants: ridge regression on random features.

    Use it for comparison, or if no invariant matters. `RANDSMAPDecoder` costs about the same, and satisfies
    invariants and bounds.

    Notes
    -----
    f(z) = [1 | phi(z)] A with A = argmin |F - Phi A|^2 + lambda |A|^2 (paper Eq. 9,
    Eq. 15, Eq. 16). Mass is not conserved and there are no bounds: see `RANDSMAPDecoder`.

    Examples
    --------
    {curve}
    >>> decoder = randsmap.RFNNDecoder(randsmap.SigmoidFeatures(slope=3.0), random_state=0).fit(latents, fields)
    >>> bool(abs(decoder.predict([[0.5]]) - [0.25, 0.75]).max() < 0.02)
    True
    """


@shared_texts
@estimator
class RANDSMAPDecoder(InvariantParameters, RandomFeatureRegression, _base.FieldRegressor):
    """Random-feature decoder whose fields satisfy linear invariants, such as the mass, exactly.

    Use it for many snapshots: it is fitted in blocks or batches, and the cost of decoding does not depend on their
    number. `KernelDecoder` is mostly more accurate for up to a few thousand snapshots, and `AutoDecoder` selects a
    decoder.

    Every decoded field f satisfies |C_j^T f - m_j| <= a few ulp of |C_j|^T |f| + |m_j|, at any latent point, for any
    regularization and solver. Cells that are constant over the training fields get exactly their value.

    Parameters
    ----------
    constraint
        "everywhere": C^T f(z) = m for every z. "training": the paper's closed form (Eq. 49), to reproduce the paper,
        which holds at the n training points only, up to the truncation of singular values at 1e-8. It needs
        solver="auto" or "svd", has no constant cells and no projection of rows, and does not use `center` and
        `latent_scale`.

    Notes
    -----
    Let e_bias be the unit vector of the bias row, v the cells that are not constant, and R a ridge solution; on
    constant cells, R is e_bias times their values, and A is R. On the cells v::

        A_v = R_v + (e_bias m^T - R C)(C_v^T V_v^-1 C_v)^-1 C_v^T V_v^-1

    This is the orthogonal projection in the norm with the volumes V: it does not increase the error, in this norm, of a
    field that satisfies the invariants and has these constant cells. The paper's form has (Phi^+ 1) m^T instead of
    e_bias m^T, so its mass error at a new point z is ``|phi(z) Phi^+ 1 - 1| |m|``, about 1e-9 to 4e-3.

    Examples
    --------
    {curve}
    >>> decoder = randsmap.RANDSMAPDecoder(randsmap.SigmoidFeatures(slope=3.0), random_state=0).fit(latents, fields)
    >>> bool(abs(decoder.predict([[100.0]]).sum() - 1) < 1e-14)
    True
    """

    constraint: str = parameter(str, default="everywhere", words=("everywhere", "training"))

    invariants_ = _of_latest("invariants")

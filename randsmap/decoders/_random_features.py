"""Random-feature decoders: f(y) = [1 | phi(y)] A, without and with exact invariants."""

from __future__ import annotations

import copy
import numbers
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from joblib import hash as hash_of
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from randsmap._interface.arrays import cache_aligned, validate_data
from randsmap._interface.callers import warn_caller
from randsmap._interface.fields import field_rows
from randsmap._interface.parameters import check_choice, check_count, check_number, estimator, parameter
from randsmap._interface.state import NOT_SAVED, Part, restored_on_error
from randsmap._linalg.cholesky import Solution
from randsmap._linalg.normal_equations import NormalEquations
from randsmap._linalg.products import multiply
from randsmap._linalg.ridge import RidgeFactor
from randsmap._linalg.rows import FeatureRows, Rows
from randsmap._linalg.spectral import Spectral
from randsmap._linalg.svd import field_modes, orthonormalize_rows_against
from randsmap._parallel import blas_threads
from randsmap.decoders._base import (
    FIT_STATE,
    LatentScaling,
    LinearDecoder,
    as_fields,
    available_if,
    check_center,
    check_fields,
    coordinates_of,
    fitted_scale,
    holding,
    in_cells,
    of_fit,
)
from randsmap.decoders._fits import RidgeFit
from randsmap.decoders._regularization import PAPER, fixed_regularization, held_out_regularization
from randsmap.features import FourierFeatures, MaternFeatures, MultiscaleFourierFeatures, SigmoidFeatures
from randsmap.invariants import AffineInvariants, InvariantParameters, Invariants, RunningInvariants, fit_estimator
from randsmap.maps.bases import ScaledTransformer, in_units
from randsmap.metrics import field_norms


# -- Fitted state ----------------------------------------------------------------------------------
@dataclass(frozen=True, eq=False)
class _Stream:
    """State between batches: the features, and sums of what has come. Its sums are this decoder's own."""

    features: Any
    latent_scale: NDArray[np.float64]
    sums: NormalEquations | None = None  # None: no batch yet, the features are fitted to latents alone
    running: RunningInvariants | None = None
    invariants: AffineInvariants | None = None


# -- What batches need -----------------------------------------------------------------------------
class NotStreamable(ValueError):
    """The parameters do not allow batches; the cause of the AttributeError of `decoder.partial_fit`."""


def _streamable(decoder):
    """True if `partial_fit` is there; NotStreamable, with the reason, if the parameters do not allow batches."""
    if decoder.solver in ("svd", "krylov", "lowrank"):
        raise NotStreamable(
            f"partial_fit needs solver='auto' or 'cholesky', got {decoder.solver!r}, which needs all samples at once"
        )
    if decoder.output_rank is not None:
        raise NotStreamable(f"partial_fit needs output_rank=None, got {decoder.output_rank!r}: modes need all samples")
    if decoder.constraint != "everywhere":
        raise NotStreamable(
            f"partial_fit needs constraint='everywhere', got {decoder.constraint!r}, which needs all samples at once"
        )
    features = decoder.features
    if decoder.stream is not None or _is_fitted(features) or not (features is None or _is_map(features)):
        return True  # what is no feature map is refused later
    if features is None:
        raise NotStreamable(
            "partial_fit needs features whose number is known: give FourierFeatures(n_features=...), a map that is "
            "fitted already, or all latent points to fit_features before"
        )
    if isinstance(features, SigmoidFeatures) and features.latent_box is None:
        raise NotStreamable(
            "partial_fit cannot take the centres of SigmoidFeatures from the bounding box of data that "
            "it has not seen: give SigmoidFeatures(n_features=..., latent_box=(low, high)), a map "
            "that is fitted already, or all latent points to fit_features before"
        )
    if not isinstance(features, (FourierFeatures, MaternFeatures, MultiscaleFourierFeatures, SigmoidFeatures)):
        raise NotStreamable(
            f"partial_fit cannot fit {features!r} to one batch of the data: fit it before, "
            "to data that represent all batches"
        )
    if not isinstance(features.n_features, numbers.Integral):
        raise NotStreamable(
            "partial_fit needs an integer n_features, got "
            f"{features.n_features!r}, a multiple of a number of samples that is not "
            "known: give a count, or a map that is fitted already"
        )
    return True


def _streamed_regularization(decoder):
    regularization = PAPER if decoder.regularization is None else fixed_regularization(decoder)
    if regularization is None:
        raise ValueError(
            'partial_fit needs a number for regularization, got "auto", for which all samples must be known'
        )
    return regularization


def _is_map(features):
    return hasattr(features, "transform") and not isinstance(features, type)


def _is_fitted(features):
    if not _is_map(features):
        return False
    try:
        check_is_fitted(features)
    except (NotFittedError, TypeError):
        return False
    return True


# -- Decoders --------------------------------------------------------------------------------------
@estimator
class RFNNDecoder(LatentScaling, LinearDecoder):
    """Random-feature decoder without invariants: ridge regression on random features.

    Parameters
    ----------
    features
        Feature map: `SigmoidFeatures`, `FourierFeatures`, `MultiscaleFourierFeatures`, or any
        scikit-learn transformer (its `transform` then gives the features). It is cloned, not
        changed. None: ``FourierFeatures()``, of length scale 1.
    regularization
        lambda >= 0. "auto": the best of 17 values, from 1e-14 to 100 times the largest eigenvalue of Phi Phi^T, by
        leave-one-out errors in closed form of all samples or 300 at random; then the fit is not linear in the fields.
        None: "auto" without `features`, 1e-3 (the paper's) with them and for `partial_fit`.
    solver
        "lowrank": the exact solution among the combinations of the features of a few latent points, which smooth
        features of latents of one to three dimensions hardly differ from; it needs lambda > 0. Where more than
        min(n, P) / 6 of them (or 128) would be needed, it goes on as "auto".
        "krylov": preconditioned block conjugate gradients, which never store Phi or a P x P matrix, for n and P
        beyond some thousands; it needs lambda > 0. "auto": low rank where
        that takes at most half of the operations and `error_bound_` is at most 1e-8; Krylov if min(n, P+1) >= 4000
        and it is found to be cheaper, or if the others' matrices do not fit in memory; otherwise
        Cholesky while eps |Phi|^2 <= 1e-6 lambda (Phi without its mean), then a QR factorisation of Phi, and for
        lambda <= 10 eps trace(Phi^T Phi), or when Cholesky fails, the minimum-norm solution by a singular value
        decomposition. Relative errors of decoded fields, off the training manifold too: "cholesky" about
        eps |Phi|^2 / lambda, "svd" and QR below 1e-8 for lambda >= 1e-12 and smooth fields, "krylov" and "lowrank"
        `tol` over the training set; a single field at a new point may be 100 times worse.
    tol
        For "lowrank" and "krylov": bound of |Phi (A - A*)| / |F| over the training set (Frobenius norms), A* being the
        exact ridge solution and F less its mean with `center`. None: 1e-8 for "lowrank", 1e-7 for "krylov". Where
        "auto" takes them too, but for low rank no more than 1e-8. The round-off of the factorisation is not in it.
        Refused beside "cholesky" and "svd".
    max_iter
        For "krylov": iterations after which it stops with a ConvergenceWarning. None: 500. Refused beside "cholesky",
        "svd" and "lowrank".
    output_rank
        Keep the coefficients as B U^T, with r modes U of the training fields less their mean: P r + r M numbers in
        place of P M, for fields of many cells. A count r, or the largest relative L2 error of a training field that the
        modes may leave, such as 1e-6 (relative to 1e-3 of the fields' median norm for smaller ones). Invariants,
        constant cells and bounds hold as ever. Needs `center`. Large memory-mapped fields are read by blocks.
    random_state
        If not None, set as the feature map's random_state before it is fitted.

    Attributes
    ----------
    features_ : transformer
        The fitted clone of `features`.
    coef_ : ndarray (P+1, M)
        A, float64; the first row is the bias. With `output_rank` it is computed when it is read, P + 1 numbers per
        cell.
    output_coef_ : ndarray (P+1, r) or None
        B; the first row is the bias. This and the next two are None without `output_rank`.
    output_basis_ : ndarray (M, r) or None
        U, orthonormal columns by energy, zero on constant cells and orthogonal to the invariants.
    output_mean_ : ndarray (M,) or None
        The mean of the training fields, which satisfies the invariants: f = output_mean_ + U B^T [1 | phi(y)].
    solver_ : {"cholesky", "dual", "qr", "svd", "lowrank", "krylov", "eigh"}
        What was used; "dual" is Cholesky of Phi Phi^T + lambda I, for n < P+1, "eigh" see
        `partial_fit`.
    rank_ : int or None
        Latent points whose features were combined by "lowrank"; None for other solvers.
    error_bound_ : float or None
        Of "lowrank": bound of |Phi (A - A*)| / |F|, see `tol`, that holds unless random probes of a fixed seed fail,
        once in 150000 fits at worst.

    n_iter_ : int
        Iterations of "krylov"; 1 for the direct solvers.
    n_samples_seen_ : int
        Number of samples of the fit, or of all batches.
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

    constraint = "everywhere"  # a parameter of RANDSMAPDecoder

    features: Any = parameter(default=None, kw_only=False, shown="transformer or None")
    regularization: float | str | None = parameter(default=None, shown='float, "auto" or None')
    solver: str = parameter(str, default="auto", words=("auto", "cholesky", "svd", "lowrank", "krylov"))
    tol: float | None = parameter(default=None, shown="float or None")
    max_iter: int | None = parameter(default=None, shown="int or None")
    output_rank: int | float | None = parameter(default=None, shown="int, float or None")
    random_state: Any = parameter(default=None, shown="int, RandomState instance or None")

    _fitted: RidgeFit | None = None
    _stream: Any = None  # a _Stream, from the first batch on
    # a model file holds the fit, not the sums that more batches would be added to
    _state = {**FIT_STATE, "_fitted": Part(RidgeFit, d="d"), "_stream": NOT_SAVED}

    # -- Fitted attributes -----------------------------------------------------------------------------
    @property
    def fitted(self) -> RidgeFit:
        """The fit; after batches it is solved for."""
        fit = self._fitted
        return self._solved() if fit is None else fit

    @property
    def stream(self) -> Any:
        """The state between batches; None before the first one and after `fit`."""
        return self._stream

    @property
    def _latest(self):
        """What has features and invariants: the fit, or the batches so far."""
        found = self._fitted if self._stream is None else self._stream
        return self.fitted if found is None else found

    features_ = property(lambda self: self._latest.features)
    latent_scale_ = property(lambda self: self._latest.latent_scale)
    coef_ = of_fit("A")
    output_coef_ = of_fit("output_coefficients")
    output_basis_ = of_fit("output_basis")
    output_mean_ = of_fit("output_mean")
    solver_ = of_fit("solver")
    n_iter_ = of_fit("n_iter")
    rank_ = of_fit("rank")
    error_bound_ = of_fit("bound")
    regularization_ = of_fit("regularization")

    @property
    def n_samples_seen_(self) -> int:
        return self.fitted.n_samples if self._stream is None or self._stream.sums is None else self._stream.sums.n

    def __sklearn_is_fitted__(self) -> bool:
        return self._fitted is not None or (self._stream is not None and self._stream.sums is not None)

    def storable(self) -> Self:
        """The decoder as a model file holds it: solved for, without the sums that more batches would be added to.

        Returns
        -------
        decoder

        Raises
        ------
        ValueError, numpy.linalg.LinAlgError
            As `solve`.
        """
        if not self.__sklearn_is_fitted__():
            return self
        return holding(self, self.fitted.storable(), _stream=None)

    # -- Fit -------------------------------------------------------------------------------------------
    def fit_state(self, X, y):
        regularization = fixed_regularization(self)
        fit = self._prepare_path(X, y, [regularization])(regularization)
        self._stream = None
        return fit

    def _prepare_path(self, X, y, regularizations):
        """What fits of several lambdas share; a function of lambda that returns a RidgeFit.

        [None] in place of them: held-out errors choose one.
        """
        self._check_solver(_SOLVERS_OF_FIT)
        X = validate_data(self, X, reset=True, min_samples=2)
        F, dtype, layout = check_fields(y, len(X), blocks=True, factored=True)
        self._keep_fields(layout)
        invariants = _fitted_invariants(self, as_fields(F), dtype)
        everywhere = self.constraint == "everywhere"
        features, scale = self._fit_map(X)
        rows = FeatureRows(features, X, bias=not self._centred())
        points = X.copy()
        if regularizations == [None]:
            regularizations = [held_out_regularization(features, points, F)]
        modes = self._field_modes(F, invariants)
        F = F if modes is None else modes[1]
        if everywhere:
            given = {name: getattr(self, name) for name in ("tol", "max_iter") if getattr(self, name) is not None}
            factor = RidgeFactor(rows, regularizations, self.solver, cells=F.shape[1], **given)
            coordinates = coordinates_of(F)

        def fit(regularization):
            regularization = regularizations[0] if regularization is None else regularization
            if everywhere:
                solution = factor.solve(coordinates, regularization)
                A = in_cells(solution.coefficients, F)
                if modes is None and invariants is not None:
                    A = invariants.constrain_coefficients(A)
            else:
                A = _training_constrained(rows, F, regularization, invariants)
                solution = Solution(A, "svd")
            return RidgeFit(
                features,
                scale,
                cache_aligned(A) if modes is None else A,
                None if modes is None else modes[0],
                invariants,
                everywhere and invariants is not None,
                *solution[1:],
                points=points,
                n_samples=len(points),
                regularization=float(regularization),
                free_bias=not rows.bias,
            )

        return fit

    def _field_modes(self, F, invariants):
        """Mean and modes of the fields with `output_rank`, else None."""
        rank = self.output_rank
        if rank is None:
            return None
        if not self._centred():
            raise ValueError(
                "output_rank needs center=True, and no constraint='training', for the modes are those of the fields "
                "less their mean"
            )
        if isinstance(rank, numbers.Integral):
            rank = check_count(rank, "output_rank")
        else:
            rank = check_number(rank, "output_rank", low=0, high=1, strict_low=True)
        options = {}
        if invariants is not None:
            normals = np.ascontiguousarray(
                np.where(invariants.constant, 0.0, invariants.matrix[:, invariants.independent].T)
            )
            if len(normals):
                normals = orthonormalize_rows_against(normals, normals[:0])
            options = {"corrected": invariants.project, "normals": normals, "constant": invariants.constant}
        norms = field_norms(F)
        return field_modes(F if isinstance(F, Rows) else Rows(F), rank, norms=norms, **options)

    def _fit_map(self, X):
        """The feature map, fitted to latents X, and their units."""
        own_form = self.constraint == "everywhere"
        if self.features is None:
            features = FourierFeatures() if own_form else SigmoidFeatures()
        elif _is_map(self.features):
            features = clone(self.features)
        else:
            raise TypeError(
                "features must be a feature map such as SigmoidFeatures(slope=10.0), a "
                f"scikit-learn transformer or None, got {self.features!r}"
            )
        if self.random_state is not None:
            names = [
                name for name in features.get_params() if name == "random_state" or name.endswith("__random_state")
            ]
            features.set_params(**dict.fromkeys(names, self.random_state))
        scale = fitted_scale(self.latent_scale if own_form else None, X)
        if (scale == 1).all():
            return features.fit(X), scale
        if hasattr(features, "activation_parameters"):
            return features.fit(X, latent_scale=scale), scale
        return ScaledTransformer(features.fit(in_units(X, scale)), scale), scale

    def _centred(self):
        return check_center(self.center) and self.constraint == "everywhere"

    def _check_solver(self, solvers):
        solver = check_choice(self.solver, "solver", solvers)
        if self.tol is not None:
            check_number(self.tol, "tol", low=0, strict_low=True)
        if self.max_iter is not None:
            check_count(self.max_iter, "max_iter")
        for name, readers in (("tol", ("auto", "lowrank", "krylov")), ("max_iter", ("auto", "krylov"))):
            value = getattr(self, name)
            if value is not None and solver not in readers:
                raise ValueError(f"{name} is not read by solver={solver!r}, so it must be None, got {value!r}")

    def fit_path(self, X: ArrayLike, y: ArrayLike, regularizations: Sequence[float]) -> Callable[[float], Self]:
        """Decoders for several lambdas, which share the features and their products.

        Parameters
        ----------
        X : array-like (n, d)
            Latent coordinates, n >= 2. X and y must not change until the last decoder is asked for.
        y : array-like (n, M)
            Fields, as in `fit`.
        regularizations : sequence of float
            Values of lambda >= 0.

        Returns
        -------
        callable
            It takes one of the regularizations and returns a decoder fitted with it. This decoder is not changed.

        Raises
        ------
        ValueError, TypeError, numpy.linalg.LinAlgError
            As `fit`; an error of one lambda is raised when that decoder is asked for.

        Examples
        --------
        >>> import numpy as np
        >>> from randsmap import FourierFeatures, RFNNDecoder
        >>> X = np.linspace(0, 1, 50)[:, None]
        >>> fitted = RFNNDecoder(FourierFeatures(0.5), random_state=0).fit_path(X, np.sin(3 * X), [1e-6, 1e-3])
        >>> bool(fitted(1e-6).score(X, np.sin(3 * X)) > fitted(1e-3).score(X, np.sin(3 * X)))
        True
        """
        values = [check_number(value, "regularization", low=0) for value in regularizations]
        fresh = clone(self)
        fit = fresh._prepare_path(X, y, values)

        def fitted(regularization):
            given = check_number(regularization, "regularization", low=0)
            return holding(fresh, fit(given)).set_params(regularization=regularization)

        return fitted

    # -- Batches ---------------------------------------------------------------------------------------
    def fit_features(self, X: ArrayLike) -> Self:
        """Fit the feature map and the latent scale to all latent points, before the fields come by `partial_fit`.

        Latent points take little memory. Features are drawn and latents scaled as in `fit`, for any feature map.

        Parameters
        ----------
        X : array-like (n, d)
            Latent coordinates of all batches, n >= 2.

        Returns
        -------
        self
            An earlier fit is dropped. Pickle it to fit parts of the fields elsewhere, see `merge`.

        Raises
        ------
        ValueError, TypeError
            If X is not a finite array of numbers of this shape, or a parameter is out of range.

        Examples
        --------
        >>> import numpy as np
        >>> from randsmap import RANDSMAPDecoder, SigmoidFeatures
        >>> X = np.linspace(0, 1, 200)[:, None]
        >>> decoder = RANDSMAPDecoder(SigmoidFeatures(3.0, n_features=20), random_state=0).fit_features(X)
        >>> for batch in np.array_split(X, 4):
        ...     decoder = decoder.partial_fit(batch, np.hstack([batch**2, 1 - batch**2]))
        >>> decoder.predict([[0.5]]).round(2)
        array([[0.25, 0.75]])
        """
        with restored_on_error(self):
            self.__dict__.pop("_field_shape", None)
            self._fitted, self._stream = (
                None,
                _Stream(*self._fit_map(validate_data(self, X, reset=True, min_samples=2))),
            )
        return self

    @available_if(_streamable)
    def partial_fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Fit to one more batch of latent points and fields.

        Parameters
        ----------
        X : array-like (n, d)
            Latent coordinates, n >= 1.
        y : array-like (n, M)
            Fields, as in `fit`.

        Returns
        -------
        self

        Raises
        ------
        ValueError, TypeError
            If X or y is not a finite array of numbers of these shapes (d and M of the first batch), a parameter is out
            of range, the fields seen so far do not satisfy the invariants (a row of this batch is named), or features
            overflow. The estimator then keeps the state it had.
        AttributeError
            If the parameters do not allow batches: ``hasattr(decoder, "partial_fit")`` is then False. The cause, a
            `NotStreamable`, has the reason.

        Warns
        -----
        UserWarning
            If the estimator comes from `fit` or from a model file, which keep no sums: it starts anew.

        Notes
        -----
        The first batch fixes features, invariants, bounds, d and M. The features must not depend on later batches: a
        map that is fitted already (used as it is, in its own units), `FourierFeatures`, `MaternFeatures` or
        `MultiscaleFourierFeatures` with an integer n_features, `SigmoidFeatures` that also has a `latent_box`; and
        latent_scale is None, a number or an array. After `fit_features` any map will do. constraint="everywhere" and
        solver "auto" or "cholesky" are needed.

        Memory is O(P^2 + P M) for any number of samples: Phi^T Phi, Phi^T F and statistics of the invariants. The
        coefficients are solved for when they are first needed; a requested Cholesky factorisation that fails raises
        then. Where `fit` uses Cholesky for n >= P+1, the fields are those of `fit` to the bit: for batches of any size
        in the same order, and for any order of batches that are whole blocks of 1024 samples, at the same number of
        BLAS threads, unless a sum cancels by more than 2^40. (Blocks have 512, 256, ... samples where P + M is above
        2^15, 2^16, ...) For small lambda `fit` factors Phi itself, which is more accurate than its sums. For lambda
        <= 10 eps trace(Phi^T Phi) solver_ is "eigh": the minimum-norm solution by the eigenvectors of Phi^T Phi,
        without singular values of Phi below about 1e-7 of the largest.

        Fields are checked against the mean value of the invariants so far; give `invariant_values` if they deviate by
        nearly the tolerance. After an interrupt the sums are incomplete, and further calls raise. A pickle keeps the
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
            self._partial_fit(X, y)
        return self

    def _partial_fit(self, X, y):
        before = self._stream
        if before is None and self._fitted is not None:
            warn_caller(
                f"this {type(self).__name__} was fitted by fit or comes from a model file, which keep "
                "no sums that a batch could be added to: it starts anew with this batch"
            )
        _streamed_regularization(self)
        self._check_solver(("auto", "cholesky"))
        X = validate_data(self, X, reset=before is None)
        F, dtype, layout = check_fields(y, len(X), blocks=True)
        if before is None or before.sums is None:
            self._keep_fields(layout)
            features, scale = self._streamed_map(X) if before is None else (before.features, before.latent_scale)
            sums = NormalEquations(features, X.shape[1], F.shape[1], centred=self._centred())
            running = _running_invariants(self, F.shape[1])
        else:
            features, scale, sums, running = before.features, before.latent_scale, before.sums, before.running
            field_rows(self, y, name="y")  # arranged as those of the first batch
            if F.shape[1] != sums.cells:
                raise ValueError(f"y must have {sums.cells} columns, as in the first batch, got {F.shape[1]}")
        invariants = None
        if running is not None:
            running, invariants = running.with_fields(F, dtype)
        sums.check(X)
        self._fitted, self._stream = None, _Stream(features, scale, sums, running, invariants)
        sums.add(X, F)

    def _streamed_map(self, X):
        """As `_fit_map`, for the first batch."""
        if isinstance(self.latent_scale, str):
            raise ValueError(
                "partial_fit cannot know the spread of all latent points, which is the unit with "
                f"latent_scale={self.latent_scale!r}: give latent_scale=None, or a number or an array, or all "
                "latent points to fit_features before"
            )
        if _is_fitted(self.features):
            return copy.deepcopy(self.features), np.ones(X.shape[1])
        return self._fit_map(X)

    def merge(self, other: Self) -> Self:
        """Add all samples that another decoder has got by `partial_fit`.

        Parts of the data may so be fitted in other processes and on other machines: each starts from the same features
        (a map that is fitted already, or the same `random_state`), and the decoders, which pickle, are merged by any
        tree. `randsmap.distributed` does it for dask arrays.

        Parameters
        ----------
        other : decoder of the same class
            After `partial_fit`, with the same features, latent scale, parameters of the regression, invariants
            and bounds. It is not changed.

        Returns
        -------
        self

        Raises
        ------
        TypeError
            If other is of another class.
        ValueError
            If one of the two has no sums, if they differ (the message names in what), or if the fields of both do not
            satisfy the invariants together. The estimator then keeps the state it had.

        Notes
        -----
        `coef_` has the same bits for any tree and order of decoders that have each seen whole blocks of 1024
        samples (one may have seen any number), under the conditions that `partial_fit` names. Other numbers of samples
        agree to round-off.

        Examples
        --------
        >>> import numpy as np
        >>> from randsmap import FourierFeatures, RANDSMAPDecoder
        >>> X = np.linspace(0, 1, 4096)[:, None]
        >>> F = np.hstack([X**2, 1 - X**2])
        >>> new = lambda: RANDSMAPDecoder(FourierFeatures(0.5, n_features=20), latent_scale=None, random_state=0)
        >>> merged = new().partial_fit(X[1024:], F[1024:]).merge(new().partial_fit(X[:1024], F[:1024]))
        >>> bool((merged.coef_ == new().partial_fit(X, F).coef_).all())
        True
        """
        if type(other) is not type(self):
            raise TypeError(f"merge needs another {type(self).__name__}, got {type(other).__name__}")
        for decoder, name in ((self, "this"), (other, "the other")):
            if decoder.stream is None or decoder.stream.sums is None:
                from_fit = decoder.stream is None and decoder.__sklearn_is_fitted__()
                reason = "comes from fit or a model file, which keep" if from_fit else "has"
                raise ValueError(
                    f"merge needs two decoders after partial_fit, but {name} {type(decoder).__name__} {reason} no sums "
                    "that could be added"
                )
        for name, ours, theirs in _compared(self, other):
            if not _same(ours, theirs):
                raise ValueError(
                    f"decoders that differ in {name} cannot be merged: got {_shown(ours)} and {_shown(theirs)}. "
                    "All parts of the data need one and the same decoder to start from"
                )
        ours, theirs = self._stream, other.stream
        running = invariants = None
        if ours.running is not None:
            running, invariants = ours.running.merged(theirs.running)
        sums = ours.sums.copy()  # an error or an interrupt leaves ours as they were
        sums.merge(theirs.sums)
        self._fitted, self._stream = None, _Stream(ours.features, ours.latent_scale, sums, running, invariants)
        return self

    def solve(self) -> Self:
        """Solve for the coefficients of all batches so far, if that has not been done.

        `predict`, derivatives, `coef_` and model files call it.

        Returns
        -------
        self

        Raises
        ------
        sklearn.exceptions.NotFittedError
            Before `fit` and `partial_fit`.
        numpy.linalg.LinAlgError
            If solver="cholesky" and the factorisation fails; the message names lambda.
        ValueError
            If an earlier `partial_fit` was interrupted, so that the sums are incomplete.
        """
        if self._fitted is None:
            self._solved()
        return self

    def _solved(self) -> RidgeFit:
        """Solve for the coefficients of the batches, and keep the fit."""
        if self._stream is None or self._stream.sums is None:
            check_is_fitted(self)
        stream, regularization = self._stream, _streamed_regularization(self)
        A, solver, n_iter, rank, bound = stream.sums.solve(regularization, self.solver)
        invariants = stream.invariants
        self._fitted = RidgeFit(
            stream.features,
            stream.latent_scale,
            cache_aligned(A if invariants is None else invariants.constrain_coefficients(A)),
            None,
            invariants,
            invariants is not None,
            solver,
            n_iter,
            rank,
            bound,
            points=stream.sums.sample(),
            n_samples=stream.sums.n,
            regularization=float(regularization),
            free_bias=stream.sums.centred,
            sums=stream.sums,
        )
        return self._fitted

    # -- What needs no fields ----------------------------------------------------------------------------
    def check_available(self, capability):
        if capability != "smoother":
            return True
        if self.solver == "krylov":
            raise AttributeError("solver='krylov' stops at a tolerance that depends on the fields")
        if self.output_rank is not None:
            raise AttributeError("output_rank keeps modes that depend on the fields")
        if self.constraint != "everywhere":
            raise AttributeError(f"the correction of constraint={self.constraint!r} is another at every point")
        if fixed_regularization(self) is None:
            raise AttributeError("lambda is chosen by held-out errors, which depend on the fields")
        return True

    def weights_of(self, X, Z, fields):
        regularization = fixed_regularization(self)
        return self._smoother_path(X, Z, [regularization], fields)(regularization)

    def _smoother_path(self, X, Z, regularizations, fields):
        self._check_solver(("auto", "cholesky", "svd", "lowrank"))
        features, _ = self._fit_map(X)
        rows, points = (FeatureRows(features, Y, bias=not self._centred()) for Y in (X, Z))
        factor = RidgeFactor(rows, regularizations, self.solver, tol=self.tol)
        if fields is None:
            return lambda regularization: factor.weights(points, regularization)
        Phi = points.without_bias().whole()

        def decoded(regularization):
            A = factor.solve(fields, regularization).coefficients
            with blas_threads():
                return multiply(Phi, A[1:]) + A[0]

        return decoded

    @available_if(lambda self: self.check_available("smoother"))
    def smoother_path(
        self, X: ArrayLike, Z: ArrayLike, regularizations: Sequence[float], *, fields: NDArray[np.float64] | None = None
    ) -> Callable[[float], NDArray[np.float64]]:
        """Weights of the training fields in the decoded ones, as `smoother`, for several lambdas.

        Parameters
        ----------
        X : array-like (n, d)
            Latent coordinates to fit on, n >= 2.
        Z : array-like (L, d)
            Latent coordinates to decode.
        regularizations : sequence of float
            Values of lambda >= 0.
        fields : ndarray (n, k), float64, or None
            As of `smoother`.

        Returns
        -------
        callable
            It takes one of the regularizations and returns W (L, n), or W times the fields (L, k), float64.

        Raises
        ------
        ValueError, TypeError, AttributeError
            As `smoother`.
        """
        values = [check_number(value, "regularization", low=0) for value in regularizations]
        fresh = clone(self)
        X = validate_data(fresh, X, reset=True, min_samples=2)
        Z = validate_data(fresh, Z, reset=False)
        return fresh._smoother_path(X, Z, values, None if fields is None else check_fields(fields, len(X))[0])

    def eigenpairs(self, X, least):
        rows = FeatureRows(self._fit_map(X)[0], X, bias=not self._centred())
        hat = RidgeFactor(rows, [least], self.solver, tol=self.tol).hat()
        return hat.U, hat.squares, hat.angle


_SOLVERS_OF_FIT = ("auto", "cholesky", "svd", "lowrank", "krylov")


def _fitted_invariants(decoder, F, dtype):
    """The invariants of the fields F; None of an RFNNDecoder, which has none."""
    if not isinstance(decoder, InvariantParameters):
        return None
    check_choice(decoder.constraint, "constraint", ("everywhere", "training"))
    everywhere = decoder.constraint == "everywhere"
    if not everywhere and decoder.solver in ("cholesky", "krylov", "lowrank"):
        raise ValueError(
            "constraint='training' needs singular values down to 1e-8, which a "
            "Gram matrix does not resolve: use solver='auto' or 'svd'"
        )
    if not everywhere and decoder.bounds is not None:
        raise ValueError(
            "bounds need the projection of every row, which constraint='training' does "
            "not have: use constraint='everywhere'"
        )
    return fit_estimator(decoder, F, dtype, keep_constant_cells=everywhere)


def _running_invariants(decoder, M):
    if not isinstance(decoder, InvariantParameters):
        return None
    return RunningInvariants.of(Invariants.of_estimator(decoder, M))


def _training_constrained(rows, F, regularization, invariants):
    """The paper's closed form (Eq. ShurAfinal0): A C = (Phi^+ 1) m^T, by a truncated SVD of Phi.

    For mass it equals the printed
    V (Sigma^2 + lambda)^-1 Sigma U^T (F - [1 - U (1 + lambda Sigma^-2) U^T 1] 1^T / M); this form
    holds for any C and V.
    """
    fields = np.hstack([as_fields(F)[:], np.ones((rows.n, 1))])
    spectral = Spectral(rows, always=True)
    truncation = 1e-8  # relative cut of singular values, delta_S in the paper's implementation details
    A = spectral.solve(fields, regularization, truncation).coefficients[:, :-1]
    pseudo_bias = spectral.solve(fields, 0.0, truncation).coefficients[:, -1:]
    return invariants.correct_coefficients(A, pseudo_bias * invariants.values)


# -- Equality of decoders to be merged ---------------------------------------------------------------
def _compared(ours, theirs):
    """(name, ours, theirs) of what two decoders must have in common to be merged."""
    sums, other = ours.stream.sums, theirs.stream.sums
    yield "the number of latent coordinates", ours.n_features_in_, theirs.n_features_in_
    yield "the number of cells", sums.cells, other.cells
    yield "the shape of the fields", ours.field_shape_, theirs.field_shape_
    yield "latent_scale", ours.latent_scale_, theirs.latent_scale_
    yield from _compared_features(ours.features_, theirs.features_)
    yield "center", sums.centred, other.centred
    yield "regularization", _streamed_regularization(ours), _streamed_regularization(theirs)
    yield "solver", ours.solver, theirs.solver
    if ours.stream.running is not None:
        given, also = ours.stream.running.given, theirs.stream.running.given
        for name, attribute in _GIVEN.items():
            yield name, getattr(given, attribute), getattr(also, attribute)


# parameters, and their names in Invariants
_GIVEN = {
    "invariants": "matrix",
    "invariant_values": "values",
    "invariant_tol": "tol",
    "cell_weights": "cell_weights",
    "bounds": "bounds",
}


def _compared_features(ours, theirs):
    """(name, ours, theirs) of what makes two fitted feature maps one function."""
    yield "the class of their features", type(ours).__name__, type(theirs).__name__
    if hasattr(ours, "activation_parameters"):
        names, both = ("kind", "weights", "offsets", "scale"), (ours, theirs)
        for name, *values in zip(names, *(features.activation_parameters() for features in both)):
            yield f"the {name} of their features", *values
        return
    for name in sorted(vars(ours).keys() | vars(theirs).keys()):
        if "random_state" not in name:
            yield f"{name} of their features", vars(ours).get(name), vars(theirs).get(name)


def _same(a, b):
    """Whether two values are equal to the bit, arrays and what holds arrays too."""
    if hasattr(a, "get_params") and type(a) is type(b):
        return all(_same(x, y) for _, x, y in _compared_features(a, b))
    return hash_of(a) == hash_of(b)


def _shown(value):
    if isinstance(value, np.ndarray) and value.size > 8:
        return f"an array {value.shape} that begins with {value.ravel()[:3]}"
    return repr(value)


# -- The two decoders --------------------------------------------------------------------------------
@estimator
class RANDSMAPDecoder(InvariantParameters, RFNNDecoder):
    """Random-feature decoder whose fields satisfy linear invariants exactly, mass for one.

    Every decoded field f satisfies |C_j^T f - m_j| <= a few ulp of |C_j|^T |f| + |m_j|, at any
    latent point, near or far from the training data, for any regularization and solver. Cells that
    are constant over the training fields get exactly their value.

    Parameters
    ----------
    constraint
        "everywhere": C^T f(y) = m for every y. "training": the paper's closed form (Eq.
        ShurAfinal0), which imposes it at the n training points only, up to the truncation of singular
        values at 1e-8, which needs solver="auto" or "svd"; kept to reproduce the paper. It neither
        treats constant cells nor projects rows, and `center` and `latent_scale` do not apply to it.

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

    invariants: str | ArrayLike | None = parameter(default="mass")
    constraint: str = parameter(str, default="everywhere", words=("everywhere", "training"))

    invariants_ = property(lambda self: self._latest.invariants)

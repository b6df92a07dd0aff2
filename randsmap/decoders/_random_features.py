"""Random-feature decoders: f(y) = [1 | phi(y)] A, without and with exact invariants."""

from __future__ import annotations

import copy
import numbers
import pickle
import warnings
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from randsmap._interface.fields import FIELD_STATE, field_rows
from randsmap._interface.state import (
    NOT_SAVED,
    Array,
    Count,
    Parameter,
    Part,
    check_fitted,
    document,
    restored_on_error,
    validate_data,
)
from randsmap._interface.validation import check_choice, check_count, check_number, in_lines
from randsmap._io.progress import show_progress
from randsmap._linalg.cholesky import Solution
from randsmap._linalg.normal_equations import NormalEquations
from randsmap._linalg.products import multiply
from randsmap._linalg.ridge import RidgeFactor
from randsmap._linalg.rows import FeatureRows, Rows, Snapshots, row_blocks
from randsmap._linalg.spectral import FeatureLeverage, Spectral, lambda_path
from randsmap._linalg.svd import field_modes, orthonormalize_rows_against
from randsmap._parallel import blas_threads
from randsmap.decoders._base import (
    CENTRING,
    FORMER,
    SCALE_ATTRIBUTE,
    LinearDecoder,
    as_fields,
    available_if,
    box_of,
    check_center,
    check_fields,
    coordinates_of,
    fitted_scale,
    in_cells,
)
from randsmap.decoders._blended import field_coordinates
from randsmap.features import FourierFeatures, MaternFeatures, MultiscaleFourierFeatures, SigmoidFeatures
from randsmap.invariants import InvariantParameters, Invariants, RunningInvariants, document_invariants, fit_estimator
from randsmap.maps.bases import ReducedBasis, ScaledTransformer, feature_basis, in_units
from randsmap.maps.extrapolation import Leverage, NoLeverage
from randsmap.maps.linear_map import LinearMap
from randsmap.metrics import SMALLEST_SHARE, field_norms, median_norm

__all__ = ["NotStreamable", "RANDSMAPDecoder", "RFNNDecoder", "fixed_regularization"]


_PAPER = 1e-3  # lambda of the paper, with features that are given
_SAMPLES = 300  # that held-out errors are those of


class NotStreamable(ValueError):
    """The parameters do not allow batches; the cause of the AttributeError of `decoder.partial_fit`."""


def _check_tol(value, name):
    return check_number(value, name, low=0, strict_low=True)


def _has_features(decoder):
    """Whether `fit_features` has fitted the features of batches to come, or batches have come already."""
    return "features_" in vars(decoder) and ("_sums" in vars(decoder) or "coef_" not in vars(decoder))


def _streamable(decoder):
    """Whether `partial_fit` is there; NotStreamable, which says why not, if the parameters do not allow batches."""
    if decoder.solver in ("svd", "krylov", "lowrank"):
        raise NotStreamable(
            f"partial_fit needs solver='auto' or 'cholesky', got {decoder.solver!r}, which needs all samples at once"
        )
    if decoder.output_rank is not None:
        raise NotStreamable(f"partial_fit needs output_rank=None, got {decoder.output_rank!r}: modes need all samples")
    if getattr(decoder, "constraint", "everywhere") != "everywhere":
        raise NotStreamable(
            f"partial_fit needs constraint='everywhere', got {decoder.constraint!r}, which needs all samples at once"
        )
    features = decoder.features
    if _has_features(decoder):
        return True
    if _is_fitted(features) or not (features is None or _is_map(features)):
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


_LEVERAGE_FACTOR = ("_leverage_factor", "_leverage_mean", "_leverage_offset")


class _Coefficients:
    """What is found where a decoder has no `coef_` of its own: an error that says why."""

    def __get__(self, decoder, owner=None):
        if decoder is None:
            return self
        if "output_coef_" in decoder.__dict__:
            raise AttributeError(
                f"with output_rank={decoder.output_rank!r} there is no coef_, which would take P + 1 numbers a cell: "
                "the coefficients of the fields less output_mean_ are output_coef_ @ output_basis_.T"
            )
        hint = (
            ": after batches it is solved for when it is needed, by `solve` or `predict`"
            if "_sums" in vars(decoder)
            else ""
        )
        raise AttributeError(f"{type(decoder).__name__!r} object has no attribute 'coef_'{hint}")


class _RandomFeatureDecoder(LinearDecoder):
    """What RFNNDecoder and RANDSMAPDecoder share: the feature map and the ridge regression."""

    features_: Any
    coef_: Any = _Coefficients()
    solver_: str
    n_iter_: int
    rank_: int | None
    error_bound_: float | None
    n_samples_seen_: int

    _state = {
        "n_features_in_": Count("d"),
        "features_": Part("transform", n_in="d", n_out="P"),
        "latent_scale_": Array("d", low=np.finfo(float).smallest_subnormal, optional=True),
        "coef_": Array("P+1", "M", optional=True),
        "output_coef_": Array("P+1", "r", optional=True),
        "_synthesis": Array("r+1", "M", optional=True),
        "solver_": Parameter(str, words=("cholesky", "dual", "qr", "lowrank", "krylov", "svd", "eigh")),
        "n_iter_": Parameter(int, low=0, words=(None,)),
        "rank_": Parameter(int, low=0, words=(None,)),
        "error_bound_": Parameter(object),
        **FIELD_STATE,
        # what the leverage is computed from: the training points, after `partial_fit` the factor and some of them; not
        # in files of before
        "_latents": Array("n", "d", optional=True),
        "_regularization": Parameter(float, low=0, words=(None,)),
        "_free_bias": Parameter(bool, words=(None,)),
        "_leverage_factor": Array("w", "r", optional=True),
        "_leverage_mean": Array("P", optional=True),
        "_leverage_offset": Parameter(float, low=0, high=1, words=(None,)),
        # a model file holds what decodes, not the sums that more batches would be added to
        "n_samples_seen_": NOT_SAVED,
        "_sums": NOT_SAVED,
        "_running": NOT_SAVED,
        "_linear_map": NOT_SAVED,
    }
    _leverage_names = ("_latents", "_regularization", "_free_bias", *_LEVERAGE_FACTOR)
    _former_parameters = {**FORMER, "output_rank": None}
    _map_sources = ("coef_", "output_coef_", "_synthesis", "features_", "invariants_")
    _solved = (
        "coef_",
        "output_coef_",
        "_synthesis",
        "solver_",
        "n_iter_",
        "rank_",
        "error_bound_",
        "_linear_map",
        *_leverage_names,
    )  # what more batches make invalid

    def _fit_linear(self, X, y):
        regularization = fixed_regularization(self)
        self._prepare_path(X, y, [regularization])(self, regularization)

    def _prepare_path(self, X, y, regularizations):
        """What fits of several lambdas share; a function that completes a decoder for one of them.

        [None] in place of them: held-out errors choose one.
        """
        self._check_solver(("auto", "cholesky", "svd", "lowrank", "krylov"))
        X = validate_data(self, X, reset=True, min_samples=2)
        F, dtype, layout = check_fields(y, len(X), blocks=True, factored=True)
        self._keep_fields(layout)
        invariants = self._invariants(as_fields(F), dtype)
        features = self._fit_features(X)
        rows = FeatureRows(features, X, bias=not self._centred())
        latents = X.copy()
        if regularizations == [None]:
            regularizations = [held_out_regularization(features, latents, F)]
        modes = self._field_modes(F, invariants)
        F = F if modes is None else modes[1]
        coefficients = self._coefficients(rows, F, regularizations, invariants)

        def complete(decoder, regularization):
            regularization = regularizations[0] if regularization is None else regularization
            solution = coefficients(regularization)
            decoder._forget()
            decoder.features_, decoder.latent_scale_ = features, self.latent_scale_
            if modes is None:
                decoder.coef_ = in_lines(self._corrected(solution.coefficients, invariants))
            else:
                decoder.output_coef_, decoder._synthesis = solution.coefficients, modes[0]
            decoder.solver_, decoder.n_iter_, decoder.rank_, decoder.error_bound_ = solution[1:]
            decoder._keep_fields(layout)
            decoder._latents, decoder._regularization, decoder._free_bias = (
                latents,
                float(regularization),
                not rows.bias,
            )
            decoder._store_invariants(invariants)

        return complete

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
        norms = field_norms(F.array if isinstance(F, Snapshots) else F)
        return field_modes(F if isinstance(F, Rows) else Rows(F), rank, norms=norms, **options)

    @property
    def output_basis_(self) -> NDArray[np.float64]:
        """U (M, r), with `output_rank`."""
        return self._with_modes("output_basis_")[1:].T

    @property
    def output_mean_(self) -> NDArray[np.float64]:
        """The mean field (M,), with `output_rank`."""
        return self._with_modes("output_mean_")[0]

    def _restore(self):
        for name in ("_synthesis",) if "output_coef_" in self.__dict__ else ("coef_",):
            if self.__dict__.get(name) is None:
                raise ValueError(f"{type(self).__name__}.{name} is missing")
        super()._restore()

    def _with_modes(self, name):
        if "_synthesis" not in self.__dict__:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}: it has no output_rank")
        return self._synthesis

    def fit_path(
        self, X: ArrayLike, y: ArrayLike, regularizations: Sequence[float]
    ) -> Callable[[float], _RandomFeatureDecoder]:
        """Decoders for several lambdas, that share what does not depend on lambda.

        The features are computed, and multiplied, once for all of them, by the low-rank solver or for a Gram matrix.

        Parameters
        ----------
        X : array-like (n, d)
            Latent coordinates, n >= 2.
        y : array-like (n, M)
            Fields, one a row; (n,) for a single cell.
        regularizations : sequence of float
            Values of lambda >= 0.

        Returns
        -------
        callable
            Takes one of the regularizations and returns a decoder like this one, fitted with it. This one is not
            changed.

        Raises
        ------
        ValueError, TypeError, numpy.linalg.LinAlgError
            As `fit`; what concerns one lambda alone when that decoder is asked for.

        Notes
        -----
        X and y are not copied and are read again when a decoder is asked for: they must not change until then.

        Examples
        --------
        >>> import numpy as np
        >>> from randsmap import FourierFeatures, RFNNDecoder
        >>> X = np.linspace(0, 1, 50)[:, None]
        >>> decoder = RFNNDecoder(FourierFeatures(0.5), random_state=0)
        >>> fitted = decoder.fit_path(X, np.sin(3 * X), [1e-6, 1e-3])
        >>> bool(fitted(1e-6).score(X, np.sin(3 * X)) > fitted(1e-3).score(X, np.sin(3 * X)))
        True
        """
        values = [check_number(value, "regularization", low=0) for value in regularizations]
        fresh = clone(self)
        complete = fresh._prepare_path(X, y, values)

        def fitted(regularization: float) -> _RandomFeatureDecoder:
            decoder = clone(self).set_params(regularization=regularization)
            for name in ("n_features_in_", "feature_names_in_"):
                if hasattr(fresh, name):
                    setattr(decoder, name, getattr(fresh, name))
            complete(decoder, check_number(regularization, "regularization", low=0))
            decoder._linear_map  # noqa: B018  (made now: `predict` changes nothing)
            return decoder

        return fitted

    def fit_features(self, X: ArrayLike) -> Self:
        """Fit the feature map and the latent scale to all latent points, for the fields to come by `partial_fit`.

        Latent points take little memory beside fields. With these, features are drawn and latents scaled as `fit`
        does, whatever the map, its n_features and latent_scale.

        Parameters
        ----------
        X : array-like (n, d)
            Latent coordinates of all batches, n >= 2.

        Returns
        -------
        self
            Without what it was fitted to before. Pickle it to fit parts of the fields elsewhere, see `merge`.

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
            X = validate_data(self, X, reset=True, min_samples=2)
            self._forget()
            self.features_ = self._fit_features(X)
        return self

    @available_if(_streamable)
    def partial_fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Fit to one more batch of latent points and fields.

        Parameters
        ----------
        X : array-like (n, d)
            Latent coordinates, n >= 1.
        y : array-like (n, M)
            Fields, one a row, or of any shape, as in `fit`; (n,) for a single cell.

        Returns
        -------
        self

        Raises
        ------
        ValueError, TypeError
            If X or y is not a finite array of numbers of these shapes (d and M as in the first batch), a
            parameter is out of range, or the fields seen so far do not satisfy the invariants (a row
            of this batch is named), or features overflow. The estimator then keeps the state it had.
        AttributeError
            If the parameters do not allow batches (see Notes): ``hasattr(decoder, "partial_fit")`` is then
            False. Its cause, a `NotStreamable`, says why.

        Warns
        -----
        UserWarning
            If the estimator comes from `fit` or from a model file, which keep no sums: it starts anew
            with this batch.

        Notes
        -----
        The first batch fixes features, invariants, bounds, d and M (set_params later changes none of
        them), so the features may need no more of the data than
        d: a map that is fitted already (a copy is used as it is; `random_state` does not matter),
        `FourierFeatures` or `MultiscaleFourierFeatures` with an integer n_features, or
        `SigmoidFeatures` with an integer n_features and a `latent_box`; and latent_scale=None, a number or an array
        (a fitted map keeps its own units). After `fit_features` any will do. constraint="everywhere" and
        solver "auto" or "cholesky" are needed.

        Phi^T Phi, Phi^T F, and what the invariants and constant cells need are summed: O(P^2 + P M)
        numbers, however many samples. Coefficients are solved for when they are first used, by
        `predict` for one, from all samples so far (`n_samples_seen_`); a requested Cholesky
        factorisation that fails raises there. Fields decoded are those of `fit` on all samples (which
        would fit an already fitted map anew): where that takes Cholesky for n >= P+1, to the bit for the same order
        of samples, in batches of any size, and for any order of batches that are whole blocks of 1024 samples, at the
        same number of BLAS threads. The sums over blocks are kept in two numbers each, so that their order changes
        nothing, unless a sum cancels by more than 2^40. Samples that do not fill a block wait for the next
        ones; blocks are of 512, 256, ... samples where P + M is beyond 2^15, 2^16, ... In any other case the
        fields are as near as those of such a `fit` for reordered samples: sums cannot be factored as
        accurately as Phi, which solver="auto" does in `fit` for small lambda. With
        lambda <= 10 eps trace(Phi^T Phi) solver_ is "eigh": the minimum-norm solution by the eigenvectors of
        Phi^T Phi, which misses what belongs to singular values of Phi below about 1e-7 of the largest.

        Fields that deviate from the invariants by nearly the tolerance may be refused in one order of the
        batches and not in another, for the mean so far is what they are checked against: give
        invariant_values. After an interrupt the sums are incomplete; the estimator then says so.

        A pickle keeps the sums, so that batches can go on; a model file keeps the decoder only. `merge` adds what
        another decoder has seen.

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
        first = "_sums" not in self.__dict__
        if first and "coef_" in self.__dict__:
            warnings.warn(
                f"this {type(self).__name__} was fitted by fit or comes from a model file, which keep "
                "no sums that a batch could be added to: it starts anew with this batch",
                UserWarning,
                stacklevel=3,
            )
            self._forget()
        self._streamed_regularization()
        self._check_solver(("auto", "cholesky"))
        X = validate_data(self, X, reset=first and not _has_features(self))
        F, dtype, layout = check_fields(y, len(X), blocks=True)
        if first:
            self._keep_fields(layout)
            if _has_features(self):
                features = self.features_
            elif isinstance(self.latent_scale, str):
                raise ValueError(
                    "partial_fit cannot know the spread of all latent points, which is the unit with "
                    f"latent_scale={self.latent_scale!r}: give latent_scale=None, or a number or an array, or all "
                    "latent points to fit_features before"
                )
            elif _is_fitted(self.features):
                features, self.latent_scale_ = copy.deepcopy(self.features), np.ones(X.shape[1])
            else:
                features = self._fit_features(X)
            sums = NormalEquations(features, X.shape[1], F.shape[1], centred=self._centred())
        else:
            sums = self._sums
            field_rows(self, y, name="y")  # arranged as those of the first batch
            if F.shape[1] != sums.cells:
                raise ValueError(f"y must have {sums.cells} columns, as in the first batch, got {F.shape[1]}")
        running = self._extended_invariants(None if first else self._running, F, dtype)
        sums.check(X)
        if first:
            self.features_, self._sums = features, sums
        self._running = running
        self._store_invariants(None if running is None else running[1])
        self.n_samples_seen_ = sums.n + len(X)
        for name in self._solved:  # of the batches before
            self.__dict__.pop(name, None)
        sums.add(X, F)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if state.get("_running") is not None and "invariants_" not in state:  # a pickle of before, with sums alone
            self._store_invariants(self._running[1])

    def merge(self, other: Self) -> Self:
        """Add all samples that another decoder has got by `partial_fit`, as if this one had got them.

        Parts of the data may so be fitted apart, in other processes and on other machines: fit the same features
        in each (a map that is fitted already, or the same `random_state`), then merge the decoders, which
        pickle, by any tree. `randsmap.distributed` does it for dask arrays.

        Parameters
        ----------
        other : decoder of the same class
            After `partial_fit`, with the same features, latent scale, parameters of the regression, invariants
            and bounds. It is not changed.

        Returns
        -------
        self
            Which goes on with `partial_fit` and `merge`.

        Raises
        ------
        TypeError
            If other is of another class.
        ValueError
            If one of the two has no sums, because it comes from `fit` or from a model file; if they differ, in
            which the message names; or if the fields of both do not satisfy the invariants together. The
            estimator then keeps the state it had.

        Notes
        -----
        `coef_` has the same bits for any tree and order of decoders that have each seen whole blocks of 1024
        samples (one may have seen any number), those of one `partial_fit` over all samples, and of `fit` under the
        conditions that `partial_fit` names: at the same number of BLAS threads, unless a sum cancels by more than
        2^40. Other numbers of samples agree to round-off: those of other that wait for a block to be filled are
        put after those that wait here.

        Examples
        --------
        >>> import numpy as np
        >>> from randsmap import FourierFeatures, RANDSMAPDecoder
        >>> X = np.linspace(0, 1, 4096)[:, None]
        >>> fields = np.hstack([X**2, 1 - X**2])
        >>> new = lambda: RANDSMAPDecoder(FourierFeatures(0.5, n_features=20), latent_scale=None, random_state=0)
        >>> first = new().partial_fit(X[:1024], fields[:1024])
        >>> rest = new().partial_fit(X[1024:], fields[1024:])
        >>> one_by_one = new().partial_fit(X, fields).solve()
        >>> bool((rest.merge(first).solve().coef_ == one_by_one.coef_).all())
        True
        """
        if type(other) is not type(self):
            raise TypeError(f"merge needs another {type(self).__name__}, got {type(other).__name__}")
        for decoder, name in ((self, "this"), (other, "the other")):
            if "_sums" not in vars(decoder):
                raise ValueError(
                    f"merge needs two decoders after partial_fit, but {name} {type(decoder).__name__} "
                    + ("comes from fit or a model file, which keep" if "coef_" in vars(decoder) else "has")
                    + " no sums that could be added"
                )
        for name, ours, theirs in self._compared(other):
            if not _same(ours, theirs):
                raise ValueError(
                    f"decoders that differ in {name} cannot be merged: got {_shown(ours)} and {_shown(theirs)}. "
                    "All parts of the data need one and the same decoder to start from"
                )
        with restored_on_error(self):
            self._merge_invariants(other)
            sums = self._sums.copy()  # an error or an interrupt leaves ours as they were
            sums.merge(other._sums)
            self._sums, self.n_samples_seen_ = sums, sums.n
            for name in self._solved:
                self.__dict__.pop(name, None)
        return self

    def _compared(self, other):
        """(name, ours, theirs) of what two decoders must have in common to be merged."""
        yield "the number of latent coordinates", self.n_features_in_, other.n_features_in_
        yield "the number of cells", (self._sums.cells, self._single), (other._sums.cells, other._single)
        yield "the shape of the fields", self.field_shape_, other.field_shape_
        yield "latent_scale", self.latent_scale_, other.latent_scale_
        yield from _compared_features(self.features_, other.features_)
        yield "center", self._sums.centred, other._sums.centred
        yield "regularization", self._streamed_regularization(), other._streamed_regularization()
        yield "solver", self.solver, other.solver

    def _merge_invariants(self, other):
        pass

    def _forget(self, *, sums_only=False):
        """Drop what batches, and unless `sums_only` also `fit`, have left."""
        rest = _LEVERAGE_FACTOR if sums_only else ("features_", *FIELD_STATE, *self._solved)
        for name in ("_sums", "_running", "n_samples_seen_", *rest):
            self.__dict__.pop(name, None)

    def solve(self) -> Self:
        """Coefficients from all batches so far, if they are not solved for yet.

        After `partial_fit` there are none, only sums; `predict`, derivatives and model files call this. Then
        `coef_`, `solver_` and `n_iter_` are there, until the next batch.

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

        Examples
        --------
        >>> import numpy as np
        >>> from randsmap import FourierFeatures, RFNNDecoder
        >>> X = np.linspace(0, 1, 50)[:, None]
        >>> decoder = RFNNDecoder(FourierFeatures(0.5, n_features=9), latent_scale=None, random_state=0)
        >>> decoder = decoder.partial_fit(X, X**2)
        >>> hasattr(decoder, "coef_"), decoder.solve().coef_.shape
        (False, (10, 1))
        """
        if "coef_" not in self.__dict__ and "_sums" in self.__dict__:
            regularization = self._streamed_regularization()
            R, solver, *_ = self._sums.solve(regularization, self.solver)
            invariants = None if self._running is None else self._running[1]
            self.coef_ = in_lines(R if invariants is None else invariants.constrain_coefficients(R))
            self.solver_, self.n_iter_, self.rank_, self.error_bound_ = solver, 1, None, None
            self._regularization = float(regularization)
        if "output_coef_" not in self.__dict__:
            check_fitted(self, "coef_")
        return self

    # -- Leverage ----------------------------------------------------------------------------------
    def _training_points(self):
        points = self._sums.sample() if "_sums" in self.__dict__ else getattr(self, "_latents", None)
        if points is None:
            raise NoLeverage(
                f"the leverage of this {type(self).__name__} is not known: it comes from a model file or a pickle of "
                "an older version, without its training points. Fit it again"
            )
        return points

    def _leverage_cost(self):
        points = self._training_points()
        if self.solver_ == "krylov":  # its factor is what that solver avoids
            return np.inf
        n, P = len(points), len(vars(self).get("coef_", vars(self).get("output_coef_")))
        return 0.0 if getattr(self, "_leverage_factor", None) is not None else float(n) * P * min(n, P)

    def _ridge_leverage(self):
        points = self._training_points()
        if "_sums" in self.__dict__:
            return self._sums.leverage(self._regularization)
        if getattr(self, "_leverage_factor", None) is not None:
            return FeatureLeverage(self._leverage_factor, self._leverage_mean, self._leverage_offset)
        rows = FeatureRows(self.features_, points, bias=not self._free_bias)
        return RidgeFactor(rows, []).leverage(self._regularization)

    def _make_leverage(self):
        ridge, features, points = self._ridge_leverage(), self.features_, self._training_points()
        training = ridge.values(features, points)
        free = np.maximum(1 - training, np.finfo(float).eps)
        regularization, highest = self._regularization, np.inf
        if regularization:
            held_out = training / free
            highest = float(ridge.sizes(features, points).mean()) / regularization
        else:  # a point whose field is met whatever the others are: the minimum-norm solution knows no variance
            held_out = np.where(free > 1e-8, training / free, training)
        return Leverage(lambda X: ridge.values(features, X), points, training, held_out, highest)

    def _keep_leverage(self):
        """Make of the sums of batches what a model file keeps of them."""
        ridge = self._ridge_leverage()
        self._latents, self._free_bias = self._training_points().copy(), ridge.mean is not None
        self._leverage_factor, self._leverage_mean, self._leverage_offset = ridge.W, ridge.mean, ridge.offset

    def _streamed_regularization(self):
        regularization = _PAPER if self.regularization is None else fixed_regularization(self)
        if regularization is None:
            raise ValueError(
                'partial_fit needs a number for regularization, got "auto", for which all samples must be known'
            )
        return regularization

    def _make_linear_map(self):
        self.solve()
        if "output_coef_" in self.__dict__:
            basis = ReducedBasis(feature_basis(self.features_), self.output_coef_)
            return LinearMap(basis, self._synthesis, self._projected_on())
        return LinearMap(feature_basis(self.features_), self.coef_, self._projected_on())

    def _training_box(self):
        try:
            return box_of(self._training_points())
        except NoLeverage:  # a file of before, without them
            return None

    def _extended_invariants(self, running, F, dtype):
        return None

    def _fit_features(self, X):
        if self.features is None:
            features = FourierFeatures() if self._has_own_form() else SigmoidFeatures()
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
        scale = fitted_scale(self.latent_scale if self._has_own_form() else None, X)
        self.latent_scale_ = scale
        if (scale == 1).all():
            return features.fit(X)
        if hasattr(features, "activation_parameters"):
            return features.fit(X, latent_scale=scale)
        return ScaledTransformer(features.fit(in_units(X, scale)), scale)

    def _has_own_form(self):
        """Whether `center` and `latent_scale` apply: not to the paper's closed form."""
        return True

    @property
    def regularization_(self) -> float:
        """lambda of the fit."""
        check_fitted(self, "_regularization")
        return self._regularization

    def _centred(self):
        return check_center(self.center) and self._has_own_form()

    def _check_available(self, capability):
        if capability != "smoother":
            return True
        if self.solver == "krylov":
            raise AttributeError("solver='krylov' stops at a tolerance that depends on the fields")
        if self.output_rank is not None:
            raise AttributeError("output_rank keeps modes that depend on the fields")
        if getattr(self, "constraint", "everywhere") != "everywhere":
            raise AttributeError(f"the correction of constraint={self.constraint!r} is another at every point")
        if fixed_regularization(self) is None:
            raise AttributeError("lambda is chosen by held-out errors, which depend on the fields")
        return True

    def _smoother(self, X, Z, fields):
        regularization = fixed_regularization(self)
        return self._smoother_path(X, Z, [regularization], fields)(regularization)

    def _smoother_path(self, X, Z, regularizations, fields):
        self._check_solver(("auto", "cholesky", "svd", "lowrank"))
        features = self._fit_features(X)
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

    @available_if(lambda self: self._check_available("smoother"))
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
            Takes one of the regularizations and returns W (L, n), or W times the fields (L, k), float64.

        Raises
        ------
        ValueError, TypeError, AttributeError
            As `smoother`.

        Examples
        --------
        >>> import numpy as np
        >>> from randsmap import FourierFeatures, RFNNDecoder
        >>> X = np.linspace(0, 1, 50)[:, None]
        >>> decoder = RFNNDecoder(FourierFeatures(0.5), random_state=0)
        >>> weights = decoder.smoother_path(X, X[:3], [1e-6, 1e-3])
        >>> weights(1e-6).shape
        (3, 50)
        """
        values = [check_number(value, "regularization", low=0) for value in regularizations]
        fresh = clone(self)
        X = validate_data(fresh, X, reset=True, min_samples=2)
        Z = validate_data(fresh, Z, reset=False)
        return fresh._smoother_path(X, Z, values, None if fields is None else check_fields(fields, len(X))[0])

    def _spectrum(self, X, least=0.0):
        """Left singular vectors (n, r) of [1 | phi(X)], squared singular values, error angle."""
        rows = FeatureRows(self._fit_features(X), X, bias=not self._centred())
        hat = RidgeFactor(rows, [least], self.solver, tol=self.tol).hat()
        return hat.U, hat.squares, hat.angle

    def _check_solver(self, solvers):
        solver = check_choice(self.solver, "solver", solvers)
        for name, check, former in (("tol", _check_tol, 1e-7), ("max_iter", check_count, 500)):
            value = getattr(self, name)
            if value is None:
                continue
            check(value, name)
            # the former defaults are in older model files and pickles
            unread = solver in ("cholesky", "svd") or (solver == "lowrank" and name == "max_iter")
            if unread and value != former:
                raise ValueError(f"{name} is not read by solver={solver!r}, so it must be None, got {value!r}")

    def _ridge(self, rows, F, regularizations):
        """A function of lambda that gives the Solution."""
        showing = nullcontext
        if self.progress != "deprecated":
            warnings.warn(
                f"progress= of {type(self).__name__} is deprecated: use `with randsmap.show_progress():` around fit",
                DeprecationWarning,
                stacklevel=7,
            )
            showing = show_progress if self.progress else showing
        given = {name: getattr(self, name) for name in ("tol", "max_iter") if getattr(self, name) is not None}
        with showing():
            factor = RidgeFactor(rows, regularizations, self.solver, cells=F.shape[1], **given)
            coordinates = coordinates_of(F)

        def solve(regularization):
            with showing():
                solution = factor.solve(coordinates, regularization)
            return solution._replace(coefficients=in_cells(solution.coefficients, F))

        return solve


def _compared_features(ours, theirs):
    """(name, ours, theirs) of what makes two fitted feature maps one function."""
    yield "the class of their features", type(ours), type(theirs)
    if hasattr(ours, "activation_parameters"):
        for name, *both in zip(
            ("kind", "weights", "offsets", "scale"), ours.activation_parameters(), theirs.activation_parameters()
        ):
            yield f"the {name} of their features", *both
        return
    ours, theirs = vars(ours), vars(theirs)
    for name in sorted(ours.keys() | theirs.keys()):
        if "random_state" not in name:
            yield f"{name} of their features", ours.get(name), theirs.get(name)


def _same(a, b):
    """Whether two values are equal to the bit, arrays and what holds arrays too."""
    if isinstance(a, type) or a is b:
        return a is b
    if type(a) is not type(b):
        return np.isscalar(a) and np.isscalar(b) and bool(a == b)
    if isinstance(a, np.ndarray) and a.dtype != object:
        return np.array_equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(_same(a[name], b[name]) for name in a)
    if isinstance(a, (list, tuple, np.ndarray)):
        return len(a) == len(b) and all(map(_same, a, b))
    if hasattr(a, "get_params"):
        return all(_same(x, y) for _, x, y in _compared_features(a, b))
    return bool(a == b) or pickle.dumps(a) == pickle.dumps(b)


def _shown(value):
    if isinstance(value, np.ndarray) and value.size > 8:
        return f"an array {value.shape} that begins with {value.ravel()[:3]}"
    return repr(value)


def fixed_regularization(decoder: Any) -> float | None:
    """lambda >= 0 of a decoder's parameters; None if held-out errors choose it."""
    regularization = decoder.regularization
    if regularization is None:
        paper = getattr(decoder, "features", None) is not None or getattr(decoder, "constraint", "") == "training"
        return _PAPER if paper else None
    if isinstance(regularization, str) and regularization == "auto":
        if getattr(decoder, "constraint", "") == "training":
            raise ValueError(
                "constraint='training' has no held-out errors in closed form: give regularization a number"
            )
        return None
    return check_number(regularization, "regularization", low=0)


def held_out_regularization(features: Any, X: NDArray[np.float64], F: Any) -> float:
    """lambda for features fitted to X (n, d) and fields F (n, M), by leave-one-out errors.

    Of more than 300 samples those of 300 at random: the rest is a factorisation of 300 x 300, much less than the fit.
    The largest eigenvalue grows with the number of samples, and lambda with it.
    """
    n = len(X)
    rows = np.sort(np.random.RandomState(0).permutation(n)[:_SAMPLES])
    fields: Any = Snapshots(F.array, F.name, rows) if isinstance(F, Snapshots) else F[rows]
    largest = max(float(np.abs(block).max()) for _, block in row_blocks(fields, "errors")) or 1.0
    if not isinstance(F, Snapshots):
        fields, largest = fields / largest, 1.0
    sizes = np.concatenate([np.linalg.norm(block / largest, axis=1) for _, block in row_blocks(fields, "errors")])
    sizes = np.maximum(sizes, SMALLEST_SHARE * median_norm(sizes) or 1.0)
    with blas_threads(1):
        G = field_coordinates(fields)[1] / largest
        hat = RidgeFactor(FeatureRows(features, X[rows], bias=False), []).hat()
    best, chosen = np.inf, _PAPER
    for _, regularization in lambda_path(hat.largest):
        with np.errstate(over="ignore", invalid="ignore"):
            errors = np.linalg.norm(hat.residuals(G, regularization), axis=1) / sizes
        error = np.where(errors < 1, errors, 1.0).mean()
        if error < best:
            best, chosen = error, regularization
    return float(chosen * n / len(rows))


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


_FEATURES = (
    """\
features : transformer or None
    Feature map: `SigmoidFeatures`, `FourierFeatures`, `MultiscaleFourierFeatures`, or any
    scikit-learn transformer (its `transform` then gives the features). It is cloned, not
    changed. None: ``FourierFeatures()``, of length scale 1.
regularization : float, "auto" or None, default=None
    lambda >= 0. "auto": the best of 17 values, from 1e-14 to 100 times the largest eigenvalue of Phi Phi^T, by
    leave-one-out errors in closed form of all samples or 300 at random; then the fit is not linear in the fields. None:
    "auto" without `features`, 1e-3 (the paper's) with them and for `partial_fit`.
"""
    + CENTRING
)
_SOLVER = """\
solver : {"auto", "cholesky", "svd", "lowrank", "krylov"}, default="auto"
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
tol : float or None
    For "lowrank" and "krylov": bound of |Phi (A - A*)| / |F| over the training set (Frobenius norms), A* being the
    exact ridge solution and F less its mean with `center`. None: 1e-8 for "lowrank", 1e-7 for "krylov". Where "auto"
    takes them too, but for low rank no more than 1e-8. The round-off of the factorisation is not in it. Refused
    beside "cholesky" and "svd".
max_iter : int or None
    For "krylov": iterations after which it stops with a ConvergenceWarning. None: 500. Refused beside "cholesky",
    "svd" and "lowrank".
output_rank : int, float or None
    Keep the coefficients as B U^T, with r modes U of the training fields less their mean: P r + r M numbers in place
    of P M, for fields of many cells. A count r, or the largest relative L2 error of a training field that the modes
    may leave, such as 1e-6 (relative to 1e-3 of the fields' median norm for smaller ones). Invariants, constant
    cells and bounds hold as ever. Needs `center`. Large memory-mapped fields are read by blocks.
progress : bool
    Deprecated: use ``with randsmap.show_progress():``.
random_state : int, RandomState instance or None
    If not None, set as the feature map's random_state before it is fitted."""
_ATTRIBUTES = (
    """\
features_ : transformer
    The fitted clone of `features`.
coef_ : ndarray (P+1, M)
    A, float64; the first row is the bias. Not with `output_rank`, which has the next three instead.
output_coef_ : ndarray (P+1, r)
    B; the first row is the bias.
output_basis_ : ndarray (M, r)
    U, orthonormal columns by energy, zero on constant cells and orthogonal to the invariants.
output_mean_ : ndarray (M,)
    The mean of the training fields, which satisfies the invariants: f = output_mean_ + U B^T [1 | phi(y)].
solver_ : {"cholesky", "dual", "qr", "svd", "lowrank", "krylov", "eigh"}
    What was used; "dual" is Cholesky of Phi Phi^T + lambda I, for n < P+1, "eigh" see
    `partial_fit`.
rank_ : int or None
    Latent points whose features were combined by "lowrank"; None for other solvers.
error_bound_ : float or None
    Of "lowrank": bound of |Phi (A - A*)| / |F|, see `tol`, that holds unless random probes of a fixed seed fail,
    once in 150000 fits at worst.
"""
    + SCALE_ATTRIBUTE
    + """
n_iter_ : int
    Iterations of "krylov"; 1 for the direct solvers.
n_samples_seen_ : int
    Number of samples of all batches; only after `partial_fit`.
n_features_in_ : int
    d, the number of latent coordinates."""
)


def _document_ridge(cls):
    """Fill {features}, {solver} and {attributes} in the docstring of a random-feature decoder."""
    return document(cls, {"features": _FEATURES, "solver": _SOLVER, "attributes": _ATTRIBUTES})


@_document_ridge
class RFNNDecoder(_RandomFeatureDecoder):
    """Random-feature decoder without invariants: ridge regression on random features.

    Parameters
    ----------
    {features}
    {solver}

    Attributes
    ----------
    {attributes}

    Raises
    ------
    ValueError, TypeError
        From `fit`: the constructor stores its arguments as they are.

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

    def __init__(
        self,
        features: Any = None,
        *,
        regularization: float | str | None = None,
        center: bool = True,
        latent_scale: str | float | ArrayLike | None = "std",
        solver: str = "auto",
        tol: float | None = None,
        max_iter: int | None = None,
        output_rank: int | float | None = None,
        progress: bool | str = "deprecated",
        random_state: Any = None,
    ) -> None:
        self.features = features
        self.regularization = regularization
        self.center = center
        self.latent_scale = latent_scale
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.output_rank = output_rank
        self.progress = progress
        self.random_state = random_state

    def _invariants(self, F, dtype):
        return None

    def _coefficients(self, rows, F, regularizations, invariants):
        return self._ridge(rows, F, regularizations)

    def _corrected(self, R, invariants):
        return R

    def _store_invariants(self, invariants):
        pass

    def _projected_on(self):
        return None


@document_invariants
@_document_ridge
class RANDSMAPDecoder(InvariantParameters, _RandomFeatureDecoder):
    """Random-feature decoder whose fields satisfy linear invariants exactly, mass for one.

    Every decoded field f satisfies |C_j^T f - m_j| <= a few ulp of |C_j|^T |f| + |m_j|, at any
    latent point, near or far from the training data, for any regularization and solver. Cells that
    are constant over the training fields get exactly their value.

    Parameters
    ----------
    {features}
    {invariant_parameters}
    constraint : {"everywhere", "training"}, default="everywhere"
        "everywhere": C^T f(y) = m for every y. "training": the paper's closed form (Eq.
        ShurAfinal0), which imposes it at the n training points only, up to the truncation of singular
        values at 1e-8, which needs solver="auto" or "svd"; kept to reproduce the paper. It neither
        treats constant cells nor projects rows, and `center` and `latent_scale` do not apply to it.
    {cell_weights}
    {bounds}
    {solver}

    Attributes
    ----------
    {attributes}
    {invariant_attributes}

    Raises
    ------
    ValueError, TypeError
        From `fit`: the constructor stores its arguments as they are.

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

    _state = {**_RandomFeatureDecoder._state, **InvariantParameters._invariant_state, "_exact": Parameter(bool)}

    def __init__(
        self,
        features: Any = None,
        *,
        regularization: float | str | None = None,
        center: bool = True,
        latent_scale: str | float | ArrayLike | None = "std",
        invariants: str | ArrayLike | None = "mass",
        invariant_values: float | ArrayLike | None = None,
        invariant_tol: float | None = None,
        constraint: str = "everywhere",
        cell_weights: ArrayLike | None = None,
        bounds: Any = None,
        solver: str = "auto",
        tol: float | None = None,
        max_iter: int | None = None,
        output_rank: int | float | None = None,
        progress: bool | str = "deprecated",
        random_state: Any = None,
    ) -> None:
        self.features = features
        self.regularization = regularization
        self.center = center
        self.latent_scale = latent_scale
        self.invariants = invariants
        self.invariant_values = invariant_values
        self.invariant_tol = invariant_tol
        self.constraint = constraint
        self.cell_weights = cell_weights
        self.bounds = bounds
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.output_rank = output_rank
        self.progress = progress
        self.random_state = random_state

    def _invariants(self, F, dtype):
        check_choice(self.constraint, "constraint", ("everywhere", "training"))
        everywhere = self.constraint == "everywhere"
        if not everywhere and self.solver in ("cholesky", "krylov", "lowrank"):
            raise ValueError(
                "constraint='training' needs singular values down to 1e-8, which a "
                "Gram matrix does not resolve: use solver='auto' or 'svd'"
            )
        if not everywhere and self.bounds is not None:
            raise ValueError(
                "bounds need the projection of every row, which constraint='training' does "
                "not have: use constraint='everywhere'"
            )
        return fit_estimator(self, F, dtype, keep_constant_cells=everywhere)

    def _coefficients(self, rows, F, regularizations, invariants):
        if self.constraint == "training":
            return lambda value: Solution(_training_constrained(rows, F, value, invariants), "svd")
        return self._ridge(rows, F, regularizations)

    def _corrected(self, R, invariants):
        return invariants.constrain_coefficients(R) if self.constraint == "everywhere" else R

    def _has_own_form(self):
        return self.constraint == "everywhere"

    def _extended_invariants(self, running, F, dtype):
        if running is None:
            before = RunningInvariants.of(Invariants.of_estimator(self, F.shape[1]))
        else:
            before = running[0]
        return before.with_fields(F, dtype)

    def _compared(self, other):
        yield from super()._compared(other)
        ours, theirs = self._running[0].given, other._running[0].given
        for name in ("invariants", "invariant_values", "invariant_tol", "cell_weights", "bounds"):
            yield name, *(getattr(given, _GIVEN.get(name, name)) for given in (ours, theirs))

    def _merge_invariants(self, other):
        self._running = self._running[0].merged(other._running[0])
        self._store_invariants(self._running[1])

    def _store_invariants(self, invariants):
        self.invariants_ = invariants
        self._exact = self.constraint == "everywhere"

    def _projected_on(self):
        return self.invariants_ if self._exact else None


# names of the parameters in Invariants
_GIVEN = {"invariants": "matrix", "invariant_values": "values", "invariant_tol": "tol"}
_TRUNCATION = 1e-8  # relative cut of singular values, delta_S in the paper's implementation details


def _training_constrained(rows, F, regularization, invariants):
    """The paper's closed form (Eq. ShurAfinal0): A C = (Phi^+ 1) m^T, by a truncated SVD of Phi.

    For mass it equals the printed
    V (Sigma^2 + lambda)^-1 Sigma U^T (F - [1 - U (1 + lambda Sigma^-2) U^T 1] 1^T / M); this form
    holds for any C and V.
    """
    fields = np.hstack([F[:], np.ones((rows.n, 1))])
    spectral = Spectral(rows, always=True)
    A = spectral.solve(fields, regularization, _TRUNCATION).coefficients[:, :-1]
    pseudo_bias = spectral.solve(fields, 0.0, _TRUNCATION).coefficients[:, -1:]
    return invariants.correct_coefficients(A, pseudo_bias * invariants.values)

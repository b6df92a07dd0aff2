"""What the decoders share: the interface of a multi-output regressor, and decoding by tiles."""

import numpy as np
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin

from randsmap._blocks import Snapshots, filled, is_large
from randsmap._cells import check_cells, gathered
from randsmap._kernels import decode as _kernel
from randsmap._tiles import check_projected, decode_features, for_tiles
from randsmap._validation import (
    check_fitted,
    check_matrix,
    check_out,
    restored_on_error,
    validate_data,
)
from randsmap.decoders._ridge import feature_matrix
from randsmap.invariants import decode_rows

__all__ = ["Decoder", "check_fields", "decode"]

_CHUNK = 8192


def decode(features, A, X, projection, out):
    """Fields [1 | features(X)] A into out (n, M), each row projected; projection may be None.

    ValueError if a row is so far away that it overflows: it cannot satisfy its invariants.
    """
    if hasattr(features, "_kernel_map"):
        activation, weights, offsets, scale = features._kernel_map()

        def task(a, b):
            bad = _kernel.decode(activation, X[a:b], weights, offsets, scale, A, projection, out[a:b])
            check_projected(bad, a)

        for_tiles(task, len(X))
        return
    for start in range(0, len(X), _CHUNK):  # `transform` of so many rows at a time: bounded memory
        part = out[start : start + _CHUNK]
        Z = feature_matrix(features, X[start : start + _CHUNK], len(A) - 1)
        decode_features(Z, A, projection, part)


def check_fields(y, n, *, blocks=False):
    """y as contiguous float64 (n, M), the number type it came in, and whether it was 1-D.

    With `blocks`, a large memory-mapped y comes as Snapshots.
    """
    if y is None:
        raise ValueError("y must hold the fields of the latent points X (n, M), got None; this "
                         "estimator requires y to be passed, but the target y is None")
    if not hasattr(y, "toarray"):
        y = np.asanyarray(y)  # a mask is refused below, not dropped
    dtype = getattr(y, "dtype", np.dtype(float))
    single = getattr(y, "ndim", 2) == 1
    if blocks and is_large(y):
        F = Snapshots(y, "y")
    else:
        F = check_matrix(y[:, None] if single else y, "y")
    if len(F) != n:
        raise ValueError(f"X and y must have the same number of rows, got {n} and {len(F)}")
    return F, dtype, single


class Decoder(MultiOutputMixin, RegressorMixin, BaseEstimator):
    """A regressor from latent points to fields.

    A subclass has `_fit(X, y)`, which sets `coef_` (any rows, M) and `_single`; `_linear_map()`, the A
    of fields [1 | phi(y)] A and the invariants that they are projected on (None: they are not); and
    `_decode(A, projection, X, out)`.
    """

    def fit(self, X, y):
        """Fit the decoder to latent points and their fields.

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
        ValueError, TypeError
            If X or y is not a finite array of numbers of these shapes, if a parameter is out of
            range, if the fields do not satisfy the invariants (where there are any), or
            (numpy.linalg.LinAlgError) if a requested factorisation fails. The estimator then keeps
            the state it had.
        """
        with restored_on_error(self):
            self._fit(X, y)
        return self

    def predict(self, X, *, invariant_values=None, cells=None, out=None):
        """Decode latent points.

        Parameters
        ----------
        X : array-like (n, d)
            Latent coordinates.
        invariant_values : float, array (q,), (n,) if q is 1, or (n, q), or None
            m of these rows in place of the fitted one (in- and outflow): one value an invariant for
            all rows, or one row of values a field. Values of dependent columns must be those that the
            others imply.
        cells : array-like of int (k,) or of bool (M,), or None
            Only these cells of the fields, at their cost: indices (negative ones count from the end)
            or a mask. They are those of the whole field, whose invariants hold. With bounds or
            invariant_values they cost as much as the whole.
        out : ndarray (n, M), float64, C-contiguous, or None
            Where to put the fields; (n, k) for k cells.

        Returns
        -------
        fields : ndarray (n, M), float64
            `out` if given. (n, k) for k cells; otherwise (n,) if y was one-dimensional.

        Raises
        ------
        sklearn.exceptions.NotFittedError
            Before `fit`.
        ValueError, TypeError
            If X is not a finite array (n, d) with n >= 1, out has the wrong shape, type or layout or
            shares memory with X, cells are no such array or out of range, invariant_values do not fit, are
            out of reach within the bounds or meet a decoder whose rows are not projected, or a whole
            field that has invariants to satisfy overflows.

        Notes
        -----
        A row's result depends on the other rows only by round-off, 1e-12 of |phi(y)| |A|: a few rows
        are decoded by a loop that reads the coefficients once, more by matrix products.

        The coefficients of the last few sets of `cells` are kept until the next `fit`.
        """
        check_fitted(self, "coef_")
        X = validate_data(self, X, reset=False)
        A, invariants = self._linear_map()
        projection = None if invariants is None else invariants.projection
        whole = invariant_values is not None or (
            cells is not None and invariants is not None and invariants.lower is not None)
        if whole:
            return self._predict_whole(X, invariant_values, cells, out)
        if cells is not None:
            A, projection = self._gathered(cells), None
        n, M = len(X), A.shape[1]
        if out is not None and np.may_share_memory(out, X):
            raise ValueError("out must not share memory with X")
        out = check_out(out, (n,) if self._single and cells is None else (n, M))
        if M:
            fields = out.reshape(n, M)
            filled(lambda a, b: self._decode(A, projection, X[a:b], fields[a:b]), fields)
        return out

    def _predict_whole(self, X, invariant_values, cells, out):
        """`predict` where whole fields must be projected after the decoding."""
        A, invariants = self._linear_map()
        if invariants is None:
            raise ValueError("invariant_values given, but this decoder does not project its fields on "
                             "invariants")
        n, M = len(X), A.shape[1]
        if cells is not None:
            cells = check_cells(cells, M)
        if out is not None and np.may_share_memory(out, X):
            raise ValueError("out must not share memory with X")
        k = M if cells is None else len(cells)
        out = check_out(out, (n,) if self._single and cells is None else (n, k))
        decode_rows(lambda a, b, projection, F: self._decode(A, projection, X[a:b], F), n, invariants,
                    invariant_values, cells, out.reshape(n, k))
        return out

    def _gathered(self, cells):
        """Columns of A, for these cells, that decode them as parts of the whole projected fields."""
        A, invariants = self._linear_map()
        cells = check_cells(cells, A.shape[1])

        def gather():
            if invariants is None:
                return np.ascontiguousarray(A[:, cells])
            return invariants.gather_coefficients(A, cells)

        return gathered(self, A, cells, gather)

    @property
    def _n_outputs(self):
        return self.coef_.shape[1]

    def _restore(self):
        if self._single and self._n_outputs != 1:
            raise ValueError(f"one-dimensional fields of {self._n_outputs} cells")

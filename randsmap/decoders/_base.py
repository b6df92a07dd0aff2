"""What the decoders share: the interface of a multi-output regressor, and decoding by tiles."""

import numpy as np
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin

from randsmap._estimator import check_fitted, restored_on_error, validate_data
from randsmap._mmap import Snapshots, filled, is_large
from randsmap._parallel import for_tiles, tile_rows
from randsmap._validation import check_cells, check_matrix, check_out, check_vectors
from randsmap.decoders._linear_map import decode_rows, gathered, jacobian_in_tiles, pull, push
from randsmap.invariants._active_bounds import ActiveBounds

__all__ = ["Decoder", "DifferentiableDecoder", "check_fields"]


def check_fields(y, n, *, blocks=False):
    """y as contiguous float64 (n, M), the number type it came in, and whether it was 1-D.

    With `blocks`, a large memory-mapped y comes as Snapshots.
    """
    if y is None:
        raise ValueError(
            "y must hold the fields of the latent points X (n, M), got None; this "
            "estimator requires y to be passed, but the target y is None"
        )
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
            cells is not None and invariants is not None and invariants.lower is not None
        )
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
            raise ValueError("invariant_values given, but this decoder does not project its fields on invariants")
        n, M = len(X), A.shape[1]
        if cells is not None:
            cells = check_cells(cells, M)
        if out is not None and np.may_share_memory(out, X):
            raise ValueError("out must not share memory with X")
        k = M if cells is None else len(cells)
        out = check_out(out, (n,) if self._single and cells is None else (n, k))
        decode_rows(
            lambda a, b, projection, F: self._decode(A, projection, X[a:b], F),
            n,
            invariants,
            invariant_values,
            cells,
            out.reshape(n, k),
        )
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


class DifferentiableDecoder(Decoder):
    """A decoder f(y) = [1 | phi(y)] A whose derivatives are known.

    A subclass has `_basis()`, the derivatives of phi.
    """

    def jacobian(self, X, *, cells=None, out=None):
        """Derivatives of the decoded fields with respect to the latent coordinates.

        Parameters
        ----------
        X : array-like (L, d)
            Latent coordinates.
        cells : array-like of int (k,) or of bool (M,), or None
            Only these cells, at their cost, as in `predict`.
        out : ndarray (L, M, d), float64, C-contiguous, or None
            Where to put them.

        Returns
        -------
        ndarray (L, M, d), float64
            J = df/dy of each row; `out` if given. (L, k, d) for k cells; otherwise (L, d) if y was
            one-dimensional. With invariants C^T J = 0 to a few ulp of |C|^T |J|, and J is 0 on the
            constant cells. With bounds J is 0 in the cells that are on theirs, and C^T J = 0 over the others.

        Raises
        ------
        sklearn.exceptions.NotFittedError
            Before `fit`.
        ValueError, TypeError
            If X is not a finite array (L, d), cells or out do not fit, the derivative overflows
            while it has invariants to satisfy, or the feature map has no known derivative.

        Notes
        -----
        A feature map that is not the package's own needs a method ``jacobian(Y)`` that gives
        (n, P, d), the derivatives of its ``transform(Y)``; scikit-learn's PolynomialFeatures needs
        nothing. `jvp` and `vjp` multiply by J without forming it.

        Examples
        --------
        >>> import numpy as np
        >>> from randsmap import KernelDecoder
        >>> latents = np.linspace(0, 1, 20)[:, None]
        >>> fields = np.hstack([latents**2, 1 - latents**2])
        >>> decoder = KernelDecoder(length_scale=0.5, regularization=1e-8, invariants="mass")
        >>> decoder.fit(latents, fields).jacobian([[0.5]]).round(2)
        array([[[ 1.],
                [-1.]]])
        """
        X, A, invariants, active, shape = self._at(X, cells)
        (L, d), M = X.shape, A.shape[1]
        if out is not None and np.may_share_memory(out, X):
            raise ValueError("out must not share memory with X")
        out = check_out(out, (L, *shape, d))
        basis, projection = self._basis(), _projection(invariants)
        J = out.reshape(L, M, d) if active is None else np.empty((L, M, d))
        jacobian_in_tiles(lambda a, b: basis.gradients(X[a:b]), A, projection, L, d, J)
        if active is not None:
            out[:] = active.push(J).reshape(out.shape)
        return out

    def jvp(self, X, V, *, cells=None):
        """Products J v of the Jacobians with vectors: how fields change as the latents move along v.

        Parameters
        ----------
        X : array-like (L, d)
            Latent coordinates.
        V : array-like (L, d) or (d,)
            A vector for each row, or one for all.
        cells : array-like of int (k,) or of bool (M,), or None
            As in `jacobian`.

        Returns
        -------
        ndarray (L, M), float64
            (L, k) for k cells; otherwise (L,) if y was one-dimensional. C^T J v = 0 with invariants.

        Raises
        ------
        As `jacobian`.

        Notes
        -----
        Costs about as much as `predict`.
        """
        X, A, invariants, active, shape = self._at(X, cells)
        V = check_vectors(V, "V", *X.shape)
        basis, projection = self._basis(), _projection(invariants)
        out = np.empty((len(X), A.shape[1]))

        def task(a, b):
            out[a:b] = push(basis.directional(X[a:b], V[a:b]), A, projection, a)

        for_tiles(task, len(X), tile_rows(max(A.shape)))
        if active is not None:
            out = active.push(out)
        return out.reshape(len(X), *shape)

    def vjp(self, X, U, *, cells=None):
        """Products J^T u of the transposed Jacobians with vectors: the gradient of u . f in the latents.

        Parameters
        ----------
        X : array-like (L, d)
            Latent coordinates.
        U : array-like (L, M) or (M,)
            A vector for each row, or one for all; (L, k) or (k,) for k cells; otherwise (L,) if y
            was one-dimensional.
        cells : array-like of int (k,) or of bool (M,), or None
            As in `jacobian`.

        Returns
        -------
        ndarray (L, d), float64

        Raises
        ------
        As `jacobian`.
        """
        X, A, invariants, active, shape = self._at(X, cells)
        if not shape:
            U = np.asarray(U)[..., None] if np.ndim(U) else U
        U = check_vectors(U, "U", len(X), A.shape[1] if active is None else active.n_cells)
        if active is not None:
            U = active.pull(U)
        basis, out = self._basis(), np.empty(X.shape)

        def task(a, b):
            out[a:b] = basis.contract(X[a:b], pull(U[a:b], A, invariants))

        for_tiles(task, len(X), tile_rows(max(A.shape)))
        return out

    def _at(self, X, cells):
        """X checked, A, the invariants to project on or the bounds that are active (None: none), and the
        shape of a field."""
        check_fitted(self, "coef_")
        X = validate_data(self, X, reset=False)
        A, invariants = self._linear_map()
        if invariants is not None and invariants.lower is not None:
            whole = cells is None
            cells = None if whole else check_cells(cells, A.shape[1])
            active = ActiveBounds(invariants, self.predict(X).reshape(len(X), -1), cells)
            return X, A, None, active, () if self._single and whole else (active.n_cells,)
        if cells is not None:
            # already projected; at A's columns for these cells that is a correction of A
            A, invariants = self._gathered(cells), None
        return X, A, invariants, None, () if self._single and cells is None else (A.shape[1],)


def _projection(invariants):
    return None if invariants is None else invariants.tangent_projection()

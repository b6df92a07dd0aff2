"""Derivatives of decoded fields with respect to the latent point: J = df/dy in closed form.

A decoded field is f(y) = [1 | phi(y)] A, projected on the invariants; so J = A^T dphi/dy, projected on
C^T J = 0. A basis below gives the derivatives of phi: whole, along a vector, and summed over
features, so that products with J need not form it.
"""

import numpy as np

from randsmap._kernels import gradients as _kernel
from randsmap._tangents import check_vectors, jacobian_in_tiles, pull, push, tile_rows
from randsmap._tiles import for_tiles
from randsmap._validation import check_fitted, check_matrix, check_out, validate_data
from randsmap._cells import check_cells
from randsmap.decoders._base import Decoder
from randsmap.invariants import ActiveBounds

__all__ = ["DifferentiableDecoder", "KernelBasis", "feature_basis", "polynomial_jacobian"]


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


# -- Derivatives of features -----------------------------------------------------------------------


def feature_basis(features):
    """The basis of a fitted feature map.

    Raises
    ------
    TypeError
        If its derivative is not known.
    """
    from sklearn.preprocessing import PolynomialFeatures

    if hasattr(features, "_kernel_map"):
        return MapBasis(*features._kernel_map())
    if hasattr(features, "jacobian"):
        return GivenBasis(features.jacobian)
    if isinstance(features, PolynomialFeatures):
        return GivenBasis(lambda Y: polynomial_jacobian(features.powers_, Y))
    raise TypeError(f"the derivative of the features of {type(features).__name__} is not known: it "
                    "needs a method jacobian(Y) that gives the derivatives (n, P, d) of transform(Y)")


class MapBasis:
    """Derivatives of the package's own feature maps: act'(w_k . y + b_k) w_k."""

    def __init__(self, activation, weights, offsets, scale):
        self.activation, self.weights, self.offsets, self.scale = activation, weights, offsets, scale

    def _slopes(self, X):
        S = np.empty((len(X), self.weights.shape[1]))
        _kernel.slopes(self.activation, X, self.weights, self.offsets, self.scale, S)
        return S

    def gradients(self, X):
        """(n d, P): d rows a point, one for each latent coordinate."""
        (n, d), P = X.shape, self.weights.shape[1]
        out = np.empty((n, d, P))
        _kernel.gradients(self._slopes(X), None, self.weights, out)
        return out.reshape(n * d, P)

    def directional(self, X, V):
        """(n, P): derivatives along the rows of V (n, d)."""
        S = self._slopes(X)
        _kernel.directional(S, None, self.weights, V, S)
        return S

    def contract(self, X, H):
        """(n, d): gradients of sum_k H_k phi_k."""
        out = np.empty(X.shape)
        _kernel.contract(self._slopes(X), None, self.weights, np.ascontiguousarray(H), out)
        return out


class KernelBasis:
    """Derivatives of a radial kernel g(|x - z|^2) at fixed points, x = y / lengths: 2 g' (x - z) / lengths.

    Parameters
    ----------
    slopes : callable
        ``slopes(X, points)`` is 2 g' (n, n_points).
    points : ndarray (n_points, d)
        z, in units of the lengths.
    lengths : ndarray (d,) or None
    scaled : callable
        ``scaled(Y)`` is X.
    weights : ndarray (n_points, P) or None
        The features are k(y) weights; None: the kernel itself.
    """

    def __init__(self, slopes, points, weights=None, lengths=None, scaled=None):
        self.slopes, self.points, self.weights = slopes, points, weights
        self.lengths, self.scaled = lengths, scaled
        self._columns = np.ascontiguousarray(points.T)

    def _at(self, Y):
        X = Y if self.scaled is None else self.scaled(Y)
        return X, self.slopes(X, self.points)

    def _in_units(self, values):
        return values if self.lengths is None else values / self.lengths

    def gradients(self, Y):
        X, S = self._at(Y)
        out = np.empty((len(X), X.shape[1], S.shape[1]))
        _kernel.gradients(S, X, self._columns, out)
        if self.lengths is not None:
            out /= self.lengths[:, None]
        out = out.reshape(-1, S.shape[1])
        return out if self.weights is None else out @ self.weights

    def directional(self, Y, V):
        X, S = self._at(Y)
        _kernel.directional(S, X, self._columns, self._in_units(V), S)
        return S if self.weights is None else S @ self.weights

    def contract(self, Y, H):
        X, S = self._at(Y)
        if self.weights is not None:
            H = H @ self.weights.T
        out = np.empty(X.shape)
        _kernel.contract(S, X, self._columns, np.ascontiguousarray(H), out)
        return self._in_units(out)


class GivenBasis:
    """Derivatives given as arrays: ``jacobian(Y)`` is (n, P, d)."""

    def __init__(self, jacobian):
        self.jacobian = jacobian

    def _checked(self, X):
        J = np.asarray(self.jacobian(X), dtype=np.float64)
        if J.ndim != 3 or J.shape[0] != len(X) or J.shape[2] != X.shape[1]:
            raise ValueError(f"the features' jacobian(Y) must have shape ({len(X)}, P, "
                             f"{X.shape[1]}), got {J.shape}")
        return J

    def gradients(self, X):
        J = self._checked(X)
        return check_matrix(J.transpose(0, 2, 1).reshape(-1, J.shape[1]), "the features' jacobian")

    def directional(self, X, V):
        return check_matrix(np.einsum("nkj,nj->nk", self._checked(X), V), "the features' jacobian")

    def contract(self, X, H):
        return np.einsum("nkj,nk->nj", self._checked(X), H)


def polynomial_jacobian(powers, Y):
    """Derivatives (n, P, d) of the monomials prod_j y_j^p_kj, powers p (P, d), at Y (n, d)."""
    out = np.empty((len(Y), *powers.shape))
    for j in range(powers.shape[1]):
        lower = powers.copy()
        lower[:, j] = np.maximum(lower[:, j] - 1, 0)
        out[:, :, j] = powers[:, j] * np.prod(Y[:, None, :] ** lower, axis=2)
    return out

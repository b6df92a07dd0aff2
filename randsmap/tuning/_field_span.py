"""Coordinates in which decoders that are linear in the training fields are compared.

Such a decoder returns f(y) = F^T w(y), plus a correction along V_S^-1 C_S when there are invariants
(see `randsmap.invariants`). All of it lies in a space of at most n + q dimensions, however many
cells M a field has.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy.linalg import lapack

from randsmap._parallel import blas_threads
from randsmap.invariants import AffineInvariants
from randsmap.invariants._parameters import invariant_options

__all__ = ["FieldSpan", "invariants_of"]

_PANEL = 256  # reflections applied at a time: wide enough for matrix products at full speed
_BLOCK = 512  # fields expressed in coordinates at a time: bounded memory


def invariants_of(
    decoder: Any, F: NDArray[np.float64], dtype: DTypeLike, shape: tuple[int, ...] | None = None
) -> AffineInvariants | None:
    """What a decoder fitted to the fields F, of that shape and type, holds its fields to, but for bounds.

    None for a decoder that has no invariants among its parameters.
    """
    if not hasattr(decoder, "invariants"):
        return None
    return AffineInvariants.from_data(F, **{**invariant_options(decoder, shape), "bounds": None}, dtype=dtype)


class FieldSpan:
    """Orthonormal coordinates of what linear decoders of the fields F can return on the cells S.

    The basis Q (|S|, r), r = q + n, comes from a Householder QR factorisation of the correction's
    directions and the fields; rank does not matter, and no Gram matrix is formed.

    Parameters
    ----------
    F : ndarray (n, M)
        Training fields, contiguous float64.
    invariants : AffineInvariants or None
        Of these fields. At least q + n cells must not be constant.

    Attributes
    ----------
    fields : ndarray (n, r)
        Coordinates of the training fields.
    invariants : AffineInvariants or None
        The invariants in coordinates.
    """

    def __init__(self, F: NDArray[np.float64], invariants: AffineInvariants | None) -> None:
        M = F.shape[1]
        self._free = np.ones(M, dtype=bool) if invariants is None else ~invariants.constant
        self._constant_values = np.zeros(0) if invariants is None else invariants.constant_values
        normals = np.zeros((0, M)) if invariants is None else invariants.normals()
        q, n = len(normals), len(F)
        rows = np.vstack([normals, F])
        if not self._free.all():
            rows = rows[:, self._free]
        # products too narrow to gain from more threads, which lose much on a busy machine
        with blas_threads(1):
            # the factors overwrite the transposed rows, so R^T is their lower triangle
            self._factors, self._blocks, _ = lapack.dgeqrt(min(_PANEL, q + n), rows.T, overwrite_a=1)
        triangle = np.tril(self._factors.T[:, : q + n])
        self.fields = np.ascontiguousarray(triangle[q:])
        self.invariants = None
        if invariants is not None:
            C, _ = self._rotated(np.ascontiguousarray(invariants.matrix[self._free].T))
            self.invariants = invariants.in_coordinates(np.ascontiguousarray(C.T), np.ascontiguousarray(triangle[:q]))

    def coordinates(self, F: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Coordinates (L, r) of fields F (L, M), and the distance (L,) that no coordinates change.

        A decoded field with the coordinates x lies at the distance hypot(|x - coordinates|, that)
        from the field: nothing is subtracted from anything large.
        """
        r = self._factors.shape[1]
        out, rest = np.empty((len(F), r)), np.empty(len(F))
        everywhere = self._free.all()
        for start in range(0, len(F), _BLOCK):
            part = slice(start, start + _BLOCK)
            fields = F[part]
            out[part], rest[part] = self._rotated(fields.copy() if everywhere else fields[:, self._free])
            if not everywhere:
                fixed = np.linalg.norm(fields[:, ~self._free] - self._constant_values, axis=1)
                rest[part] = np.hypot(rest[part], fixed)
        return out, rest

    def decode(self, W: NDArray[np.float64]) -> NDArray[np.float64]:
        """Coordinates (L, r) of the fields W F, corrected by the invariants."""
        with blas_threads():
            X = W @ self.fields
        return X if self.invariants is None else self.invariants.project(X)

    def _rotated(self, F: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Q^T f and |f - Q Q^T f| of each row f of F (L, |S|), by the reflections; F is overwritten."""
        r = self._factors.shape[1]
        if not len(F):
            return np.empty((0, r)), np.empty(0)
        with blas_threads(1):
            rotated, _ = lapack.dgemqrt(self._factors, self._blocks, F.T, side="L", trans="T", overwrite_c=1)
        rest = rotated.T[:, r:]
        return rotated.T[:, :r], np.sqrt(np.einsum("ij,ij->i", rest, rest))

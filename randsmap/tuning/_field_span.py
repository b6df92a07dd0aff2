"""Coordinates in which decoders that are linear in the training fields are compared.

Such a decoder returns f(y) = F^T w(y), plus a correction along V_S^-1 C_S when there are invariants
(see `randsmap.invariants`). All of it lies in a space of at most n + q dimensions, however many
cells M a field has.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from randsmap._linalg.spans import FactoredRows, ReflectedRows
from randsmap.invariants import AffineInvariants, Invariants, fit_invariants


def invariants_of(
    decoder: Any, F: NDArray[np.float64], dtype: DTypeLike, shape: tuple[int, ...] | None = None
) -> AffineInvariants | None:
    """What a decoder fitted to the fields F, of that shape and type, holds its fields to, but for bounds.

    None for a decoder that has no invariants among its parameters.
    """
    if not hasattr(decoder, "invariants"):
        return None
    given = Invariants.of_estimator(decoder, F.shape[1], shape=shape, bounds=None)
    return fit_invariants(F, given, dtype)


class FieldSpan:
    """Orthonormal coordinates of what linear decoders of the fields F can return on the cells S.

    The basis spans the correction's directions and the fields. It has few dimensions if they have (see
    `FactoredRows`), otherwise q + n (`ReflectedRows`); no Gram matrix is formed.

    Parameters
    ----------
    F : ndarray (n, M)
        Training fields, contiguous float64.
    invariants : AffineInvariants or None
        Of these fields. At least q + n cells must not be constant.
    origin : (dtype, FieldShape) or None
        How they came.
    few : bool
        Whether there is a span only where the fields have few dimensions.

    Attributes
    ----------
    fields : ndarray (n, r) or None
        Coordinates of the training fields; None if there is no span.
    factored : FactoredRows or None
        The training fields, where they span few dimensions.
    invariants : AffineInvariants or None
        The invariants in coordinates.
    """

    fields: Any
    invariants: AffineInvariants | None

    def __init__(
        self, F: NDArray[np.float64], invariants: AffineInvariants | None, origin: Any = None, *, few: bool = False
    ) -> None:
        M = F.shape[1]
        self._free = np.ones(M, dtype=bool) if invariants is None else ~invariants.constant
        self._constant_values = np.zeros(0) if invariants is None else invariants.constant_values
        normals = np.zeros((0, M)) if invariants is None else invariants.directions
        self.factored = FactoredRows.factor(F, normals, self._free, origin)
        self.fields, self.invariants = None, None
        if self.factored is None and few:
            return
        self._basis = ReflectedRows(F, normals, self._free) if self.factored is None else self.factored
        self.fields = self._basis.coordinates
        if invariants is not None:
            C = np.ascontiguousarray(self._basis.of_others(np.where(self._free, invariants.matrix.T, 0.0))[0].T)
            self.invariants = invariants.in_coordinates(C, np.ascontiguousarray(self._basis.of_others(normals)[0]))

    def coordinates(self, F: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Coordinates (L, r) of fields F (L, M), and the distance (L,) that no coordinates change.

        A decoded field with the coordinates x lies at the distance hypot(|x - coordinates|, that)
        from the field: nothing is subtracted from anything large.
        """
        coordinates, rest = self._basis.of_others(F)
        if not self._free.all():
            rest = np.hypot(rest, np.linalg.norm(F[:, ~self._free] - self._constant_values, axis=1))
        return coordinates, rest

    def corrected(self, X: NDArray[np.float64]) -> NDArray[np.float64]:
        """Coordinates (L, r) of fields that a decoder returns, corrected in place by the invariants."""
        return X if self.invariants is None else self.invariants.project(X)

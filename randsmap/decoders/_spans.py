"""Coordinates in which decoders that are linear in the training fields are compared.

Such a decoder returns f(y) = F^T w(y), plus a correction along V_S^-1 C_S when there are invariants (see
`randsmap.invariants`). All of it lies in a space of at most n + q dimensions, however many cells M a field has.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from randsmap._interface.fields import FieldShape
from randsmap._linalg.scales import in_norm
from randsmap._linalg.spans import FactoredRows, ReflectedRows
from randsmap.invariants import AffineInvariants, Invariants, fit_invariants


def invariants_of(
    decoder: Any, F: NDArray[np.float64], dtype: DTypeLike, layout: FieldShape | None = None
) -> AffineInvariants | None:
    """Invariants, without bounds, of a decoder fitted to the fields F of that layout and type.

    None for a decoder that has no invariants among its parameters.
    """
    if not hasattr(decoder, "invariants"):
        return None
    given = Invariants.of_estimator(decoder, F.shape[1], layout=layout, bounds=None)
    return fit_invariants(F, given, dtype)


def field_span(
    F: NDArray[Any], invariants: AffineInvariants | None, origin: Any = None, *, few: bool = False, weights: Any = None
) -> tuple[Any, AffineInvariants | None]:
    """Orthonormal basis of what linear decoders of the fields F (n, M) can return on the cells that are not constant.

    It spans the correction's directions and the fields, and has few dimensions if they have (`FactoredRows`), otherwise
    q + n (`ReflectedRows`), for which as many cells must not be constant. With `few` it is None in the second case. No
    Gram matrix is formed. The invariants come in its coordinates, too. It is
    orthonormal in the norm of the cells' weights: other fields are given to it `in_norm`.
    """
    M = F.shape[1]
    free = np.ones(M, dtype=bool) if invariants is None else ~invariants.constant
    normals = in_norm(np.zeros((0, M)) if invariants is None else invariants.directions, weights)
    F = in_norm(F, weights)
    basis: Any = FactoredRows.factor(F, normals, free, origin)
    if basis is None and few:
        return None, None
    if basis is None:
        basis = ReflectedRows(F, normals, free)
    if invariants is not None:
        # C^T f of f = V^-1/2 x
        rows = np.where(free, invariants.matrix.T, 0.0) / (1.0 if weights is None else np.sqrt(weights))
        C = np.ascontiguousarray(basis.of_others(rows)[0].T)
        invariants = invariants.in_coordinates(C, np.ascontiguousarray(basis.of_others(normals)[0]))
    return basis, invariants

"""The regularization of random-feature decoders: given, the paper's, or chosen by held-out errors."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from randsmap._interface.parameters import check_number
from randsmap._linalg.ridge import RidgeFactor
from randsmap._linalg.rows import FeatureRows, Rows
from randsmap._linalg.scales import error_scales
from randsmap._linalg.spectral import lambda_path
from randsmap._linalg.svd import principal_coordinates
from randsmap._parallel import blas_threads
from randsmap.metrics import field_norms

PAPER = 1e-3  # lambda of the paper, with features that are given


def fixed_regularization(decoder: Any) -> float | None:
    """lambda >= 0 of a decoder's parameters; None if held-out errors choose it."""
    regularization = decoder.regularization
    training = getattr(decoder, "constraint", "") == "training"
    if regularization is None:
        return PAPER if getattr(decoder, "features", None) is not None or training else None
    if isinstance(regularization, str) and regularization == "auto":
        if training:
            raise ValueError(
                "constraint='training' has no held-out errors in closed form: give regularization a number"
            )
        return None
    return check_number(regularization, "regularization", low=0)


def batch_regularization(decoder: Any) -> float:
    """lambda for `partial_fit`, which knows no held-out errors: None is the paper's."""
    regularization = PAPER if decoder.regularization is None else fixed_regularization(decoder)
    if regularization is None:
        raise ValueError(
            'partial_fit needs a number for regularization, got "auto", for which all samples must be known'
        )
    return regularization


def held_out_regularization(rows: FeatureRows, F: Any, weights: NDArray[np.float64] | None) -> float:
    """lambda for feature rows (n, P) and fields F (n, M), by leave-one-out errors in the cells' weights.

    Of more than 300 samples those of 300 at random. A sample that has a weight is left out with all of it, and its
    error counts as much.
    """
    n = len(F)
    # a factorisation of 300 x 300 costs much less than a fit
    some = np.sort(np.random.RandomState(0).permutation(n)[:300])
    fields, taken = F.take(some) if isinstance(F, Rows) else Rows(F[some]), rows.without_bias().take(some)
    root = np.ones(len(some)) if taken.root is None else taken.root
    sizes = error_scales(field_norms(fields, cell_weights=weights)) * root
    with blas_threads(1):
        G = principal_coordinates(fields, weights)[1] * root[:, None]
        hat = RidgeFactor(taken, []).hat()
    best, chosen = np.inf, PAPER
    for _, regularization in lambda_path(hat.largest):
        errors = np.linalg.norm(hat.residuals(G, regularization), axis=1) / sizes
        # a field that is lost counts once, however far off it is
        error = np.average(np.where(errors < 1, errors, 1.0), weights=root**2)
        if error < best:
            best, chosen = error, regularization
    # eigenvalues of Phi^T Phi, and lambda with them, grow with the number of samples, or with their weight
    return float(chosen * rows.total / taken.total)

"""Leave-one-out errors of ridge decoders in closed form."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.utils import Bunch

from randsmap._interface.arrays import as_array, check_samples
from randsmap._interface.parameters import check_number
from randsmap._linalg.scales import in_norm, median_norm
from randsmap._linalg.spectral import PATH, HatMatrix
from randsmap._linalg.svd import field_span
from randsmap.decoders._base import check_fields, fitted_scale, fixed_regularization
from randsmap.invariants import fit_estimator, norm_weights
from randsmap.metrics import field_norms, scaled_distances, selection_losses
from randsmap.tuning._search import on_edge

_Values = NDArray[np.float64]


def leave_one_out(
    decoder: Any,
    X: ArrayLike,
    y: ArrayLike,
    *,
    regularizations: Sequence[float] | None = None,
    cell_weights: ArrayLike | None = None,
) -> Bunch:
    """Error at each training point of a ridge decoder that was fitted without that point.

    Parameters
    ----------
    decoder : RFNNDecoder, RANDSMAPDecoder (constraint="everywhere") or KernelDecoder
        Not changed. Any decoder with a `spectrum` and a `regularization` will do.
    X : array-like of shape (n, d)
        Latent coordinates, n >= 2.
    y : array-like of shape (n, M)
        Their fields.
    regularizations : sequence of float, optional
        Values of lambda >= 0 to judge. None: the decoder's own.
    cell_weights : array-like of shape (n_cells,), or of a field, optional
        Positive weights of the norm of the errors. None: those of the decoder.

    Returns
    -------
    Bunch
        errors_ : ndarray (n_regularizations, n), the L2 error at each point of the decoder refitted without it, as by
        `metrics.scaled_l2`; mean_errors_ : ndarray (n_regularizations,); regularizations_ : ndarray;
        best_regularization_ : float, the (first) lambda of the lowest mean, in which a field smaller than 1e-3 of the
        median norm counts at most 1; on_edge_ : bool, whether that is the first or last of at least three.

    Raises
    ------
    TypeError
        If the decoder is none of these: others are not ridge regressions.
    ValueError
        If constraint="training" or the decoder has bounds, for which there is no closed form, if a lambda is negative
        or there is none, or as the decoder's fit.

    Notes
    -----
    Conditional on what does not belong to the regression: the latents (the encoder), the features as drawn for all n
    points, the invariants' values m and the constant cells. With the kernel decoder the point's column of the kernel
    is left out with its row; a linear tail is fitted anew.

    With Phi = U Sigma V^T and the hat matrix H = Phi (Phi^T Phi + lambda I)^-1 Phi^T, the field decoded without sample
    i misses f_i by r_i = (F - H F)_i / (1 - H_ii), and the correction by the invariants acts on it as on any field.
    Leverages near 1 keep their digits. At lambda = 0 the limit is taken, which belongs to the minimum-norm solution.

    Time O(n P min(n, P) + n_regularizations n^2 M), the last two factors at most n (n + q) where that pays.

    References
    ----------
    D. M. Allen, Technometrics 16 (1974) (PRESS); G. H. Golub, M. Heath and G. Wahba, Technometrics 21 (1979).

    Examples
    --------
    >>> import numpy as np, randsmap
    >>> Y = np.linspace(-1, 1, 40)[:, None]
    >>> F = np.hstack([2 + np.sin(3 * Y), 2 - np.sin(3 * Y)])
    >>> decoder = randsmap.RANDSMAPDecoder(randsmap.SigmoidFeatures(5.0), random_state=0)
    >>> result = randsmap.leave_one_out(decoder, Y, F, regularizations=[1e-6, 1e-3, 1e0, 1e3])
    >>> result.errors_.shape, result.best_regularization_, result.on_edge_
    ((4, 40), 1e-06, True)
    """
    lambdas = _checked(decoder, regularizations)
    check_samples(X=X, y=y)
    points = as_array(X, "X", min_rows=2)
    F, dtype, layout = check_fields(y, len(points))
    invariants = fit_estimator(decoder, F, dtype, layout=layout) if hasattr(decoder, "invariants") else None
    reduced = {"least": lambdas.min()} if hasattr(decoder, "fit_path") else {}
    hat = HatMatrix(*decoder.spectrum(points, **reduced))
    if np.isinf(hat.squares).sum() > 1:  # a linear tail, of which a point alone may determine a direction
        as_array(points, "X", min_rows=3)
        hat = HatMatrix(hat.U, hat.squares, partial(_refitted, decoder, points))
    weights = norm_weights(layout, cell_weights, decoder)
    sizes = field_norms(F, cell_weights=weights)
    usual = median_norm(sizes)
    if F.shape[1] > 4 * len(F) and len(lambdas) > 3:
        # distances between coordinates are those between fields
        if invariants is None or np.count_nonzero(~invariants.constant) > 2 * (len(F) + len(invariants.independent)):
            basis, invariants = field_span(F, invariants, weights=weights)
            F, weights = basis.coordinates, None
    errors = scaled_distances(_distances(hat, F, invariants, lambdas, weights), sizes, usual)
    best = int(np.argmin(selection_losses(errors, sizes, usual)))
    return Bunch(
        errors_=errors,
        mean_errors_=errors.mean(axis=1),
        regularizations_=lambdas,
        best_regularization_=float(lambdas[best]),
        on_edge_=on_edge(lambdas, lambdas[best], best),
    )


def _refitted(decoder: Any, points: _Values, F: _Values, held: NDArray[np.intp], regularization: float) -> _Values:
    """What the fields F[held] miss if the decoder is fitted to the others, in the units of all."""
    rest, scale = np.delete(np.arange(len(F)), held), fitted_scale(decoder.latent_scale, points)
    fresh = clone(decoder).set_params(regularization=regularization, latent_scale=scale)
    return F[held] - fresh.smoother(points[rest], points[held], fields=F[rest])


def _checked(decoder: Any, regularizations: Sequence[float] | None) -> _Values:
    if isinstance(decoder, type) or not hasattr(decoder, "spectrum"):
        raise TypeError(
            "decoder must be an RFNNDecoder, a RANDSMAPDecoder or a KernelDecoder, which are ridge "
            f"regressions, got {decoder!r}"
        )
    if getattr(decoder, "constraint", "everywhere") == "training":
        raise ValueError(
            "constraint='training' has no leave-one-out error in closed form: the "
            "constraint at the other points depends on the point left out"
        )
    if getattr(decoder, "bounds", None) is not None:
        raise ValueError("a decoder with bounds has no leave-one-out error in closed form: use bounds=None")
    if regularizations is None:
        regularization = fixed_regularization(decoder)
        regularizations = PATH if regularization is None else [regularization]
    if np.ndim(regularizations) != 1 or not len(regularizations):
        raise ValueError(f"regularizations must be a sequence of numbers, got {regularizations!r}")
    return np.array([check_number(value, "regularization", low=0) for value in regularizations])


def _distances(hat: HatMatrix, F: _Values, invariants: Any, lambdas: _Values, weights: Any) -> _Values:
    """Distance (n_lambdas, n) of each field from the one decoded without it."""
    G = in_norm(F, weights)
    if invariants is None:
        return hat.distances(G, np.arange(F.shape[1]), lambdas)
    free, independent = np.flatnonzero(~invariants.constant), invariants.independent
    if not len(independent):
        return hat.distances(G, free, lambdas)
    # A field f - r is corrected to f - r + W^T z, T^T z = m - C^T f + C^T r: z in multiples of the normals
    moments = F[:, free] @ invariants.matrix[np.ix_(free, independent)]
    # a field whose values vary is decoded with its own
    defect = 0.0 if invariants.varying else invariants.defects(F, invariants.values[independent])
    shifts = [invariants.multipliers(defect + hat.residuals(moments, value)) for value in lambdas]
    return hat.distances(G, free, lambdas, shifts, in_norm(invariants.directions, weights))

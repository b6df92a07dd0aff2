"""Choice of hyperparameters on a validation set."""

from collections.abc import Mapping

import numpy as np
from sklearn.base import clone
from sklearn.model_selection import ParameterGrid
from sklearn.utils import Bunch

from randsmap._validation import check_matrix
from randsmap.metrics import relative_l2

__all__ = ["tune"]


def tune(decoder, grid, Y_train, F_train, Y_val, F_val, *, callback=None):
    """Fit a decoder for every candidate of a grid and keep the one that reconstructs best.

    Parameters
    ----------
    decoder : regressor
        Cloned for every candidate; not changed.
    grid : dict of str to sequence
        Values to try for each parameter, by `set_params` name: ``{"features__slope": [1, 5, 10]}``.
        Several parameters make their product.
    Y_train : array-like of shape (n_train, d)
        Latents to fit on.
    F_train : array-like of shape (n_train, n_cells)
        Their fields.
    Y_val : array-like of shape (n_val, d)
        Latents to judge on.
    F_val : array-like of shape (n_val, n_cells)
        Their fields.
    callback : callable, optional
        Called without arguments after each candidate (for a progress bar).

    Returns
    -------
    Bunch
        best_params_ : dict; best_decoder_ : the decoder fitted with them on the training set;
        candidates_ : list of dict; errors_ : ndarray, mean relative L2 error of each candidate on
        the validation set; on_edge_ : dict of str to bool, whether the best value of a parameter is
        the first or last of its sequence (then the optimum may lie beyond it; False where fewer than
        three values were tried).

    Raises
    ------
    ValueError, TypeError
        If the grid is not a dict of sequences or is empty, a parameter is unknown, or as the decoder's
        fit raises.

    References
    ----------
    Paper, App. D: grid search over 10 values, lowest L2 reconstruction error on the validation set.

    Examples
    --------
    >>> import numpy as np, randsmap
    >>> Y = np.linspace(-1, 1, 60)[:, None]
    >>> F = np.hstack([np.sin(3 * Y), -np.sin(3 * Y)])
    >>> decoder = randsmap.RANDSMAPDecoder(randsmap.SigmoidFeatures(), random_state=0)
    >>> grid = {"features__slope": [0.01, 5.0, 500.0]}
    >>> result = tune(decoder, grid, Y[::2], F[::2], Y[1::2], F[1::2])
    >>> result.best_params_, result.on_edge_
    ({'features__slope': 5.0}, {'features__slope': False})
    """
    if not isinstance(grid, Mapping):
        raise TypeError(f"grid must be a dict of str to sequence, got {grid!r}")
    candidates = list(ParameterGrid(grid))
    if not candidates[0]:
        raise ValueError(f"grid must name at least one parameter with values, got {grid!r}")
    F_val = check_matrix(F_val, "F_val")
    errors = np.empty(len(candidates))
    best = None
    for i, params in enumerate(candidates):
        # candidates may be estimators that other parameters then change: never the caller's
        fitted = _with_params(clone(decoder), clone(params, safe=False)).fit(Y_train, F_train)
        errors[i] = relative_l2(F_val, fitted.predict(Y_val)).mean()
        if best is None or errors[i] < errors[best]:
            best, best_decoder = i, fitted
        if callback is not None:
            callback()
    return Bunch(
        best_params_=candidates[best],
        best_decoder_=best_decoder,
        candidates_=candidates,
        errors_=errors,
        on_edge_={name: on_edge(grid[name], value) for name, value in candidates[best].items()},
    )


def _with_params(decoder, params):
    for name in params:
        part = name.partition("__")[0]
        if part != name and params.get(part, getattr(decoder, part, decoder)) is None:
            raise ValueError(f"{name} cannot be tuned because the decoder's {part} is None: give the "
                             f"decoder its {part}")
    return decoder.set_params(**params)


def on_edge(values, best):
    """Whether `best` is the first or the last of at least three grid values."""
    values = list(values)
    return len(values) > 2 and best in (values[0], values[-1])

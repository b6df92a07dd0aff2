"""A subset of the cells: its check, and what is gathered for it once and kept."""

import threading
import weakref
from collections import OrderedDict

import numpy as np

__all__ = ["check_cells", "gathered"]

_KEPT = 4  # subsets an estimator keeps
_lock = threading.Lock()
# Beside the estimators, not in them: pickles, model files and copies do not hold it.
_caches = weakref.WeakKeyDictionary()


def check_cells(cells, n_cells):
    """Indices (k,) of a subset of the cells, each in [0, n_cells).

    Parameters
    ----------
    cells : array-like of int (k,), or of bool (n_cells,)
        Negative indices count from the end; an index may be repeated.
    n_cells : int

    Raises
    ------
    TypeError, ValueError
        If it is no such array, or an index is out of range; the message names it.
    """
    cells = np.asarray(cells)
    if cells.ndim != 1:
        raise ValueError("cells must have 1 dimension: integer indices, or a boolean mask "
                         f"({n_cells},); got shape {cells.shape}")
    if cells.dtype == bool:
        if len(cells) != n_cells:
            raise ValueError(f"cells as a mask must have length {n_cells}, got {len(cells)}")
        return np.flatnonzero(cells)
    if cells.dtype.kind not in "iu" and len(cells):
        raise TypeError(f"cells must hold integer indices or be a boolean mask, got {cells.dtype}")
    wrong = np.flatnonzero((cells < -n_cells) | (cells >= n_cells))
    if len(wrong):
        raise ValueError(f"cells[{wrong[0]}] is {cells[wrong[0]]}, out of range for {n_cells} cells")
    cells = cells.astype(np.intp)
    cells[cells < 0] += n_cells
    return cells


def gathered(owner, A, cells, make):
    """``make()``, what the estimator `owner` needs of its array A for these cells; a few are kept.

    What was made is used again as long as `owner` has the same array A.
    """
    key = cells.tobytes()
    with _lock:
        cache = _caches.setdefault(owner, OrderedDict())
        if key in cache:
            array, value = cache[key]
            if array() is A:
                cache.move_to_end(key)
                return value
    value = make()
    with _lock:
        for old in [k for k, (array, _) in cache.items() if array() is not A]:
            del cache[old]
        cache[key] = weakref.ref(A), value
        while len(cache) > _KEPT:
            cache.popitem(last=False)
    return value

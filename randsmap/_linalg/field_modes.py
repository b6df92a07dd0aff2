"""An orthonormal basis of snapshots, found a block of them at a time: fields of a million cells."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from randsmap._io.progress import steps
from randsmap._linalg.low_rank import multiply, orthonormal_rows_beside, times_transposed
from randsmap._linalg.rows import Rows
from randsmap._parallel import blas_threads

__all__ = ["FieldModes"]

_ENTRIES = 1 << 24  # of a block of fields (128 MB)
_CELLS = 1 << 14  # whose modes are turned at a time
_TINY = 1e-3  # of the median size: what a smaller field misses is relative to that
_ROUNDS = 4  # of modes from one block; each finds those above the round-off of the one before


class FieldModes:
    """Mean and modes U of fields F (n, M), f = mean + U g: [mean; U^T] (r+1, M) and the coordinates g (n, r).

    Parameters
    ----------
    F : ndarray (n, M) or Snapshots
        Never copied as a whole.
    rank : int or float
        A count of modes: the leading ones. A float: as few as represent each field with a relative L2
        error of at most that.
    norms : ndarray (n,) or None
        L2 norms of the fields, if they are known: a pass less over them.
    corrected : callable or None
        Projects a mean (1, M) in place on the fields' invariants.
    tangent : callable or None
        Projects differences of fields (k, M) in place on what the invariants leave of them, linearly.
    constant : ndarray (M,) of bool or None
        Cells that no mode moves.

    Attributes
    ----------
    synthesis : ndarray (r+1, M)
        The mean and the modes, in the order of their energy.
    coordinates : ndarray (n, r)
        Of the fields less the mean.

    Notes
    -----
    With an accuracy, the fields of a block that the modes so far do not represent add the leading singular vectors of
    what is missing; the final modes are the leading ones of all coordinates. Half of the tolerance is kept in
    reserve for what a regression makes of it. A count is met by a randomised range finder with one power iteration.

    References
    ----------
    N. Halko, P.-G. Martinsson and J. A. Tropp, SIAM Rev. 53 (2011), Alg. 4.3 and 5.1.
    """

    def __init__(
        self,
        F: Any,
        rank: int | float,
        *,
        norms: NDArray[np.float64] | None = None,
        corrected: Callable[[NDArray[np.float64]], Any] | None = None,
        tangent: Callable[[NDArray[np.float64]], Any] | None = None,
        constant: NDArray[np.bool_] | None = None,
    ) -> None:
        n, M = F.shape
        self._size = max(1, min(n, _ENTRIES // M))
        F = F if isinstance(F, Rows) else Rows(F)
        fields = F.centred(self._size)
        mean = fields.mean[None].copy()
        if corrected is not None:
            corrected(mean)
        self._F, self._fields, self._tangent = F, F.less(mean[0]), tangent
        count = isinstance(rank, int)
        largest = min(n, M)
        if count:
            largest = min(largest, rank + max(rank // 2, 16))
        # rows that are not used take no memory
        self._all = np.empty((largest + 1, M))
        self._all[0], self._all[1] = mean[0], 0
        self._r = 0
        with blas_threads():
            sizes = self._range(largest) if count else self._represent(rank, norms)
            self._r = max(self._r, 1)  # one of zeros where all fields are equal
            if constant is not None:
                self._modes[:, constant] = 0
            G = np.empty((n, self._r))
            for start, stop, X in self._blocks():
                times_transposed(X, self._modes, G[start:stop])
            self._rotate(G, rank, count, sizes)

    @property
    def _modes(self):
        return self._all[1 : self._r + 1]

    def _blocks(self) -> Iterator[tuple[int, int, NDArray[np.float64]]]:
        """(start, stop, differences of the fields from the mean) over all fields."""
        for start, stop in steps(len(self._F), self._size, "modes"):
            X = self._fields[start:stop]
            if self._tangent is not None:
                self._tangent(X)
            yield start, stop, X

    def _add(self, new):
        """Append modes that span the rows `new`, which are overwritten."""
        if self._tangent is not None:  # what is small was the difference of large numbers
            self._tangent(new)
        self._all[self._r + 1 : self._r + 1 + len(new)] = orthonormal_rows_beside(new, self._modes)
        self._r += len(new)

    def _represent(self, tol, norms):
        """Modes until each field is represented to tol / 4; the sizes of the fields."""
        if norms is None:
            blocks = range(0, len(self._F), self._size)
            norms = np.concatenate([np.linalg.norm(self._F[a : a + self._size], axis=1) for a in blocks])
        sizes = np.maximum(norms, _TINY * np.median(norms))
        sizes[sizes == 0] = 1
        for start, stop, X in self._blocks():
            X /= sizes[start:stop, None]
            for _ in range(_ROUNDS):
                if self._r:
                    X -= multiply(times_transposed(X, self._modes), self._modes)
                missing = np.flatnonzero(np.linalg.norm(X, axis=1) > tol / 4)
                room = len(self._all) - 1 - self._r
                if not len(missing) or not room:
                    break
                X = X[missing]
                squares, W = scipy.linalg.eigh(times_transposed(X, X))
                squares, W = np.maximum(squares[::-1], 0), W[:, ::-1]
                left = np.append(np.cumsum(squares[::-1])[::-1], 0.0)
                k = max(1, int(np.argmax(left <= (tol / 4) ** 2)))
                # what is below the round-off of the squares is found in the next round
                k = max(1, min(k, room, int(np.count_nonzero(squares > 1e-12 * squares[0]))))
                roots = np.sqrt(squares[:k])
                self._add(multiply(np.ascontiguousarray((W[:, :k] / roots).T), X))
        return sizes

    def _range(self, size):
        """`size` modes by a randomised range finder."""
        test = np.random.default_rng(0).standard_normal((len(self._F), size))
        for _ in range(2):
            image = np.zeros((size, self._all.shape[1]))
            for start, stop, X in self._blocks():
                image += multiply(np.ascontiguousarray(test[start:stop].T), X)
            self._r = 0
            self._add(image)
            for start, stop, X in self._blocks():
                times_transposed(X, self._modes, test[start:stop])
            test = scipy.linalg.qr(test, mode="economic", check_finite=False)[0]
        return None

    def _rotate(self, G, rank, count, sizes):
        """Turn the modes to the singular vectors of the coordinates, and keep those that are wanted."""
        U, sigma, Qt = scipy.linalg.svd(G, full_matrices=False, check_finite=False)
        G = U * sigma
        largest = int(np.count_nonzero(sigma > max(G.shape) * np.finfo(float).eps * sigma[:1].max(initial=0)))
        if count:
            k = min(rank, largest)
        else:
            tails = np.zeros((len(G), len(sigma) + 1))
            tails[:, :-1] = np.cumsum(G[:, ::-1] ** 2, axis=1)[:, ::-1]
            enough = (np.hypot(np.sqrt(tails), rank / 4 * sizes[:, None]) <= rank / 2 * sizes[:, None]).all(axis=0)
            k = min(int(np.argmax(enough)) if enough.any() else largest, largest)
        k = max(k, 1)
        Qt = np.ascontiguousarray(Qt[:k]) * (largest > 0)
        M = self._all.shape[1]
        for start in range(0, M, _CELLS):
            part = np.ascontiguousarray(self._modes[:, start : start + _CELLS])
            self._all[1 : k + 1, start : start + _CELLS] = multiply(Qt, part)
        self._all.resize((k + 1, M), refcheck=False)  # no copy: the memory behind is given back
        self.synthesis, self.coordinates = self._all, np.ascontiguousarray(G[:, :k])

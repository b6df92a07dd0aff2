"""Ridge regression for large n and P by conjugate gradients; Phi is never stored.

(Phi^T Phi + lambda I) A = Phi^T F (paper Eq. 15, by a Krylov method as its remark advises) with a
randomised Nystroem preconditioner. A product with Phi^T Phi is a pass over row blocks of Phi, which are computed anew.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import scipy.linalg
from scipy.linalg.blas import ddot
from sklearn.exceptions import ConvergenceWarning

from randsmap._interface.callers import warn_caller
from randsmap._io.progress import ProgressBar
from randsmap._kernels import ridge as _kernel
from randsmap._linalg.gram import Solution, with_bias
from randsmap._linalg.products import cross, multiply
from randsmap._linalg.rows import FeatureRows, less_means
from randsmap._linalg.svd import low_rank, nystroem, orthonormalize_rows_against, tall_qr
from randsmap._parallel import blas_threads

_EPS = np.finfo(float).eps
# Size of a row block of Phi
_BLOCK_BYTES = 2**25


class Krylov:
    """Ridge coefficients for fields F (n, M) to a stated accuracy of the predictions, in memory O(P (k + l)).

    `tol` bounds |Phi (A - A*)| / |F| in the Frobenius norm, A* being the exact ridge solution. Without bias, it is not
    penalised: the means of features and fields are taken off. The fields are left uncompressed if they clearly need
    more modes than `most`.

    Half of `tol` is spent on the fields' POD, F = B V^T + E, the other half on the iteration: docs/krylov.md has the
    bounds, with N the Nystroem approximation of Phi^T Phi.
    """

    first_rank = 128  # of the preconditioner; it doubles from there

    def __init__(self, rows: FeatureRows, F: Any, regularization: float, tol: float, most: int | None = None) -> None:
        self._rows, self._regularization = rows, regularization
        fields, self._field_mean = less_means(rows, F)
        F = fields[:]
        self._size = max(64, _BLOCK_BYTES // (8 * rows.width))
        self.bar = ProgressBar(None, "Krylov", unit="passes")
        self._norm = float(np.linalg.norm(F))
        self._goal = tol / 2 * self._norm
        with blas_threads():
            self._B, self._Vt = low_rank(F, self._goal, most)
        self.n_columns = self._B.shape[1]  # k, the right-hand sides that are iterated on
        self._rng = np.random.default_rng(0)  # every fit has the same sketch
        self.rank = 0  # l, the rows of the Nystroem sketch
        self._sketch: Any = np.empty((0, rows.width))
        self._image: Any = np.empty((rows.width, 0))
        self._U: Any = None
        self._eigenvalues: Any = None
        self._H: Any = None  # Phi^T B
        self.trace: Any = None  # of Phi^T Phi

    def _gram_times(self, V):
        """Phi^T Phi V in one pass; the first one makes Phi^T B and the trace too."""
        rows, first = self._rows, self._H is None
        out = np.empty(V.shape)
        product = np.empty((min(self._size, rows.n), V.shape[1]))
        trace, H = 0.0, np.empty((rows.width, self.n_columns)) if first else None
        for start, stop, Phi in rows.blocks(self._size):
            with blas_threads():
                part = product[: stop - start]
                multiply(Phi, V, part)
                _kernel.cross(Phi, part, start > 0, out)
                if first:
                    _kernel.cross(Phi, self._B[start:stop], start > 0, H)
                    trace += ddot(Phi.ravel(), Phi.ravel())
        if first:
            self._H, self.trace = H, trace
        self.bar.update()
        return out

    def precondition(self, largest_rank: int | None = None) -> bool:
        """Nystroem approximation of Phi^T Phi, its rank doubled until its least eigenvalue <= 10 lambda. Returns
        whether it got there within `largest_rank` (default: a quarter of the columns, or 256) and 512 MB."""
        width = self._rows.width
        if largest_rank is None:  # beyond, a direct solver would cost no more
            largest_rank = max(2 * self.first_rank, width // 4)
        # eight arrays of the preconditioner exist while it is made
        largest_rank = max(1, min(largest_rank, width, 2**29 // (64 * width)))
        while self.rank < width and not (self.rank and self._eigenvalues[-1] <= 10 * self._regularization):
            if self.rank >= largest_rank:
                return False
            more = min(max(self.rank, self.first_rank), largest_rank - self.rank)
            with blas_threads():
                new = orthonormalize_rows_against(self._rng.standard_normal((more, width)), self._sketch)
            self._image = np.hstack([self._image, self._gram_times(new.T)])
            self._sketch = np.vstack([self._sketch, new])
            self.rank += more
            with blas_threads():
                self._U, self._eigenvalues = nystroem(self._sketch, self._image)
        return True

    def solve(self, max_iter: int) -> Solution:
        """Coefficients (P+1, M) and the number of iterations; a ConvergenceWarning if `tol` is not reached."""
        self._sketch = self._image = None
        shifted = self._eigenvalues + self._regularization
        keep = shifted > 1.1 * self._regularization  # the others have no effect
        self._U, self._shifted = np.ascontiguousarray(self._U[:, keep]), shifted[keep]
        self._rest = self._shifted[-1] if len(self._shifted) else 1.0
        self._damping = np.sqrt(self._rest / self._shifted) - 1
        A, n_iter, R = np.zeros_like(self._H), 0, self._H
        error = self._error(self._half_power(R))
        # the bound in the recurrence drifts: one more pass computes it from the residual itself
        while error > self._goal and n_iter < max_iter:
            step, used = self._iterate(R, max_iter - n_iter)
            n_iter += used
            A += step
            R = self._H - self._gram_times(A) - self._regularization * A
            before, error = error, self._error(self._half_power(R))
            if not error < before / 2:  # round-off: more iterations gain nothing
                break
        self.bar.close()
        # round-off of the residual, which the bound does not contain
        longest = max(float(np.linalg.norm(A)), self._norm / (2 * np.sqrt(self._regularization)))
        error += float(_EPS * np.sqrt(self.trace) * longest)
        if error > self._goal:
            reached = 2 * error / self._norm
            warn_caller(
                f"The Krylov solver did not reach tol = {2 * self._goal / self._norm:.3g} in {n_iter} iterations "
                f"(max_iter = {max_iter}): the predictions' relative error is only known to be below {reached:.3g}. "
                "Use a larger max_iter, regularization or tol, or solver='cholesky' or 'svd'",
                ConvergenceWarning,
            )
        if self._Vt is not None:
            with blas_threads():
                A = multiply(A, self._Vt)
        if self._field_mean is not None:
            A = with_bias(A, self._rows.mean, self._field_mean)
        return Solution(A, "krylov", n_iter)

    def _half_power(self, W):
        """T^-1/2 W, with T = (N + lambda I) / (mu + lambda) on N's modes and 1 elsewhere."""
        with blas_threads():
            W = np.ascontiguousarray(W)
            coefficients = cross(self._U, W)
            coefficients *= self._damping[:, None]
            change = multiply(self._U, coefficients)
            change += W
            return change

    def _error(self, Q, sigma=None):
        """The bound of |Phi (A - A*)| for a residual T^1/2 Q sigma (sigma None: the identity)."""
        with blas_threads():
            found = cross(self._U, Q)
            inside = np.linalg.norm(found if sigma is None else found @ sigma)
        outside = max(np.linalg.norm(Q if sigma is None else sigma) ** 2 - inside**2, 0.0)
        return float(np.sqrt(inside**2 / self._rest + outside / self._regularization))

    def _iterate(self, R, max_iter):
        """Block conjugate gradients from 0 for the residual R, until the bound is met: the step and its iterations."""
        # Dubrulle (2001), method BCGrQ: residuals and directions are kept orthonormal by QR factorisations, so columns
        # that converge or become dependent do no harm
        Q, sigma = tall_qr(self._half_power(R))
        S, X, n_iter = Q, np.zeros_like(R), 0
        while n_iter < max_iter:
            T = self._half_power(S)
            GT = self._gram_times(T)
            GT += self._regularization * T
            AS = self._half_power(GT)
            with blas_threads():
                inner = cross(S, AS)
                try:
                    factor = scipy.linalg.cho_factor((inner + inner.T) / 2, check_finite=False)
                except np.linalg.LinAlgError:  # lambda is smaller than the round-off of Phi^T Phi
                    break
                alpha = scipy.linalg.cho_solve(factor, np.eye(len(inner)), check_finite=False)
                X += multiply(S, multiply(alpha, sigma))
                Q, tau = tall_qr(Q - multiply(AS, alpha))
                S = Q + multiply(S, tau.T)
                sigma = multiply(tau, sigma)
            n_iter += 1
            error = self._error(Q, sigma)
            self.bar.note(f"error <= {2 * error / self._norm:.1e}")
            if error <= self._goal / 2:  # room for the drift of the recurrence
                break
        return self._half_power(X), n_iter


def available_memory() -> int | None:
    """Bytes that this process may still take (its cgroups respected), or None if unknown."""
    limits = []
    try:
        found = re.search(r"^MemAvailable: *(\d+)", Path("/proc/meminfo").read_text(), re.MULTILINE)
        limits += [1024 * int(found[1])] if found else []
    except OSError:
        with suppress(AttributeError, ValueError, OSError):
            limits.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    for folder, limit, usage in _cgroups():
        try:
            largest = int((folder / limit).read_text())  # "max": no limit
            used = int((folder / usage).read_text())
            # cached files, which the kernel can drop
            cached = re.search(r"^(total_)?inactive_file (\d+)", (folder / "memory.stat").read_text(), re.MULTILINE)
        except (OSError, ValueError):
            continue
        limits.append(max(largest - used + int(cached[2] if cached else 0), 0))
    return min(limits, default=None)


def _cgroups():
    """(folder, file of the limit, file of the usage) of the cgroups, v1 and v2, of this process."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            root, names = "/sys/fs/cgroup", ("memory.max", "memory.current")
        elif "memory" in controllers.split(","):
            root, names = "/sys/fs/cgroup/memory", ("memory.limit_in_bytes", "memory.usage_in_bytes")
        else:
            continue
        inner = Path(path.lstrip("/"))
        for part in (inner, *inner.parents):  # a container sees its own group at the root
            yield Path(root, part), *names

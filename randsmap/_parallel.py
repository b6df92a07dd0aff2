"""Threads: the one place that makes them, counts them and tells BLAS how many it may use.

The pool is made on first use, forgotten in a forked child, and never nested. Work is cut into tasks
by the caller, independently of the thread count, so results do not depend on it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np

from randsmap._kernels import decode as _kernel

_lock = threading.RLock()
_local = threading.local()
_requested: int | None = None  # by set_num_threads
_pool: Any = None
_pool_size = 0
_blas = None  # threadpoolctl controller of the BLAS libraries loaded
_blas_limits: list[int] = []  # limits in force, one per open `blas_threads` block
_blas_original = None  # thread counts to restore when the last block closes


def _forget_after_fork():
    """Reset the state of the child: it has no threads of the parent and may have been forked inside a lock."""
    global _lock, _local, _pool, _pool_size, _blas_limits
    _lock, _local = threading.RLock(), threading.local()
    _pool, _pool_size = None, 0
    # no block of the child owns the limits in force at the fork; the next block restores the old counts
    _blas_limits = []


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_after_fork)


def set_num_threads(n: int | None) -> None:
    """Set the number of threads that randsmap uses in this process.

    Parameters
    ----------
    n : int or None
        At least 1. None returns to the default: the environment variable RANDSMAP_NUM_THREADS, else
        OMP_NUM_THREADS, else the cores this process may use (affinity and cgroup limits respected).

    Raises
    ------
    TypeError, ValueError
        If n is not an integer, or is below 1.

    Notes
    -----
    Random draws, distances and the package's own kernels are bit-identical for any thread count. Results of BLAS agree
    to the sensitivity of the solver (docs/guarantees.md).

    Examples
    --------
    >>> import randsmap
    >>> randsmap.set_num_threads(2)
    >>> randsmap.get_num_threads()
    2
    >>> randsmap.set_num_threads(None)
    """
    global _requested
    if n is not None:
        if isinstance(n, bool) or not hasattr(n, "__index__"):
            raise TypeError(f"n must be an integer or None, got {n!r}")
        n = n.__index__()
        if n < 1:
            raise ValueError(f"n must be at least 1, got {n}")
    _requested = n


def get_num_threads() -> int:
    """Number of threads that randsmap uses now (see `set_num_threads`).

    Returns
    -------
    int
        The number of `set_num_threads`, else RANDSMAP_NUM_THREADS, else OMP_NUM_THREADS, else the number of cores.

    Raises
    ------
    ValueError
        If the environment variable RANDSMAP_NUM_THREADS is not a positive integer.

    Examples
    --------
    >>> import randsmap
    >>> randsmap.get_num_threads() >= 1
    True
    """
    if _requested is not None:
        return _requested
    for variable in ("RANDSMAP_NUM_THREADS", "OMP_NUM_THREADS"):
        # OMP_NUM_THREADS may be a list with one entry per nesting level
        text = os.environ.get(variable, "").split(",")[0].strip()
        if not text:
            continue
        if text.isdecimal() and int(text) >= 1:
            return int(text)
        if variable == "RANDSMAP_NUM_THREADS":
            raise ValueError(f"{variable} must be a positive integer, got {text!r}")
    import joblib  # knows affinity and cgroup limits; a dependency of scikit-learn

    return joblib.cpu_count()


def parallel_for(task: Callable[..., object], calls: int | Sequence[tuple[Any, ...]]) -> None:
    """Call ``task(*arguments)`` for all arguments, in order, on several threads; the caller is one of them.

    A number n of calls stands for ``task(i)``, i in range(n). ``task`` must release the GIL in its long part. The first
    exception stops the tasks not yet begun and is raised here. Inside a task, further calls run on that thread alone.
    """
    global _pool, _pool_size
    calls = [(i,) for i in range(calls)] if isinstance(calls, int) else calls
    alone = len(calls) <= 1 or getattr(_local, "inside", False)  # counting cores takes 25 us
    n_threads = 1 if alone else min(get_num_threads(), len(calls))
    if n_threads <= 1:
        for arguments in calls:
            task(*arguments)
        return

    lock, waiting = threading.Lock(), iter(calls)
    errors: list[BaseException] = []

    def work():
        _local.inside = True
        try:
            while not errors:
                with lock:
                    arguments = next(waiting, None)
                if arguments is None:
                    break
                task(*arguments)
        except BaseException as error:
            errors.append(error)
        finally:
            _local.inside = False

    with _lock:  # between taking the pool and the submit nobody may replace it
        if _pool_size < n_threads - 1:
            if _pool is not None:
                _pool.shutdown(wait=False)
            # threads do not inherit the caller's settings of floating-point errors, see `callers.quiet`
            _pool, _pool_size = ThreadPoolExecutor(n_threads - 1, "randsmap", np.seterr, ("ignore",)), n_threads - 1
        futures = [_pool.submit(work) for _ in range(n_threads - 1)]
    work()
    for future in futures:
        if not future.cancel():  # it has not begun: the caller has done all tasks
            future.result()
    if errors:
        raise errors[0]


def parallel_rows(task: Callable[[slice], object], n: int, size: int) -> None:
    """Call ``task(rows)`` for the slices of `size` of n rows, as `parallel_for`."""
    parallel_for(lambda i: task(slice(i * size, min(n, (i + 1) * size))), -(-n // size))


@contextmanager
def blas_threads(limit: int | None = None) -> Iterator[None]:
    """While open, BLAS uses at most `limit` threads (None: `get_num_threads`); tasks that call BLAS themselves need 1.

    Blocks opened by several threads at once do not undo one another: the lowest limit holds, and the counts found
    before the first block return after the last.
    """
    if limit is None:  # finding the number of cores takes longer than a small product
        limit = 1 if 1 in _blas_limits else get_num_threads()
    with _lock:
        _blas_limits.append(limit)
        _apply_blas_limits()
    try:
        yield
    finally:
        with _lock:
            _blas_limits.remove(limit)
            _apply_blas_limits()


def _apply_blas_limits():
    global _blas, _blas_original
    if _blas is None:
        import scipy.linalg.cython_blas  # noqa: F401  (its BLAS must be loaded to be found)
        from threadpoolctl import ThreadpoolController

        _blas = ThreadpoolController().select(user_api="blas").lib_controllers
    if _blas_original is None:
        _blas_original = [library.get_num_threads() for library in _blas]
    for library, original in zip(_blas, _blas_original):
        count = min(_blas_limits + [original])
        if library.get_num_threads() != count:
            _set_blas_threads(library, count)
    if not _blas_limits:
        _blas_original = None


def _set_blas_threads(library, count):
    # threadpoolctl >= 3.7 lets one thread own the limit of an OpenBLAS with a shared pool and ignores
    # the others. Any thread may open `blas_threads` first or close it last, so take the ownership for
    # the call (under our lock) and leave it free.
    release = getattr(library, "clear_controlling_thread", lambda force: None)
    release(force=True)
    library.set_num_threads(count)
    release(force=True)


# Rows per task at most: they bound the memory of its temporaries
MAX_TILE = 1024
FEW = _kernel.FEW
# Entries of the largest temporary of a tile (16 MB)
TILE_ENTRIES = 1 << 21


def for_tiles(task: Callable[[int, int], object], n: int, most: int = MAX_TILE) -> None:
    """Call task(start, stop) over tiles of at most `most` of n rows, in parallel; a few rows are one tile."""
    if n <= FEW:
        parallel_for(task, [(0, n)])
        return
    # BLAS packs A anew for each task, which costs about as much as 30 rows; eight tasks share the work between threads.
    # Their number depends on n alone, so that results do not depend on threads.
    count = -(-n // min(max(-(-n // 8), 128), most))
    with blas_threads(1):
        parallel_for(task, [(i * n // count, (i + 1) * n // count) for i in range(count)])


def tile_rows(entries: int) -> int:
    """Rows of a tile that needs so many numbers a row."""
    return max(1, TILE_ENTRIES // entries)

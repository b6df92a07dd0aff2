"""Progress: one switch for everything that takes its time, and one kind of bar."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar

__all__ = ["if_asked", "progress_bar", "show_progress", "steps"]

_shown: ContextVar[bool] = ContextVar("shown", default=False)
_open = threading.local()  # .bars: how many this thread has open


@contextmanager
def show_progress(show: bool = True) -> Iterator[None]:
    """While open, whatever takes its time shows how far it is, on the standard error stream.

    On a terminal or in a notebook that is a bar; in a log it is one line when the work is done.

    Parameters
    ----------
    show : bool, default True
        False: nothing is shown.

    Notes
    -----
    Holds for the calls of this thread (or asyncio task). Functions with a parameter ``progress`` open
    it for themselves.

    Examples
    --------
    >>> import randsmap
    >>> with randsmap.show_progress():
    ...     roll = randsmap.datasets.make_swiss_roll(100, random_state=0)
    """
    token = _shown.set(show)
    try:
        yield
    finally:
        _shown.reset(token)


def if_asked(progress: bool) -> AbstractContextManager[None]:
    """`show_progress` of a function's parameter: False leaves it as it is."""
    return show_progress(progress or _shown.get())


@contextmanager
def progress_bar(
    total: int | None, what: str, *, unit: str = "", scale: bool = False, leave: bool = True
) -> Iterator[Callable[..., None]]:
    """A bar with this name; yields ``update(n=1)``, which any thread may call.

    `scale`: write large numbers as 1.2M. `leave`: it stays when it is done. Within another bar a log
    gets no line.
    """
    stream = sys.stderr
    if not _shown.get() or stream is None:
        yield lambda n=1: None
        return
    from tqdm import tqdm  # not tqdm.auto: that warns in a notebook without ipywidgets

    live = stream.isatty() or type(stream).__module__.startswith("ipykernel")
    bar = tqdm(total=total, desc=what, unit=unit or "it", unit_scale=scale, leave=leave, file=stream) if live else None
    done, start, lock = 0, time.monotonic(), threading.Lock()

    def update(n=1):
        nonlocal done
        with lock:
            done += n
            if bar is not None:
                bar.update(n)

    depth = getattr(_open, "bars", 0)
    _open.bars = depth + 1
    try:
        yield update
    finally:
        _open.bars = depth
        if bar is not None:
            bar.close()
        elif depth == 0:
            number = f"{100 * done // total}% {done}/{total}" if total else f"{done}"
            elapsed = tqdm.format_interval(time.monotonic() - start)
            with contextlib.suppress(OSError):  # nobody reads it
                print(f"{what}: {number}{unit and ' ' + unit} [{elapsed}]", file=stream, flush=True)


def steps(n: int, size: int, what: str) -> Iterator[tuple[int, int]]:
    """(start, stop) of blocks of `size` out of n, with a bar named `what` if there is more than one."""
    with progress_bar(n, what, leave=False) if n > size else contextlib.nullcontext() as update:
        for start in range(0, n, size):
            stop = min(start + size, n)
            yield start, stop
            if update is not None:
                update(stop - start)

"""Progress bars: one switch for everything that takes more than one block."""

from contextlib import contextmanager
from contextvars import ContextVar

__all__ = ["counter", "showing_progress", "steps"]

_progress = ContextVar("progress", default=False)


@contextmanager
def showing_progress():
    """While open, whatever takes more than one block shows a bar on the standard error stream."""
    token = _progress.set(True)
    try:
        yield
    finally:
        _progress.reset(token)


def steps(n, size, what):
    """(start, stop) of blocks of `size` out of n, with a bar named `what` while `showing_progress`."""
    bar = None
    if _progress.get() and n > size:
        from tqdm import tqdm

        bar = tqdm(total=n, desc=what, leave=False)
    try:
        for start in range(0, n, size):
            stop = min(start + size, n)
            yield start, stop
            if bar is not None:
                bar.update(stop - start)
    finally:
        if bar is not None:
            bar.close()


def counter(what, unit):
    """A bar (of tqdm) for a number of steps that is not known beforehand; silent unless `showing_progress`."""
    from tqdm import tqdm

    return tqdm(desc=what, unit=f" {unit}", disable=not _progress.get())

"""Progress: one switch for all long computations, and one kind of bar."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any

_shown: ContextVar[bool] = ContextVar("shown", default=False)
_stage: ContextVar[str] = ContextVar("stage", default="")
_open = threading.local()  # .bars: the number of open bars of this thread


@contextmanager
def set_while_open(variable: ContextVar[Any], value: Any) -> Iterator[None]:
    """While open, the variable has this value."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


@contextmanager
def show_progress(show: bool = True) -> Iterator[None]:
    """Show the progress of long computations on the standard error stream, in a ``with`` block.

    A terminal or a notebook shows one bar with the name of the stage, a log file one line for each stage. It applies to
    this thread (or asyncio task). Functions with a parameter ``progress`` open it themselves.

    Parameters
    ----------
    show : bool, default True
        False: show nothing.

    Yields
    ------
    None

    Examples
    --------
    >>> import randsmap
    >>> with randsmap.show_progress():
    ...     roll = randsmap.datasets.make_swiss_roll(100, random_state=0)
    """
    with set_while_open(_shown, show):
        yield


def if_asked(progress: bool) -> AbstractContextManager[None]:
    """`show_progress` of a function's parameter: False leaves it as it is."""
    return show_progress(progress or _shown.get())


def stage(number: int, total: int) -> AbstractContextManager[None]:
    """Number the bars of this stage of a computation, unless it is itself part of a stage."""
    return set_while_open(_stage, _stage.get() or f"{number}/{total} ")


class ProgressBar(AbstractContextManager["ProgressBar"]):
    """A bar named `what` of `total` steps (None: unknown), as a context; any thread may call its `update`."""

    def __init__(self, total: int | None, what: str, *, unit: str = "", scale: bool = False) -> None:
        # `unit` names a step, `scale` writes large numbers as 1.2M
        self._total, self._what, self._unit = total, what, unit and f" {unit}"
        self._stream = sys.stderr if _shown.get() else None
        self._bar, self._done, self._start, self._lock = None, 0, time.monotonic(), threading.Lock()
        if self._stream is None:
            return
        self._outermost = not getattr(_open, "bars", 0)
        self._what = what = _stage.get() * self._outermost + what
        _open.bars = getattr(_open, "bars", 0) + 1
        if self._stream.isatty() or type(self._stream).__module__.startswith("ipykernel"):
            from tqdm import tqdm  # not tqdm.auto: that warns in a notebook without ipywidgets

            # the next stage uses the same line; a bar within a stage is shown after a second
            style = {"unit": self._unit or "it", "unit_scale": scale, "leave": False}
            self._bar = tqdm(total=total, desc=what, delay=0 if self._outermost else 1, **style)

    def update(self, n: int = 1) -> None:
        """Add n steps."""
        if self._stream is None:
            return
        with self._lock:
            self._done += n
            if self._bar is not None:
                self._bar.update(n)

    def note(self, text: str) -> None:
        """Set the text shown after the bar from its next step on."""
        if self._bar is not None:
            self._bar.set_postfix_str(text, refresh=False)

    def close(self) -> None:
        """End the bar; without a terminal print how far it came, unless it was inside another one."""
        if self._stream is None:
            return
        _open.bars = getattr(_open, "bars", 1) - 1
        if self._bar is not None:
            self._bar.close()
        elif self._outermost:
            from tqdm import tqdm

            share, of = (f"{100 * self._done // self._total}% ", f"/{self._total}") if self._total else ("", "")
            elapsed = tqdm.format_interval(time.monotonic() - self._start)
            text = f"{self._what}: {share}{self._done}{of}{self._unit} [{elapsed}]"
            with contextlib.suppress(OSError):  # the reader has closed the stream
                print(text, file=self._stream, flush=True)
        self._stream = None

    def __exit__(self, *_: object) -> None:
        self.close()


def steps(n: int, size: int, what: str) -> Iterator[tuple[int, int]]:
    """(start, stop) of blocks of `size` out of n, with a bar named `what` if there is more than one."""
    with ProgressBar(n, what) if n > size else contextlib.nullcontext() as bar:
        for start in range(0, n, size):
            stop = min(start + size, n)
            yield start, stop
            if bar is not None:
                bar.update(stop - start)

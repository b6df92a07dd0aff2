"""The `randsmap` command: parses, calls the package and prints.

`_options` has the parser, `_commands` one function for each command, which is imported when a command runs.
"""

from __future__ import annotations

import argparse
import contextlib
import linecache
import os
import re
import signal
import sys
import traceback
import warnings
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import TextIO

from randsmap.cli._options import parser_for

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status (0; 1 after an error of the user's; 130 after Ctrl-C).

    Errors that are not the user's are raised, as all are with --debug.

    Parameters
    ----------
    argv : sequence of str, optional
        The arguments; those of the process if not given.
    """
    try:
        words = _with_negative_bounds(sys.argv[1:] if argv is None else argv)
        arguments = parser_for(words).parse_args(words, argparse.Namespace(words=words))
    finally:
        tell("", end="")  # flush what argparse has printed, to a closed pipe too
    # messages must not go where the output goes
    to_stdout = _is_stdout(getattr(arguments, "out", None))
    elsewhere = contextlib.redirect_stdout(sys.stderr) if to_stdout else contextlib.nullcontext()
    with _as_a_command(), elsewhere:
        try:
            command = getattr(import_module("randsmap.cli._commands"), arguments.command)
            import_module("randsmap._interface.callers").quiet(command)(arguments)
        except KeyboardInterrupt:
            tell("randsmap: interrupted", sys.stderr)
            return 130
        except Exception as error:
            if arguments.debug or not _is_of_the_user(error):
                raise
            what = "out of memory: " if isinstance(error, MemoryError) else ""
            tell(f"randsmap: error: {what}{error}", sys.stderr)
            return 1
    return 0


def _with_negative_bounds(argv: Sequence[str]) -> list[str]:
    """The arguments, with a blank before negative numbers after --bounds: argparse takes -1e-3 and -inf for options."""
    return [
        re.sub(r"^-(?=\.?\d|(?i:inf))", " -", word) if "--bounds" in argv[max(0, i - 2) : i] else word
        for i, word in enumerate(argv)
    ]


def _is_of_the_user(error: Exception) -> bool:
    """True for errors of files and memory, and for those that a `raise` statement of this package made.

    Others (of an operator, NumPy, a failed import) are faults of the package, whose traceback is needed.
    """
    if isinstance(error, OSError | MemoryError):
        return True
    if isinstance(error, ImportError):
        return error.name is None  # an import statement names the module, a message of ours the remedy
    if not isinstance(error, TypeError | ValueError):
        return False
    *_, (frame, line) = traceback.walk_tb(error.__traceback__)
    source = linecache.getline(frame.f_code.co_filename, line, frame.f_globals).strip()
    ours = frame.f_globals.get("__name__", "").partition(".")[0] in ("randsmap", "sklearn")
    return ours and (source.startswith("raise") or not source)  # frozen programs have no source


@contextlib.contextmanager
def _as_a_command() -> Iterator[None]:
    """Print warnings without the line of source; SIGTERM, by which batch systems stop a job, is an exception.

    So temporary files are removed.
    """
    with contextlib.ExitStack() as stack:
        stack.callback(setattr, warnings, "formatwarning", warnings.formatwarning)
        warnings.formatwarning = lambda message, *_, **__: f"randsmap: warning: {message}\n"
        with contextlib.suppress(ValueError):  # not the main thread
            before = signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
            stack.callback(signal.signal, signal.SIGTERM, signal.SIG_DFL if before is None else before)
        yield


def _is_stdout(path: str | os.PathLike[str] | None) -> bool:
    try:
        return path is not None and os.path.samestat(os.stat(path), os.fstat(sys.stdout.fileno()))
    except (AttributeError, OSError, ValueError):  # no such file, or no file behind sys.stdout
        return False


def tell(text: str, stream: TextIO | None = None, end: str = "\n") -> None:
    """Print what the stream can encode, whether or not someone still reads it."""
    stream = sys.stdout if stream is None else stream
    if stream is None:  # of a process without a console
        return
    encoding = getattr(stream, "encoding", None) or "utf-8"
    try:
        print(text.encode(encoding, "backslashreplace").decode(encoding), end=end, file=stream, flush=True)
    except BrokenPipeError:  # `| head`: the work goes on, the output goes nowhere
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)

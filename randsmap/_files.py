"""Files written whole or not at all."""

import os
import threading
from contextlib import contextmanager
from pathlib import Path

__all__ = ["replaced_atomically", "write_atomically"]


def write_atomically(path, write):
    """Make the file `path` by calling ``write(file)`` on a temporary one beside it, then renaming.

    A failure, an interrupt or a full disk leaves what was there before.

    Parameters
    ----------
    path : path
    write : callable
        Gets a binary file open for writing.
    """
    with replaced_atomically(path) as temporary, open(temporary, "wb") as file:
        write(file)
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def replaced_atomically(path):
    """The name of a temporary file beside `path`, which takes its place if the block does not fail."""
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}.tmp")
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)

"""Files that are there whole or not at all."""

import os
from pathlib import Path

__all__ = ["write_atomically"]


def write_atomically(path, write):
    """Make the file `path` by calling ``write(file)`` on a temporary one beside it, then renaming.

    A failure, an interrupt or a full disk leaves what was there before.

    Parameters
    ----------
    path : path
    write : callable
        Gets a binary file open for writing.
    """
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)

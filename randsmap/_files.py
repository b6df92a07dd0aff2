"""Files written whole or not at all."""

import hashlib
import os
import threading
from contextlib import contextmanager
from pathlib import Path

__all__ = ["checksum", "is_intact", "replaced_atomically", "write_atomically", "write_checked"]


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


def write_checked(path, write, *others):
    """`write_atomically`, with the checksums of the file and of the `others` beside it in ``path.sha256``."""
    write_atomically(path, write)
    text = _checksums(path, *others)
    write_atomically(_stamp(path), lambda file: file.write(text.encode()))


def is_intact(path, *others):
    """Whether these files are, to the bit, those that `write_checked` vouched for."""
    try:
        return _stamp(path).read_text() == _checksums(path, *others)
    except (OSError, UnicodeDecodeError):
        return False


def checksum(path):
    """SHA-256 of a file's content, hexadecimal."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _checksums(*paths):
    return "".join(f"{checksum(path)}\n" for path in paths)


def _stamp(path):
    return Path(f"{path}.sha256")

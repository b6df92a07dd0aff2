"""Files written whole or not at all; links, modes, pipes and devices as `open` treats them."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import secrets
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import ArrayLike

try:
    import fcntl
except ImportError:  # Windows, where a file that is open cannot be removed
    fcntl = None  # type: ignore[assignment]

# errors of a full disk, a quota and a limit of the process; the errors of writes have no file name
_NO_SPACE = (errno.ENOSPC, errno.EFBIG, getattr(errno, "EDQUOT", errno.ENOSPC))
# errors of posix_fallocate on a file system that cannot reserve space
_CANNOT_RESERVE = (errno.EINVAL, errno.ENODEV, errno.ENOSYS, errno.EOPNOTSUPP)
PathLike = str | os.PathLike[str]
CHUNK = 1 << 20  # bytes that are read or written at a time: they stay in cache


def expanded(path: PathLike) -> Path:
    """The path with a leading ~ replaced by the user's home."""
    return Path(os.path.expanduser(path))


def is_stream(path: PathLike) -> bool:
    """True if `path` is written in place: a pipe, a device, or the file that standard output goes to."""
    path = expanded(path)
    if not os.path.isfile(path):
        return os.path.exists(path) and not os.path.isdir(path)
    for descriptor in (1, 2):  # /dev/stdout > file
        with contextlib.suppress(OSError):
            if os.path.samestat(path.stat(), os.fstat(descriptor)):
                return True
    return False


def writable_target(path: PathLike) -> Path:
    """The file that a write to `path` makes or replaces: the last of a chain of links; OSError if that is forbidden."""
    path = expanded(path)
    stream = is_stream(path)
    target = path if stream else Path(os.path.realpath(path))  # the target of a pipe is no path
    if not target.parent.is_dir():
        raise FileNotFoundError(f"folder {target.parent} does not exist, to write {path}")
    if target.is_dir():
        raise IsADirectoryError(f"{path} is a folder, expected the name of a file")
    for place in [target] if stream else [target, target.parent]:
        with contextlib.suppress(FileNotFoundError):  # the file is new; a loop of links raises another error
            # os.access grants everything to the superuser
            if not os.stat(place).st_mode & 0o222 or not os.access(place, os.W_OK):
                what = "folder" if place.is_dir() else "file"
                raise PermissionError(f"{what} {place} gives no permission to write {path}")
    return target


def write_atomically(path: PathLike, write: Callable[[BinaryIO], object]) -> None:
    """Make the file `path` by `replaced_atomically`; `write` gets an empty file, open for writing and reading."""
    with replaced_atomically(path) as temporary, open(temporary, "w+b") as file:
        write(file)


@contextlib.contextmanager
def replaced_atomically(path: PathLike) -> Iterator[Path]:
    """The name of a temporary file, whose content becomes the content of `path` if the block does not fail.

    A failure, an interrupt or a full disk leaves the old file. The target of a symbolic link is replaced, with its
    mode and, if permitted, its owner. Pipes and devices are written when the block has ended. Temporary files that a
    killed process has left for the same `path` are removed. An OSError names `path`.
    """
    path = expanded(path)
    target = writable_target(path)
    stream = is_stream(path)
    folder = Path(tempfile.gettempdir()) if stream else target.parent
    # a digest, since the name may already have the greatest length that the file system allows
    prefix = f".randsmap-{hashlib.sha256(os.fsencode(target)).hexdigest()[:16]}-"
    temporary = None
    try:
        _remove_leftovers(folder, prefix)
        lock, temporary = _locked_temporary(folder, prefix)
        with lock:
            if not stream and target.exists():
                _keep_mode(lock.fileno(), target.stat())
            yield temporary
            os.fsync(lock.fileno())
            if stream:
                with open(temporary, "rb") as source, open(path, "wb") as sink:
                    shutil.copyfileobj(source, sink, CHUNK)
            else:
                if fcntl is None:
                    lock.close()  # Windows replaces no file that is open
                os.replace(temporary, target)
    except OSError as error:
        ours = temporary is not None and str(error.filename) == str(temporary)
        in_folder = temporary is None and error.filename is not None
        if ours or in_folder or (error.filename is None and error.errno in _NO_SPACE):
            raise OSError(error.errno, error.strerror, str(path)) from None
        raise
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def _locked_temporary(folder, prefix):
    """A new open file and its name; the lock ends with the process, even if the process is killed."""
    while True:
        path = folder / f"{prefix}{secrets.token_hex(4)}.tmp"
        file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666), "rb")
        if fcntl is None:
            return file, path
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(file, fcntl.LOCK_EX)
        # before the lock was set, another process may have removed the file as a leftover
        if path.exists() and os.path.samestat(os.fstat(file.fileno()), path.stat()):
            return file, path
        file.close()


def _remove_leftovers(folder, prefix):
    for leftover in folder.glob(f"{prefix}*.tmp"):
        with contextlib.suppress(OSError):  # the file is in use, or has another owner
            if fcntl is None:
                leftover.unlink()
                continue
            with open(leftover, "rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                leftover.unlink()


def _keep_mode(descriptor, status):
    if not hasattr(os, "fchmod"):  # Windows before Python 3.13
        return
    ours = os.fstat(descriptor)
    if (ours.st_uid, ours.st_gid) != (status.st_uid, status.st_gid):
        with contextlib.suppress(PermissionError):
            os.fchown(descriptor, status.st_uid, status.st_gid)
    os.fchmod(descriptor, stat.S_IMODE(status.st_mode))


# -- Space on the disk ---------------------------------------------------------------------------------
def mapping_of(X: object) -> np.memmap | None:
    """The np.memmap that X is or is a view of, else None."""
    found = None
    while isinstance(X, np.ndarray):
        if isinstance(X, np.memmap):
            found = X  # the last one has the mapping's own offset and mode
        X = X.base
    return found


def reserve(array: np.ndarray) -> None:
    """Reserve disk space for an array that is mapped for writing: a write without space ends the process (SIGBUS)."""
    owner = mapping_of(array)
    if owner is None or owner.mode not in ("r+", "w+") or owner.filename is None or os.name == "nt":
        return
    start = owner.offset + array.__array_interface__["data"][0] - owner.__array_interface__["data"][0]
    try:
        file = open(owner.filename, "r+b", buffering=0)
    except OSError:  # the file was removed, or is not writable any more
        return
    with file:
        if os.fstat(file.fileno()).st_size < start + array.nbytes:  # the name belongs to another file now
            return
        try:
            _reserve(file, start, array.nbytes)
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(owner.filename)) from None


def _reserve(file, start, size):
    if hasattr(os, "posix_fallocate") and size:
        try:
            return os.posix_fallocate(file.fileno(), start, size)
        except OSError as error:
            if error.errno not in _CANNOT_RESERVE:
                raise
    for at in range(start, start + size, CHUNK):  # rewriting the bytes fills the holes
        file.seek(at)
        content = file.read(min(CHUNK, start + size - at))
        file.seek(at)
        file.write(content)


# -- Checksums -----------------------------------------------------------------------------------------
def write_checked(path: PathLike, write: Callable[[BinaryIO], object], *others: PathLike) -> None:
    """`write_atomically`, with checksums of the file and of the `others` in ``path.sha256``."""
    write_atomically(path, write)
    write_atomically(f"{path}.sha256", lambda file: file.write(_checksums(path, *others).encode()))


def is_intact(path: PathLike, *others: PathLike) -> bool:
    """True if these files have the checksums that `write_checked` has stored."""
    try:
        return Path(f"{path}.sha256").read_text() == _checksums(path, *others)
    except (OSError, UnicodeDecodeError):
        return False


def checksum(path: PathLike) -> str:
    """SHA-256 of a file's content, hexadecimal."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _checksums(*paths):
    return "".join(f"{checksum(path)}\n" for path in paths)


def save_arrays(file: BinaryIO, arrays: Mapping[str, ArrayLike], *, compressed: bool = False) -> None:
    """Write an .npz file of these arrays; ValueError for one of objects, which NumPy before 2.1 would pickle."""
    given = {name: np.asarray(value) for name, value in arrays.items()}
    for name, array in given.items():
        if array.dtype.hasobject:
            raise ValueError(f"{name} holds objects, which a file without pickles cannot")
    write: Callable[..., None] = np.savez_compressed if compressed else np.savez
    write(file, **given)

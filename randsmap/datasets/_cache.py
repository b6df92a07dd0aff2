"""Data sets kept on disk between runs; a file is believed only when its checksum is right."""

import hashlib
import json

import numpy as np

from randsmap.persistence import write_atomically

__all__ = ["cached"]


def cached(folder, description, make):
    """The array that ``make(path)`` puts into a .npy file, made once for each description.

    Parameters
    ----------
    folder : Path
        Where the files are; must exist.
    description : dict
        What the data depend on, JSON-able; its hash is in the file's name (the content key).
    make : callable
        ``make(path)`` writes the array to the .npy file `path`, whole or not at all.

    Returns
    -------
    ndarray
        Memory-mapped, read-only. A file that is damaged, or that nothing vouches for, is made anew.
    """
    key = hashlib.sha256(json.dumps(description, sort_keys=True).encode()).hexdigest()[:16]
    path, stamp = folder / f"data-{key}.npy", folder / f"data-{key}.sha256"
    try:
        intact = stamp.read_text().strip() == _checksum(path)
    except (OSError, UnicodeDecodeError):
        intact = False
    if not intact:
        make(path)
        checksum = _checksum(path)
        write_atomically(stamp, lambda file: file.write(f"{checksum}\n".encode()))
    return np.load(path, mmap_mode="r")


def _checksum(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

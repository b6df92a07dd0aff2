"""Data sets kept on disk between runs; a file is believed only when its checksum is right."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from randsmap._io.files import is_intact, save_arrays, write_checked


def cached(
    folder: Path, description: Mapping[str, Any], make: Callable[[Path], Mapping[str, Any]]
) -> tuple[NDArray[np.float64], dict[str, NDArray[Any]]]:
    """The memory-mapped data set that ``make(path)`` writes to a .npy file, and the other arrays that it returns.

    It is made once for each `description`, JSON values on which the data depend and whose hash is in the file's name.
    Files without the right checksums are made again.
    """
    key = hashlib.sha256(json.dumps(description, sort_keys=True).encode()).hexdigest()[:16]
    path, about = (folder / f"data-{key}.{kind}" for kind in ("npy", "npz"))
    if not is_intact(about, path):
        known = {name: np.asarray(value) for name, value in make(path).items() if name != "data"}
        write_checked(about, lambda file: save_arrays(file, known), path)
    with np.load(about, allow_pickle=False) as file:
        return np.load(path, mmap_mode="r"), {name: file[name] for name in file.files}

"""Finished pieces of a study on disk, so that an interrupted one goes on where it stopped.

A piece is a dict of arrays in an .npz file, or of JSON values. A file is read only if its checksum is right.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from randsmap._io.files import is_intact, save_arrays, write_atomically, write_checked

Piece = dict[str, Any]


def open_pieces(folder: Path, configuration: dict[str, Any]) -> Path:
    """The folder of the pieces that depend on these JSON values; ValueError if `folder` has those of others."""
    configuration = json.loads(json.dumps(configuration))  # as it will be read
    folder.mkdir(parents=True, exist_ok=True)
    pieces, path = folder / "pieces", folder / "config.json"
    found = _configuration(path)
    if found is None and pieces.exists():
        raise ValueError(f"{folder} holds pieces of a study but no config.json; remove it or choose another folder")
    if found is None:
        write_atomically(path, lambda file: file.write(_json(configuration)))
    elif found != configuration:
        differing = sorted(k for k in configuration.keys() | found.keys() if configuration.get(k) != found.get(k))
        raise ValueError(
            f"{folder} holds another configuration (different: {', '.join(differing)}); choose another folder"
        )
    pieces.mkdir(exist_ok=True)
    return pieces


def _configuration(path: Path) -> dict[str, Any] | None:
    """The configuration in a file; None if there is no file."""
    try:
        found = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise ValueError(f"{path} is damaged; remove {path.parent} or choose another folder")
    return found


def stored(path: Path, make: Callable[[], Piece], *others: Path, found: Callable[[], object] | None = None) -> Piece:
    """The piece in a file, made and written if the file, or one of the `others` that `make` writes, is not intact.

    `found` is called if all are intact.
    """
    if not is_intact(path, *others):
        put(path, make(), *others)
    elif found is not None:
        found()
    # also a new piece is read, so that a study that goes on computes with the same bits
    return read_arrays(path) if path.suffix == ".npz" else json.loads(path.read_text())


def put(path: Path, piece: Piece, *others: Path) -> None:
    """Write a piece, with the checksums of its file and of the others."""
    if path.suffix == ".npz":
        write_checked(path, lambda file: save_arrays(file, piece), *others)
    else:
        write_checked(path, lambda file: file.write(_json(piece)), *others)


def _json(value):
    return f"{json.dumps(value, indent=1)}\n".encode()


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays of an .npz file, which is closed whatever happens."""
    with open(path, "rb") as file, np.load(file, allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}

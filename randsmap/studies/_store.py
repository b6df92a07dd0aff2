"""Finished pieces of a study on disk, so that an interrupted one goes on where it stopped."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from randsmap._io.files import is_intact, save_arrays, write_atomically, write_checked

Piece = dict[str, Any]


class Store:
    """Finished pieces of one configuration: small JSON and .npz files, written atomically, with checksums.

    `configuration` has the JSON values on which the pieces depend; a folder of another one raises ValueError.
    """

    def __init__(self, folder: Path, configuration: dict[str, Any]) -> None:
        configuration = json.loads(json.dumps(configuration))  # as it will be read
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder / "pieces"
        path = folder / "config.json"
        found = self._found(path)
        if found is None:
            if self._folder.exists():
                raise ValueError(
                    f"{folder} holds pieces of a study but no config.json; remove it or choose another folder"
                )
            write_atomically(path, lambda file: file.write(_json(configuration)))
        elif found != configuration:
            differing = sorted(k for k in configuration.keys() | found.keys() if configuration.get(k) != found.get(k))
            raise ValueError(
                f"{folder} holds another configuration (different: {', '.join(differing)}); choose another folder"
            )
        self._folder.mkdir(exist_ok=True)

    @staticmethod
    def _found(path: Path) -> dict[str, Any] | None:
        """The configuration in a file, None if there is none."""
        try:
            found = json.loads(path.read_text())
        except FileNotFoundError:
            return None
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise ValueError(f"{path} is damaged; remove {path.parent} or choose another folder")
        return found

    def get(self, name: str, make: Callable[[], Piece], skip: Callable[[], object] | None = None) -> Piece:
        """The piece from disk (then `skip()` is called), else ``make()``, which is stored.

        A piece is a dict of JSON values, or of arrays if its name ends in ``.npz``. One without an intact checksum is
        made again.
        """
        path = self._path(name)
        if not is_intact(path):
            piece = make()
            self.put(name, piece)
            return piece
        if skip is not None:
            skip()
        return read_arrays(path) if name.endswith(".npz") else json.loads(path.read_text())

    def put(self, name: str, piece: Piece) -> None:
        """Store a piece."""
        if name.endswith(".npz"):
            write_checked(self._path(name), lambda file: save_arrays(file, piece))
        else:
            write_checked(self._path(name), lambda file: file.write(_json(piece)))

    def _path(self, name):
        return self._folder / (name if name.endswith(".npz") else f"{name}.json")


def _json(value):
    return f"{json.dumps(value, indent=1)}\n".encode()


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays of an .npz file; closed whatever happens."""
    with open(path, "rb") as file, np.load(file, allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}

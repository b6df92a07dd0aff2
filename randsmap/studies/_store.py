"""Finished pieces of a study on disk, so that an interrupted one goes on where it stopped."""

import json

import numpy as np

from randsmap._files import write_atomically

__all__ = ["Store", "read_arrays"]


class Store:
    """Finished pieces of one configuration: small JSON and .npz files, written atomically.

    Parameters
    ----------
    folder : Path
        Created if missing.
    configuration : dict
        JSON values; what the pieces depend on.

    Raises
    ------
    ValueError
        If the folder holds pieces of another configuration.
    """

    def __init__(self, folder, configuration):
        configuration = json.loads(json.dumps(configuration))  # as it will be read
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder / "pieces"
        path = folder / "config.json"
        try:
            found = json.loads(path.read_text())
            if not isinstance(found, dict):
                raise ValueError("not an object")
        except FileNotFoundError:
            found = None
        except ValueError:
            raise ValueError(f"{path} is damaged; remove {folder} or choose another folder") from None
        if found is None:
            if self._folder.exists():
                raise ValueError(
                    f"{folder} holds pieces of a study but no config.json; remove it or choose another folder"
                )
            _write_json(path, configuration)
        elif found != configuration:
            differing = sorted(k for k in configuration.keys() | found.keys() if configuration.get(k) != found.get(k))
            raise ValueError(
                f"{folder} holds another configuration (different: {', '.join(differing)}); choose another folder"
            )
        self._folder.mkdir(exist_ok=True)

    def get(self, name, make, skip=None):
        """The piece from disk (then `skip()` is called), else ``make()``, kept on disk.

        A piece is a dict, of JSON values or of arrays (a piece whose name ends in ``.npz``).
        """
        path, read, write = self._folder / f"{name}.json", _read_json, _write_json
        if name.endswith(".npz"):
            path, read, write = self._folder / name, read_arrays, _write_arrays
        try:
            piece = read(path)
        except FileNotFoundError:
            piece = None
        except Exception:  # damaged; zip, zlib, JSON and NumPy each have their own error for that
            piece = None
        if piece is None:
            piece = make()
            write(path, piece)
        elif skip is not None:
            skip()
        return piece

    def put(self, name, piece):
        """Keep a piece of arrays."""
        _write_arrays(self._folder / name, piece)


def _read_json(path):
    piece = json.loads(path.read_text())
    if not isinstance(piece, dict):
        raise ValueError("not an object")
    return piece


def _write_json(path, value):
    text = json.dumps(value, indent=1) + "\n"
    write_atomically(path, lambda file: file.write(text.encode()))


def read_arrays(path):
    """The arrays of an .npz file; closed whatever happens."""
    with open(path, "rb") as file, np.load(file, allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}


def _write_arrays(path, arrays):
    write_atomically(path, lambda file: np.savez(file, allow_pickle=False, **arrays))

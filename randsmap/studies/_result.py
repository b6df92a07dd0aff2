"""What a study leaves in its folder: the finished pieces, then its table and the arrays of its figures.

A piece is a dict of arrays in an .npz file, with which an interrupted study goes on where it stopped. A file is read
only if its checksum is right. The guide Reports lists the keys of rows and arrays.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from randsmap._interface.parameters import document
from randsmap._io.files import is_intact, save_arrays, write_atomically, write_checked

Piece = dict[str, Any]
MAX_SHOWN = 2000  # test samples in the figures: of more fields the file would be as large as the data

_TEXTS: dict[str, Any] = {
    "result": """\
Parameters
----------
result : StudyResult""",
    "path": """\
path : path
    It is replaced as a whole, or not at all.

Raises
------
OSError
    If the file cannot be written.""",
    "no_jinja": """\
Raises
------
ImportError
    If jinja2 is not installed.""",
    "run": """\
Examples
--------
>>> import pathlib, tempfile
>>> from randsmap import studies
>>> study = studies.s_curve_study()
>>> with tempfile.TemporaryDirectory() as folder:
...     result = studies.run_study(study, out=folder, quick=True, decoders=["POD"], progress=False)""",
}
documented = partial(document, texts=_TEXTS)


def data_file(name: str) -> str:
    """The text of a file of ``data``."""
    return files("randsmap.studies").joinpath("data", name).read_text(encoding="utf-8")


@documented
@dataclass
class StudyResult:
    """A finished study; the guide Reports lists the keys of its rows and arrays.

    Parameters
    ----------
    name, title, section : str
        Name on the command line, title, and section of the paper.
    notes, cuts : list of str
        Readings of the paper and caveats, and what this run leaves out of the full study.
    options : dict
        Arguments of the run: runs, seed, feature_seed, quick, split, ... (JSON values).
    command, date, version : str
        Command line that repeats it, day (ISO) and version of the package.
    rows : list of dict
    arrays : dict of str to ndarray

    {run}
    >>> result.part_names, len(result.part_rows("N1000", "test"))
    (['N1000'], 1)
    """

    name: str
    title: str
    section: str
    notes: list[str]
    cuts: list[str]
    options: dict[str, Any]
    command: str
    date: str
    version: str
    rows: list[dict[str, Any]]
    arrays: dict[str, NDArray[Any]] = field(default_factory=dict, repr=False)

    @property
    def part_names(self) -> list[str]:
        """Parts in the order of the table: ["N1000", "N2000"]."""
        return [f"N{n}" for n in dict.fromkeys(row["n_train"] for row in self.rows)]

    def part_rows(self, part: str, split: str | None = None) -> list[dict[str, Any]]:
        """Rows of a part, of one split or of both.

        Parameters
        ----------
        part : str
            One of `part_names`.
        split : {"train", "test"} or None

        Returns
        -------
        list of dict
        """
        return [row for row in self.rows if f"N{row['n_train']}" == part and split in (None, row["split"])]


@documented
def save_result(result: StudyResult, folder: str | os.PathLike[str]) -> None:
    """Write result.json and figures.npz, each of them whole or not at all.

    {result}
    folder : path
        Created if missing.

    Raises
    ------
    OSError
        If they cannot be written.

    {run}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     studies.save_result(result, folder)
    ...     studies.load_result(folder).rows == result.rows
    True
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    about = asdict(result)
    arrays = about.pop("arrays")
    write_atomically(folder / "figures.npz", lambda file: save_arrays(file, arrays, compressed=True))
    text = json.dumps(about, indent=1, allow_nan=False) + "\n"
    write_atomically(folder / "result.json", lambda file: file.write(text.encode()))


@documented
def load_result(folder: str | os.PathLike[str]) -> StudyResult:
    """The `StudyResult` that a finished study left in a folder.

    Parameters
    ----------
    folder : path
        That of `run_study`, or of ``randsmap study``.

    Returns
    -------
    StudyResult

    Raises
    ------
    ValueError
        If the folder holds no finished study or its files are damaged.

    {run}
    ...     studies.load_result(folder).rows == result.rows
    True
    """
    folder = Path(folder)
    try:
        about = json.loads((folder / "result.json").read_text())
        return StudyResult(**about, arrays=read_arrays(folder / "figures.npz"))
    except FileNotFoundError as error:
        raise ValueError(
            f"{folder} holds no finished study ({Path(error.filename).name} is missing); run the study"
        ) from None
    except Exception as error:  # zip, zlib, JSON and NumPy each have their own for a damaged file
        raise ValueError(f"{folder} is damaged ({error}); run the study again") from None


# --- finished pieces ------------------------------------------------------------------------------


def open_pieces(folder: Path, configuration: dict[str, Any]) -> Path:
    """The folder of the pieces that depend on these JSON values; ValueError if `folder` has those of others."""
    configuration = json.loads(json.dumps(configuration))  # as it will be read
    folder.mkdir(parents=True, exist_ok=True)
    pieces, path = folder / "pieces", folder / "config.json"
    try:
        found = json.loads(path.read_text())
    except FileNotFoundError:
        if pieces.exists():
            raise ValueError(
                f"{folder} holds pieces of a study but no config.json; remove it or choose another folder"
            ) from None
        write_atomically(path, lambda file: file.write(json.dumps(configuration, indent=1).encode()))
        found = configuration
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise ValueError(f"{path} is damaged; remove {folder} or choose another folder")
    if found != configuration:
        differing = sorted(k for k in configuration.keys() | found.keys() if configuration.get(k) != found.get(k))
        raise ValueError(
            f"{folder} holds another configuration (different: {', '.join(differing)}); choose another folder"
        )
    pieces.mkdir(exist_ok=True)
    return pieces


def stored(path: Path, make: Callable[[], Piece], *others: Path) -> Piece:
    """The piece in a file, made and written if the file, or one of the `others` that `make` writes, is not intact."""
    if not is_intact(path, *others):
        piece = make()
        write_checked(path, lambda file: save_arrays(file, piece), *others)
    return read_arrays(path)  # also a new piece, so that a study that goes on computes with the same bits


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays of an .npz file, which is closed whatever happens."""
    with open(path, "rb") as file, np.load(file, allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}

"""A finished study: its table and the arrays of its figures, as files and in memory (keys: docs/reports.md)."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from randsmap._io.files import save_arrays, write_atomically
from randsmap.studies._store import read_arrays
from randsmap.studies._texts import documented

MAX_SHOWN = 2000  # test samples in the figures: of more fields the file would be as large as the data


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

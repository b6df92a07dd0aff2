"""A finished study: its table and the arrays of its figures, as files and in memory.

A study's folder holds, besides the finished pieces of the run, ``result.json`` (`StudyResult` without its arrays),
``figures.npz`` (the arrays, no pickles) and the table as ``table.csv`` and ``table.md``.

Arrays
------
A study has one part for each training size (the Swiss roll two, all others one); ``N1000/...`` is the part with 1000
training points (`StudyResult.part_names`). The same L test samples, at most 2000, are shown in all arrays of ``test``
and ``decoder``; the latter are those of the first run. Text is stored as arrays of str. Keys that a study lacks are
absent. Below ``{part}/``:

=================================================  ===================================================================
``point_names`` (3,), ``statistic_names`` (S,)     names of the columns of points and of statistics
``color_name`` ()                                  name of color
``train/points`` (n, 3), ``test/points`` (L, 3)    three summary statistics of the fields, or coordinates of points
``train/statistics`` (n, S), ``test/...`` (L, S)   mean, variance, skewness along each axis of a field
``train/color`` (n,), ``test/color`` (L,)          angle, mean position or time, as the paper colours
``train/latents`` (n, d)                           the embedding
``test/intrinsic`` (L, q), ``intrinsic_names``     angle, time, intrinsic coordinates; not for the user's own data
``decoders`` (D,)                                  labels of the decoders with figures, in the order of the table
``decoder/{label}/points``, ``.../statistics``     as for the truth; NaN where negative values leave no variance
``decoder/{label}/errors`` (L,)                    relative L2 errors
``decoder/{label}/features_per_sample`` ()         P / N with the least training error; NaN without random features
``decoder/{label}/field``                          reconstruction of the one field shown; not for manifolds
``field/truth``, ``field/index`` ()                the field itself, chosen before any decoder is run, and its sample
``field/x``, ``field/y``, ``field/mask``           coordinates of its axes (not for images); False in an obstacle
``ddm/weights`` (W,), ``ddm/ranks`` (R,)           w_2 and r of the map of DDM
``ddm/errors`` (W, R)                              mean relative L2 validation errors over w_2 and r
``ddm/rule_ranks`` (W,)                            r by the paper's printed eigenvalue rule; up to 2000 points
``ddm/rule_errors`` (W,), ``ddm/rule`` (3,)        errors with that r (NaN if not tried); w_2, r and error of the best
``ddm/starred`` (2,)                               w_2 and r of the star in the paper's figure
=================================================  ===================================================================

Rows
----
`StudyResult.rows` is a list of dict with the keys of `_table.COLUMNS`: dataset, split ("train" or "test"), decoder
(label), features_per_sample (None if it draws none), n_train, parameter and hyperparameter (name and value of what was
tuned, or None), on_edge (whether that value is an edge of its grid), extra (whether the paper has no such row), runs,
and for each quantity of rel_l2, rel_linf, conservation and seconds ``{quantity}_median``, ``_p05``, ``_p95`` over the
runs (None if no mass is conserved), the paper's ``paper_{quantity}_...`` and the ratio of the medians
``ratio_{quantity}``.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from randsmap._io.files import save_arrays, write_atomically
from randsmap.studies._store import read_arrays

MAX_SHOWN = 2000  # test samples in the figures: of more fields the file would be as large as the data


@dataclass
class StudyResult:
    """A finished study. See the module's text for rows and arrays.

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

    Examples
    --------
    >>> import tempfile
    >>> from randsmap.studies import run_study, s_curve_study
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     result = run_study(s_curve_study(), out=folder, quick=True, decoders=["POD"], progress=False)
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


def save_result(result: StudyResult, folder: str | os.PathLike[str]) -> None:
    """Write result.json and figures.npz, each of them whole or not at all.

    Parameters
    ----------
    result : StudyResult
    folder : path
        Created if missing.

    Raises
    ------
    OSError
        If they cannot be written.

    Examples
    --------
    >>> import tempfile
    >>> from randsmap.studies import load_result, run_study, s_curve_study, save_result
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     result = run_study(s_curve_study(), out=folder, quick=True, decoders=["POD"], progress=False)
    ...     save_result(result, folder + "/copy")
    ...     load_result(folder + "/copy").rows == result.rows
    True
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    about = asdict(result)
    arrays = about.pop("arrays")
    write_atomically(folder / "figures.npz", lambda file: save_arrays(file, arrays, compressed=True))
    text = json.dumps(about, indent=1, allow_nan=False) + "\n"
    write_atomically(folder / "result.json", lambda file: file.write(text.encode()))


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

    Examples
    --------
    >>> import tempfile
    >>> from randsmap.studies import load_result, run_study, s_curve_study
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     result = run_study(s_curve_study(), out=folder, quick=True, decoders=["POD"], progress=False)
    ...     load_result(folder).rows == result.rows
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

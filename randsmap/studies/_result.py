"""What a study leaves behind: its table and the arrays of its figures, as files and in memory.

A study's folder holds, besides the finished pieces of the run,

========================  ===========================================================================
``result.json``           all of `StudyResult` but the arrays
``figures.npz``           the arrays (no pickles)
``table.csv``, ``.md``    the table, for machines and for readers
========================  ===========================================================================

Keys of the arrays
------------------
A study has one part for each training size (the Swiss roll two, all others one); ``N1000/...`` is the
part with 1000 training points (`StudyResult.part_names`). L is the number of test samples shown (at
most 2000), all arrays of ``test`` and ``decoder`` are about the same L samples in the same order.
Text is stored as arrays of str; use ``str(array)`` or ``array.tolist()``.

``{part}/train/points`` (n, 3)
    Training data in three coordinates: summary statistics (LWR: mean, variance, skewness along x;
    Hughes: mean x, mean y, variance along x; images: mean column, mean row, variance along the
    columns) or the coordinates that the paper plots (Swiss roll 1-3, S-curve 1, 6, 20).
``{part}/train/statistics`` (n, S)
    All summary statistics: mean, variance and skewness along each axis of the field. Not for manifolds.
``{part}/train/color`` (n,)
    Angle, mean position or time, what the paper colours by.
``{part}/train/latents`` (n, d)
    The embedding Y_train.
``{part}/point_names`` (3,), ``{part}/statistic_names`` (S,), ``{part}/color_name`` ()
    Labels of the columns of points and statistics, and of color.
``{part}/test/points`` (L, 3), ``{part}/test/statistics`` (L, S), ``{part}/test/color`` (L,)
    The same of the true test samples.
``{part}/test/intrinsic`` (L, q), ``{part}/intrinsic_names`` (q,)
    What is known of the test samples beyond the field: angle, time, intrinsic coordinates. Not for the
    user's own data.
``{part}/decoders`` (D,)
    Labels of the decoders with figures, in the order of the table. For each label, at the feature
    count with the lowest training error (the paper's choice) and of the first run:
``{part}/decoder/{label}/points`` (L, 3), ``.../statistics`` (L, S)
    As for the truth, of the reconstructions; NaN where negative values leave no variance.
``{part}/decoder/{label}/errors`` (L,)
    Relative L2 errors.
``{part}/decoder/{label}/features_per_sample`` ()
    P / N; NaN where the decoder draws no features.
``{part}/decoder/{label}/field`` (nx,) or (nx, ny) or (height, width)
    Reconstruction of the one field shown. Not for manifolds.
``{part}/field/truth`` (as ``field``), ``{part}/field/index`` ()
    The field itself, and its row among the L samples, chosen before any decoder is run: time nearest
    to 15 (LWR: shocks have formed) or 10 (Hughes: the crowd passes the obstacle), angle nearest to 0,
    the middle sample of the user's own data.
``{part}/field/mask`` (nx, ny) of bool
    True where there may be density; where the data have an obstacle.
``{part}/field/x`` (nx,), ``{part}/field/y`` (ny,)
    Coordinates of the axes, where there are any (not for images: row 0 on top).
``{part}/ddm/weights`` (W,), ``{part}/ddm/ranks`` (R,), ``{part}/ddm/errors`` (W, R)
    Mean relative L2 validation error of DDM over w_2 and r.
``{part}/ddm/rule_ranks`` (W,)
    r by the paper's printed eigenvalue rule for each w_2; up to 2000 training points.
``{part}/ddm/rule_errors`` (W,), ``{part}/ddm/rule`` (3,)
    Validation error with that r, for each w_2 (NaN where it was not tried), and the best of them: w_2,
    r, error. Only if both DDM decoders were run.
``{part}/ddm/starred`` (2,)
    (w_2, r) of the star in the paper's figure; only where the paper has that figure.

Keys that a study lacks are absent; a part has figures of those decoders only that were run.

Rows
----
`StudyResult.rows` is a list of dict with the keys of `_table.COLUMNS`: dataset, split ("train" or
"test"), decoder (label), features_per_sample (None: draws none), n_train, parameter (name of what was
tuned, None: nothing), hyperparameter (its value), on_edge (bool: that value is an edge of its grid),
extra (bool: the paper has no such row), runs (how many), and for quantity in rel_l2, rel_linf,
conservation, seconds: ``{quantity}_median``, ``_p05``, ``_p95`` (of one run all three are the same;
conservation is None where no mass is conserved), ``paper_{quantity}_median``, ``_p05``, ``_p95`` (None
where the paper has no such number) and ``ratio_{quantity}`` (our median / the paper's, or None).
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

__all__ = ["StudyResult", "load_result", "save_result"]

MAX_SHOWN = 2000  # test samples in the figures


@dataclass
class StudyResult:
    """A finished study. See the module's text for rows and arrays.

    Parameters
    ----------
    name : str
        As on the command line: "swiss-roll".
    title, section : str
        What it is; where it stands in the paper.
    notes : list of str
        Sentences on readings of the paper and caveats: which reading was used, why the data cannot be
        the paper's.
    cuts : list of str
        What this run left out of the full study (``quick``, fewer runs, some decoders); empty if
        nothing.
    options : dict
        What the run was asked for: runs, seed, feature_seed, quick, split, ... (JSON values).
    command, date, version : str
        Command line that makes it again, day (ISO) and version of the package.
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

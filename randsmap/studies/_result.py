"""What a study leaves in its folder: the finished pieces, then the arrays of its figures and its table.

A piece is a dict of arrays in an .npz file that is read only if its checksum is right. The guide Studies lists the keys
of rows and arrays.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shutil
import textwrap
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from randsmap._interface.parameters import document
from randsmap._io.files import is_intact, save_arrays, write_atomically, write_checked
from randsmap.reports import percents

Piece = dict[str, Any]
Row = dict[str, Any]
MAX_SHOWN = 2000  # test samples in the figures: with more fields the file would be as large as the data

_TEXTS: dict[str, Any] = {
    "result": "result : StudyResult",
    "results": "results : sequence of StudyResult",
    "returns_text": "str\n    Lines.",
    "folder": "folder : path\n    Created if missing.",
    "figures": "figures : path, default=None\n    Folder for pictures as PDF files, whose arrays are in figures.npz.",
    "rows": "rows : list of dict\n    Such as `StudyResult.rows`.",
    "returns_page": "Path\n    The file, written whole or not at all.",
    "raises_import": "ImportError\n    If jinja2 is not installed.",
    "study": """\
Returns
-------
Study

Examples
--------
>>> from randsmap import studies
>>> studies.hughes_study().sizes, studies.s_curve_study().encoder.n_components
(((5000, 5000, 20000),), 2)""",
    "example": """\
>>> import tempfile
>>> from randsmap import studies
>>> study = studies.s_curve_study()
>>> with tempfile.TemporaryDirectory() as folder:
...     result = studies.run_study(study, out=folder, quick=True, decoders=["POD"], progress=False)
...     studies.load_result(folder).rows == result.rows
True
>>> result.part_names, len(result.part_rows("N1000", "test"))
(['N1000'], 1)
>>> studies.format_table(result.rows).splitlines()[0]
'N = 1000, training set'
>>> studies.claims_markdown([result]).splitlines()[0][:24]
'| the paper says | where'""",
}
documented = partial(document, texts=_TEXTS)


def data_file(name: str) -> str:
    """The text of a file of ``data``."""
    return files("randsmap.studies").joinpath("data", name).read_text(encoding="utf-8")


@documented
@dataclass
class StudyResult:
    """A finished study; the guide Studies lists the keys of its rows and arrays.

    Use it to draw or compare results: `run_study` returns it, and `load_result` reads it from a folder.

    Parameters
    ----------
    name, title, section : str
        Name on the command line, title, and section of the paper.
    notes, cuts : list of str
        Interpretations of the paper, caveats, and what this run leaves out of the full study.
    options : dict
        Arguments of the run: runs, seed, feature_seed, quick, split, ... (JSON values).
    command, date, version : str
        Command line that repeats it, day (ISO) and version of the package.
    rows : list of dict
    arrays : dict of str to ndarray

    {example}
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
    """Write result.json and figures.npz into a folder, which is made, each of them completely or not at all."""
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

    {example}
    """
    folder = Path(folder)
    try:
        about = json.loads((folder / "result.json").read_text())
        return StudyResult(**about, arrays=read_arrays(folder / "figures.npz"))
    except FileNotFoundError as error:
        missing = f"{Path(error.filename).name} is missing"
        raise ValueError(f"{folder} holds no finished study ({missing}); run the study") from None
    except Exception as error:  # zip, zlib, JSON and NumPy each have their own for a damaged file
        raise ValueError(f"{folder} is damaged ({error}); run the study again") from None


# --- finished pieces ------------------------------------------------------------------------------
def open_pieces(folder: Path, configuration: dict[str, Any]) -> Path:
    """The folder of the pieces that depend on these JSON values; ValueError if `folder` has those of others."""
    configuration = json.loads(json.dumps(configuration))  # as a file returns it
    folder.mkdir(parents=True, exist_ok=True)
    pieces, path = folder / "pieces", folder / "config.json"
    if not path.exists():
        if pieces.exists():
            raise ValueError(f"{folder} holds pieces of a study but no config.json; remove it or choose another folder")
        write_atomically(path, lambda file: file.write(json.dumps(configuration, indent=1).encode()))
    try:
        found = {**json.loads(path.read_text())}
    except (TypeError, ValueError):
        raise ValueError(f"{path} is damaged; remove {folder} or choose another folder") from None
    differing = sorted(k for k in configuration.keys() | found.keys() if configuration.get(k) != found.get(k))
    if differing:
        raise ValueError(f"{folder} holds another configuration (different: {', '.join(differing)}); choose another")
    pieces.mkdir(exist_ok=True)
    return pieces


def stored(path: Path, make: Callable[[], Piece], *others: Path) -> Piece:
    """The piece in a file, made and written if the file, or one of the `others` that `make` writes, is not intact."""
    if not is_intact(path, *others):
        piece = make()
        write_checked(path, lambda file: save_arrays(file, piece), *others)
    return read_arrays(path)  # a new piece is read again too, so that a resumed study is bit-identical


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays of an .npz file, which is closed whatever happens."""
    with open(path, "rb") as file, np.load(file, allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}


# --- the table -------------------------------------------------------------------------------------
BEST = " <"  # marks the best row of a table
QUANTITIES = {"rel_l2": "rel. L2", "rel_linf": "rel. Linf", "conservation": "conservation", "seconds": "seconds"}
PERCENTILES = {"median": 50, "p05": 5, "p95": 95}
_STYLES = {"rel_l2": ".4f", "rel_linf": ".4f", "conservation": ".1e", "seconds": ".2f"}
_FIGURES = [f"{quantity}_{name}" for quantity in QUANTITIES for name in PERCENTILES]
COLUMNS = (
    *("dataset", "split", "decoder", "features_per_sample", "n_train", "parameter", "hyperparameter"),
    *_FIGURES,
    *(f"paper_{figure}" for figure in _FIGURES),
    *(f"ratio_{quantity}" for quantity in QUANTITIES),
    *("on_edge", "extra", "runs"),
)
# columns that a narrow terminal leaves out, in this order
_DISPENSABLE = (
    *("percentiles", "ratio_conservation", "ratio_seconds", "ratio_rel_linf", "paper_rel_linf", "rel_linf"),
    *("ratio_rel_l2", "paper_seconds", "paper_conservation", "hyperparameter", "seconds", "paper_rel_l2"),
    "conservation",
)


def features_text(fraction: float) -> str:
    """P / N in words: "P = N/2"."""
    return {1.0: "P = N", 0.5: "P = N/2", 0.25: "P = N/4"}.get(fraction, f"P = {fraction:g} N")


def case_text(label: str, fraction: float | None) -> str:
    """A decoder with its number of features, if it draws any: "RFNN-Sig, P = N/2"."""
    return label if fraction is None else f"{label}, {features_text(fraction)}"


def slot(row: Row) -> tuple[str, float | None]:
    """A row's decoder and its P / N, if it draws features."""
    return row["decoder"], row["features_per_sample"]


def paper_rows() -> list[Row]:
    """The result tables of the paper (App. E-I) with the keys of our rows; errors are fractions."""
    rows: list[Row] = json.loads(data_file("paper_tables.json"))
    for row in rows:
        for quantity in QUANTITIES:
            figures = row.pop(quantity, None) or {}
            row.update({f"{quantity}_{name}": figures.get(name) for name in PERCENTILES})
    return rows


def with_paper(rows: Iterable[Row], *, paper: bool = True) -> list[Row]:
    """The rows with the paper's figures for the same decoder (or ``paper_decoder``), and ratios; or empty columns."""
    key = ("dataset", "split", "decoder", "features_per_sample", "n_train")
    known = {tuple(row[k] for k in key): row for row in paper_rows()} if paper else {}
    joined = []
    for row in rows:
        row = dict(row)
        wanted = {**row, "decoder": row.pop("paper_decoder", row["decoder"])}
        theirs = known.get(tuple(wanted[k] for k in key), {})
        row.update({f"paper_{figure}": theirs.get(figure) for figure in _FIGURES})
        for quantity in QUANTITIES:
            ours, paper_median = row.get(f"{quantity}_median"), row[f"paper_{quantity}_median"]
            row[f"ratio_{quantity}"] = ours / paper_median if ours is not None and paper_median else None
        joined.append(row)
    return joined


def write_csv(rows: Iterable[Row], path: Path) -> None:
    """Write the rows as CSV, atomically; numbers keep all their digits, gaps stay empty."""
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_atomically(path, lambda file: file.write(text.getvalue().encode()))


def table_text(rows: Sequence[Row], without: Collection[str] = ()) -> list[tuple[str, ...]]:
    """Header and rows of one table as strings, without empty columns and those named, or without "percentiles"."""
    columns = _first_columns(rows)
    if "hyperparameter" not in without:
        tuned = [_text(row["hyperparameter"], ".4g") + ("*" if row["on_edge"] else "") for row in rows]
        columns.append(("tuned", *tuned))
    for quantity, name in QUANTITIES.items():
        for key, header in ((quantity, name), (f"paper_{quantity}", "paper")):
            if key not in without and _any_value(rows, f"{key}_median"):
                columns.append((header, *(_figures(row, key, _STYLES[quantity], without) for row in rows)))
        if f"ratio_{quantity}" not in without and _any_value(rows, f"paper_{quantity}_median"):
            columns.append(_column("ratio", rows, f"ratio_{quantity}", ".2g"))
    return list(zip(*columns))


def best_rows(rows: Iterable[Row], quantity: str = "rel_l2") -> list[Row]:
    """The test row of each decoder that has the least median, the best decoder first."""
    median = f"{quantity}_median"
    best: dict[str, Row] = {}
    known = (row for row in rows if row["split"] == "test" and row[median] is not None)
    for row in sorted(known, key=lambda row: row[median]):
        best.setdefault(row["decoder"], row)
    return list(best.values())


def summary_text(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    """`table_text` of one training size in short: each decoder at its best feature count, the best first."""
    best = best_rows(rows)
    train = {slot(row): row for row in rows if row["split"] == "train"}
    others = [train.get(slot(row), row) for row in best]
    columns = [*_first_columns(best), ("test L2", *percents([row["rel_l2_median"] for row in best]))]
    if _any_value(best, "paper_rel_l2_median"):
        columns.append(("paper", *percents([row["paper_rel_l2_median"] for row in best])))
        columns.append(_column("ratio", best, "ratio_rel_l2", ".2g"))
    columns.append(("training L2", *percents([row["rel_l2_median"] for row in others])))
    if _any_value(best, "conservation_median"):
        columns.append(_column("mass error", best, "conservation_median", ".1e"))
    columns.append(_column("training s", others, "seconds_median", ".3g"))
    columns.append(_column("inference s", best, "seconds_median", ".3g"))
    return list(zip(*columns))


def _first_columns(rows):
    names = [row["decoder"] + (" +" if row["extra"] else "") for row in rows]
    return [("decoder", *names), _column("P/N", rows, "features_per_sample", "g")]


def _column(name, rows, key, style):
    """A column of a table: its header and a text for each row."""
    return (name, *(_text(row[key], style) for row in rows))


def _text(value, style):
    return "" if value is None else f"{value:{style}}"


def _figures(row, key, style, without):
    """Median (5 %-95 %) as text."""
    median, low, high = (row[f"{key}_{name}"] for name in PERCENTILES)
    band = "" if low in (None, high) or "percentiles" in without else f" ({low:{style}}-{high:{style}})"
    return _text(median, style) + band


def split_tables(rows):
    """(title, rows of that table), one for each training size and split."""
    tables: dict[str, list[Row]] = {}
    for row in rows:
        title = f"N = {row['n_train']}, {'training' if row['split'] == 'train' else 'testing'} set"
        tables.setdefault(title, []).append(row)
    return tables.items()


def legend(rows: Sequence[Row]) -> list[str]:
    """Explanations of the marks and columns that the table has."""
    texts = {
        "rel. L2, rel. Linf: relative errors as fractions, like the paper's (0.19 is 19 %), averaged over the samples. "
        "The value is the median (5 %-95 %) over the runs. ratio: our median / the paper's.": True,
        "conservation: relative error of the mass.": _any_value(rows, "conservation_median"),
        "*: the tuned value is at the boundary of its grid; a better one may lie beyond.": any(
            r["on_edge"] for r in rows
        ),
        "+: the paper has no such row, or the numbers next to it are those of its nearest row.": any(
            row["extra"] for row in rows
        ),
    }
    return [text for text, shown in texts.items() if shown]


def _any_value(rows, key):
    return any(row[key] is not None for row in rows)


def terminal_width() -> int:
    """Characters of a line of the terminal; 80 without one, unless COLUMNS says otherwise."""
    return shutil.get_terminal_size((80, 24)).columns


@documented
def format_table(rows: Sequence[Row], width: int | None = None) -> str:
    """The rows as text for a terminal, a table for each training size and split.

    Parameters
    ----------
    {rows}
    width : int, default=None
        Characters of a line: columns that do not fit are left out and listed, then names are cut. By default
        `terminal_width`.

    {returns_text} {example}
    """
    width = terminal_width() if width is None else width
    tables = split_tables(rows)
    for n_left_out in range(len(_DISPENSABLE) + 1):
        without = _DISPENSABLE[:n_left_out]
        texts = [_aligned(table_text(table, without)) for _, table in tables]
        if max(len(line) for lines in texts for line in lines) <= width - len(BEST):
            break
    else:
        width_of_names = width - len(BEST)
        texts = [_aligned(_with_short_names(table_text(table, without), width_of_names)) for _, table in tables]
    for (_, table), lines in zip(tables, texts):
        known = [row["rel_l2_median"] for row in table if row["rel_l2_median"] is not None]
        for i, row in enumerate(table, 1):
            lines[i] += BEST if len(known) > 1 and row["rel_l2_median"] == min(known) else ""
    parts = []
    for (title, _), lines in zip(tables, texts):
        parts += [title, "-" * max(map(len, lines)), *lines, ""]
    notes = [f"{BEST.strip()}: the lowest relative L2 error of its table.", *legend(rows)]
    missing = [key for key in without if any(table_text(table, [key]) != table_text(table) for _, table in tables)]
    if missing:
        names = "; ".join(map(_column_name, missing))
        notes.append(f"Not shown at {width} characters per line: {names}.")
    return "\n".join(parts + [line for note in notes for line in textwrap.wrap(note, max(width, 20))])


def _column_name(key):
    """A column of `_DISPENSABLE` in a sentence."""
    words = {"ratio_": "ratio of ", "paper_": "the paper's ", "hyperparameter": "tuned value", **QUANTITIES}
    for part, word in words.items():
        key = key.replace(part, word)
    return key


def _with_short_names(lines, width):
    """The lines with names of at least six characters, cut so that the table fits."""
    longest = max(6, width - sum(max(map(len, column)) + 2 for column in list(zip(*lines))[1:]))
    return [(name if len(name) <= longest else f"{name[: longest - 2]}..", *cells) for name, *cells in lines]


def _aligned(lines):
    """Lines with names on the left and numbers on the right; marks, units and percentiles follow their numbers."""
    names, *columns = zip(*lines)
    shown = [[name.ljust(max(map(len, names))) for name in names]]
    for header, *cells in columns:
        # a number, and what follows it: marks, units, percentiles
        parts = [re.fullmatch(r"([^\s*]*)(.*)", cell).groups() for cell in cells]
        widths = [max(map(len, each)) for each in zip(*parts)]
        blocks = [f"{number:>{widths[0]}}{rest:<{widths[1]}}" for number, rest in parts]
        shown.append([cell.rjust(max(len(header), sum(widths))) for cell in (header, *blocks)])
    return ["  ".join(cells).rstrip() for cells in zip(*shown)]


def write_markdown(result: StudyResult, path: Path) -> None:
    """Write a `StudyResult` as Markdown: tables, command, date, version, readings of the paper."""
    origin = f"{result.section} of the paper. `{result.command}`, {result.date}, randsmap {result.version}."
    lines = [f"## {result.title}", "", origin, ""]
    lines += [f"**Left out:** {' '.join(result.cuts)}", ""] if result.cuts else []
    for title, table in split_tables(result.rows):
        texts = table_text(table)
        header, *body = map(markdown_row, texts)
        lines += [f"### {title}", "", header, "| --- " * len(texts[0]) + "|", *body, ""]
    lines += [f"{text}  " for text in legend(result.rows)]
    lines += ["", "Interpretation of the paper, and caveats:", "", *(f"- {note}" for note in result.notes), ""]
    write_atomically(path, lambda file: file.write("\n".join(lines).encode()))


# characters with a meaning in Markdown and HTML
_MARKDOWN = str.maketrans({"<": "&lt;", ">": "&gt;", "&": "&amp;", "\n": " "} | {c: f"\\{c}" for c in "\\|`*_"})


def markdown_row(cells: Iterable[str], bold: int | None = None) -> str:
    """A row of a Markdown table, with what Markdown would read as marks escaped; one cell may be bold."""
    escaped = (cell.translate(_MARKDOWN) for cell in cells)
    return "| " + " | ".join(f"**{cell}**" if i == bold else cell for i, cell in enumerate(escaped)) + " |"

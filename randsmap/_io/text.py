"""Tables of numbers in text, whose dialect is found from the first two lines.

The dialects are those of NumPy, MATLAB, pandas, R and spreadsheets: commas, semicolons or white space, decimal commas
with the last two, a line of names or none, numbered rows, comments behind # and %.
"""

from __future__ import annotations

import csv
import itertools
import re
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

# names of a column of times, such as t, Time, t_ms, time [s]
_TIME = re.compile(r"(t|times?)(_(s|ms|us|ns|sec|min|h|d)| ?[(\[].*[)\]])?", re.IGNORECASE)
# Numbers that Python does not read: 1.000,5 and 1 000 and 1d5. A line that begins with one is no line of names.
_FOREIGN_NUMBER = re.compile(
    r"[-+\N{MINUS SIGN}]?\.?\d[\d.,'\N{RIGHT SINGLE QUOTATION MARK}\s]*([de][-+\N{MINUS SIGN}]?\d+)?", re.IGNORECASE
)
_MISSING = {"na", "n/a", "null", "none", "-", "--", "?", "."}  # what programs write for a missing value


def read_table(path: Path, key: str | None = None, *, without_times: bool = False) -> NDArray[np.float64]:
    """The numbers (n, p) of a text: of the column named `key`, or of all columns except one that numbers the rows.

    `without_times` leaves a first column of times out, with a warning. ValueError if a line has anything but numbers.
    """
    first, second = [*itertools.islice(_lines(path), 2), "", ""][:2]
    separator, decimal_commas = _separator(second or first)
    has_names, names = _header(first, second, separator, decimal_commas)
    columns = _cells(names, path, without_times) if key is None else [_column(names, key)]
    lines = itertools.islice(_lines(path), int(has_names), None)
    if decimal_commas:
        lines = (line.replace(",", ".") for line in lines)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of no numbers, which is an error below
        array = np.loadtxt(lines, delimiter=separator, ndmin=2, encoding=None, quotechar='"', usecols=columns)
    if not array.size:
        raise ValueError("it holds no numbers")
    return array


def _header(first: str, second: str, separator: str | None, decimal_commas: bool) -> tuple[bool, list[str]]:
    """True if the first line has names, and these if there is one for each column, "" for that of row numbers."""
    n_columns = len(_words(second, separator))
    rows_named = second.lstrip()[:1] in ('"', "'")
    words = _words(first, separator, *range(n_columns, n_columns - rows_named - 1, -1))
    if not _are_names([word.replace(",", ".") for word in words] if decimal_commas else words):
        return False, []
    if rows_named and len(words) == n_columns - 1:
        words = ["", *words]  # R numbers the rows, in quotes, and has no name for that column
    return True, words if len(words) == n_columns else []


def _column(names: list[str], name: str) -> int:
    if name in names:
        return names.index(name)
    if len(names) > 12:  # a message fits into a few lines
        names = [*names[:10], "...", names[-1]]
    columns = f"its columns are {', '.join(names)}" if names else "its columns have no names"
    raise ValueError(f"{columns}: leave key (--key) {name!r} out")


def _cells(names: list[str], path: Path, without_times: bool) -> list[int] | None:
    """The columns except numbers, and if so asked times, of the rows; None for all."""
    if not names:
        return None
    # the column that numbers the rows has no name in what pandas and R's write.csv write
    columns = list(range(not names[0], len(names)))
    if without_times and len(columns) > 1 and _TIME.fullmatch(names[columns[0]]):
        name = names[columns.pop(0)]
        warnings.warn(
            f"{path}: the first column, {name!r}, is taken for the times of the snapshots and left out of the fields; "
            f"key {name!r} reads it (--parameters {path} --parameters-key {name!r}). Rename it if it is a cell",
            UserWarning,
            stacklevel=2,
        )
    return None if len(columns) == len(names) else columns  # None: rows of another length are errors


def _lines(path: Path) -> Iterator[str]:
    """The lines of a text, without empty ones and comments."""
    with open(path, encoding="utf-8-sig") as file:  # Excel begins with a mark of the encoding
        yield from (line for line in file if line.strip() and not line.lstrip().startswith(("#", "%")))


def _separator(line: str) -> tuple[str | None, bool]:
    """The separator of a line of numbers, None for white space, and whether its numbers may have decimal commas."""
    line = line.partition("#")[0].strip()
    if ";" in line:
        return ";", True
    words = line.split()
    if len(words) > 1 and all(re.fullmatch(r"[^,]+(,[^,]+)?", word) for word in words):
        return None, True
    return ("," if "," in line else None), False


def _words(line: str, separator: str | None, *counts: int) -> list[str]:
    """The entries of a line. Names may hold blanks, where splitting at tabs or quotes gives one of `counts`."""
    line = line.partition("#")[0].rstrip("\r\n")
    if separator is None:
        readings = [_split(line, mark) for mark in "\t "]
        words = next((words for count in counts for words in readings if len(words) == count), line.split())
    else:
        words = _split(line, separator)
    return [word.strip().strip("\"'") for word in words]


def _split(line: str, separator: str) -> list[str]:
    return next(csv.reader([line], delimiter=separator, skipinitialspace=True), [])


def _are_names(words: list[str]) -> bool:
    """True if the first line has names, which may be numbers except the first.

    A line that begins with a value is a row, even if other values are missing or not real: that has to be an error.
    """
    if not words or _is_value(words[0]):
        return False
    if words[0] or not all(map(_is_value, words[1:])):
        return True
    # nothing, then values: the numbers of the columns as pandas writes them, or a row without its first value
    if words[1:] and words[1:] in ([str(k + start) for k in range(len(words) - 1)] for start in (0, 1)):
        return True
    raise ValueError(
        "its first line begins with an empty value. If it is a line of names, begin it with one, or with #"
    )


def _is_value(word: str) -> bool:
    try:
        complex(word)
    except ValueError:
        return word.lower() in _MISSING or word[:2].lower() == "0x" or _FOREIGN_NUMBER.fullmatch(word) is not None
    return True

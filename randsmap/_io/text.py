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
from typing import Any

import numpy as np
from numpy.typing import NDArray

# names of a column of times, such as t, Time, t_ms, time [s], step, and of one that numbers the rows
TIME = re.compile(r"(t|times?|dates?|steps?|iter(ation)?s?)(_(s|ms|us|ns|sec|min|h|d)| ?[(\[].*[)\]])?", re.IGNORECASE)
_INDEX = re.compile(r"((row|snapshot|sample|run|case)[ _]?)?(index|idx|id|n[or]\.?|number)|unnamed: 0", re.IGNORECASE)
# what begins as a number does, and what programs write for values that are missing or too wide
_VALUE = re.compile(
    r"\W*\d.*|[#<>].*|[-+]?[\dOIl]+[.,][\dOIl]+|[-+]?(nan|inf|infinity|ind)\b.*|n[./]?[ad]\.?|bdl|null|nil|none|missing|"
    r"true|false|(over|under)flow",
    re.IGNORECASE,
)
_COMMENT = re.compile(r"(^|\s)#(?!N/A|NUM!|DIV/0!|REF!|VALUE!|NAME\?|NULL!).*", re.DOTALL)  # not a spreadsheet's error


def read_table(path: Path, key: str | None = None, *, without_times: bool = False) -> NDArray[np.float64]:
    """The numbers (n, p) of a text: of the column named `key`, or of all columns except one that numbers the rows.

    `without_times` leaves a first column of times out, with a warning. ValueError if a line has anything but numbers.
    """
    first, second = [*(line for _, line in itertools.islice(_lines(path), 2)), "", ""][:2]
    separator, decimal_commas = _separator(second or first)
    has_names, names = _header(path, first, second, separator, decimal_commas)
    columns = _cells(names, path, without_times) if key is None else [_column(names, key)]
    lines = (line for _, line in itertools.islice(_lines(path), int(has_names), None))
    lines = _with_points(lines) if decimal_commas else lines
    options: dict[str, Any] = {"comments": None, "quotechar": '"', "usecols": columns}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of no numbers, which is an error below
        try:
            array = np.loadtxt(lines, delimiter=separator, ndmin=2, encoding=None, **options)
        except ValueError as error:
            if place := re.search(r"(.*) at row (\d+), column (\d+)", str(error)):
                number, _ = next(itertools.islice(_lines(path), has_names + int(place[2]), None))
                raise ValueError(f"line {number}, column {place[3]}: {place[1]}") from None
            raise
    if not array.size:
        raise ValueError("it holds no numbers")
    return array


def _with_points(lines: Iterator[str]) -> Iterator[str]:
    """Lines with decimal points in place of decimal commas."""
    marks: set[str] = set()
    for line in lines:
        marks.update(mark for mark in ",." if mark in line)
        if len(marks) == 2:
            raise ValueError("its numbers have commas and points: write one of them")
        yield line.replace(",", ".")


def _header(path: Path, first: str, second: str, separator: str | None, decimal_commas: bool) -> tuple[bool, list[str]]:
    """True if the first line has names, and these if there is one for each column, "" for that of row numbers."""
    below = _words(second, separator)
    n_columns = len(below)
    rows_named = second.lstrip()[:1] in ('"', "'")
    words = _words(first, separator, *range(n_columns, n_columns - rows_named - 1, -1))
    if not words or not _are_names(words, below):
        return False, []
    if rows_named and len(words) == n_columns - 1:
        words = ["", *words]  # R numbers the rows, in quotes, and has no name for that column
    if len(words) == n_columns or not second:
        return True, words
    _assume(path, f"its line of names has {len(words)} for {n_columns} columns, which remain without names")
    return True, []


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
    # other names that count the columns leave the first to name the rows
    numbers = names[0] and (_INDEX.fullmatch(names[0]) or _counts(names[1:]))
    if len(columns) > 1 and ((without_times and TIME.fullmatch(names[columns[0]])) or numbers):
        name = names[columns.pop(0)]
        what = "numbers" if numbers else "times"
        _assume(
            path,
            f"the first column, {name!r}, is taken for the {what} of the snapshots and left out of the fields; key "
            f"{name!r} reads it (--parameters {path} --parameters-key {name!r}). Rename it if it is a cell",
        )
    return None if len(columns) == len(names) else columns  # None: rows of another length are errors


def _assume(path: Path, text: str) -> None:
    warnings.warn(f"{path}: {text}", UserWarning, stacklevel=2)


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """The numbered lines of a text, without empty ones and comments."""
    with open(path, "rb") as file:  # Excel begins with a mark of the encoding
        encoding = "utf-16" if file.read(2) in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    with open(path, encoding=encoding) as file:
        for number, text in enumerate(file, 1):
            line = _COMMENT.sub("", text) if "#" in text else text
            if line.strip() and not line.lstrip().startswith("%"):
                yield number, line


def _separator(line: str) -> tuple[str | None, bool]:
    """The separator of a line of numbers, None for white space, and whether its numbers may have decimal commas."""
    line = line.strip()
    if ";" in line:
        return ";", True
    words = line.split()
    if len(words) > 1 and all(re.fullmatch(r"[^,]+(,[^,]+)?", word) for word in words):
        return None, True
    return ("," if "," in line else None), False


def _words(line: str, separator: str | None, *counts: int) -> list[str]:
    """The entries of a line. Names may hold blanks, where splitting at tabs or quotes gives one of `counts`."""
    marks = [separator] if separator else ["\t", " "]
    line = line.rstrip("\r\n")
    readings = [next(csv.reader([line], delimiter=mark, skipinitialspace=True), []) for mark in marks]
    if separator is None:
        readings = [words for count in counts for words in readings if len(words) == count] or [line.split()]
    return [word.strip().strip("\"'") for word in readings[0]]


def _counts(words: list[str]) -> bool:
    """True if these are 0, 1, 2, ... or 1, 2, 3, ..."""
    return bool(words) and any(words == [str(k + start) for k in range(len(words))] for start in (0, 1))


def _is_name(word: str) -> bool:
    return any(map(str.isalpha, word)) and _VALUE.fullmatch(word) is None


def _are_names(words: list[str], below: list[str]) -> bool:
    """True if the first line has names. ValueError if it, or the second line, may have names or values."""
    first, rest = words[0], words[1:]
    has_names = not first or _is_name(first)
    if has_names:
        certain = all(map(_is_name, filter(None, rest))) or _counts(rest) or bool(TIME.fullmatch(first))
        integers = all(map(str.isdecimal, below)) and len({*zip(words, below, strict=False)}) == len(words)
        certain = certain and (first or below[:1] != [""]) and not (integers and len({*words}) < len(words))
    else:  # a row, unless it counts the columns and the next line does not go on
        goes_on = below[:1] in ([], [str(len(words) + (first == "1"))])
        certain = goes_on or len(words) <= 2 + (first == "1") or not _counts(words)
    if certain:
        return has_names
    raise ValueError("its first lines may have names or values. Begin those that have names with #")

"""Tables in text, in the dialects of NumPy, MATLAB, Fortran, pandas, R and spreadsheets.

A line is a line of names only if it can be nothing else. What is no number is an error with its line and column; what
is assumed raises a warning.
"""

from __future__ import annotations

import csv
import re
import warnings
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

# names of a column of times, such as t, Time, t_ms, time [s], step
TIME = re.compile(
    r"(t|times?|dates?|datum|zeit|datetime|timestamps?|(time[ _]?)?steps?|iter(ation)?s?)"
    r"(_(s|ms|us|ns|sec|min|h|d)| ?[(\[].*[)\]])?",
    re.IGNORECASE,
)
_THING = (
    "row|snapshot|sample|run|case|frame|trajectory|traj|seed|fold|split|year|label|class|target|group|batch|member|subject|"
    "reali[sz]ation|scenario|experiment|simulation|trial|replicate|(?-i:Re)"
)
_INDEX = re.compile(rf"(({_THING})[ _]?)?(index|idx|id|n[or]\.?|num(ber)?)|unnamed: 0", re.IGNORECASE)
_ROW = re.compile(_THING, re.IGNORECASE)  # no name of a cell, but maybe of a parameter
# beginnings of numbers, and what programs write for values that are missing or too wide
_VALUE = re.compile(
    r"\W*\d.*|[#<>].*|[-+]?[\dOIl]+[.,][\dOIl]+|[-+]?(nan|inf|infinity|ind)\b.*|n[./]?[ad]\.?|bdl|null|nil|none|missing|"
    r"true|false|(over|under)flow",
    re.IGNORECASE,
)
# except for errors of spreadsheets in any language, and entries that are too wide
_COMMENT = re.compile(r"(^|\s)#(?![^a-z\s]+[!?]([\s,;|]|$)|N/?[ADV]\b|#+[,;|\t]).*", re.DOTALL)
_LINE = re.compile(r"^\s*#.*", re.DOTALL)  # "run #1" is a label, not a comment
_NUMBER = re.compile(r"[-+]?\d[\d.]*(e[-+]?\d+)?")
_THOUSANDS = re.compile(r"\s*[-+]?[1-9]\d{0,2}[,.]\d{3}\s*")
_LONGEST = 1 << 20  # characters of all names that a model file may hold
_Numbered = list[tuple[int, str]]  # lines with their numbers
_DOUBLE = re.compile(r"\s*([-+]?(?:\d+\.?\d*|\.\d+))[dq]([-+]?\d+)\s*", re.IGNORECASE)  # Fortran's 1.5D+00


class Table(np.ndarray):
    """An array with labels of its rows and columns, or None; its transpose and some of its rows have them."""

    row_names: Any = None
    column_names: Any = None

    @classmethod
    def of(cls, values: NDArray[Any], rows: Any = None, columns: Any = None) -> Table:
        """The values under these labels: arrays, or ranges if they count."""
        table = np.asarray(values).view(cls)
        table.row_names, table.column_names = rows, columns
        return table

    def __getitem__(self, index: Any) -> Any:
        part = super().__getitem__(index)
        if isinstance(index, tuple) or np.ndim(part) != self.ndim:
            return np.asarray(part) if isinstance(part, Table) else part
        return Table.of(part, None if self.row_names is None else np.asarray(self.row_names)[index], self.column_names)

    @property
    def T(self) -> Table:
        return Table.of(np.asarray(self).T, self.column_names, self.row_names)


def read_table(path: Path, key: str | None = None, *, fields: bool = False) -> Table:
    """Numbers (n, p) of a text: the column `key`, or all but names of rows and, with `fields`, a first one of times."""
    passed_over: list[tuple[int, str]] = []
    begun = list(islice(_lines(path, passed_over), 20))
    lines = [text for _, text in begun]
    comments = [text for number, text in passed_over if not begun or number < begun[0][0]]
    stated = _stated(comments)
    separator = _separator(lines)
    rows = [_entries(text, separator) for text in lines]
    first = int(len(rows) > 1 and all(len(row) > 1 and not row[0] for row in rows))  # each line begins with a separator
    rows = [row[first:] for row in rows]
    named = [_entries(comment, separator) for comment in comments[-1:]]
    above = int(bool(named and len(named[0]) == len(rows[-1]) and all(map(_is_name, named[0]))))
    if above:  # NumPy writes names behind #
        rows, lines = named + rows, comments[-1:] + lines
    levels = _levels(rows, lines)
    if len(levels) == len(rows):
        raise ValueError("it holds no numbers")
    row, width = rows[len(levels)], len(rows[len(levels)])
    if width > 1 and not row[-1] and all(len(level) < width or not level[-1] for level in levels):
        width -= 1  # each line ends with a separator
        levels = [level[:width] for level in levels]
    passed = len(levels) - above
    _check_commas(path, lines[len(levels) :], levels, separator, width)
    names = _names(path, levels, width, lines[len(levels)].lstrip()[:1] in ('"', "'") or _number(row[0]) is None)
    titles = ["/".join(filter(None, own)) for own in names]
    if key is None:
        skipped, timed = _skipped(path, names, fields)
        columns = slice(first + skipped, first + width)
    else:
        skipped, timed, only = int(bool(names) and not titles[0]), False, first + _column(titles, key)
        columns = slice(only, only + 1)
    values, labels = _numbers(path, passed, separator, first, width, first + len(row), columns)
    titles = titles[columns.start - first : columns.stop - first]
    # times and runs are no labels of rows: another file may have row numbers
    named = skipped and not any(TIME.fullmatch(part) or _ROW.fullmatch(part) for part in (names or [()])[0])
    table = Table.of(values, _index(labels) if named else None, _index(titles))
    for what, there in (("rows", len(table)), ("columns", width)):
        if int(stated.get(what, there)) != there:
            raise ValueError(f"its header states {stated[what]} {what}, it has {there}: it may be cut off")
    if fields and key is None and not levels and table.shape[1] > 3 and len(table) > 4 and _rises(values[:100].T)[1]:
        _assume(path, "its first line rises evenly as no other does: begin it with # if it has positions of cells")
    alone = key is not None or skipped or table.shape[1] < 2 or len(table) < 3
    if not alone and _counts([f"{value:.15g}" for value in table[:, 0]]):
        leave = int(bool(fields and levels))
        _assume(path, f"the first column counts the rows and is {'left out' if leave else 'read as values'}")
        table = Table.of(values[:, leave:], columns=_index(titles[leave:]))
    elif fields and key is None and not timed and table.shape[1] > 1 and len(table) > 4 and _rises(values[:100]).any():
        _assume(path, "its first column rises as no other does, and is taken for a cell: name it t if it has times")
    return table


def read_label_column(path: Path, n: int, key: str | None = None) -> Table:
    """Labels of n rows: the lines of a text, or the column `key`, or the only one that does not name the rows."""
    whole = [text.strip() for _, text in _lines(path, [], _LINE)]
    lines = [_without(re.compile(r"\s+#(\s.*|$)"), line) for line in whole]
    if len({*lines}) < len({*whole}):
        _assume(path, "what stands behind # and a blank is taken for a comment, not for a part of the label")
    n_names = int(len(lines) == n + 1)
    for separator in (";", "\t", ",", "|", None):
        table = [_entries(line, separator) for line in lines]
        width = len(table[-1]) if table else 0
        if width < 2 or any(len(row) != width for row in table[n_names:]):
            continue
        names = [name for row in table[:n_names] for name in [""] * (len(row) == width - 1) + row]
        table = table[n_names:]
        indexed = not (names or ["name"])[0] or _counts([row[0] for row in table])
        if key is None and separator is None and not indexed:
            continue  # names with blanks
        columns = list(range(indexed, width)) if key is None else [_column(names, key)]
        if len(columns) > 1:
            raise ValueError(f"{path} has {len(columns)} columns of labels: name one with key (--groups-key)")
        rows = _index([row[0] for row in table]) if indexed else None
        return Table.of(np.array([row[columns[0]] for row in table]), rows)
    names = [line.strip("\"'") for line in lines[:n_names] if line not in lines[1:]]
    if key is not None:
        _column(names, key)
    elif names:
        _assume(path, f"its first line, {names[0]!r}, is taken for the name of the labels")
    return Table.of(np.array([line.strip("\"'") for line in lines[len(names) :]]))


def _assume(path: Path, text: str) -> None:
    warnings.warn(f"{path}: {text}", UserWarning, stacklevel=2)


# -- Lines and their entries ---------------------------------------------------------------------------
def _lines(path: Path, passed_over: _Numbered, comment: re.Pattern[str] = _COMMENT) -> Iterator[tuple[int, str]]:
    """The numbered lines of a text without comments and empty lines; whole-line comments are added to the list."""
    with open(path, "rb") as file:
        encoding = "utf-16" if file.read(2) in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    arrays = 0
    with open(path, encoding=encoding) as file:
        for number, text in enumerate(file, 1):
            line = _without(comment, text).rstrip("\r\n")
            if line.strip() and not line.lstrip().startswith("%"):
                yield number, line
            elif text.strip():
                passed_over.append((number, text.strip().lstrip("#%")))
            arrays += text.startswith("# name: ")
            if arrays > 1:
                raise ValueError(f"line {number}: Octave's text holds several arrays. Save it with -v7")


def _without(comment: re.Pattern[str], text: str) -> str:
    return text if "#" not in text or '"' in text.partition("#")[0] else comment.sub("", text)  # "#" in quotes


def _stated(comments: Sequence[str]) -> dict[str, str]:
    """The header of an array in Octave's text; ValueError if the lines are not the rows of a matrix."""
    if comments and comments[0].startswith("MatrixMarket"):
        raise ValueError("MatrixMarket's text is not read: scipy.io.mmread reads it. Save a dense array as .npy")
    stated = dict(re.findall(r"^ (name|type|ndims|rows|columns): (.*)", "\n".join(comments), re.MULTILINE))
    octave = re.search(r"(matrix|scalar|range|string|struct|cell|bool)$", stated.get("type", ""))
    if not {"name", "type"} <= {*stated} or not (octave or any("Octave" in text for text in comments)):
        return {}
    if "ndims" in stated or stated["type"] not in ("matrix", "scalar", "float matrix", "float scalar"):
        raise ValueError(f"Octave's text of type {stated['type']!r} is not read. Save double(full(x)) with -v7")
    return stated


def _entries(line: str, separator: str | None) -> list[str]:
    if '"' in line:
        line = line if separator else " ".join(line.split("\t")).strip()
        words = next(csv.reader([line], delimiter=separator or " ", skipinitialspace=True))
    else:
        words = line.split(separator)
    return [word.strip().strip("'") for word in words]


def _separator(lines: Sequence[str]) -> str | None:
    """The separator with which most entries are numbers; None for white space."""

    def share(separator: str | None) -> float:
        total = 0.0
        for line in lines:
            words = [word if separator == "," else word.replace(",", ".") for word in _entries(line, separator) if word]
            total += sum(_number(word) is not None for word in words) / max(len(words), 1)
        return total

    return max([*(mark for mark in ";\t,|" if any(mark in line for line in lines)), None], key=share)


def _number(word: str) -> float | None:
    """The number that the word represents, None for other words."""
    double = _DOUBLE.fullmatch(word)
    with suppress(ValueError):
        return float(f"{double[1]}e{double[2]}" if double else word.replace("_", "x"))  # Python reads 1_000
    return None


def _counts(words: Sequence[str]) -> bool:
    """True if the words are 0, 1, 2, ... or 1, 2, 3, ..."""
    return any(all(str(k) == word for k, word in enumerate(words, start)) for start in (0, 1))


def _rises(table: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Does the first column alone increase; does it alone have equal steps? Tested with and without its first value."""
    alone = []
    for part in [table, table[1:]] if len(table) > 5 else [table]:  # the first value may be the corner of a grid
        with np.errstate(all="ignore"):
            steps = np.diff(part, axis=0)
            rising = (steps > 0).all(axis=0)
            alike = np.array([rising, rising & (np.ptp(steps, axis=0) <= 1e-6 * np.abs(steps).max(axis=0))])
        alone.append(alike[:, 0] > alike[:, 1:].any(axis=1))
    return np.any(alone, axis=0)


def _index(words: Sequence[str]) -> Any:
    """Labels as in pandas: a range, numbers or text. None if a label is missing or the labels are too long."""
    if not all(words) or not words:
        return None
    if _counts(words):
        return range(int(words[0]), int(words[0]) + len(words))
    numbers = [_number(word) for word in words]
    if None not in numbers:
        return np.array(numbers)
    return np.array(words) if sum(map(len, words)) <= _LONGEST else None


def _check_commas(path: Path, lines: Sequence[str], levels: list[list[str]], separator: str | None, width: int) -> None:
    """Warn of two columns of integers that may be one column with decimal commas; ValueError if that is likely."""
    pair = re.compile(r"\s*[-+]?\d+,\d+([edq][-+]?\d+)?\s*", re.IGNORECASE)
    if separator != "," or width != 2 or not all(map(pair.fullmatch, lines)):
        return
    if any(len(level) == 1 for level in levels) or any(re.search(r",(0\d|\d\d+[edq])", line, re.I) for line in lines):
        raise ValueError("its commas may be decimal commas: write points, or end each line with a semicolon")
    if not levels:
        _assume(path, "its commas are taken for separators of two columns, not for decimal commas")


def _numbers(
    path: Path, passed: int, separator: str | None, first: int, width: int, n_entries: int, columns: slice
) -> tuple[NDArray[np.float64], list[str]]:
    """The numbers in these columns of all lines but the first, and the words of a first column that is left out."""
    values, begin, commas, points, thousands = array("d"), 0, 0, 0, separator != ","
    labels: list[str] = []
    passed_over: _Numbered = []
    for number, text in islice(_lines(path, passed_over), passed, None):
        words = _entries(text, separator) if '"' in text or "'" in text else text.split(separator)
        if len(words) != n_entries:
            raise ValueError(f"line {number} has {len(words)} entries, expected {n_entries}")
        if "".join(words[:first] + words[first + width :]).strip():
            raise ValueError(f"line {number} has a value in a column that is empty in others")
        if columns.start > first:
            labels.append(words[first].strip(" \"'"))
        begin, words = begin or number, words[columns]
        if separator != ",":
            seen = text if len(words) == n_entries else " ".join(words)
            commas, points = commas or ("," in seen and number), points or ("." in seen and number)
            if commas and points:
                raise ValueError(f"line {commas} has a comma in a number, and line {points} a point: write one of them")
            thousands = thousands and all(_THOUSANDS.fullmatch(word) for word in words if "," in word or "." in word)
            words = [word.replace(",", ".") for word in words] if "," in seen else words
        size = len(values)
        try:
            values.extend(map(float, words))
            plain = "_" not in text
        except ValueError:
            plain = False
        if not plain:  # Fortran's numbers, or no numbers
            del values[size:]
            hint = "" if size else ". If the line has names, begin it with #"
            for column, word in enumerate(words, columns.start + 1):
                value = _number(word)
                if value is None:
                    raise ValueError(f"line {number}, column {column}: {word.strip()!r} is no number{hint}")
                values.append(value)
    if thousands and (commas or (points and separator == ";")):
        _assume(path, f"{'commas' if commas else 'points'} are taken for decimal marks, not for marks of thousands")
    for number, text in passed_over:
        words = _entries(text, separator)
        is_row = all(_number(word) is not None for word in words[1:]) and not words[0].endswith(":")
        if 1 < len(words) == n_entries and (is_row or (number > begin and separator)):
            _assume(path, f"line {number} is passed over as a comment, though it has as many entries as a row")
    return np.frombuffer(values).reshape(-1, columns.stop - columns.start), labels


# -- Lines of names ------------------------------------------------------------------------------------
def _is_name(word: str) -> bool:
    return any(map(str.isalpha, word)) and _VALUE.fullmatch(word) is None


def _levels(rows: Sequence[list[str]], lines: Sequence[str]) -> list[list[str]]:
    """The entries of the first lines that have names. ValueError for a line that may have names or values."""
    levels: list[list[str]] = []
    for k, words in enumerate(rows):
        integers, above = all(map(str.isdecimal, words[1:])), [*levels[:1], []][0]
        certain = True
        if all(_is_name(word) for word in words if word):
            is_level = any(words) or bool(levels)
        elif words[0] and not _is_name(words[0]):
            quoted = lines[k].count('"') == 2 * len(words) and '"' not in "".join(lines[1:])
            is_level = quoted and not levels and len(rows) > 1
            numbered = len(words) > 2 + (words[0] == "1") and _counts(words)
            if levels:  # below a line of repeated names, without row numbers
                again = len(levels) == 1 and all(above) and len(set(above)) < len(above)
                numbered = again and integers and len(above) == len(words) == len({*zip(above, words)})
            goes_on = not levels and [row[0] for row in rows[1:2]] in ([], [str(len(words) + int(words[0] == "1"))])
            numbered = (numbered and not goes_on) or (k == 0 and _are_two_levels(rows))  # the next row goes on
            certain = is_level or not numbered
        elif levels:  # column labels: below a line of repeated names, or with an empty entry above row numbers
            below = [row[0] for row in rows[k + 1 :] if any(row[1:])]
            alone = bool(below) and all(word and not (words[0] and _is_name(word)) for word in below)
            again = len(set(above[1:])) < len(above) - 1
            is_level = (integers or alone) if again else not above[0] and ((alone and integers) or not words[0])
            certain = is_level or bool(words[0] and not alone)
        else:
            is_level = _counts(words[1:]) or any(kind.fullmatch(words[0]) for kind in (TIME, _INDEX))
            certain = bool(is_level or words[0])
        if not certain:
            remedy = "Begin it with # if it has names; write 1.0 for 1 if it has values"
            raise ValueError(f"line {k + 1} without comments and blank lines may hold names or values. {remedy}")
        if not is_level:
            break
        levels.append(words)
    return levels


def _are_two_levels(rows: Sequence[list[str]]) -> bool:
    """True if the first two lines of numbers are a MultiIndex: sorted integers, or a product."""
    whole = [all(re.fullmatch(r"[-+]?\d+", word) for word in row) for row in rows]
    if len(rows) < 3 or len(rows[0]) != len(rows[1]) or any(whole[2:]):
        return False
    pairs = [(_number(a), _number(b)) for a, b in zip(*rows[:2], strict=True)]
    above, below = ({*level} for level in zip(*pairs, strict=True))
    if None in above | below or len(above) == len(pairs) or len({*pairs}) < len(pairs) or len(pairs) < 3:
        return False
    return len(below) < len(pairs) == len(above) * len(below) or (all(whole[:2]) and pairs == sorted(pairs))


def _names(path: Path, levels: list[list[str]], width: int, rows_named: bool) -> list[tuple[str, ...]]:
    """The names of each column, one for each line of names; empty if the numbers of names and columns differ."""
    if rows_named:  # R writes no name for the column of row names
        levels = [[""] * (width - len(level) == 1) + level for level in levels]
    if width == 1:
        levels = [[" ".join(level)] for level in levels]
    fitting = [level for level in levels if len(level) == width]
    if len(fitting) < len(levels):
        _assume(path, f"a line of names has {len(levels[0])} for {width} columns, which remain without names")
    elif len(levels) > 1:
        _assume(path, f"its first {len(levels)} lines are taken for names")
    names = list(zip(*fitting, strict=True))
    if len(set(names)) < len(names) and all(map(any, names)):
        _assume(path, "its names occur several times: begin the line below with # if it has names, not values")
    return names


def _skipped(path: Path, names: list[tuple[str, ...]], fields: bool) -> tuple[int, bool]:
    """Number of leading columns that hold names or times of the rows; True if one holds times."""
    timed = False
    start = skipped = next((k for k, own in enumerate(names) if any(own)), 0)  # pandas and R write row labels so
    # if the other names are numbers, the first is the name of their level
    labelled = any(not any(map(_is_name, level[1:])) and _is_name(level[0]) for level in zip(*names, strict=True))
    kinds = [_NUMBER.sub("0", "/".join(own)) for own in names]  # of cells such as c0 and x=0.1
    odd = next((k for k, kind in enumerate(kinds) if "0" in kind), 0)
    whole = odd and fields and all("0" in kind for kind in kinds[odd:])
    # not u before u.1, u.2, u.3: programs number repeated names like this
    odd *= bool(whole and len(kinds) - odd >= 3 * len({*kinds[odd:]}) and not kinds[odd].startswith(kinds[odd - 1]))
    several = Counter(part for own in names for part in {*own})

    def called(k: int, *kinds: re.Pattern[str]) -> str | None:  # other names T are temperatures
        found = (part for part in names[k] if any(kind.fullmatch(part) for kind in kinds) and several[part] == 1)
        return next((part for part in found if part != "T" or k == start), None)

    while len(names) > 1 + skipped:
        own, name = names[skipped], called(skipped, TIME)
        indexed = skipped < odd or (labelled and not skipped) or called(skipped, _INDEX, *[_ROW] * fields)
        if not (fields if name else indexed):
            break
        timed = timed or bool(name)
        what, name = ("times", name) if name else ("numbers", "/".join(filter(None, own)))
        taken = f"{name!r}, is taken for the {what} of the snapshots and left out of the fields; key {name!r}"
        remedy = f"reads it (--parameters {path} --parameters-key {name!r}). Rename it if it is a cell"
        _assume(path, f"the {'first' if skipped == start else 'next'} column, {taken} {remedy}")
        skipped += 1
    plain = [k for k in range(skipped, len(kinds)) if "0" not in kinds[k]]  # names without a number
    for k in range(skipped + 1, len(names)):
        if fields and (called(k, TIME, _INDEX, *[_ROW] * (len(names) > 2)) or (plain == [k] and len(kinds) > 3)):
            name = "/".join(filter(None, names[k]))
            _assume(path, f"the column {name!r} is taken for a cell: put it first if it has times or numbers of rows")
            break
    return skipped, timed


def _column(names: list[str], name: str) -> int:
    if name in names:
        return names.index(name)
    if len(names) > 12:  # a message fits into a few lines
        names = [*names[:10], "...", names[-1]]
    columns = f"its columns are {', '.join(names)}" if names else "its columns have no names"
    raise ValueError(f"{columns}: leave key (--key) {name!r} out")

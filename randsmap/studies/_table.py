"""A study's table: our figures beside the paper's, on the terminal, as CSV and as Markdown."""

import csv
import io
import json
from importlib.resources import files

from randsmap._files import write_atomically

__all__ = ["COLUMNS", "format_table", "table_text", "with_paper", "write_csv", "write_markdown"]

QUANTITIES = ("rel_l2", "rel_linf", "conservation", "seconds")
_STYLES = {"rel_l2": ".4f", "rel_linf": ".4f", "conservation": ".1e", "seconds": ".2f"}
_NAMES = {"rel_l2": "rel. L2", "rel_linf": "rel. Linf", "conservation": "conservation", "seconds": "seconds"}
_PERCENTILES = ("median", "p05", "p95")
_FIGURES = tuple(f"{quantity}_{name}" for quantity in QUANTITIES for name in _PERCENTILES)
COLUMNS = (
    "dataset",
    "split",
    "decoder",
    "features_per_sample",
    "n_train",
    "parameter",
    "hyperparameter",
    *_FIGURES,
    *(f"paper_{figure}" for figure in _FIGURES),
    *(f"ratio_{quantity}" for quantity in QUANTITIES),
    "on_edge",
    "extra",
    "runs",
)
LEGEND = (
    "Errors: mean over the samples; median (5 %-95 %) of that over the runs, a single value where "
    "there is one run. ratio: ours / the paper's median.",
    "conservation: error of the mass relative to the mass.",
    "*: the tuned value is at an edge of its grid; a better one may lie beyond.",
    "+: the paper has no such row, or the numbers beside it are those of its nearest row.",
)


def paper_rows():
    """The result tables of the paper (App. E-I) as dictionaries; errors are fractions."""
    text = files("randsmap.studies").joinpath("data", "paper_tables.json").read_text()
    return json.loads(text)


def with_paper(rows, *, paper=True):
    """The rows with the paper's figures for the same decoder, and ratios, added as columns.

    The paper's row is found by dataset, split, features_per_sample, n_train and ``paper_decoder``
    (``decoder`` where that key is missing). paper=False leaves the columns empty.
    """
    key = ("dataset", "split", "decoder", "features_per_sample", "n_train")
    known = {tuple(row[k] for k in key): row for row in paper_rows()} if paper else {}
    joined = []
    for row in rows:
        row = dict(row)
        wanted = {**row, "decoder": row.pop("paper_decoder", row["decoder"])}
        theirs = known.get(tuple(wanted[k] for k in key), {})
        for quantity in QUANTITIES:
            for name in _PERCENTILES:
                row[f"paper_{quantity}_{name}"] = (theirs.get(quantity) or {}).get(name)
            ours, paper_median = row.get(f"{quantity}_median"), row[f"paper_{quantity}_median"]
            row[f"ratio_{quantity}"] = ours / paper_median if ours is not None and paper_median else None
        joined.append(row)
    return joined


def write_csv(rows, path):
    """Write the rows as CSV, atomically; numbers keep all their digits, gaps stay empty."""
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_atomically(path, lambda file: file.write(text.getvalue().encode()))


def table_text(rows):
    """Header and rows of the table as strings, for terminal, Markdown and report.

    Parameters
    ----------
    rows : list of dict
        Of one table: `StudyResult.part_rows`.

    Returns
    -------
    list of tuple of str
        The header first. Columns without any number, such as the mass of a manifold, are left out.
    """
    quantities = [q for q in QUANTITIES if any(row[f"{q}_median"] is not None for row in rows)]
    paper = [q for q in quantities if any(row[f"paper_{q}_median"] is not None for row in rows)]
    header = ["decoder", "P/N", "tuned"]
    for quantity in quantities:
        header += [_NAMES[quantity], *(("paper", "ratio") if quantity in paper else ())]
    lines = [tuple(header)]
    for row in rows:
        P, value = row["features_per_sample"], row["hyperparameter"]
        line = [
            row["decoder"] + (" +" if row["extra"] else ""),
            "" if P is None else f"{P:g}",
            "" if value is None else f"{value:.4g}" + ("*" if row["on_edge"] else ""),
        ]
        for quantity in quantities:
            line.append(_value(row, "", quantity))
            if quantity in paper:
                ratio = row[f"ratio_{quantity}"]
                line += [_value(row, "paper_", quantity), "" if ratio is None else f"{ratio:.2g}"]
        lines.append(tuple(line))
    return lines


def _value(row, whose, quantity):
    """Median (5 %-95 %) as text."""
    style = _STYLES[quantity]
    median, low, high = (row[f"{whose}{quantity}_{name}"] for name in _PERCENTILES)
    if median is None:
        return ""
    if low is None or low == high:
        return f"{median:{style}}"
    return f"{median:{style}} ({low:{style}}-{high:{style}})"


def _tables(rows):
    """(title, rows of that table), one for each training size and split."""
    keys = dict.fromkeys((row["n_train"], row["split"]) for row in rows)
    return [
        (
            f"N = {n}, {'training' if split == 'train' else 'testing'} set",
            [row for row in rows if (row["n_train"], row["split"]) == (n, split)],
        )
        for n, split in keys
    ]


def legend(rows):
    """Explanations of the marks that the table holds."""
    needed = (
        True,
        any(row["conservation_median"] is not None for row in rows),
        any(row["on_edge"] for row in rows),
        any(row["extra"] for row in rows),
    )
    return [text for text, shown in zip(LEGEND, needed) if shown]


def format_table(rows):
    """The rows as text for a terminal, a table for each training size and split."""
    parts = []
    for title, table in _tables(rows):
        lines = table_text(table)
        widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
        text = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in lines]
        parts += [title, "-" * max(map(len, text)), *text, ""]
    return "\n".join(parts + legend(rows))


def write_markdown(result, path):
    """Write a `StudyResult` as Markdown: tables, command, date, version, readings of the paper."""
    lines = [
        f"## {result.title}",
        "",
        f"{result.section} of the paper. `{result.command}`, {result.date}, randsmap {result.version}.",
        "",
    ]
    lines += [f"**Left out:** {' '.join(result.cuts)}", ""] if result.cuts else []
    for title, table in _tables(result.rows):
        header, *body = table_text(table)
        lines += [f"### {title}", "", _markdown(header), _markdown(["---"] * len(header)), *map(_markdown, body), ""]
    lines += [f"{text}  " for text in legend(result.rows)]
    lines += ["", "Readings and caveats:", "", *(f"- {note}" for note in result.notes), ""]
    text = "\n".join(lines)
    write_atomically(path, lambda file: file.write(text.encode()))


def _markdown(cells):
    return "| " + " | ".join(cell.replace("|", "\\|").replace("*", "\\*") for cell in cells) + " |"

"""A study's table: our figures beside the paper's, on the terminal and as CSV."""

import csv
import io
import json
from importlib.resources import files

from randsmap.persistence import write_atomically

__all__ = ["COLUMNS", "format_table", "with_paper", "write_csv"]

QUANTITIES = ("rel_l2", "rel_linf", "conservation", "seconds")
_FIGURES = tuple(f"{quantity}_{name}" for quantity in QUANTITIES for name in ("median", "p05", "p95"))
COLUMNS = (
    "dataset", "split", "decoder", "features_per_sample", "n_train", "hyperparameter",
    *_FIGURES, *(f"paper_{figure}" for figure in _FIGURES), "on_edge",
)


def paper_rows():
    """The result tables of the paper (App. E-I) as dictionaries; errors are fractions."""
    text = files("randsmap.studies").joinpath("data", "paper_tables.json").read_text()
    return json.loads(text)


def with_paper(rows):
    """The rows with the paper's figures for the same decoder added as ``paper_`` columns."""
    key = ("dataset", "split", "decoder", "features_per_sample", "n_train")
    paper = {tuple(row[k] for k in key): row for row in paper_rows()}
    joined = []
    for row in rows:
        theirs = paper.get(tuple(row[k] for k in key), {})
        figures = {
            f"paper_{quantity}_{name}": (theirs.get(quantity) or {}).get(name)
            for quantity in QUANTITIES
            for name in ("median", "p05", "p95")
        }
        joined.append({**row, **figures})
    return joined


def write_csv(rows, path):
    """Write the rows as CSV, atomically; numbers keep all their digits, gaps stay empty."""
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(with_paper(rows))
    write_atomically(path, lambda file: file.write(text.getvalue().encode()))


def format_table(rows):
    """The rows as text: median (5 %, 95 %) of each error, and the paper's median behind it."""
    header = ("split", "decoder", "P/N", "tuned", "rel. L2", "paper", "rel. Linf", "paper",
              "conservation", "paper", "seconds", "paper")
    lines = [header]
    for row in with_paper(rows):
        line = [row["split"], row["decoder"], f"{row['features_per_sample']:g}",
                f"{row['hyperparameter']:.4g}" + ("*" if row["on_edge"] else "")]
        for quantity, style in (("rel_l2", ".4f"), ("rel_linf", ".4f"), ("conservation", ".1e"),
                                ("seconds", ".2f")):
            median, low, high = (row[f"{quantity}_{name}"] for name in ("median", "p05", "p95"))
            theirs = row[f"paper_{quantity}_median"]
            line += [f"{median:{style}} ({low:{style}}-{high:{style}})",
                     "-" if theirs is None else f"{theirs:{style}}"]
        lines.append(tuple(line))
    widths = [max(len(line[i]) for line in lines) for i in range(len(header))]
    text = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip()
            for line in lines]
    text.insert(1, "-" * len(text[0]))
    notes = ["Errors: median (5 %-95 %) over the runs of the mean over the samples."]
    if any(row["on_edge"] for row in rows):
        notes.append("*: the tuned value is at an edge of its grid; a better one may lie beyond.")
    return "\n".join(text + notes)

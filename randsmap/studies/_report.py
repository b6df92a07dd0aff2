"""Reports of studies: one HTML file each, and an index over several, from the pages in ``templates``.

A report is a summary, with all else folded below it: claims by their verdicts, tables, figures, readings. Without
matplotlib it has no pictures and says what to install.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from randsmap.reports._page import drawn, page_template, percent, write_page
from randsmap.studies._claims import FAILS, HOLDS, UNKNOWN, Claim, judge
from randsmap.studies._pictures import detail_pictures, main_pictures, overview_pictures
from randsmap.studies._result import StudyResult
from randsmap.studies._table import case_text, legend, summary_text, table_text
from randsmap.studies._texts import documented

REPORT, INDEX = "report.html", "index.html"
# the verdicts in the order of the page, and their classes in the style sheet
_KINDS = {FAILS: "bad", UNKNOWN: "open", HOLDS: "good"}


@documented
def write_report(result: StudyResult, folder: str | os.PathLike[str]) -> Path:
    """Write the report of a study into a folder.

    {result}
    folder : path
        Created if missing.

    Returns
    -------
    Path
        The file, ``report.html`` in the folder, written whole or not at all.

    {no_jinja}

    {run}
    ...     studies.write_report(result, folder).name
    'report.html'
    """
    template = page_template("randsmap.studies", REPORT)  # its error comes before the pictures are drawn
    claims = judge([result], missing=False)
    return write_page(
        Path(folder) / REPORT,
        template,
        title=result.title,
        result=result,
        sentences=_sentences(result, claims),
        parts=[_part(result, part) for part in result.part_names],
        verdicts=_by_verdict(claims),
        legend=legend(result.rows),
        edges=_edges(result),
    )


def _part(result: StudyResult, part: str) -> dict[str, Any]:
    """Content of the page for one training size."""
    overview = drawn(overview_pictures(result, part))
    return {
        "name": f"N = {part[1:]}",
        "summary": summary_text(result.part_rows(part)),
        "tables": [
            (f"N = {part[1:]}, {name} set", table_text(rows))
            for split, name in (("train", "training"), ("test", "test"))
            if (rows := result.part_rows(part, split))
        ],
        "overview": overview,
        "main": overview and drawn(main_pictures(result, part)),
        "details": overview and drawn(detail_pictures(result, part)),
    }


def _by_verdict(claims: Sequence[Claim]) -> list[tuple[str, str, list[Claim]]]:
    """(verdict, class, its claims), the claims that do not hold first."""
    parts = [(word, kind, [claim for claim in claims if claim["verdict"] == word]) for word, kind in _KINDS.items()]
    return [part for part in parts if part[2]]


@documented
def write_index(results: Sequence[StudyResult], folder: str | os.PathLike[str]) -> Path:
    """Write an index over several studies, with the verdicts on the paper's claims over all of them.

    Parameters
    ----------
    results : sequence of StudyResult
    folder : path
        The folder that holds the studies' folders. Reports are linked if they are there.

    Returns
    -------
    Path
        The file, ``index.html`` in the folder.

    {no_jinja}

    Examples
    --------
    >>> import tempfile
    >>> from randsmap.studies import write_index
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_index([], folder).name
    'index.html'
    """
    folder = Path(folder)
    return write_page(
        folder / INDEX,
        page_template("randsmap.studies", INDEX),
        title="The paper’s studies, run again",
        results=results,
        verdicts=_by_verdict(judge(results)),
        rows=[(result.title, _link(result, folder), result.section, *_summary(result)) for result in results],
    )


def _edges(result):
    """The tuned values that are on an edge of their grid."""
    return [
        f"{_named(row)}, N = {row['n_train']}: "
        f"{(row['parameter'] or 'value').removeprefix('features__')} = {row['hyperparameter']:.4g}"
        for row in result.rows
        if row["on_edge"] and row["split"] == result.rows[0]["split"]
    ]


def _named(row):
    return case_text(row["decoder"], row["features_per_sample"])


def _best(rows, quantity="rel_l2"):
    """Least test error in words, and the decoder that has it; None if no row has one."""
    median = f"{quantity}_median"
    test = [row for row in rows if row["split"] == "test" and row[median] is not None]
    best = min(test, key=lambda row: row[median], default=None)
    return None if best is None else (percent(best[median]), _named(best))


def _largest_mass_error(rows, kind, closed_form=False):
    """Largest mass error of decoders of a kind, in the paper's closed form or not, in words; "" if there is none."""
    errors = [
        row["conservation_median"]
        for row in rows
        if row["decoder"].startswith(kind) and row["decoder"].endswith("-training") == closed_form
    ]
    known = [error for error in errors if error is not None]
    return f"{max(known):.1e}" if known else ""


def _sentences(result, claims):
    """Summary of the study."""
    found = []
    for part in result.part_names:
        size = f"N = {part[1:]}: " if len(result.part_names) > 1 else ""
        rows = result.part_rows(part, "test")
        best = _best(rows)
        if best is None:
            continue
        text = f"{size}Least test error {best[0]}, by {best[1]}"
        known, theirs = _best([row for row in rows if not row["extra"]]), _best(rows, "paper_rel_l2")
        if known not in (None, best):
            text += f"; of the paper's decoders {known[0]}, by {known[1]}"
        if theirs is not None:
            text += f". In the paper {theirs[0]}, by {theirs[1]}"
        found.append(f"{text}.")
    if exact := _largest_mass_error(result.rows, "RANDSMAP"):
        text = f"Mass: RANDSMAP keeps it to {exact}"
        if printed := _largest_mass_error(result.rows, "RANDSMAP", closed_form=True):
            text += f", in the paper's closed form to {printed}"
        if plain := _largest_mass_error(result.rows, "RFNN"):
            text += f"; RFNN loses up to {plain}"
        found.append(f"{text}.")
    if claims:
        holds, fails, unknown = (sum(claim["verdict"] == word for claim in claims) for word in (HOLDS, FAILS, UNKNOWN))
        found.append(
            f"Of {len(claims)} claims of the paper {holds} hold by these figures, {fails} do not, "
            f"{unknown} cannot be compared."
        )
    return found


def _summary(result):
    """Cells of the index: lowest test error, conservation, edges, runs."""
    best = _best(result.rows)
    n_edges = sum(bool(row["on_edge"]) for row in result.rows if row["split"] == "test")
    return (
        "" if best is None else f"{best[0]} ({best[1]})",
        _largest_mass_error(result.rows, "RANDSMAP"),
        str(n_edges),
        f"{result.options.get('runs', '?')} runs, seed {result.options.get('seed', '?')}"
        + (", quick" if result.options.get("quick") else ""),
    )


def _link(result, folder):
    """Address of the report relative to the index; None if it is not there."""
    for place in (folder / result.name, *sorted(folder.glob(f"{result.name}-*"))):
        try:
            command = json.loads((place / "result.json").read_text())["command"]
        except (OSError, ValueError, KeyError, TypeError):
            continue
        if command == result.command and (place / REPORT).is_file():
            return quote(f"{place.name}/{REPORT}")
    return None

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

from randsmap.reports._page import check_jinja, embedded, percent, write_page
from randsmap.studies._claims import FAILS, HOLDS, UNKNOWN, Verdict, judge
from randsmap.studies._pictures import detail_pictures, main_pictures, overview_pictures
from randsmap.studies._result import StudyResult
from randsmap.studies._table import Row, case_text, legend, summary_text, table_text

REPORT, INDEX = "report.html", "index.html"
_KINDS = {FAILS: "bad", UNKNOWN: "open", HOLDS: "good"}


def write_report(result: StudyResult, folder: str | os.PathLike[str]) -> Path:
    """Write the report of a study into a folder.

    Parameters
    ----------
    result : StudyResult
    folder : path
        Created if missing.

    Returns
    -------
    Path
        The file, ``report.html`` in the folder, written whole or not at all.

    Raises
    ------
    ImportError
        If jinja2 is not installed.

    Examples
    --------
    >>> import tempfile
    >>> from randsmap.studies import run_study, s_curve_study, write_report
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     result = run_study(s_curve_study(), out=folder, quick=True, decoders=["POD"], progress=False)
    ...     write_report(result, folder).name
    'report.html'
    """
    check_jinja()  # before the pictures are drawn
    verdicts = judge([result], missing=False)
    return write_page(
        Path(folder) / REPORT,
        "randsmap.studies",
        REPORT,
        title=result.title,
        result=result,
        sentences=_sentences(result, verdicts),
        parts=[_part(result, part) for part in result.part_names],
        verdicts=_by_verdict(verdicts),
        legend=legend(result.rows),
        edges=_edges(result),
    )


def _part(result: StudyResult, part: str) -> dict[str, Any]:
    """Content of the page for one training size."""
    overview = embedded(overview_pictures(result, part))
    return {
        "name": f"N = {part[1:]}",
        "summary": summary_text(result.part_rows(part)),
        "tables": [
            (f"N = {part[1:]}, {name} set", table_text(rows))
            for split, name in (("train", "training"), ("test", "test"))
            if (rows := result.part_rows(part, split))
        ],
        "overview": overview,
        "main": overview and embedded(main_pictures(result, part)),
        "details": overview and embedded(detail_pictures(result, part)),
    }


def _by_verdict(verdicts: Sequence[Verdict]) -> list[tuple[str, str, list[Verdict]]]:
    """(verdict, class, its claims), the ones that do not hold first."""
    parts = [(word, kind, [v for v in verdicts if v.verdict == word]) for word, kind in _KINDS.items()]
    return [part for part in parts if part[2]]


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

    Raises
    ------
    ImportError
        If jinja2 is not installed.

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
        "randsmap.studies",
        INDEX,
        title="The paper’s studies, run again",
        results=results,
        verdicts=_by_verdict(judge(results)),
        rows=[(result.title, _link(result, folder), result.section, *_summary(result)) for result in results],
    )


def _edges(result):
    return [
        f"{_named(row)}, N = {row['n_train']}: "
        f"{(row['parameter'] or 'value').removeprefix('features__')} = {row['hyperparameter']:.4g}"
        for row in result.rows
        if row["on_edge"] and row["split"] == result.rows[0]["split"]
    ]


def _named(row: Row) -> str:
    return case_text(row["decoder"], row["features_per_sample"])


def _best(rows: Sequence[Row], quantity: str = "rel_l2") -> Row | None:
    """The test row of least error."""
    test = [row for row in rows if row["split"] == "test" and row[f"{quantity}_median"] is not None]
    return min(test, key=lambda row: row[f"{quantity}_median"], default=None)


def _exact(row: Row) -> bool:
    """Whether the row is of RANDSMAP in this package's form, which keeps the mass everywhere."""
    return row["decoder"].startswith("RANDSMAP") and not row["decoder"].endswith("-training")


def _masses(rows: Sequence[Row], keep: Any) -> list[float]:
    return [row["conservation_median"] for row in rows if keep(row) and row["conservation_median"] is not None]


def _sentences(result: StudyResult, verdicts: Sequence[Verdict]) -> list[str]:
    """Summary of the study."""
    found = []
    for part in result.part_names:
        size = f"N = {part[1:]}: " if len(result.part_names) > 1 else ""
        rows = result.part_rows(part, "test")
        best, known = _best(rows), _best([row for row in rows if not row["extra"]])
        theirs = _best(rows, "paper_rel_l2")
        if best is None:
            continue
        text = f"{size}Least test error {percent(best['rel_l2_median'])}, by {_named(best)}"
        if known is not None and known is not best:
            text += f"; of the paper's decoders {percent(known['rel_l2_median'])}, by {_named(known)}"
        if theirs is not None:
            text += f". In the paper {percent(theirs['paper_rel_l2_median'])}, by {_named(theirs)}"
        found.append(f"{text}.")
    if exact := _masses(result.rows, _exact):
        text = f"Mass: RANDSMAP keeps it to {max(exact):.1e}"
        if printed := _masses(result.rows, lambda row: row["decoder"].endswith("-training")):
            text += f", in the paper's closed form to {max(printed):.1e}"
        if plain := _masses(result.rows, lambda row: row["decoder"].startswith("RFNN")):
            text += f"; RFNN loses up to {max(plain):.1e}"
        found.append(f"{text}.")
    if verdicts:
        counts = {word: sum(v.verdict == word for v in verdicts) for word in (HOLDS, FAILS, UNKNOWN)}
        found.append(
            f"Of {len(verdicts)} claims of the paper {counts[HOLDS]} hold by these figures, {counts[FAILS]} do not, "
            f"{counts[UNKNOWN]} cannot be compared."
        )
    return found


def _summary(result: StudyResult) -> tuple[str, ...]:
    """Cells of the index: lowest test error, conservation, edges, runs."""
    best, exact = _best(result.rows), _masses(result.rows, _exact)
    n_edges = sum(bool(row["on_edge"]) for row in result.rows if row["split"] == "test")
    return (
        "" if best is None else f"{percent(best['rel_l2_median'])} ({_named(best)})",
        f"{max(exact):.1e}" if exact else "",
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

"""Reports of studies: one HTML file each, and an index over several, from the pages in ``templates``.

A report is one file: pictures embedded as data URIs, one style sheet within, no script and nothing
that is loaded from elsewhere. Whatever comes from a result is escaped. Without matplotlib it has all
but the pictures and says what to install.
"""

import base64
import io
import json
import os
import platform
from collections.abc import Sequence
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import quote

from randsmap._files import write_atomically
from randsmap._parallel import get_num_threads
from randsmap.studies._claims import FAILS, HOLDS, UNKNOWN, judge
from randsmap.studies._result import StudyResult
from randsmap.studies._table import legend, percent, table_text

__all__ = ["write_index", "write_report"]

REPORT, INDEX = "report.html", "index.html"
DPI = 110
PNG_COLORS = 255  # of a picture's palette: a third of the bytes, no difference to the eye


def write_report(result: StudyResult, folder: str | os.PathLike[str]) -> Path:
    """Write the report of a study into a folder.

    Parameters
    ----------
    result : StudyResult
        Such as `load_result` gives of a finished study's folder.
    folder : path
        Created if missing.

    Returns
    -------
    Path
        Of the file, ``report.html`` in the folder, written whole or not at all.

    Raises
    ------
    ImportError
        If jinja2 is not installed.
    """
    tables = [
        (f"N = {part[1:]}, {name} set", table_text(rows))
        for part in result.part_names
        for split, name in (("train", "training"), ("test", "test"))
        if (rows := result.part_rows(part, split))
    ]
    return _write(
        Path(folder) / REPORT,
        title=result.title,
        result=result,
        verdicts=judge([result], missing=False),
        tables=tables,
        legend=legend(result.rows),
        edges=_edges(result),
        pictures=_pictures(result),
    )


def write_index(results: Sequence[StudyResult], folder: str | os.PathLike[str]) -> Path:
    """Write an index over several studies, with the verdicts on the paper's claims over all of them.

    Parameters
    ----------
    results : sequence of StudyResult
    folder : path
        The folder that holds the studies' own (NAME, with the user's data NAME-DATA): a report is
        linked where it is there, beside the result of the same command.

    Returns
    -------
    Path
        Of the file, ``index.html`` in the folder.

    Raises
    ------
    ImportError
        If jinja2 is not installed.
    """
    folder = Path(folder)
    return _write(
        folder / INDEX,
        title="The paper’s studies, run again",
        results=results,
        verdicts=judge(results),
        rows=[(result.title, _link(result, folder), result.section, *_summary(result)) for result in results],
    )


def _write(path: Path, **content: Any) -> Path:
    """The page of the template with the file's name."""
    try:
        import jinja2
    except ImportError:
        raise ImportError("reports need jinja2: pip install 'randsmap[studies]'") from None
    templates = files("randsmap.studies").joinpath("templates")
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(lambda name: templates.joinpath(name).read_text(encoding="utf-8")),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    kinds = {HOLDS: "good", FAILS: "bad", UNKNOWN: "open"}
    text = environment.get_template(path.name).render(kinds=kinds, machine=_machine(), **content)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, lambda file: file.write(text.encode()))
    return path


def _edges(result):
    return [
        f"{row['decoder']}{_size(row)}, N = {row['n_train']}: "
        f"{(row['parameter'] or 'value').removeprefix('features__')} = {row['hyperparameter']:.4g}"
        for row in result.rows
        if row["on_edge"] and row["split"] == result.rows[0]["split"]
    ]


def _size(row):
    P = row["features_per_sample"]
    return "" if P is None else f", P = {P:g} N"


def _summary(result):
    """Cells of the index: lowest test error, conservation, edges, runs."""
    test = [row for row in result.rows if row["split"] == "test"]
    exact = [
        row["conservation_median"]
        for row in result.rows
        if row["decoder"].startswith("RANDSMAP")
        and not row["decoder"].endswith("-training")
        and row["conservation_median"] is not None
    ]
    best = min(test, key=lambda row: row["rel_l2_median"], default=None)
    n_edges = sum(bool(row["on_edge"]) for row in test)
    return (
        "" if best is None else f"{percent(best['rel_l2_median'])} ({best['decoder']}{_size(best)})",
        f"{max(exact):.1e}" if exact else "",
        str(n_edges),
        f"{result.options.get('runs', '?')} runs, seed {result.options.get('seed', '?')}"
        + (", quick" if result.options.get("quick") else ""),
    )


def _link(result, folder):
    """Where the report stands, as seen from the index; None if it is not there."""
    for place in (folder / result.name, *sorted(folder.glob(f"{result.name}-*"))):
        try:
            command = json.loads((place / "result.json").read_text())["command"]
        except (OSError, ValueError, KeyError, TypeError):
            continue
        if command == result.command and (place / REPORT).is_file():
            return quote(f"{place.name}/{REPORT}")
    return None


def _pictures(result):
    """(picture, PNG as base64, width, height) of each; None where matplotlib is missing."""
    try:
        from randsmap.studies._pictures import study_pictures

        return [
            (picture, base64.b64encode(png).decode(), *(int.from_bytes(png[i : i + 4], "big") for i in (16, 20)))
            for picture in study_pictures(result)
            for png in [_png(picture.figure)]
        ]
    except ImportError:  # of matplotlib; `_png`'s Pillow belongs to it
        return None


def _png(figure):
    """The figure as PNG with a palette."""
    from PIL import Image  # matplotlib cannot do without it

    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=DPI, facecolor="white")
    file.seek(0)
    with Image.open(file) as picture:
        small = picture.convert("RGB").quantize(PNG_COLORS, dither=Image.Dither.NONE)
    file = io.BytesIO()
    small.save(file, format="PNG", optimize=True)
    return file.getvalue()


def _machine():
    """Of the machine that wrote the report; nothing that names it."""
    packages = ", ".join(f"{name} {version(name)}" for name in ("numpy", "scipy", "scikit-learn"))
    return (
        f"Written on {platform.system()} {platform.machine()} with {os.cpu_count()} cores "
        f"({get_num_threads()} used), Python {platform.python_version()}, {packages}."
    )

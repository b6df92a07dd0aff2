"""Reports of studies: one HTML file each, and an index over several.

A report is one file: pictures embedded as data URIs, one style sheet within, no script and nothing
that is loaded from elsewhere. Whatever comes from a result is escaped. Without matplotlib it has all
but the pictures and says what to install.
"""

import base64
import io
import json
import os
import platform
from html import escape
from importlib.metadata import version
from pathlib import Path
from urllib.parse import quote

from randsmap._files import write_atomically
from randsmap._parallel import get_num_threads
from randsmap.studies._claims import FAILS, HOLDS, UNKNOWN, judge
from randsmap.studies._table import legend, table_text

__all__ = ["write_index", "write_report"]

REPORT, INDEX = "report.html", "index.html"
DPI = 110
PNG_COLORS = 255  # of a picture's palette: a third of the bytes, no difference to the eye

_STYLE = """
:root { color-scheme: light dark; --ink: #1b1b1b; --paper: #fff; --soft: #f2f2ee; --line: #cfcfc8;
  --link: #0b57a4; --good: #00684a; --bad: #a33100; --open: #555; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8e8e4; --paper: #16181b; --soft: #22252a;
  --line: #454a52; --link: #8ec5ff; --good: #5fd3a8; --bad: #ff9b6a; --open: #b5b5b5; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 70rem; padding: 1rem; color: var(--ink); background: var(--paper);
  font: 1rem/1.5 system-ui, sans-serif; overflow-wrap: break-word; }
h1 { font-size: 1.6rem; line-height: 1.2; } h2 { font-size: 1.25rem; margin-top: 2.2rem; }
h3 { font-size: 1.05rem; } a { color: var(--link); }
code { background: var(--soft); padding: .1em .3em; overflow-wrap: anywhere; }
.scroll { overflow-x: auto; border: 1px solid var(--line); margin: .6rem 0; }
table { border-collapse: collapse; font-size: .85rem; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .55rem; text-align: left; vertical-align: top;
  border-bottom: 1px solid var(--line); }
.figures th, .figures td { white-space: nowrap; }
thead th { background: var(--soft); } tbody th { font-weight: 600; }
.claims td { min-width: 11rem; } .claims td.verdict { min-width: 6.5rem; font-weight: 600; }
.good { color: var(--good); } .bad { color: var(--bad); } .open { color: var(--open); }
.pictures { display: grid; gap: 1rem; grid-template-columns: repeat(auto-fit, minmax(min(100%, 22rem), 1fr)); }
figure { margin: 0; } figure.wide { grid-column: 1 / -1; }
figure img { width: 100%; height: auto; background: #fff; border-radius: 3px; }
figcaption { font-size: .85rem; } .note { border-left: 4px solid var(--bad); padding-left: .8rem; }
"""


def write_report(result, folder):
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
    """
    path = Path(folder) / REPORT
    parts = [
        f"<p>{escape(result.section)} of the paper. {escape(result.date)}, randsmap {escape(result.version)}.</p>",
        _cuts(result),
        "<h2>What was claimed, what was measured</h2>",
        _claims([result], missing=False),
        "<h2>Tables</h2>",
        "<p>Ours beside the paper’s figures, with the ratio of the medians. A table is wider than a "
        "narrow screen: it scrolls.</p>",
        *_tables(result),
        _list(legend(result.rows)),
        "<h2>Tuned values on a grid’s edge</h2>",
        _edges(result),
        "<h2>Readings of the paper, and where the data cannot be the paper’s</h2>",
        _list(result.notes),
        "<h2>Figures</h2>",
        _pictures(result),
        "<h2>How to make it again</h2>",
        f"<p><code>{escape(result.command)}</code></p>",
        _facts(result),
    ]
    return _write(path, result.title, parts)


def write_index(results, folder):
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
    """
    path = Path(folder) / INDEX
    rows = []
    for result in results:
        link, name = _link(result, path.parent), escape(result.title)
        rows.append(
            (
                f'<a href="{escape(link)}">{name}</a>' if link else name,
                escape(result.section),
                *map(escape, _summary(result)),
            )
        )
    parts = [
        "<p>Each study of the paper, run with this package; the reports have the tables, figures and readings.</p>",
        "<h2>Studies</h2>",
        _table(
            (
                "study",
                "in the paper",
                "lowest test error",
                "largest conservation error of the exact form",
                "tuned values on an edge",
                "run",
            ),
            rows,
            "figures",
            escaped=True,
        ),
        *(f"<div><h3>{escape(result.title)}</h3>{_cuts(result)}</div>" for result in results if result.cuts),
        "<h2>What the paper claims, and what was measured</h2>",
        "<p>Verdicts are computed from the rows of the studies by the criterion beside them. Where a "
        "study was not run, a claim that needs it stays open unless another study contradicts it. The "
        "last column is the same criterion on the paper’s own tables. The images are not the "
        "paper’s, and seeds are not known: see the reports.</p>",
        _claims(results, missing=True),
        "<h2>How to make it again</h2>",
        "".join(
            f"<p><code>{escape(result.command)}</code>, {escape(result.date)}, randsmap {escape(result.version)}</p>"
            for result in results
        ),
        f"<p>{escape(_machine())}</p>",
    ]
    return _write(path, "The paper’s studies, run again", parts)


def _write(path, title, parts):
    body = "\n".join(part for part in parts if part)
    text = (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)} - randsmap</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        f"<h1>{escape(title)}</h1>\n{body}\n</body>\n</html>\n"
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, lambda file: file.write(text.encode()))
    return path


def _cuts(result):
    if not result.cuts:
        return ""
    return f'<p class="note"><strong>Not the full study:</strong> {escape(" ".join(result.cuts))}</p>'


def _list(texts):
    return "<ul>" + "".join(f"<li>{escape(text)}</li>" for text in texts) + "</ul>" if texts else ""


def _table(header, rows, kind, *, escaped=False):
    """A table whose first cell of a row is its header; cells are escaped here unless they are markup."""
    text = (lambda cell: cell) if escaped else escape
    head = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in header)
    body = "\n".join(
        f'<tr><th scope="row">{text(first)}</th>' + "".join(f"<td>{text(cell)}</td>" for cell in rest) + "</tr>"
        for first, *rest in rows
    )
    return (
        f'<div class="scroll" tabindex="0"><table class="{kind}"><thead><tr>{head}</tr></thead>\n'
        f"<tbody>{body}</tbody></table></div>"
    )


def _tables(result):
    for part in result.part_names:
        for split, name in (("train", "training"), ("test", "test")):
            rows = result.part_rows(part, split)
            if rows:
                header, *lines = table_text(rows)
                yield f"<h3>N = {escape(part[1:])}, {name} set</h3>"
                yield _table(header, lines, "figures")


def _claims(results, missing):
    verdicts = judge(results, missing=missing)
    if not verdicts:
        return "<p>None of the paper’s claims is about these data.</p>"
    classes = {HOLDS: "good", FAILS: "bad", UNKNOWN: "open"}
    counts = ", ".join(f"{sum(v.verdict == word for v in verdicts)} × “{word}”" for word in classes)
    header = ("the paper says", "verdict", "measured", "it holds if", "by the paper’s own tables")
    body = "\n".join(
        f"<tr><td>“{escape(v.claim.quote)}” <small>({escape(v.claim.where)})</small></td>"
        f'<td class="verdict {classes[v.verdict]}">{v.verdict}</td><td>{escape(v.measured)}</td>'
        f"<td>{escape(v.claim.criterion)}</td><td>{v.paper}</td></tr>"
        for v in verdicts
    )
    head = "".join(f'<th scope="col">{name}</th>' for name in header)
    return (
        f"<p>{len(verdicts)} claims: {counts}.</p>\n"
        f'<div class="scroll" tabindex="0"><table class="claims"><thead><tr>{head}</tr></thead>\n'
        f"<tbody>{body}</tbody></table></div>"
    )


def _edges(result):
    found = [
        f"{row['decoder']}{_size(row)}, N = {row['n_train']}: "
        f"{(row['parameter'] or 'value').removeprefix('features__')} = {row['hyperparameter']:.4g}"
        for row in result.rows
        if row["on_edge"] and row["split"] == result.rows[0]["split"]
    ]
    if not found:
        return "<p>None.</p>"
    return "<p>A better value may lie beyond:</p>" + _list(found)


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
        "" if best is None else f"{100 * best['rel_l2_median']:.3g} % ({best['decoder']}{_size(best)})",
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
    from randsmap.studies._pictures import study_pictures

    figures = []
    try:
        for picture in study_pictures(result):
            png = _png(picture.figure)
            data = base64.b64encode(png).decode()
            width, height = (int.from_bytes(png[i : i + 4], "big") for i in (16, 20))
            figures.append(
                f"<figure{' class=' + chr(34) + 'wide' + chr(34) if picture.wide else ''}>"
                f"<h3>{escape(picture.title)}</h3>"
                f'<img src="data:image/png;base64,{data}" width="{width}" height="{height}" '
                f'alt="{escape(picture.alt)}">'
                f"<figcaption>{escape(picture.caption)}</figcaption></figure>"
            )
    except ImportError:  # matplotlib is missing; `_png`'s Pillow belongs to it
        return (
            '<p class="note">There are no figures: matplotlib is not installed. Install it with '
            "<code>pip install 'randsmap[plots]'</code> and give the command below again: what "
            "is done is kept.</p>"
        )
    return '<div class="pictures">\n' + "\n".join(figures) + "\n</div>"


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


def _facts(result):
    options = ", ".join(f"{name} = {value}" for name, value in result.options.items() if value is not None)
    return f"<p>Options: {escape(options)}.</p>\n<p>{escape(_machine())}</p>"


def _machine():
    """Of the machine that wrote the report; nothing that names it."""
    packages = ", ".join(f"{name} {version(name)}" for name in ("numpy", "scipy", "scikit-learn"))
    return (
        f"Written on {platform.system()} {platform.machine()} with {os.cpu_count()} cores "
        f"({get_num_threads()} used), Python {platform.python_version()}, {packages}."
    )

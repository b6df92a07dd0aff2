"""Texts of the studies: their data files, and what several docstrings have in common."""

from functools import partial
from importlib.resources import files
from typing import Any

from randsmap._interface.parameters import document


def data_file(name: str) -> str:
    """The text of a file of ``data``."""
    return files("randsmap.studies").joinpath("data", name).read_text(encoding="utf-8")


_TEXTS: dict[str, Any] = {
    "result": """\
Parameters
----------
result : StudyResult""",
    "path": """\
path : path
    It is replaced as a whole, or not at all.

Raises
------
OSError
    If the file cannot be written.""",
    "no_jinja": """\
Raises
------
ImportError
    If jinja2 is not installed.""",
    "run": """\
Examples
--------
>>> import pathlib, tempfile
>>> from randsmap import studies
>>> study = studies.s_curve_study()
>>> with tempfile.TemporaryDirectory() as folder:
...     result = studies.run_study(study, out=folder, quick=True, decoders=["POD"], progress=False)""",
}
documented = partial(document, texts=_TEXTS)

"""The paper's numerical studies, run with this package and compared with the paper's numbers.

`_study` defines what a study is, and the paper's five. `_runner` runs any of them (tune, fit, test; resumable) on the
data of `_data`, `_table` makes its table, and `_result` keeps what is finished. `_claims` judges the paper's sentences
by the tables, and `_report` draws the figures and writes the page.
"""

from randsmap._interface.callers import public
from randsmap.studies._claims import claims_markdown
from randsmap.studies._report import write_index, write_report
from randsmap.studies._result import StudyResult, load_result, save_result
from randsmap.studies._runner import run_study
from randsmap.studies._study import (
    DecoderCase,
    Study,
    hughes_study,
    lwr_study,
    mri_study,
    s_curve_study,
    swiss_roll_study,
)
from randsmap.studies._table import format_table, table_text, terminal_width, write_csv, write_markdown

__all__ = [
    "DecoderCase",
    "Study",
    "StudyResult",
    "claims_markdown",
    "format_table",
    "hughes_study",
    "load_result",
    "lwr_study",
    "mri_study",
    "run_study",
    "s_curve_study",
    "save_result",
    "swiss_roll_study",
    "table_text",
    "terminal_width",
    "write_csv",
    "write_index",
    "write_markdown",
    "write_report",
]
public(globals())

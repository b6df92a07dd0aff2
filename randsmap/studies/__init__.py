"""The paper's numerical studies, run with this package and compared with the paper's numbers.

`_study` defines what a study is, its data, and the paper's five. `_runner` runs any of them (tune, fit, test;
resumable), `_result` keeps what is finished and makes its table. `_claims` judges the paper's sentences by the tables,
and `_report` draws the figures and writes the page.
"""

from randsmap._interface.callers import public
from randsmap.studies._claims import claims_markdown
from randsmap.studies._report import write_index, write_report
from randsmap.studies._result import StudyResult, format_table, load_result
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
    "swiss_roll_study",
    "write_index",
    "write_report",
]
public(globals())

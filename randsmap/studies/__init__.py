"""The paper's numerical studies, run with this package and set beside the paper's numbers.

`_study` says what a study is, one module for each says which data, encoder, decoders and grids the
paper used (`_manifolds`, `_lwr`, `_mri`, `_hughes`), `_runner` runs any of them (tune, fit, test;
resumable, with `_store`) on the data of `_data`, `_table` makes its table, `_figures` what its figures
show, and `_result` keeps both. `_pictures` draws the figures, `_claims` judges the paper's sentences by
the tables, and `_report` puts it all on a page.
"""

from randsmap.studies._claims import claims_markdown
from randsmap.studies._hughes import hughes_study
from randsmap.studies._lwr import lwr_study
from randsmap.studies._manifolds import s_curve_study, swiss_roll_study
from randsmap.studies._mri import mri_study
from randsmap.studies._report import write_index, write_report
from randsmap.studies._result import StudyResult, load_result, save_result
from randsmap.studies._runner import run_study
from randsmap.studies._study import DecoderCase, Study
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

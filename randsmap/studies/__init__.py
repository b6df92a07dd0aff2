"""The paper's numerical studies, run with this package and set beside the paper's numbers.

`_runner` runs any study (tune, fit, test; resumable), `_table` makes its table, and each data set has
a module that says which data, encoder, decoders and grids the paper used.
"""

from randsmap.studies._lwr import lwr_study
from randsmap.studies._runner import DecoderCase, Study, run_study
from randsmap.studies._table import format_table, write_csv

__all__ = ["DecoderCase", "Study", "format_table", "lwr_study", "run_study", "write_csv"]

"""Choice of hyperparameters: on a validation set, or by leave-one-out errors in closed form."""

from randsmap._interface.callers import public
from randsmap.decoders import FAMILIES, AutoDecoder
from randsmap.tuning._autotune import advised_components as advised_components  # for the command line
from randsmap.tuning._autotune import autotune, search_summary
from randsmap.tuning._parametric import choose_parametric
from randsmap.tuning._search import default_values, leave_one_out, tune

__all__ = [
    "FAMILIES",
    "AutoDecoder",
    "autotune",
    "choose_parametric",
    "default_values",
    "leave_one_out",
    "search_summary",
    "tune",
]
public(globals())

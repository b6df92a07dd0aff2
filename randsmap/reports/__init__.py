"""Reports: pages of one HTML file each, with the pictures in it, that need nothing else to be read.

`write_model_report` writes one of a model and snapshots: embedding, errors, worst fields, invariants, leverage, and
what was tuned. The studies' reports (`randsmap.studies`) share its templates, style sheet and pictures. Needs the extra
``studies`` (jinja2, matplotlib).
"""

from randsmap._interface.callers import public
from randsmap.reports._model_report import write_model_report

__all__ = ["write_model_report"]
public(globals())

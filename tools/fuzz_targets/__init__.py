"""The targets of tools/fuzz.py: each is one function that draws a case from a generator, checks it against its oracle
and returns how many inputs that were. An AssertionError, or an error that is not the documented one, is a fault.
"""

from fuzz_targets import decoding, encoding, files, geometry, layouts, projections, snapshot_files, solvers
from fuzz_targets.inputs import Skipped

__all__ = ["TARGETS", "Skipped"]

TARGETS = {
    function.__name__: function
    for module in (projections, geometry, solvers, encoding, decoding, layouts, files, snapshot_files)
    for function in module.TARGETS
}

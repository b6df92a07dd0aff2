"""One set of examples for everybody: a run that passes passes again, here and elsewhere.

`HYPOTHESIS_PROFILE=random pytest` looks for new ones.
"""

import os

from hypothesis import settings

settings.register_profile("fixed", derandomize=True)
settings.register_profile("random", derandomize=False)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fixed"))

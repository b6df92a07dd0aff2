"""Fixtures and options of the whole suite.

Examples of hypothesis are the same for everybody: a run that passes passes again, here and elsewhere;
`HYPOTHESIS_PROFILE=random pytest` looks for new ones.

`pytest` leaves out tests marked `slow`, `pytest -m slow` runs these alone and `pytest -m ""` all; `-n 2` shares them
between two processes.
"""

import functools
import os
import sys

import pytest
from hypothesis import settings

from helpers import python

settings.register_profile("fixed", derandomize=True)
settings.register_profile("random", derandomize=False)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fixed"))


def pytest_configure(config):
    if getattr(config.option, "numprocesses", None):
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # of each process: the other cores are the others'


LEVELS = ("baseline", "avx2", "avx512")


@functools.cache
def level_that_runs(level):
    """The instruction level of a process that is asked for `level`."""
    return python("from randsmap._kernels import vecmath; print(vecmath.cpu_level())", level=level).strip()


_missing = {}  # level -> number of tests that went without it


def missing(level):
    """Why tests of an instruction level cannot run here, or None if they can."""
    if level_that_runs(level) == level:
        return None
    _missing[level] = _missing.get(level, 0) + 1
    return f"no instruction level {level}: this processor and build run {level_that_runs(level)} in its place"


@pytest.fixture(scope="module", params=LEVELS)
def level(request):
    """Each instruction level in turn, for `RANDSMAP_CPU`; skipped where it does not exist."""
    reason = missing(request.param)
    if reason:
        pytest.skip(reason)
    return request.param


@pytest.fixture
def levels():
    """All the instruction levels that run here, for tests that compare them."""
    return [level for level in LEVELS if not missing(level)]


@pytest.fixture
def no_pictures(monkeypatch):
    """Reports are written without pictures, as where matplotlib is missing: these take a second."""
    for name in ("matplotlib", "matplotlib.figure"):
        monkeypatch.setitem(sys.modules, name, None)


def pytest_sessionfinish(session):
    if hasattr(session.config, "workeroutput"):  # of a process that xdist started
        session.config.workeroutput["missing"] = _missing


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node, error):
    for level, n in getattr(node, "workeroutput", {}).get("missing", {}).items():
        _missing[level] = _missing.get(level, 0) + n


def pytest_terminal_summary(terminalreporter):
    for level, n in list(_missing.items()):
        terminalreporter.write_line(f"not in {n} tests: {missing(level)}")

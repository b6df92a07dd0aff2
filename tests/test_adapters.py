"""The adapters in examples/adapters, against the packages that they are for."""

import runpy
import warnings
from pathlib import Path

import pytest

ADAPTERS = Path(__file__).resolve().parent.parent / "examples" / "adapters"


@pytest.mark.slow
@pytest.mark.parametrize("package, example", [("pymor", "pymor_reductor"), ("ezyrb", "ezyrb_reduction")])
def test_ours_keeps_the_mass_and_has_the_smaller_error(package, example):
    pytest.importorskip(package)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the packages' own
        results = runpy.run_path(str(ADAPTERS / f"{example}.py"))["main"]()
    (theirs, _), *ours = results.values()
    for error, mass in ours:
        assert error < theirs / 2
        assert mass < 1e-14

"""What the documentation says, runs."""

import doctest
import importlib
import pkgutil
import re
import warnings
from pathlib import Path

import numpy as np
import pytest

import randsmap

README = Path(__file__).resolve().parent.parent / "README.md"


def modules():
    found = pkgutil.walk_packages(randsmap.__path__, "randsmap.")
    return sorted(m.name for m in found
                  if not m.name.startswith("randsmap._kernels.") and m.name != "randsmap.__main__")


@pytest.mark.parametrize("name", modules())
def test_examples_in_docstrings(name):
    result = doctest.testmod(importlib.import_module(name), raise_on_error=False)
    assert result.failed == 0


def test_public_classes_and_functions_have_examples():
    for name in set(randsmap.__all__) - set(randsmap._SUBMODULES) - {"__version__"}:
        assert ">>>" in getattr(randsmap, name).__doc__, name


def test_readme_examples(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    centre = np.random.default_rng(0).uniform(0.3, 0.7, (80, 1))
    F = np.exp(-(((np.linspace(0, 1, 50) - centre) / 0.1) ** 2))
    np.save("snapshots.npy", F / F.sum(axis=1, keepdims=True))
    namespace = {}
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert len(blocks) >= 3
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for block in blocks:
            exec(block, namespace)
    for fields in (namespace["fields"], namespace["field"]):
        assert abs(fields.sum(axis=1) - 1).max() < 1e-14

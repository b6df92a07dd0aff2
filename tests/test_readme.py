"""What the README says, runs (docstrings: test_docstrings.py)."""

import pkgutil
import re
import warnings
from pathlib import Path

import numpy as np
import pytest

import randsmap

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"


def test_public_classes_and_functions_have_examples():
    for name in set(randsmap.__all__) - set(randsmap._SUBMODULES) - {"__version__"}:
        assert ">>>" in getattr(randsmap, name).__doc__, name


@pytest.mark.slow
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


def test_examples_of_files_and_shapes():
    (block,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "files.md").read_text(), re.DOTALL)
    namespace = {}
    exec(block, namespace)
    assert namespace["model"].reconstruct(namespace["fields"]).shape == (80, 20, 30)


def test_functions_named_beside_the_equations_exist():
    for row in re.findall(r"^\|.*\|(.*)\|$", (ROOT / "docs" / "equations.md").read_text(), re.MULTILINE)[2:]:
        for name in re.findall(r"(?<!kernel )`([\w.]+)`", row):
            try:
                pkgutil.resolve_name(f"randsmap.{name}")
            except (AttributeError, ImportError) as error:
                raise AssertionError(f"docs/equations.md names `{name}`") from error

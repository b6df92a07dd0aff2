"""What the README and docs/equations.md name, is there (their examples: test_docs.py)."""

import pkgutil
import re
from pathlib import Path

import randsmap

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"


def test_public_classes_and_functions_have_examples():
    for name in set(randsmap.__all__) - set(randsmap._SUBMODULES) - {"__version__"}:
        assert ">>>" in getattr(randsmap, name).__doc__, name


def test_functions_named_beside_the_equations_exist():
    for row in re.findall(r"^\|.*\|(.*)\|$", (ROOT / "docs" / "equations.md").read_text(), re.MULTILINE)[2:]:
        for name in re.findall(r"(?<!kernel )`([\w.]+)`", row):
            try:
                pkgutil.resolve_name(f"randsmap.{name}")
            except (AttributeError, ImportError) as error:
                raise AssertionError(f"docs/equations.md names `{name}`") from error

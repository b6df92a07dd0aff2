"""tools/fuzz.py itself: it finds what is planted, names the input, and comes to the same inputs again."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow  # each starts an interpreter or two

TOOLS = Path(__file__).resolve().parent.parent / "tools"
# a target that is wrong, one that ends the process, and one that is right
PLANTED = f"""
import os, sys
sys.path[:0] = [{str(TOOLS)!r}, {str(TOOLS.parent / "tests")!r}]
import fuzz, fuzz_targets

def wrong(rng):
    assert rng.random() < 0.5, "planted"
    return 2

def crash(rng):
    if rng.random() < 0.5:
        os.abort()
    return 1

fuzz_targets.TARGETS.update(wrong=wrong, crash=crash)
if __name__ == "__main__":
    sys.exit(fuzz.main())
"""


def run(script, *arguments):
    return subprocess.run(
        [sys.executable, script, *map(str, arguments)], capture_output=True, text=True, timeout=300, env=os.environ
    )


def test_no_fault_and_the_same_inputs_again():  # of all targets: `.ci/run release`
    results = [
        run(TOOLS / "fuzz.py", "--count", 60, "--seed", 3, "--only", "bounds", "--only", "images") for _ in range(2)
    ]
    assert results[0].returncode == 0, results[0].stdout + results[0].stderr
    assert "no fault (seed 3" in results[0].stdout and results[0].stdout == results[1].stdout
    inputs = int(re.search(r"in all +([\d,]+) inputs", results[0].stdout)[1].replace(",", ""))
    assert inputs > 200


def test_what_is_planted_is_found_and_its_input_named(tmp_path):
    script = tmp_path / "planted.py"
    script.write_text(PLANTED)
    found = run(script, "--count", 9, "--only", "wrong", "--only", "crash")
    assert found.returncode == 1 and "FAULTS" in found.stdout, found
    for target, what in (("wrong", "AssertionError: planted"), ("crash", "ended with signal 6")):
        assert what in found.stdout, found
        case = re.search(rf"--seed 0 --only {target} --first (\d+) --count 1\n", found.stdout)[1]
        assert what in run(script, "--only", target, "--first", case, "--count", 1).stdout


def test_unknown_targets_are_refused():
    result = run(TOOLS / "fuzz.py", "--only", "nothing")
    assert result.returncode == 2 and "no target nothing; there are bounds" in result.stderr

"""The runner of the programs in examples/hosts; `.ci/run hosts` runs these and compares their bits."""

import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

RUN = Path(__file__).resolve().parent.parent / "examples" / "hosts" / "run.py"


@pytest.fixture
def hosts():
    return runpy.run_path(str(RUN))


@pytest.mark.parametrize(
    "program, outcome",
    [
        ("print('f' * 16)", "400 of 400 cells differ"),
        ("import sys; sys.exit('no decoder')", "ended with status 1\nno decoder"),
    ],
)
def test_a_host_that_fails_is_named(hosts, capsys, program, outcome):
    hosts["HOSTS"]["wrong"] = lambda folder: [sys.executable, "-c", program]
    assert hosts["main"](["wrong"]) == 1
    assert f"wrong: FAILED, {outcome}" in capsys.readouterr().out


def test_a_host_without_compiler_is_skipped_unless_asked_for(hosts, capsys, monkeypatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("FC", raising=False)
    for name in set(hosts["HOSTS"]) - {"fortran"}:
        del hosts["HOSTS"][name]
    assert hosts["main"]([]) == 0
    assert "fortran: skipped, no compiler: gfortran or flang" in capsys.readouterr().out
    assert hosts["main"](["fortran"]) == 1


@pytest.mark.parametrize("standard", ["f2003", "f2018"])
def test_the_fortran_module_compiles_without_warnings(tmp_path, standard):
    compiler = shutil.which("gfortran")
    if compiler is None:
        pytest.skip("needs gfortran")
    source = RUN.parents[2] / "src" / "randsmap" / "include" / "randsmap.f90"
    command = [compiler, f"-std={standard}", "-Wall", "-Wextra", "-Werror", "-c", source]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert done.returncode == 0, done.stderr

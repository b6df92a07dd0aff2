"""What is installed is what the repository tracks: a file missing from a meson list shows here."""

import re
import shutil
import subprocess
from importlib.metadata import files
from pathlib import Path

import pytest

import randsmap

ROOT = Path(__file__).resolve().parent.parent
SUFFIXES = {".py", ".pyi", ".pxd", ".h", ".hpp", ".f90", ".html", ".json", ".typed", ".npz"}
BUILD_ONLY = {".pxd", ".h"}  # in _kernels: no one outside could link them


def shipped(paths):
    return {str(p) for p in paths if p.suffix in SUFFIXES or p.name == "py.typed"}


def test_installed_files_are_the_tracked_ones():
    installed = shipped(Path(f) for f in files("randsmap") if f.parts[0] == "randsmap")
    if "randsmap/cli.py" not in installed:
        pytest.skip("editable install: the files are the checkout's")
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    tracked = subprocess.run(
        ["git", "ls-files", "randsmap", "src/randsmap"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.split()
    tracked = [Path(t.removeprefix("src/")) for t in tracked]
    assert shipped(t for t in tracked if not (t.suffix in BUILD_ONLY and t.parent.name == "_kernels")) == installed


def test_the_shared_library_exports_the_public_functions_alone():
    library = Path(randsmap.__file__).parent / "lib" / "librandsmap.so.1"
    if shutil.which("nm") is None or not library.exists():
        pytest.skip("needs nm (binutils) and an installed librandsmap.so.1")
    symbols = subprocess.run(["nm", "-D", "--defined-only", library], check=True, capture_output=True, text=True).stdout
    header = (Path(randsmap.get_include()) / "randsmap.h").read_text()
    declared = set(re.findall(r"^RANDSMAP_API .*?(randsmap_\w+)\(", header, flags=re.MULTILINE))
    assert len(declared) == 12
    assert {line.split()[-1] for line in symbols.splitlines() if " T " in line} - {"_init", "_fini"} == declared
    pxd = library.parent.parent / "c_api.pxd"
    assert set(re.findall(r"^cdef .*?(randsmap_\w+)\(", pxd.read_text(), flags=re.MULTILINE)) == declared


def test_only_the_module_init_is_exported():
    if shutil.which("nm") is None:
        pytest.skip("needs nm (binutils)")
    import randsmap._kernels

    for folder in randsmap._kernels.__path__:
        for library in Path(folder).glob("*.so"):
            symbols = subprocess.run(
                ["nm", "-D", "--defined-only", library], check=True, capture_output=True, text=True
            ).stdout.split("\n")
            names = {line.split()[-1] for line in symbols if " T " in line}
            assert names - {"_init", "_fini"} == {f"PyInit_{library.name.split('.')[0]}"}

"""What is installed is what the repository tracks: a file missing from a meson list shows here."""

import re
import runpy
import shutil
import subprocess
import tomllib
import zipfile
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

import pytest

import randsmap

ROOT = Path(__file__).resolve().parent.parent
SUFFIXES = {".py", ".pyi", ".pxd", ".h", ".hpp", ".f90", ".html", ".json", ".typed", ".npz"}
BUILD_ONLY = {".pxd", ".h"}  # in _kernels: no one outside could link them


def shipped(paths):
    return {str(p) for p in paths if p.suffix in SUFFIXES or p.name == "py.typed"}


def test_installed_files_are_the_tracked_ones():
    try:
        installed = shipped(Path(f) for f in files("randsmap") if f.parts[0] == "randsmap")
    except PackageNotFoundError:
        pytest.skip("not installed: the kernels lie beside the source")
    if "randsmap/cli/__init__.py" not in installed:
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
    assert len(declared) == 14
    found = {line.split()[-1] for line in symbols.splitlines() if " T " in line} - {"_init", "_fini"}
    units = {name for name in found if name.startswith("fmi3")}  # all of FMI 3.0, which importers look up
    assert found - units == declared and len(units) == 75
    pxd = library.parent.parent / "c_api.pxd"
    assert set(re.findall(r"^cdef .*?(randsmap_\w+)\(", pxd.read_text(), flags=re.MULTILINE)) == declared


def test_only_the_module_init_is_exported():
    if shutil.which("nm") is None:
        pytest.skip("needs nm (binutils)")
    import randsmap._kernels

    for folder in [*randsmap._kernels.__path__, Path(randsmap.__file__).parent]:
        for library in Path(folder).glob("*.so"):
            symbols = subprocess.run(
                ["nm", "-D", "--defined-only", library], check=True, capture_output=True, text=True
            ).stdout.split("\n")
            names = {line.split()[-1] for line in symbols if " T " in line}
            assert names - {"_init", "_fini"} == {f"PyInit_{library.name.split('.')[0]}"}


def test_the_release_expects_the_wheels_that_are_configured():
    configured = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["cibuildwheel"]["build"]
    workflow = (ROOT / ".github" / "workflows" / "release.yml").read_text()
    (expected,) = re.findall(r"for python in (.*); do", workflow)
    assert [f"{re.sub('t?-.*', '', tag)}-{tag.removesuffix('-*')}" for tag in configured] == expected.split()


@pytest.mark.parametrize(
    "name, padding, message",
    [
        ("lib/librandsmap.so.1", 0, None),
        ("_kernels/features.cpython-311-x86_64-linux-gnu.so", 0, r"features.* exports \['fmi3.*, not \['PyInit_"),
        ("lib/librandsmap.so.1", 3_000_000, "bytes, more than 3000000"),
    ],
)
def test_wheels_that_export_too_much_or_are_too_large_are_refused(tmp_path, capsys, name, padding, message):
    library = Path(randsmap.__file__).parent / "lib" / "librandsmap.so.1"
    if shutil.which("nm") is None or not library.exists():
        pytest.skip("needs nm (binutils) and an installed librandsmap.so.1")
    check = runpy.run_path(str(ROOT / "tools" / "check_wheel.py"))["check_files"]
    wheel = tmp_path / "randsmap-0.1.0-cp311-cp311-linux_x86_64.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.write(library, f"randsmap/{name}")
        archive.write(Path(randsmap.get_include()) / "randsmap.h", "randsmap/include/randsmap.h")
        archive.writestr("randsmap/padding", bytes(padding))
    if message is None:
        check(wheel)
        assert "1 compiled files, stripped, export what they should" in capsys.readouterr().out
    else:
        with pytest.raises(SystemExit, match=message):
            check(wheel)

"""The layering of the package, read off the source: a module imports only from what stands before it."""

import ast
import functools
import importlib
import importlib.metadata
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import randsmap

LAYERS = [
    {"_pyinstaller"},
    {"_kernels"},
    {"_parallel"},
    {"_io"},
    {"_interface"},
    {"_linalg"},
    {"snapshots", "metrics", "features"},
    {"invariants"},
    {"maps"},
    {"persistence"},  # loads the classes of a file by their names
    {"encoders"},
    {"decoders"},
    {"model"},
    {"distributed", "export", "jax", "torch"},
    {"tuning"},
    {"datasets"},
    {"plotting"},
    {"reports"},
    {"studies"},
    {"cli"},
    {"__main__"},
]
RANK = {name: rank for rank, layer in enumerate(LAYERS) for name in layer}
# meson-python may install a package over two places; the Python files lie beside __init__.py
PACKAGE = Path(randsmap.__file__).parent


def python_files():
    return [p for p in sorted(PACKAGE.rglob("*.py")) if p != PACKAGE / "__init__.py"]


FILES = pytest.mark.parametrize("path", python_files(), ids=lambda p: str(p.relative_to(PACKAGE)))


def part_of(path):
    """First-level part of randsmap that a file belongs to."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


@functools.cache
def imports(path):
    """(module, name) of every import of a file, wherever it stands; name is None for `import module`."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found += [(node.module, alias.name) for alias in node.names]
        elif isinstance(node, ast.Import):
            found += [(alias.name, None) for alias in node.names]
    return found


def imported_parts(path):
    """First-level parts of randsmap that a file imports."""
    for module, name in imports(path):
        if module == "randsmap" and name in RANK:
            yield name
        elif module.startswith("randsmap."):
            yield module.split(".")[1]


def test_every_part_has_a_layer():
    parts = {part_of(p) for p in python_files()} | {"_kernels"}
    assert parts == set(RANK)


@FILES
def test_module_imports_only_from_layers_before_it(path):
    own = part_of(path)
    wrong = {p for p in imported_parts(path) if p != own and RANK[p] >= RANK[own]}
    assert not wrong, f"{own} imports {wrong}"


def test_few_private_modules_at_the_top():
    private = {p.stem for p in PACKAGE.glob("_*.py")} - {"__init__", "__main__"}
    assert len(private) <= 6, private


@FILES
def test_no_private_name_of_another_part(path):
    # `_kernels.features` may be `_kernel` for who imports it; a name that starts with _ is its module's own
    wrong = [
        f"{module}.{name}"
        for module, name in imports(path)
        if module.startswith("randsmap.") and module.split(".")[1] != part_of(path) and (name or "").startswith("_")
    ]
    assert not wrong


@FILES
def test_no_private_name_of_scikit_learn(path):
    wrong = [
        f"{module}.{name}"
        for module, name in imports(path)
        if module.split(".")[0] == "sklearn" and any(part.startswith("_") for part in f"{module}.{name}".split("."))
    ]
    assert not wrong


def run(code):
    return subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, timeout=120)


def test_import_is_lazy():
    code = (
        "import sys, randsmap\n"
        "heavy = [m for m in ('numpy', 'scipy', 'sklearn', 'tqdm') if m in sys.modules]\n"
        "assert not heavy, heavy"
    )
    result = run(code)
    assert result.returncode == 0, result.stderr


def test_the_first_fit_loads_few_modules_more_than_scikit_learn():
    # counted, not timed; the modules named first are those that scikit-learn's own base loads in some version, and
    # Cython's module has its version in its name
    code = (
        "import sys, scipy.linalg, scipy.optimize, scipy.sparse.csgraph, scipy.spatial.distance\n"
        "import sklearn.base, sklearn.utils.metaestimators\n"
        "there = set(sys.modules)\n"
        "import randsmap\n"
        "randsmap.RANDSMAPDecoder(random_state=0).fit([[0.0], [1.0], [2.0]], [[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]])\n"
        "new = set(sys.modules) - there\n"
        "known = {'randsmap', *sys.stdlib_module_names}\n"
        "others = sorted(name for name in new if name.split('.')[0] not in known and not name.startswith('_cython'))\n"
        "assert not others, others\n"
        "assert len(new) <= 65, sorted(new)"
    )
    result = run(code)
    assert result.returncode == 0, result.stderr


def test_every_public_name_loads_and_dir_lists_it():
    for name in randsmap.__all__:
        assert getattr(randsmap, name) is not None
        assert name in dir(randsmap)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        randsmap.nonsense  # noqa: B018


def test_stub_names_the_same_public_names():
    stub = ast.parse((PACKAGE / "__init__.pyi").read_text())
    names = set()
    for node in ast.walk(stub):
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if alias.name == "*":
                    names |= set(importlib.import_module(node.module).__all__)
                elif alias.asname == alias.name:
                    names.add(alias.name)
    assert names | {"__version__"} == set(randsmap.__all__)


def test_version_is_that_of_the_build():
    build = Path(__file__).resolve().parent.parent / "meson.build"
    assert f"version: '{randsmap.__version__}'" in build.read_text()


@pytest.mark.slow
def test_executable_has_every_module(tmp_path):
    """PyInstaller with its defaults finds what is imported by name and by compiled modules."""
    pytest.importorskip("PyInstaller")
    if not any(hook.dist.name == "randsmap" for hook in importlib.metadata.entry_points(group="pyinstaller40")):
        pytest.skip("randsmap is imported from a folder, without the entry point of an installed package")
    model = randsmap.ManifoldModel(randsmap.POD(1), randsmap.RANDSMAPDecoder(random_state=0))
    model.fit(np.eye(8) + 1).save(tmp_path / "model.npz")
    (tmp_path / "app.py").write_text(
        "import randsmap\nprint(randsmap.load('model.npz').inverse_transform([[0.5]]).sum())\n"
    )
    command = [sys.executable, "-m", "PyInstaller", "--onedir", "--noconfirm", "--log-level=ERROR", "app.py"]
    for package in ("matplotlib", "pandas", "dask", "numba", "jax"):
        command += ["--exclude-module", package]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=600)
    program = subprocess.run([tmp_path / "dist/app/app"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert program.returncode == 0, program.stderr
    assert float(program.stdout) == pytest.approx(9, abs=1e-12)


@pytest.mark.parametrize("archive", [False, True])
def test_source_tree_and_archive_without_kernels_say_so(archive, tmp_path):
    place = tmp_path / "randsmap" / "__init__.py"
    place.parent.mkdir()
    place.write_text((PACKAGE / "__init__.py").read_text())
    if archive:
        place = shutil.make_archive(tmp_path / "archive", "zip", tmp_path, "randsmap")
        shutil.rmtree(tmp_path / "randsmap")
    # -S keeps an editable install's import hook out
    code = f"import sys; sys.path.insert(0, {str(place if archive else tmp_path)!r}); import randsmap"
    result = subprocess.run(
        [sys.executable, "-P", "-S", "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert result.returncode != 0
    assert f"imported from {place}" in result.stderr and "In a zip archive" in result.stderr


WITHOUT_DOCSTRINGS = """
import sys, warnings
sys.path.insert(0, sys.argv[1])
import numpy as np
from entry_points import ENTRY_POINTS
warnings.simplefilter("ignore")
for call in ENTRY_POINTS.values():
    for _ in call(np.random.default_rng(0), lambda array: array):
        pass
"""


@pytest.mark.slow
def test_everything_works_without_docstrings_and_assertions():
    """python -OO: each public callable that takes arrays, as tests/entry_points.py calls it."""
    result = subprocess.run(
        [sys.executable, "-P", "-OO", "-c", WITHOUT_DOCSTRINGS, str(Path(__file__).parent)],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert result.returncode == 0, result.stderr


def test_floating_point_environment_is_untouched():
    # linking with -ffast-math would switch the process to flush-to-zero (gevent #1891)

    code = (
        "import importlib, pkgutil, numpy as np, randsmap._kernels as k\n"
        "names = [m.name for m in pkgutil.iter_modules(k.__path__)]\n"
        "assert names\n"
        "for name in names: importlib.import_module('randsmap._kernels.' + name)\n"
        "assert np.finfo(np.float64).smallest_subnormal > 0\n"
        "assert np.float64(2.0) ** -1022 * np.float64(0.25) > 0"
    )
    result = run(code)
    assert result.returncode == 0, result.stderr


@pytest.mark.slow
def test_progress_bars_are_plain_ones():
    # tqdm.auto warns in a notebook without ipywidgets, as soon as it is imported
    code = "import sys, randsmap; randsmap.RANDSMAPDecoder, randsmap.tune; assert 'tqdm.auto' not in sys.modules"
    result = run(code)
    assert result.returncode == 0, result.stderr

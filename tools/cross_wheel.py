#!/usr/bin/env python3
"""Build the Linux wheel for AArch64 on another processor, and test it there in an emulator.

    python3.11 tools/cross_wheel.py [PYTEST ARGUMENT ...]     # default: the kernels' tests that are not slow

Runs on Debian 12, with qemu-aarch64 (apt install qemu-user). Debian's Python for AArch64 is unpacked in a temporary
folder, from the sources of packages that the machine has; nothing is installed.
"""

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

from check_wheel import (
    GLIBC,
    REPAIR,
    ROOT,
    TESTS,
    check_files,
    environment,
    kernel_tests,
    repair,
    run,
    without_compiler,
)
from cross_compile import cross_file, python_details

MACHINE, TRIPLET = "aarch64", "aarch64-linux-gnu"
# the interpreter, its headers, and what it and the wheels of NumPy and SciPy are linked with
PACKAGES = """python3.11-minimal libpython3.11-minimal libpython3.11-stdlib libpython3.11-dev libc6 libgcc-s1 libstdc++6
  libexpat1 zlib1g libffi8 libbz2-1.0 liblzma5 libssl3 libsqlite3-0 libuuid1 libcrypt1""".split()

DECODE = """
import platform, numpy as np, scipy, sklearn, randsmap
assert platform.machine() == "aarch64", platform.machine()
rng = np.random.default_rng(0)
x, Y = np.linspace(0, 1, 200), rng.uniform(0.2, 0.8, (300, 1))
F = np.exp(-(((x - Y) / 0.1) ** 2))
F /= F.sum(axis=1, keepdims=True)
decoder = randsmap.RANDSMAPDecoder(random_state=0, bounds=(0, 1)).fit(Y[:250], F[:250])
fields = decoder.predict(Y[250:])
mass, error = abs(fields.sum(axis=1) - 1).max(), np.linalg.norm(fields - F[250:]) / np.linalg.norm(F[250:])
assert mass < 1e-13 and error < 2e-2, (mass, error)
assert fields.min() >= 0 and fields.max() <= 1, (fields.min(), fields.max())
print(f"{platform.machine()}, NumPy {np.__version__}, SciPy {scipy.__version__}, scikit-learn {sklearn.__version__}: "
      f"bounds kept, largest error of the mass {mass:.0e}, relative error of new fields {error:.0e}")
"""


def unpack_python(root: Path) -> None:
    """Debian's Python for AArch64 in a folder, from package lists and a cache of its own."""
    apt = root.parent / "apt"
    for name in ("lists/partial", "cache/archives/partial"):
        (apt / name).mkdir(parents=True)
    (apt / "status").touch()
    options = {
        "Dir::State": apt,
        "Dir::State::status": apt / "status",
        "Dir::Cache": apt / "cache",
        "APT::Architecture": "arm64",
        "APT::Architectures": "arm64",
        "APT::Sandbox::User": "root",  # of another user's temporary folder apt's own user sees nothing
    }
    command = ["apt-get", "-qq", *(f"-o{key}={value}" for key, value in options.items())]
    run(*command, "update")
    run(*command, "download", *PACKAGES, cwd=apt)
    for package in apt.glob("*.deb"):
        run("dpkg-deb", "--extract", package, root)
    headers = root / "usr/include"
    shutil.copy(headers / TRIPLET / "python3.11/pyconfig.h", headers / "python3.11")  # in place of one that includes it


def build(folder: Path, headers: Path) -> Path:
    """The repaired wheel."""
    requires = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    tools = environment(folder / "tools", sys.executable, "build", "ninja", "ziglang", *requires, *REPAIR)
    zig = [str(tools), "-m", "ziglang"]
    (folder / "cross.ini").write_text(cross_file(zig, f"{TRIPLET}.{GLIBC}", "linux", MACHINE, None))
    (folder / "python.json").write_text(python_details(f"linux-{MACHINE}", f".cpython-311-{TRIPLET}.so", headers))
    settings = [f"--cross-file={folder / 'cross.ini'}", f"-Dpython.build_config={folder / 'python.json'}"]
    # without isolation: pip would take build tools of the other processor; and that variable gives the wheel its name
    variables = {**os.environ, "_PYTHON_HOST_PLATFORM": f"linux-{MACHINE}", "CC": ""}
    variables["PATH"] = os.pathsep.join([str(tools.parent), os.environ["PATH"]])
    arguments = ["--wheel", "--no-isolation", "--skip-dependency-check", "--outdir", folder / "built"]
    run(tools, "-m", "build", *arguments, *(f"-Csetup-args={s}" for s in settings), ROOT, env=variables)
    return repair(folder, tools, MACHINE)


def interpreter(folder: Path, root: Path, wheel: Path) -> Path:
    """A command like python3.11 that runs in the emulator and has the wheel and what it and the tests need."""
    site = folder / "site"
    platforms = [f"--platform=manylinux_2_{n}_{MACHINE}" for n in range(17, 37)] + [
        f"--platform=manylinux2014_{MACHINE}"
    ]
    options = ["--quiet", "--target", site, "--only-binary", ":all:", "--python-version", "3.11", *platforms]
    run(sys.executable, "-m", "pip", "install", *options, wheel, *TESTS)
    command = folder / "python3.11"
    # a processor whose vectors the emulator has in plain form; tests start processes with sys.executable
    emulator = [shutil.which("qemu-aarch64"), "-cpu", "cortex-a72", "-L", root, root / "usr/bin/python3.11"]
    command.write_text(f'#!/bin/sh\nexec {shlex.join(map(str, emulator))} "$@"\n')
    command.chmod(0o755)
    (site / "sitecustomize.py").write_text(f"import sys\nsys.executable = {str(command)!r}\n")
    return command


def main() -> None:
    if sys.version_info[:2] != (3, 11):
        raise SystemExit(f"needs Python 3.11, as Debian 12 has it, got {sys.version.split()[0]}")
    for name in ("apt-get", "dpkg-deb", "qemu-aarch64"):
        if shutil.which(name) is None:
            raise SystemExit(f"needs {name}")
    with tempfile.TemporaryDirectory(prefix="randsmap-cross.") as name:
        folder = Path(name)
        root = folder / "root"
        unpack_python(root)
        wheel = build(folder, root / "usr/include/python3.11")
        check_files(wheel)
        python = interpreter(folder, root, wheel)
        variables = {
            **without_compiler(),
            "PYTHONPATH": str(folder / "site"),
        }  # this system's makes no AArch64 programs
        print(run(python, "-c", DECODE, cwd=folder, env=variables), end="", flush=True)
        # the emulator ends when a process with threads forks
        left_out = f"--deselect={ROOT / 'tests/test_parallel.py'}::test_the_pool_works_in_a_forked_child"
        tests = subprocess.run([*kernel_tests(python), left_out, *sys.argv[1:]], cwd=folder, env=variables)
        raise SystemExit(tests.returncode)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Compile every C kernel, at every instruction level and with -Werror, for other systems, and run the C
tests where an emulator can.

Needs `pip install ziglang meson ninja` in the environment of this Python, and the emulators qemu-aarch64
and qemu-x86_64 (Debian, Ubuntu: apt install qemu-user). Without one of them it ends with status 2.

    python tools/cross_compile.py [TARGET ...]     # names as below; default: all
    python tools/cross_compile.py --modules SOURCE [TARGET ...]

The second compiles and links the extension modules too, where no emulator is, with the Cython of this environment.
SOURCE is CPython's source of this Python's version (Debian: apt-get source python3.11): Windows' headers and the names
in its DLL come from there. macOS' headers are made there by `configure`: this system's stand in for them. The modules
of AArch64 Linux are built and run by tools/cross_wheel.py.
"""

import argparse
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
# target of the compiler, meson's system and processor, emulator (None: compiled and linked only). Static:
# the emulator has no libraries of the target's. Nehalem has neither AVX2 nor FMA: the baseline alone runs.
TARGETS = {
    "linux-aarch64": ("aarch64-linux-musl", "linux", "aarch64", ["qemu-aarch64"]),
    "linux-x86_64": ("x86_64-linux-musl", "linux", "x86_64", ["qemu-x86_64", "-cpu", "Nehalem"]),
    "macos-aarch64": ("aarch64-macos", "darwin", "aarch64", None),
    "windows-x86_64": ("x86_64-windows-gnu", "windows", "x86_64", None),
}
ZIG = [sys.executable, "-m", "ziglang"]


def check_tools(names: list[str]) -> None:
    """Exit with status 2 if something is missing, naming how to get it."""
    missing = [
        f"Python package {name}: pip install {name}"
        for name in ("ziglang", "mesonbuild")
        if importlib.util.find_spec(name) is None
    ]
    if shutil.which("ninja") is None:
        missing.append("ninja: pip install ninja")
    for emulator in {TARGETS[name][3][0] for name in names if TARGETS[name][3]}:
        if shutil.which(emulator) is None:
            missing.append(f"{emulator}: apt install qemu-user")
    if missing:
        print("missing:", *missing, sep="\n  ", file=sys.stderr)
        raise SystemExit(2)


def cross_file(zig: list[str], target: str, system: str, cpu: str, emulator: list[str] | None) -> str:
    """Meson's description of the target and its compiler."""
    binaries = {"c": [*zig, "cc", "-target", target], "ar": [*zig, "ar"], "strip": "true"}
    if emulator:
        binaries["exe_wrapper"] = emulator
    return "\n".join(
        [
            "[binaries]",
            *(f"{name} = {value!r}" for name, value in binaries.items()),
            "[built-in options]",
            f"c_link_args = {['-static'] if emulator else []!r}",
            "[host_machine]",
            f"system = {system!r}",
            f"cpu_family = {cpu!r}",
            f"cpu = {cpu!r}",
            "endian = 'little'",
            "",
        ]
    )


def python_details(platform: str, suffix: str, headers: Path, library: Path | None = None) -> str:
    """What Meson asks of the target's Python (PEP 739); `library`: what extension modules are linked with."""
    return json.dumps(
        {
            "schema_version": "1.0",
            "base_prefix": "/",
            "platform": platform,
            "language": {"version": ".".join(map(str, sys.version_info[:2]))},
            "implementation": {"name": "cpython"},
            "abi": {"flags": [], "extension_suffix": suffix, "stable_abi_suffix": ".abi3" + Path(suffix).suffix},
            "libpython": {"link_extensions": library is not None, "dynamic": str(library)},
            "c_api": {"headers": str(headers)},
        }
    )


def windows_python(source: Path, folder: Path) -> str:
    """`python_details` of Windows' Python: its headers, and an import library of all names that they declare."""
    version = "{}{}".format(*sys.version_info)
    headers, library = folder / "include", folder / f"python{version}.lib"
    shutil.copytree(source / "Include", headers)
    (pyconfig,) = (source / "PC").glob("pyconfig.h*")  # .in from 3.13 on, and the same
    shutil.copy(pyconfig, headers / "pyconfig.h")
    text = "".join(path.read_text() for path in headers.rglob("*.h"))
    names = re.findall(r"PyAPI_FUNC\([^()]*\)\s*(?:_Py_NO_RETURN\s+)?(\w+)", text)
    names += [f"{name} DATA" for name in re.findall(r"PyAPI_DATA\([^()]*\)\s*(\w+)", text)]
    definitions = library.with_suffix(".def")
    definitions.write_text("\n".join([f"LIBRARY python{version}.dll", "EXPORTS", *sorted(set(names))]))
    subprocess.run([*ZIG, "dlltool", "-m", "i386:x86-64", "-d", definitions, "-l", library], check=True, cwd=folder)
    return python_details("win-amd64", f".cp{version}-win_amd64.pyd", headers, library)


def build(name: str, folder: Path, source: Path | None) -> None:
    """Compile for one target and run its tests if they can run here."""
    print(f"== {name}", flush=True)
    (folder / "cross.ini").write_text(cross_file(ZIG, *TARGETS[name]))

    def meson(*arguments: str | Path, **options: Any) -> None:
        command = [sys.executable, "-m", "mesonbuild.mesonmain", *arguments]
        subprocess.run(command, check=True, env={**os.environ, "CC": ""}, **options)

    meson("setup", "-Dkernel_tests=true", "--werror", "--cross-file", folder / "cross.ini", folder / "build", ROOT)
    meson("compile", "-C", folder / "build")
    if TARGETS[name][3]:
        meson("test", "-C", folder / "build", "--print-errorlogs", "--timeout-multiplier", "4")
    elif source:
        options = []
        if TARGETS[name][1] == "windows":
            (folder / "python.json").write_text(windows_python(source, folder))
            # the headers for Meson's check of Cython; the macro as Meson defines it on Windows, for those up to 3.11
            arguments = ["-I" + str(folder / "include"), "-DMS_WIN64="]
            options = [f"-Dpython.build_config={folder / 'python.json'}", f"-Dc_args={arguments}"]
        meson("setup", *options, "--cross-file", folder / "cross.ini", folder / "modules", ROOT)
        log = folder / "log"
        try:
            with log.open("w") as file:
                meson("compile", "-C", folder / "modules", stdout=file)
        finally:
            print(log.read_text())
        if missing := sorted(
            set(re.findall("undefined symbol: .*", log.read_text()))
        ):  # of which the linker only warns
            raise SystemExit("\n".join(missing))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--modules", type=Path, metavar="SOURCE", help="compile and link the extension modules too")
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=", ".join(TARGETS))
    options = parser.parse_args()
    for name in options.targets:
        if name not in TARGETS:
            parser.error(f"TARGET must be one of {', '.join(TARGETS)}, got {name}")
    names = options.targets or list(TARGETS)
    check_tools(names)
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            build(name, Path(folder), options.modules)


if __name__ == "__main__":
    main()

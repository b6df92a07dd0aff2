#!/usr/bin/env python3
"""Compile every C kernel, at every instruction level and with -Werror, for other systems, and run the C
tests where an emulator can.

Needs `pip install ziglang meson ninja` in the environment of this Python, and the emulators qemu-aarch64
and qemu-x86_64 (Debian, Ubuntu: apt install qemu-user). Without one of them it ends with status 2.

    python tools/cross_compile.py [TARGET ...]     # names as below; default: all
"""

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# target of the compiler, meson's system and processor, emulator (None: compiled and linked only). Static:
# the emulator has no libraries of the target's. Nehalem has neither AVX2 nor FMA: the baseline alone runs.
TARGETS = {
    "linux-aarch64": ("aarch64-linux-musl", "linux", "aarch64", ["qemu-aarch64"]),
    "linux-x86_64": ("x86_64-linux-musl", "linux", "x86_64", ["qemu-x86_64", "-cpu", "Nehalem"]),
    "macos-aarch64": ("aarch64-macos", "darwin", "aarch64", None),
    "windows-x86_64": ("x86_64-windows-gnu", "windows", "x86_64", None),
}


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


def cross_file(target: str, system: str, cpu: str, emulator: list[str] | None) -> str:
    """Meson's description of the target and its compiler."""
    zig = [sys.executable, "-m", "ziglang"]
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


def build(name: str, folder: Path) -> None:
    """Compile for one target and run its tests if they can run here."""
    print(f"== {name}", flush=True)
    (folder / "cross.ini").write_text(cross_file(*TARGETS[name]))

    def meson(*arguments: str | Path) -> None:
        subprocess.run(
            [sys.executable, "-m", "mesonbuild.mesonmain", *arguments], check=True, env={**os.environ, "CC": ""}
        )

    meson("setup", "-Dkernel_tests=true", "--werror", "--cross-file", folder / "cross.ini", folder / "build", ROOT)
    meson("compile", "-C", folder / "build")
    if TARGETS[name][3]:
        meson("test", "-C", folder / "build", "--print-errorlogs", "--timeout-multiplier", "4")


def main() -> None:
    names = sys.argv[1:] or list(TARGETS)
    for name in names:
        if name not in TARGETS:
            raise SystemExit(f"TARGET must be one of {', '.join(TARGETS)}, got {name}")
    check_tools(names)
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            build(name, Path(folder))


if __name__ == "__main__":
    main()

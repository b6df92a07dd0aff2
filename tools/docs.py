#!/usr/bin/env python3
"""Build and check the documentation: what the docs job of CI runs.

    python tools/docs.py            # all of these
    python tools/docs.py site       # build/docs/html/index.html, every warning an error; runs the gallery and checks it
    python tools/docs.py doctest    # the examples of the API reference
    python tools/docs.py gallery    # the examples of the gallery alone, without Sphinx
    python tools/docs.py adapters   # those for other packages; what is not installed is skipped and named

Needs the installed package and its extra `docs`.
No network is needed; without it fewer names of other packages are links.
"""

import importlib.util
import os
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOCS, GALLERY, BUILT = ROOT / "docs", ROOT / "examples" / "gallery", ROOT / "build" / "docs"
EXAMPLES, SECONDS = 8, 20.0  # how many there are, and how long one may take
ADAPTERS = {"pymor_reductor.py": "pymor", "ezyrb_reduction.py": "ezyrb"}


def run(*command):
    print("+", *command[1:], flush=True)
    # the folder of examples first would hide the package that is installed; the root has no compiled kernels
    if subprocess.run(command, cwd=BUILT, env={**os.environ, "MPLBACKEND": "agg"}).returncode:
        sys.exit(f"failed: {' '.join(map(str, command[1:]))}")


def sphinx(builder, *options):
    run(
        sys.executable, "-m", "sphinx", "-W", "--keep-going", "-n", "-q", "-b", builder, *options, DOCS, BUILT / builder
    )


def check_gallery(seconds, too_slow=sys.exit):
    """`seconds` {example: its time}: as many as there should be, each fast enough."""
    for name, took in sorted(seconds.items()):
        print(f"  {took:5.1f} s  {name}")
    if len(seconds) < EXAMPLES:
        sys.exit(f"the gallery must have {EXAMPLES} examples, it has {len(seconds)}: {', '.join(sorted(seconds))}")
    slow = [name for name, took in seconds.items() if took >= SECONDS]
    if slow:
        too_slow(f"longer than {SECONDS:.0f} s: {', '.join(slow)}")


def site():
    for made in (DOCS / "api", DOCS / "gallery", BUILT / "html"):  # nothing of former builds
        shutil.rmtree(made, ignore_errors=True)
    sphinx("html")
    cases = ElementTree.parse(BUILT / "html" / "gallery.xml").iter("testcase")
    # these are times on the clock, which a busy machine makes longer
    check_gallery({Path(case.get("file")).name: float(case.get("time")) for case in cases}, too_slow=print)
    for example in GALLERY.glob("plot_*.py"):
        if not any((DOCS / "gallery" / "images").glob(f"sphx_glr_{example.stem}_*.png")):
            sys.exit(f"{example.name} makes no picture")
    print(f"site: {(BUILT / 'html' / 'index.html').relative_to(ROOT)}")


def doctest():
    sphinx("doctest", "-D", "plot_gallery=0")


def gallery():
    seconds = {}
    for example in sorted(GALLERY.glob("plot_*.py")):
        before = os.times()
        run(sys.executable, example)
        after = os.times()
        seconds[example.name] = (
            after.children_user + after.children_system - before.children_user - before.children_system
        )
    check_gallery(seconds)


def adapters():
    for example, package in ADAPTERS.items():
        if importlib.util.find_spec(package):
            run(sys.executable, ROOT / "examples" / "adapters" / example)
        else:
            print(f"  skipped: {example}, {package} is not installed")


STEPS = {step.__name__: step for step in (site, doctest, gallery, adapters)}

if __name__ == "__main__":
    names = sys.argv[1:] or ["site", "doctest", "adapters"]  # site runs the gallery
    if not set(names) <= set(STEPS):
        sys.exit(f"no step {', '.join(set(names) - set(STEPS))}; there are {', '.join(STEPS)}")
    BUILT.mkdir(parents=True, exist_ok=True)
    for name in names:
        STEPS[name]()

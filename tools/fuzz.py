"""Random, hostile inputs for every kernel and file reader, each against a plain reference.

    python tools/fuzz.py --seconds 3600              # all targets, the time shared between them
    python tools/fuzz.py --only neighbours --count 1000
    python tools/fuzz.py --list

A case is drawn from the seed, the target's name and its number, so that whoever has the three has the input. What
fails is printed with the command that runs that case alone; the exit status is then 1. Cases run in a child process:
one that crashes or hangs is named as well. The counts at the end are of inputs (rows projected, latent points decoded,
queries, files read ...) and of cases, which hold one or several of them.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import tempfile
import time
import traceback
import zlib
from multiprocessing.sharedctypes import RawArray
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "tests")]  # the targets, and the tests' oracles

HANG = 600.0  # seconds without the end of a case
BURST = 0.1  # seconds of one target before it is another's turn
FAULT = 3  # exit status of the child that has told what is wrong
RUNNING, INPUTS, CASES = 0, 2, 3  # places in what the two processes share: target and case; then two a target


def main() -> int:
    """Exit status: 0 without a fault."""
    arguments = _parser().parse_args()
    for variable in ("RANDSMAP_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(variable, "1")  # inputs are small: threads would cost time, and gain none
    from fuzz_targets import TARGETS

    names = list(TARGETS)
    if arguments.list:
        for name, function in TARGETS.items():
            print(f"{name:12} {function.__doc__.splitlines()[0]}")
        return 0
    unknown = set(arguments.only) - set(names)
    if unknown:
        print(f"no target {', '.join(sorted(unknown))}; there are {', '.join(names)}", file=sys.stderr)
        return 2
    shared = RawArray("q", 2 + 2 * len(names))
    with tempfile.TemporaryDirectory(prefix="randsmap-fuzz-") as folder:
        child = multiprocessing.get_context("spawn").Process(target=_run, args=(arguments, shared, folder))
        child.start()
        status = _watched(child, shared, names, arguments.seed)
    rows = [(name, shared[INPUTS + 2 * i], shared[CASES + 2 * i]) for i, name in enumerate(names)]
    for name, inputs, cases in rows:
        if cases:
            print(f"{name:12} {inputs:12,} inputs {cases:12,} cases")
    level = os.environ.get("RANDSMAP_CPU", "the machine's own")
    print(f"{'in all':12} {sum(r[1] for r in rows):12,} inputs {sum(r[2] for r in rows):12,} cases", end="")
    print(f"; {'no fault' if status == 0 else 'FAULTS, see above'} (seed {arguments.seed}, instruction level: {level})")
    return status


def _parser():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0, help="how long, default 60")
    parser.add_argument("--count", type=int, help="cases of each target, instead of a time")
    parser.add_argument("--first", type=int, default=0, help="number of the first case, default 0")
    parser.add_argument("--seed", type=int, default=0, help="default 0")
    parser.add_argument("--only", action="append", default=[], metavar="TARGET", help="may be repeated")
    parser.add_argument("--list", action="store_true", help="what the targets are")
    return parser


def _watched(child, shared, names, seed):
    """The exit status when the child has ended; what it could not tell itself is told here."""
    at, since = None, time.monotonic()
    while child.exitcode is None:
        child.join(1.0)
        if shared[RUNNING : RUNNING + 2] != at:
            at, since = shared[RUNNING : RUNNING + 2], time.monotonic()
        elif time.monotonic() - since > HANG:
            child.kill()
            child.join()
            _tell(names[at[0]], at[1], seed, f"no end after {HANG:.0f} s")
            return 1
    if child.exitcode not in (0, FAULT):
        ended = f"signal {-child.exitcode}" if child.exitcode < 0 else f"exit status {child.exitcode}"
        target, case = shared[RUNNING : RUNNING + 2]
        _tell(names[target], case, seed, f"the process ended with {ended}")
    return int(child.exitcode != 0)


def _tell(name, case, seed, what):
    command = f"python tools/fuzz.py --seed {seed} --only {name} --first {case} --count 1"
    print(f"\nFAULT in {name}, case {case}, seed {seed}:\n{what.rstrip()}\n    {command}\n", flush=True)


def _run(arguments, shared, folder):
    """What the child does: cases until the time or the count is reached. A target that fails is left."""
    import warnings

    import numpy as np

    from fuzz_targets import TARGETS, Skipped

    tempfile.tempdir = folder
    warnings.simplefilter("error")
    warnings.filterwarnings("ignore", category=__import__("randsmap").ExtrapolationWarning)
    names = list(TARGETS)
    active = [name for name in names if name in arguments.only or not arguments.only]
    spent, following, faults = dict.fromkeys(active, 0.0), dict.fromkeys(active, arguments.first), 0
    end = None if arguments.count is not None else time.monotonic() + arguments.seconds
    last = None if arguments.count is None else arguments.first + arguments.count
    while active and (end is None or time.monotonic() < end):
        name = min(active, key=spent.__getitem__)
        number, start = names.index(name), time.monotonic()
        while time.monotonic() < start + BURST:
            case = following[name]
            if case == last:
                active.remove(name)
                break
            following[name] += 1
            shared[RUNNING : RUNNING + 2] = number, case
            rng = np.random.default_rng([arguments.seed, zlib.crc32(name.encode()), case])
            try:
                inputs = TARGETS[name](rng)
            except Skipped as reason:
                print(f"{name} is skipped: {reason}", flush=True)
                active.remove(name)
                break
            except Exception:
                _tell(name, case, arguments.seed, traceback.format_exc())
                active.remove(name)
                faults += 1
                break
            shared[INPUTS + 2 * number] += inputs
            shared[CASES + 2 * number] += 1
        spent[name] += time.monotonic() - start
    sys.exit(FAULT if faults else 0)


if __name__ == "__main__":
    sys.exit(main())

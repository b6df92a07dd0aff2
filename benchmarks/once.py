#!/usr/bin/env python3
"""Run every benchmark once, with each of its parameters and without asv: a quick look whether all of them still run.

python benchmarks/once.py [MODULE ...]     # such as features; default: all
"""

import importlib
import itertools
import pkgutil
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
KINDS = ("time_", "peakmem_", "mem_", "track_")


def parameters(owner):
    """The combinations that asv makes of `params`: a list of values, or a list of such lists."""
    params = list(getattr(owner, "params", ()))
    if params and not isinstance(params[0], (list, tuple)):
        params = [params]
    return itertools.product(*params)


def run_class(cls):
    """Run the methods of a class that are benchmarks; their number."""
    methods = [name for name in dir(cls) if name.startswith(KINDS)]
    if not methods:
        return 0
    benchmark = cls()
    cached = [benchmark.setup_cache()] if hasattr(benchmark, "setup_cache") else []
    for combination in parameters(cls):
        arguments = [*cached, *combination]
        for name in methods:
            getattr(benchmark, "setup", lambda *_: None)(*arguments)
            getattr(benchmark, name)(*arguments)
            getattr(benchmark, "teardown", lambda *_: None)(*arguments)
    return len(methods)


def main(names):
    sys.path.insert(0, str(HERE))
    modules = (module.name for module in pkgutil.iter_modules([str(HERE / "benchmarks")]))
    gemm = importlib.import_module("benchmarks._gemm")
    gemm.TURN, gemm.LEAST, gemm.BUDGET = 0.0, 1, 0.0  # no figure comes of it
    names = names or [name for name in modules if not name.startswith("_")]
    for name in names:
        start, count = time.perf_counter(), 0
        module = importlib.import_module(f"benchmarks.{name}")
        for key, value in list(vars(module).items()):
            if getattr(value, "__module__", None) != module.__name__:
                continue
            if isinstance(value, type):
                count += run_class(value)
            elif key.startswith(KINDS):
                for combination in parameters(value):
                    value(*combination)
                count += 1
        assert count, f"{name} has no benchmark"
        print(f"{name:18}{count:4} benchmarks {time.perf_counter() - start:7.1f} s", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])

"""Docstrings tell the truth: their examples run, and the defaults they name are the real ones."""

import ast
import doctest
import importlib
import inspect
import pkgutil
import re

import pytest

import randsmap

MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(randsmap.__path__, "randsmap.")
    if not module.name.startswith("randsmap._kernels")
)
PUBLIC = sorted({*randsmap._LAZY})


@pytest.mark.parametrize("name", MODULES)
def test_examples_run(name):
    module = importlib.import_module(name)
    if name == "randsmap.distributed":
        pytest.importorskip("dask.array")
    try:
        assert doctest.testmod(module).failed == 0
    finally:
        randsmap.set_num_threads(None)


@pytest.mark.parametrize("name", PUBLIC)
def test_parameters_are_documented_with_their_defaults(name):
    thing = getattr(randsmap, name)
    text = inspect.getdoc(thing)
    for parameter in inspect.signature(thing).parameters.values():
        entry = re.search(rf"^(?:\w+, )*{parameter.name}(?:, \w+)* : (.*)$", text, re.MULTILINE)
        assert entry, f"{parameter.name} is not documented"
        stated = re.search(r"default[= ](.*)$", entry[1])
        if stated:
            assert ast.literal_eval(stated[1]) == parameter.default

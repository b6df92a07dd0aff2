"""Docstrings tell the truth: their examples run, and the defaults they name are the real ones."""

import ast
import doctest
import importlib
import inspect
import pkgutil
import re

import pytest

import randsmap
from randsmap._interface.related import RELATED
from randsmap.decoders._base import PROTOCOL

MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(randsmap.__path__, "randsmap.")
    if not module.name.startswith("randsmap._kernels")
)
SLOW = {  # studies, reports, searches
    f"randsmap.{name}"
    for name in (
        "reports",
        "studies._claims",
        "studies._report",
        "studies._result",
        "studies._runner",
        "tuning._autotune",
    )
}
RAISES_NOTHING = {"get_include", "show_progress", "DecoderCase", "Study", "StudyResult", "ExtrapolationWarning"}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in MODULES]
)
def test_examples_run(name):
    module = importlib.import_module(name)
    if name == "randsmap.distributed":
        pytest.importorskip("dask.array")
    try:
        assert doctest.testmod(module).failed == 0
    finally:
        randsmap.set_num_threads(None)


def public_things():
    """{qualified name: class or function} of all that `__all__` lists, here and in the public modules."""
    things = {f"randsmap.{name}": getattr(randsmap, name) for name in randsmap._LAZY}
    for module in map(randsmap.__getattr__, randsmap._SUBMODULES):
        things |= {
            f"{module.__name__}.{name}": getattr(module, name) for name in module.__all__ if name not in randsmap._LAZY
        }
    return {name: thing for name, thing in things.items() if callable(thing)}


THINGS = public_things()


def test_help_lists_what_belongs_together():
    for names, _ in RELATED:
        for name in names.split():
            assert f"randsmap.{name}" in THINGS, name
            if "." not in name:
                others = inspect.getdoc(getattr(randsmap, name)).partition("\nSee Also\n")[2]
                assert set(names.split()) - {name} <= set(re.findall(r"[\w.]+", others.partition("Guides")[0])), name


@pytest.mark.parametrize("name", THINGS)
def test_parameters_are_documented_with_their_defaults(name):
    text = inspect.getdoc(THINGS[name])
    for parameter in inspect.signature(THINGS[name]).parameters.values():
        entry = re.search(rf"^ *((?:[*\w]+, )*\**{parameter.name}(?:, [*\w]+)*)( : .*)?$", text, re.MULTILINE)
        assert entry, f"{parameter.name} is not documented"
        if parameter.default is inspect.Parameter.empty or "factory" in repr(parameter.default) or not entry[2]:
            continue  # without a type: it is that of another function, which the text names
        stated = re.search(r"default[= ](.*)$", entry[2])
        assert stated, f"{parameter.name} has a default that is not documented"
        values, names = ast.literal_eval(stated[1]), entry[1].split(", ")
        several = len(names) > 1 and isinstance(values, tuple) and len(values) == len(names)
        assert (values[names.index(parameter.name)] if several else values) == parameter.default


def missing_sections(thing, *needed):
    text = inspect.getdoc(thing)
    assert not re.search(r"^ *\{\w+\}$", text, re.MULTILINE), "a shared text is missing"
    sections = set(re.findall(r"^([A-Z][A-Za-z ]+)\n-{3,}$", text, re.MULTILINE))
    signature = inspect.signature(thing)
    if any(name not in ("self", "cls") for name in signature.parameters):
        needed += ("Parameters",)
    if not inspect.isclass(thing) and signature.return_annotation not in (None, "None"):
        needed += ("Yields",) if "Yields" in sections else ("Returns",)
    return sorted(set(needed) - sections)


@pytest.mark.parametrize("name", THINGS)
def test_the_summary_is_one_sentence(name):
    """The index of the reference shows the text up to the first full stop."""
    summary = inspect.getdoc(THINGS[name]).partition("\n\n")[0]
    assert summary.endswith(".") and not re.search(r"\.\s", summary), summary


@pytest.mark.parametrize("name", THINGS)
def test_public_names_have_all_sections(name):
    """Parameters, what comes back, errors and an example; of methods all but the example, which the class has."""
    thing, short = THINGS[name], name.rpartition(".")[2]
    study = name.startswith("randsmap.studies.") and not short.startswith(("run", "load", "save", "write"))
    raises = () if short in RAISES_NOTHING or study else ("Raises",)
    if thing is randsmap.ExtrapolationWarning:
        assert ">>>" in thing.__doc__
        return
    # estimators check their parameters in `fit`
    assert not missing_sections(thing, "Examples", *(() if inspect.isclass(thing) else raises))
    if inspect.isclass(thing):
        for method, function in inspect.getmembers(thing, inspect.isroutine):
            own = (getattr(function, "__module__", None) or "").startswith("randsmap")
            if own and callable(function) and not method.startswith("_") and method not in PROTOCOL:
                assert not missing_sections(function, *raises), method

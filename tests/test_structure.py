"""How much a reader must learn, read off the source: each figure has a limit that goes up for a stated reason alone."""

import ast
import importlib
import inspect
import re
from collections import Counter
from pathlib import Path

import pytest
from sklearn.base import BaseEstimator

import randsmap

PACKAGE = Path(randsmap.__file__).parent
TREES = {path: ast.parse(path.read_text()) for path in sorted(PACKAGE.rglob("*.py"))}
NODES = [(path, node) for path, tree in TREES.items() for node in ast.walk(tree)]


def lines():
    return sum(len(path.read_text().splitlines()) for path in TREES)


def classes():
    return sum(isinstance(node, ast.ClassDef) for _, node in NODES)


def shared_hooks():
    """Private methods that more than one class defines."""
    found = Counter()
    for _, node in NODES:
        if isinstance(node, ast.ClassDef):
            methods = {m.name for m in node.body if isinstance(m, ast.FunctionDef)}
            found.update(name for name in methods if re.match(r"_[^_]", name))
    return sum(count > 1 for count in found.values())


def foreign_attributes():
    """Private attributes that are read on an object other than self or cls."""
    return len(
        {
            node.attr
            for _, node in NODES
            if isinstance(node, ast.Attribute)
            and re.match(r"_[^_]", node.attr)
            and not (isinstance(node.value, ast.Name) and (node.value.id in ("self", "cls") or node.value.id[0] == "_"))
        }
    )


def numbers():
    """Constants at the top of modules that hold a number."""
    found = 0
    for tree in TREES.values():
        for node in tree.body:
            if isinstance(node, ast.Assign):
                values = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
                found += sum(
                    any(isinstance(x, ast.Constant) and type(x.value) in (int, float) for x in ast.walk(value))
                    for value in values
                    if not isinstance(value, (ast.Dict, ast.List, ast.Call))
                )
    return found


def modules_that_know_of_maps():
    return sum(bool(re.search(r"Snapshots|is_large|memmap", path.read_text())) for path in TREES)


def longest_function():
    """Lines of the longest function without its docstring."""
    sizes = []
    for _, node in NODES:
        if isinstance(node, ast.FunctionDef):
            doc = node.body[0].end_lineno - node.body[0].lineno + 1 if ast.get_docstring(node) else 0
            sizes.append(node.end_lineno - node.lineno + 1 - doc)
    return max(sizes)


def depth_of_classes():
    """How far a class may be below one of scikit-learn."""

    def depth(cls):
        below = [depth(base) for base in cls.__bases__ if issubclass(base, BaseEstimator) and base is not BaseEstimator]
        return 1 + max(below, default=0)

    modules = [
        importlib.import_module(module_of(path))
        for path in TREES
        if path.stem.isidentifier() and path.stem != "__main__"
    ]
    classes = {thing for module in modules for thing in vars(module).values() if inspect.isclass(thing)}
    ours = [cls for cls in classes if issubclass(cls, BaseEstimator) and cls.__module__.startswith("randsmap")]
    return max(map(depth, ours))


def module_of(path):
    return "randsmap." + ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__")


def top_imports(tree):
    """Modules that are imported when this one is: not those inside functions or for type checkers."""
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def circles():
    """Modules of a package that import one another."""
    names = {module_of(path): tree for path, tree in TREES.items() if path.name != "__init__.py"}
    edges = {name: {m for m in top_imports(tree) if m in names} for name, tree in names.items()}
    while True:
        ends = {name for name, targets in edges.items() if not targets & edges.keys()}
        if not ends:
            return len(edges)
        edges = {name: targets for name, targets in edges.items() if name not in ends}


@pytest.mark.parametrize(
    ("measure", "limit"),
    [
        (lines, 29407),
        (classes, 110),
        (shared_hooks, 2),
        (foreign_attributes, 3),
        (numbers, 100),
        (modules_that_know_of_maps, 4),
        (longest_function, 76),
        (circles, 0),
        (depth_of_classes, 2),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_the_package_does_not_grow_more_complicated(measure, limit):
    assert measure() <= limit

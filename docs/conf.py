"""The documentation site: `python tools/docs.py` builds and checks it as CI does.

Pages are the Markdown files of this folder. The API reference (api/) and the gallery (gallery/) are written here while
the site is built, from docstrings and from examples/gallery; neither is committed.
"""

import importlib
import inspect
import re
import zlib
from pathlib import Path

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.domains.python import PyXRefRole

import randsmap
from randsmap.decoders._base import PROTOCOL

HERE = Path(__file__).parent

project = "randsmap"
author = copyright = "The randsmap developers"
release = version = randsmap.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.doctest",
    "sphinx.ext.intersphinx",
    "myst_parser",
    "numpydoc",
    "sphinx_gallery.gen_gallery",
]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
templates_path = ["_templates"]
nitpicky = True
default_role = "name"
myst_heading_anchors = 3
pygments_style, pygments_dark_style = "friendly", "monokai"

html_theme = "furo"
html_title = "randsmap"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = html_copy_source = False

autodoc_typehints = "none"  # the sections Parameters and Returns have the types, with shapes
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True, "inherited-members": True}
autosummary_generate = ["api/index.rst"]
numpydoc_show_class_members = False  # autodoc has them
# no docstring, parameters that are missing or that no signature has, no summary, no return value
numpydoc_validation_checks = {"GL08", "PR01", "PR02", "SS01", "RT01", "YD01"}
doctest_global_setup = "import numpy as np\nimport randsmap"
doctest_global_cleanup = "randsmap.set_num_threads(None)"

sphinx_gallery_conf = {
    "examples_dirs": "../examples/gallery",
    "gallery_dirs": "gallery",
    "filename_pattern": r"/plot_",
    "within_subsection_order": "FileNameSortKey",
    "abort_on_example_error": True,
    "backreferences_dir": "gallery/used",
    "doc_module": ("randsmap",),
    "reference_url": {"randsmap": None},
    "junit": "gallery.xml",  # what each took, which tools/docs.py checks
    "download_all_examples": False,
    "show_signature": False,
    "min_reported_time": 1e9,
}


# -- Public names ----------------------------------------------------------------------------------


def public_names():
    """{heading: [qualified names]}: each public object once, under the name that users import."""
    seen, chapters = {}, {}
    for module in [None, *randsmap._SUBMODULES]:
        parent = importlib.import_module(f"randsmap.{module}") if module else randsmap
        for name in parent.__all__ if module else randsmap._LAZY:
            thing = getattr(parent, name)
            if inspect.ismodule(thing) or not callable(thing) or id(thing) in seen:
                continue
            seen[id(thing)] = f"{parent.__name__}.{name}"
            chapter = module or randsmap._LAZY[name]
            chapters.setdefault("settings" if chapter.startswith("_") else chapter, []).append(seen[id(thing)])
    return chapters


CHAPTERS = public_names()
# code of pages that is a link: `load` and the like are the methods of something, more often than not
NAMES = {short: f"randsmap.{short}" for short in randsmap._LAZY if short != "load"}
NAMES |= {name: name for names in CHAPTERS.values() for name in names}


def write_if_changed(path, text):
    if not path.exists() or path.read_text() != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


CHAPTER = """
{module}
.. currentmodule:: randsmap

{title}
{line}

{about}

.. autosummary::
   :toctree: .
   :nosignatures:

   {names}
"""


def api_index():
    """A chapter a module, and one for the settings of the package."""
    text = "API reference\n=============\n"
    for title, names in sorted(CHAPTERS.items()):
        module = f"randsmap.{title}" if title in randsmap._SUBMODULES else None
        about = inspect.getdoc(importlib.import_module(module)) if module else "Threads and progress."
        text += CHAPTER.format(
            module=f".. module:: {module}\n" if module else "",
            title=title,
            line="-" * len(title),
            about=about.partition("\n\n")[0],
            names="\n   ".join(name.removeprefix("randsmap.") for name in names),
        )
    return text


write_if_changed(HERE / "api" / "index.rst", api_index())


# -- Names of other packages: where their inventories cannot be had, these few are linked all the same ---------------

ELSEWHERE = {
    "python": ("https://docs.python.org/3/", {"ValueError": ("exception", "library/exceptions.html#ValueError")}),
    "numpy": (
        "https://numpy.org/doc/stable/",
        {
            f"numpy.{name}": (kind, f"reference/generated/numpy.{name}.html")
            for name, kind in {"ndarray": "class", "load": "function", "save": "function"}.items()
        },
    ),
    "scipy": (
        "https://docs.scipy.org/doc/scipy/",
        {
            f"scipy.{name}": (kind, f"reference/generated/scipy.{name}.html")
            for name, kind in {
                "integrate.solve_ivp": "function",
                "interpolate.RBFInterpolator": "class",
                "io.loadmat": "function",
            }.items()
        },
    ),
    "sklearn": (
        "https://scikit-learn.org/stable/",
        {
            f"sklearn.{name}": ("class", f"modules/generated/sklearn.{name}.html")
            for name in ("exceptions.NotFittedError", "preprocessing.PolynomialFeatures", "decomposition.PCA")
        },
    ),
}


def inventory(name, entries):
    """The file of an intersphinx inventory that has these entries only."""
    path = HERE.parent / "build" / "docs" / "inventories" / f"{name}.inv"
    path.parent.mkdir(parents=True, exist_ok=True)
    body = "".join(f"{entry} py:{kind} 1 {uri} -\n" for entry, (kind, uri) in sorted(entries.items()))
    head = f"# Sphinx inventory version 2\n# Project: {name}\n# Version: \n# The rest is compressed using zlib.\n"
    path.write_bytes(head.encode() + zlib.compress(body.encode()))
    return str(path)


# the second of two places is read where the first cannot be, without a warning
intersphinx_mapping = {name: (url, (None, inventory(name, entries))) for name, (url, entries) in ELSEWHERE.items()}
intersphinx_timeout = 5


# -- Docstrings are plain text: |f| is a norm and coef_ an attribute ------------------------------------------------

CODE = re.compile(r"(``.+?``|`.+?`)")
DECLARATION = re.compile(r"^\*{0,2}\w+(, \*{0,2}\w+)*( : |$)")


def escape_mathematics(app, what, name, obj, options, lines):
    """Backslashes before what reStructuredText would take for markup; examples and code stay as they are."""
    example, block = False, None
    for number, line in enumerate(lines):
        indent = len(line) - len(line.lstrip())
        if block is not None and line.strip() and indent <= block:
            block = None
        example = bool(line.strip()) and (example or line.lstrip().startswith(">>>"))
        if not example and block is None and not line.lstrip().startswith(".. "):
            declared = DECLARATION.match(line)
            start = declared.end() if declared and declared[2] else 0
            parts = CODE.split(line[start:])
            parts[0] = re.sub(r"^(\s*)([A-Za-z]\. )", r"\1\\\2", parts[0])  # a symbol, not the number of a list
            parts[::2] = [re.sub(r"(?<!\\)(\||\*|(?<=\w)_(?!\w))", r"\\\1", part) for part in parts[::2]]
            lines[number] = line[:start] + "".join(parts)
        if block is None and line.rstrip().endswith("::"):
            block = indent


# -- Names in backticks are links where there is something to link to, and code where not ------------


class Name(PyXRefRole):
    """The role of `name` in docstrings."""

    def run(self):
        self.refdomain, self.reftype, self.classes = "py", "obj", ["xref", "py", "py-obj"]
        return self.create_xref_node()

    def process_link(self, env, node, has_explicit_title, title, target):
        node["quiet"] = True
        if not env.ref_context.get("py:module"):  # pages of the gallery
            target = NAMES.get(target, target)
        return super().process_link(env, node, has_explicit_title, title, target)


def as_code(app, env, node, contnode):
    """What `Name` does not find."""
    return contnode if node.get("quiet") else None


def link_names(app, doctree):
    """Public names in the code of Markdown pages become links."""
    if not app.env.doc2path(app.env.docname).suffix == ".md":
        return
    for literal in list(doctree.findall(nodes.literal)):
        name = literal.astext().partition("(")[0]
        target = NAMES.get(name) or (name if name.startswith(("numpy.", "scipy.", "sklearn.")) else None)
        if target and not isinstance(literal.parent, (nodes.reference, nodes.title)):
            attributes = {"refdomain": "py", "reftype": "obj", "reftarget": target, "refdoc": app.env.docname}
            link = pending_xref("", **attributes, refexplicit=True, quiet=True)
            literal.replace_self(link)
            link += literal


def list_other_pages(app, docname, source):
    """Pages that index.md names nowhere go to the end of its first list."""
    if docname == "index":
        pages = {path.stem for path in HERE.glob("*.md")} - {"index", *source[0].split()}
        first, fence, rest = source[0].partition("coming-from\n")
        source[0] = first + fence + "".join(f"{page}\n" for page in sorted(pages)) + rest


def skip_foreign(app, what, name, obj, skip, options):
    """scikit-learn's own methods are in its documentation, and nobody calls those of `PROTOCOL`."""
    foreign = (getattr(obj, "__module__", None) or "").startswith("sklearn")
    return True if foreign or name.rpartition(".")[2] in PROTOCOL else None


def inherit_docstrings():
    """Methods that override a documented one without a text of their own have its text; numpydoc looks at their own."""
    for cls in filter(inspect.isclass, map(randsmap.__getattr__, randsmap._LAZY)):
        for base in cls.__mro__:
            for name, method in vars(base).items():
                if inspect.isfunction(method) and not name.startswith("_") and not method.__doc__:
                    method.__doc__ = inspect.getdoc(getattr(base, name))


def setup(app):
    inherit_docstrings()
    app.add_role("name", Name())
    app.connect("autodoc-process-docstring", escape_mathematics, priority=400)  # before numpydoc
    app.connect("missing-reference", as_code, priority=900)  # after intersphinx
    app.connect("source-read", list_other_pages)
    app.connect("doctree-read", link_names)
    app.connect("autodoc-skip-member", skip_foreign)

"""The documentation site: `python tools/docs.py` builds and checks it as CI does.

Pages are the Markdown files of this folder. The API reference (api/) and the gallery (gallery/) are written here while
the site is built, from docstrings and from examples/gallery; neither is committed.
"""

import importlib
import inspect
import re
import sys
import tomllib
import zlib
from collections import Counter
from html import escape
from pathlib import Path

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.domains.python import PyXRefRole

import randsmap
from randsmap._interface.related import RELATED
from randsmap.cli import parser_for
from randsmap.decoders._base import PROTOCOL

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))  # hero, whose style the gallery has
URLS = tomllib.loads((HERE.parent / "pyproject.toml").read_text())["project"]["urls"]
REPOSITORY, ADDRESS = URLS.get("Repository"), URLS.get("Documentation", "").rstrip("/")

project = "randsmap"
author = copyright = "The randsmap developers"
release = version = randsmap.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.doctest",
    "sphinx.ext.intersphinx",
    "sphinx.ext.mathjax",
    "sphinx.ext.viewcode",
    "sphinx-mathjax-offline",  # a site that needs no network
    "myst_parser",
    "numpydoc",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
templates_path = ["_templates"]
nitpicky = True
default_role = "name"
myst_heading_anchors = 3
myst_enable_extensions = ["attrs_inline", "colon_fence", "dollarmath"]
copybutton_prompt_text, copybutton_prompt_is_regexp = r">>> |\.\.\. |\$ ", True
add_module_names = False
pygments_style, pygments_dark_style = "friendly", "monokai"

html_theme = "furo"
html_title = f"randsmap {version}"
html_theme_options = {"top_of_page_buttons": ["view", "edit"] if REPOSITORY else ["view"]}
if REPOSITORY:
    html_theme_options |= {"source_repository": REPOSITORY, "source_branch": "main", "source_directory": "docs/"}
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_favicon = html_logo = "_static/logo.svg"
html_baseurl = f"{ADDRESS}/" if ADDRESS else ""

autodoc_typehints = "none"  # the sections Parameters and Returns have the types, with shapes
autodoc_member_order = "bysource"
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
    "capture_repr": (),
    "remove_config_comments": True,
    "write_computation_times": False,  # that page loads scripts from elsewhere
    "reset_modules": ("matplotlib", "hero.gallery_style"),
    "image_srcset": ["2x"],
    "thumbnail_size": (480, 320),
    "junit": "gallery.xml",  # what each took, which tools/docs.py checks
    "download_all_examples": False,
    "show_signature": False,
    "min_reported_time": 1e9,
}


# -- Public names ----------------------------------------------------------------------------------


# chapter of the reference -> its modules; names that belong to another chapter than their module's; helpers
ORDER = {
    "Models": ["model"],
    "Encoders": ["encoders"],
    "Decoders": ["decoders"],
    "Feature maps": ["features"],
    "Search": ["tuning"],
    "Invariants and bounds": ["invariants"],
    "Metrics": ["metrics"],
    "Files": ["snapshots", "persistence"],
    "Plots and reports": ["plotting", "reports"],
    "Reduced models": [],
    "Distributed computing": ["distributed"],
    "Frozen decoders and other programs": ["export", "jax", "torch"],
    "Data sets": ["datasets"],
    "Studies": ["studies"],
    "Settings": ["_parallel", "_io.progress"],
}
ELSEWHERE_LISTED = {
    **dict.fromkeys(("SampledModel", "sample_cells", "stencil", "LatentForecast"), "Reduced models"),
    **dict.fromkeys(("FrozenDecoder", "FrozenModel", "get_include"), "Frozen decoders and other programs"),
    **dict.fromkeys(("load_image", "warn_unless_covered_once", "default_values"), None),
    "write_index": None,
}


def public_names():
    """{chapter: [qualified names]}: each public object once, under the name that users import; helpers under None."""
    seen, chapters = set(), {chapter: [] for chapter in [*ORDER, None]}
    for chapter, modules in ORDER.items():
        for module in modules:
            names = [f"randsmap.{name}" for name, place in randsmap._LAZY.items() if place == module]
            if module in randsmap._SUBMODULES:
                names += [f"randsmap.{module}.{name}" for name in getattr(randsmap, module).__all__]
            for name in names:
                parent, _, short = name.rpartition(".")
                thing = getattr(importlib.import_module(parent), short)
                if callable(thing) and not inspect.ismodule(thing) and id(thing) not in seen:
                    seen.add(id(thing))
                    chapters[ELSEWHERE_LISTED.get(short, chapter)].append(name)
    modules = {module for modules in ORDER.values() for module in modules}
    if missing := {*randsmap._LAZY.values(), *randsmap._SUBMODULES} - modules:
        raise LookupError(f"ORDER has no chapter for {', '.join(missing)}")
    return chapters


CHAPTERS = public_names()
CHAPTERS.pop(None)
OBJECTS = {
    name: getattr(importlib.import_module(name.rpartition(".")[0]), name.rpartition(".")[2])
    for names in CHAPTERS.values()
    for name in names
}
# code of pages that is a link: `load` and the like are the methods of something, more often than not
NAMES = {short: f"randsmap.{short}" for short in randsmap._LAZY if short != "load"}
NAMES |= {name: name for name in OBJECTS} | {name.removeprefix("randsmap."): name for name in OBJECTS}
NAMES.pop("load")


def inherit_docstrings():
    """Methods that override a documented one without a text of their own have its text; numpydoc looks at their own."""
    for cls in filter(inspect.isclass, map(randsmap.__getattr__, randsmap._LAZY)):
        for base in cls.__mro__:
            for name, method in vars(base).items():
                if inspect.isfunction(method) and not name.startswith("_") and not method.__doc__:
                    method.__doc__ = inspect.getdoc(getattr(base, name))


inherit_docstrings()
PRIVATE = {*PROTOCOL, "fitted"}
FIRST = "fit partial_fit fit_transform transform inverse_transform predict reconstruct score".split()


def members_of(cls):
    """{name: function or property} of the documented members: scikit-learn's own, and `PROTOCOL`, are for programs."""
    found = {}
    for base in cls.__mro__:
        for name, member in vars(base).items():
            ours = base.__module__.startswith("randsmap") and not name.startswith(("_", "set_"))
            if ours and name not in PRIVATE and name not in found and not isinstance(member, type):
                documented = inspect.isroutine(member) or hasattr(member, "__get__")
                if documented and inspect.getdoc(member):
                    found[name] = member
    return {name: found[name] for name in sorted(found, key=lambda name: FIRST.index(name) if name in FIRST else 99)}


MEMBERS = {name: members_of(thing) for name, thing in OBJECTS.items() if inspect.isclass(thing)}
COUNTS = Counter(id(member) for members in MEMBERS.values() for member in members.values())
# the class that documents a member: the first one that has it; where several have it, on a page of their own
HOMES = {}
for owner, members in MEMBERS.items():
    for short, member in members.items():
        HOMES.setdefault(id(member), f"{owner}.{short}")
SHARED = {HOMES[number] for number, count in COUNTS.items() if count > 2}
ALIASES = {
    f"{owner}.{short}": HOMES[id(member)] for owner, members in MEMBERS.items() for short, member in members.items()
}
NAMES |= {name.removeprefix("randsmap."): home for name, home in ALIASES.items()}


# {class: the members that its own page documents}, for the template
autosummary_context = {
    "own_members": {
        name: [
            short
            for short, member in members.items()
            if (HOMES[id(member)] == f"{name}.{short}") and f"{name}.{short}" not in SHARED
        ]
        for name, members in MEMBERS.items()
    }
}


def first_paragraph(thing):
    return " ".join((inspect.getdoc(thing) or "").partition("\n\n")[0].split())


def see_also(name):
    """Lines of reStructuredText: the other names of the groups of `name`, with their summaries, and guides."""
    lines = []
    for names, guides in ((names.split(), guides.split()) for names, guides in RELATED):
        if name.removeprefix("randsmap.") in names:
            shown = " ".join(lines)
            others = [other for other in names if f"randsmap.{other}" != name and f"<randsmap.{other}>" not in shown]
            for other in others:
                summary = [first_paragraph(OBJECTS[f"randsmap.{other}"])]
                escape_mathematics(None, "", "", None, None, summary)
                lines += [f"   :py:obj:`{other} <randsmap.{other}>`", f"      {summary[0]}"]
            about = [f":doc:`/{guide}`" for guide in guides if f":doc:`/{guide}`" not in " ".join(lines)]
            lines += ["   Guides", "      " + ", ".join(about)] if about else []
    return [".. seealso::", "", *lines, ""] if lines else []


def write_if_changed(path, text):
    if not path.exists() or path.read_text() != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def title(text, line="-"):
    return f"{text}\n{line * len(text)}\n\n"


def summaries(names, *options):
    lines = [".. autosummary::", *(f"   {option}" for option in (":nosignatures:", *options)), ""]
    return "\n".join([*lines, *(f"   {name.removeprefix('randsmap.')}" for name in names)]) + "\n\n"


def write_reference():
    """api/index.rst, a page for each chapter, and one of the members that several classes have."""
    index = title("API reference", "=") + ".. currentmodule:: randsmap\n\n"
    index += "In the order of use. Every page ends with an example that runs.\n\n"
    pages = []
    for number, (chapter, names) in enumerate(CHAPTERS.items()):
        pages.append(f"chapter_{number:02}")
        index += title(chapter) + summaries(names)
        text = title(chapter, "=")
        for module in ORDER[chapter]:
            if module in randsmap._SUBMODULES:
                about = (inspect.getdoc(getattr(randsmap, module)) or "").partition("\n\n")[0]
                text += f".. module:: randsmap.{module}\n\n``randsmap.{module}``: {about}\n\n"
        text += ".. currentmodule:: randsmap\n\n" + summaries(names, ":toctree: .")
        write_if_changed(HERE / "api" / f"{pages[-1]}.rst", text)
    pages += ["shared", "command_line"]
    index += ".. toctree::\n   :hidden:\n\n   " + "\n   ".join(pages) + "\n"
    write_if_changed(HERE / "api" / "index.rst", index)
    shared = ".. _shared-members:\n\n" + title("Shared methods", "=")
    shared += "Methods and attributes that several classes have. The table on the page of each class leads here.\n\n"
    for chapter, names in CHAPTERS.items():
        homes = [f"{name}.{short}" for name in names for short in MEMBERS.get(name, ()) if f"{name}.{short}" in SHARED]
        if homes:
            shared += title(chapter) + ".. currentmodule:: randsmap\n\n"
        for home in homes:
            owner, _, short = home.rpartition(".")
            kind = "method" if inspect.isroutine(MEMBERS[owner][short]) else "property"
            who = [f"`{name.removeprefix('randsmap.')}`" for name in MEMBERS if ALIASES.get(f"{name}.{short}") == home]
            shared += f".. auto{kind}:: {home.removeprefix('randsmap.')}\n\n   Of {', '.join(who)}.\n\n"
    write_if_changed(HERE / "api" / "shared.rst", shared)
    return [f"api/{page}.rst" for page in pages if page.startswith("chapter")]


def command_line():
    """api/command_line.rst, from the parser."""
    text = title("Command line", "=") + "What ``randsmap COMMAND --help`` prints, of all commands.\n\n"

    def subcommands(parser):
        groups = [action for action in parser._actions if hasattr(action, "choices") and hasattr(action, "add_parser")]
        found = groups[0].choices.items() if groups else ()
        return sorted(found, key=lambda item: item[0] in ("study", "dataset", "config", "export"))  # these at the end

    def section(parser, level):
        nonlocal text
        for _, command in subcommands(parser):
            width, command.width = 100, 100
            command.formatter_class = lambda prog, kind=command.formatter_class: kind(prog, width=width)
            text += title(command.prog, "-~"[level])
            if subcommands(command):
                section(command, 1)
            else:
                text += "::\n\n" + "".join(f"   {line}\n" for line in command.format_help().splitlines()) + "\n"

    section(parser_for(["fit"]), 0)
    write_if_changed(HERE / "api" / "command_line.rst", text)


autosummary_generate = write_reference()
command_line()


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
EQUATION = re.compile(r"\bEq\. ((?:[A-Z]\.)?\d+)")
DECLARATION = re.compile(r"^\*{0,2}\w+(, \*{0,2}\w+)*( : |$)")


def equation_link(found):
    """Eq. 23 leads to its row of the page of equations."""
    return f"`{found[0]} <../equations.html#eq-{found[1].lower().replace('.', '-')}>`__"


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
            parts[::2] = [EQUATION.sub(equation_link, part) for part in parts[::2]]
            parts[::2] = [re.sub(r"docs/([\w-]+)\.md", r":doc:`/\1`", part) for part in parts[::2]]
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
        if target in randsmap._SUBMODULES:  # a parameter: `features`, `model`
            target = ""
        if not env.ref_context.get("py:module"):  # pages of the gallery
            target = NAMES.get(target, target)
        return super().process_link(env, node, has_explicit_title, title, target)


def other_home(app, env, node, contnode):
    """Members that are documented elsewhere; what `Name` does not find, is code."""
    target = node.get("reftarget", "")
    home = ALIASES.get(target) or ALIASES.get(f"randsmap.{target}")
    if home and home != target:
        python = env.get_domain("py")
        return python.resolve_xref(env, node["refdoc"], app.builder, "obj", home, node, contnode)
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
        pages = {path.stem for path in HERE.glob("*.md")} - {"index", "404", *source[0].split()}
        first, fence, rest = source[0].partition("coming-from\n")
        source[0] = first + fence + "".join(f"{page}\n" for page in sorted(pages)) + rest


def list_members(app, what, name, obj, options, lines):
    """See also, before the examples, and the table of a class's methods, before its parameters."""
    own = {id(thing): name for name, thing in OBJECTS.items()}.get(id(obj))
    if own:
        examples = next(
            (number for number, line in enumerate(lines) if line.startswith(".. rubric:: Examples")), len(lines)
        )
        lines[examples:examples] = ["", *see_also(own)]
    if what != "class" or not MEMBERS.get(own):
        return
    table = [".. list-table::", "   :widths: auto", "   :class: members", ""]
    methods = {short: member for short, member in MEMBERS[own].items() if inspect.isroutine(member)}
    for short, member in methods.items():
        summary = [first_paragraph(member)]
        escape_mathematics(app, "method", "", member, None, summary)
        table += [f"   * - :py:obj:`{short}() <{HOMES[id(member)]}>`", f"     - {summary[0]}"]
    start = next((number for number, line in enumerate(lines) if line.startswith(":Parameters:")), len(lines))
    lines[start:start] = ["", ".. rubric:: Methods", "", *table, ""]


def describe(app, page, template, context, doctree):
    """What other sites show of a link to a page. 404 is shown at any address, so its links need a base."""
    paragraphs = list(doctree.findall(nodes.paragraph)) if doctree else []
    text = " ".join(paragraphs[0].astext().split()) if paragraphs else ""
    tags = {
        "og:type": "website",
        "og:site_name": "randsmap",
        "og:title": re.sub("<.*?>", "", context.get("title", project)),
        "og:description": text,
    }
    if ADDRESS:  # pictures need a full address
        tags |= {"og:url": f"{ADDRESS}/{page}.html", "og:image": f"{ADDRESS}/_static/card.png"}
    tags["twitter:card"] = "summary_large_image" if ADDRESS else "summary"
    meta = [f'<meta property="{name}" content="{escape(value)}">' for name, value in tags.items() if value]
    if text and 'name="description"' not in context.get("metatags", ""):
        meta.append(f'<meta name="description" content="{escape(text)}">')
    if page == "404" and ADDRESS:
        meta.insert(0, f'<base href="{html_baseurl}">')
    context["metatags"] = "\n".join([*meta, context.get("metatags", "")])


def setup(app):
    app.connect("html-page-context", describe)
    app.add_role("name", Name())
    app.connect("autodoc-process-docstring", escape_mathematics, priority=400)  # before numpydoc
    app.connect("autodoc-process-docstring", list_members, priority=600)  # after numpydoc
    app.connect("missing-reference", other_home, priority=900)  # after intersphinx
    app.connect("source-read", list_other_pages)
    app.connect("doctree-read", link_names)

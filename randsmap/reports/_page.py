"""Pages from templates: one style sheet, pictures as data URIs, no script, nothing loaded from elsewhere.

Whatever comes from a result or a file is escaped.
"""

from __future__ import annotations

import base64
import io
import math
import os
import platform
import re
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any

from randsmap import get_num_threads
from randsmap._io.files import write_atomically

DPI = 144  # one and a half times that of the page, on which an inch is 96 pixels
_POWER = re.compile(r"[-+]?\d[\d.]*e-\d+")
WIDE, NARROW = 10.4, 4.6  # inches of pictures as wide as the page, and as a phone


def picture(title: str, caption: str, *figures: Any) -> dict[str, Any]:
    """A picture as the templates take it, of one figure, or of one for broad and one for narrow pages."""
    kinds = ("",) if len(figures) == 1 else ("broad", "narrow")
    images = [_image(figure, kind) for figure, kind in zip(figures, kinds)]
    return {"title": title, "caption": caption, "images": images}


def drawn(pictures: Iterable[dict[str, Any]]) -> list[dict[str, Any]] | None:
    """The pictures; None if matplotlib, to which Pillow belongs, is missing."""
    try:
        return list(pictures)
    except ImportError:
        return None


def _image(figure, kind):
    """A PNG on the page, with a palette: base64, pixels, width in inches and class of its element."""
    from PIL import Image  # matplotlib cannot do without it

    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=DPI, facecolor="white")
    file.seek(0)
    with Image.open(file) as picture:
        # a palette takes a third of the bytes and makes no difference to the eye
        small = picture.convert("RGB").quantize(255, dither=Image.Dither.NONE)
    file = io.BytesIO()
    small.save(file, format="PNG", optimize=True)
    data, inches = base64.b64encode(file.getvalue()).decode(), float(figure.get_size_inches()[0])
    return {"data": data, "width": small.width, "height": small.height, "inches": inches, "kind": kind}


def page_template(package: str, name: str) -> Any:
    """A template of a package, which may extend and import those of `randsmap.reports`; ImportError without jinja2."""
    try:
        import jinja2
    except ImportError:
        raise ImportError("reports need jinja2: pip install 'randsmap[studies]'") from None
    environment = jinja2.Environment(
        loader=jinja2.ChoiceLoader([jinja2.PackageLoader(each) for each in (package, "randsmap.reports")]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["numbers"] = _unbroken
    return environment.get_template(name)


def write_page(path: str | os.PathLike[str], template: Any, **content: Any) -> Path:
    """Write a page, whole or not at all; its folder is made if missing. `content` has the names of the template."""
    # nothing that identifies the machine
    packages = ", ".join(f"{name} {version(name)}" for name in ("numpy", "scipy", "scikit-learn"))
    machine = (
        f"Written on {platform.system()} {platform.machine()} with {os.cpu_count()} cores "
        f"({get_num_threads()} used), Python {platform.python_version()}, {packages}."
    )
    text = template.render(machine=machine, **content)
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, lambda file: file.write(text.encode("utf-8", "backslashreplace")))
    return path


def _unbroken(text):
    """Escaped text with numbers such as 8.9e-16 that no browser breaks behind the hyphen."""
    from markupsafe import Markup, escape

    return Markup(_POWER.sub(r'<span class="number">\g<0></span>', str(escape(text))))  # noqa: S704  (escaped)


def percents(errors: Iterable[float | None]) -> list[str]:
    """Relative errors in per cent, with decimals that give the smallest three digits; "" for None."""
    shown = [None if error is None else 100 * float(error) for error in errors]
    # more than four decimals say nothing: what would be 0 then keeps digits of its own
    sizes = [abs(value) for value in shown if value is not None and 1e-3 < abs(value) < math.inf]
    decimals = min(max(2 - math.floor(math.log10(min(sizes, default=1.0))), 0), 4)
    return ["" if value is None else f"{_decimal(value, decimals)} %" for value in shown]


def _decimal(value, decimals):
    return f"{value:.2g}" if 0 < abs(value) < 10.0**-decimals else f"{value:.{decimals}f}"


def percent(error: float) -> str:
    """A relative error in words: "3.14 %"."""
    return percents([error])[0]

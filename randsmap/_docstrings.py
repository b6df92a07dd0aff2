"""Passages that several classes' docstrings share, written once."""

import re
import textwrap

__all__ = ["document"]


def document(cls, texts):
    """Replace lines {name} of a class's docstring by texts[name], indented as they are."""
    if cls.__doc__:  # not under python -OO
        cls.__doc__ = re.sub(
            r"^( *)\{(" + "|".join(texts) + r")\}$",
            lambda found: textwrap.indent(texts[found[2]], found[1]), cls.__doc__, flags=re.M)
    return cls

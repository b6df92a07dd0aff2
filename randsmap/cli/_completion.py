"""Scripts that complete the command line in a shell, made from its parser."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Any

# zsh runs it too, where `path` is the list of folders of commands
_BASH = """_randsmap() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD - 1]}} command= each options= values=
  for each in "${{COMP_WORDS[@]:1:$((COMP_CWORD - 1))}}"; do
    case $each in -*) continue ;; esac
    command=$command${{command:+ }}$each
    case $command in {nested}) ;; *) break ;; esac
  done
  case "$command:$before" in
{cases}
  esac
  case $word in -*) values=$options ;; esac
  COMPREPLY=($(compgen -W "$values" -- "$word"))
}}
complete -o default -F _randsmap randsmap
"""


def script(parser: Any, shell: str) -> str:
    """The script for bash, zsh (which runs that of bash) or fish."""
    if shell == "fish":
        return "".join(f"complete -c randsmap {line}\n" for line in _fish(parser))
    parsers = dict(_parsers(parser))
    nested = "|".join(f"'{' '.join(path)}'" for path, each in parsers.items() if path and _commands(each))
    text = _BASH.format(nested=nested, cases="\n".join(_cases(parsers)))
    return f"autoload -U +X compinit bashcompinit && compinit && bashcompinit\n{text}" if shell == "zsh" else text


def _commands(parser: Any) -> dict[str, Any]:
    """The parsers of the commands below this one."""
    return next((action.choices for action in parser.actions if isinstance(action.choices, dict)), {})


def _parsers(parser: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield path, parser
    for name, command in _commands(parser).items():
        yield from _parsers(command, (*path, name))


def _cases(parsers: dict[tuple[str, ...], Any]) -> Iterator[str]:
    """Lines of a case statement: values after an option, words after a command, else files."""
    for path, parser in parsers.items():
        at, flags, values = " ".join(path), list[str](), list[str]()
        for action in parser.actions:
            flags += action.option_strings
            choices = [str(choice) for choice in action.choices or ()]
            if not action.option_strings:
                values += choices
            elif choices:
                yield f"    '{at}:{action.option_strings[0]}') values='{' '.join(choices)}' ;;"
        yield f"    '{at}:'*) options='{' '.join(flags)}' values='{' '.join(values)}' ;;"


def _fish(parser: Any) -> Iterator[str]:
    for path, each in _parsers(parser):
        below = _commands(each)
        conditions = [f"__fish_seen_subcommand_from {name}" for name in path]
        conditions += [f"not __fish_seen_subcommand_from {' '.join(below)}"] if below else []
        at = f"-n '{'; and '.join(conditions)}'"
        for name, command in below.items():
            yield f"{at} -f -a {name} -d {_said(command.description)}"
        for action in each.actions:
            values = f"-a '{' '.join(map(str, action.choices))}'" if action.choices and not below else ""
            names = [f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}" for flag in action.option_strings]
            if names:
                takes = f"-x {values}" if values else "-r" if action.nargs != 0 else "-f"
                yield f"{at} {' '.join(names)} {takes} -d {_said(action.help)}"
            elif values:
                yield f"{at} -f {values}"


def _said(text: str | None) -> str:
    """The first words of a help text, in quotes."""
    short = textwrap.shorten((text or "").replace("%%", "%").partition(" (")[0], 60, placeholder=" ...")
    return "'" + short.replace("\\", "\\\\").replace("'", "\\'") + "'"

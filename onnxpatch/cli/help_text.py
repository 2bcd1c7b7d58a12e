"""`--help` on one screen: the usage, the options in groups with a line each, and two examples.

typer's own help gives an option four columns and a frame, which makes 150 lines of export's. `rich_help_panel` of an
option, an argument or a command is the group that it stands in.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

WIDTH = 100
_NAMES = 26  # columns for what is typed; what is longer has a line of its own
_ARGUMENTS, _OPTIONS, _COMMANDS, _RESULT = "Arguments", "Options", "Commands", "Result"
_GROUPS = (_ARGUMENTS, _COMMANDS, "Input", "File", "Patches", "Where it fails", "Compare", _OPTIONS, _RESULT)


def help_text(command: Any, context: Any, width: int) -> str:
    """The help of a command or of the program. width: of the terminal, of which at most 100 columns are used."""
    width, about = min(width, WIDTH), inspect.cleandoc(command.help or "")
    pieces = [piece.strip("{}") for piece in command.collect_usage_pieces(context)]
    lines = [f"Usage: {' '.join([context.command_path, *pieces])}", ""]
    for paragraph in about.split("\n\n"):
        lines += textwrap.wrap(" ".join(paragraph.split()), width)
    for group, rows in _grouped([*_parameters(command, context), *_commands(command, context)]):
        lines += ["", f"{group}:", *(line for name, said in rows for line in _row(name, said, width))]
    if command.epilog:
        lines += ["", "Examples:", *(f"  {line.strip()}" for line in command.epilog.strip().splitlines())]
    return "\n".join(lines) + "\n"


def _grouped(rows: Sequence[tuple[str, str, str]]) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    for group in _GROUPS:
        found = [(name, said) for one, name, said in rows if one == group]
        if found:
            yield group, found


def _parameters(command: Any, context: Any) -> Iterator[tuple[str, str, str]]:
    """(group, what is typed, what it does) of each argument and option."""
    params = command.get_params(context)
    last = _RESULT if any(getattr(one, "rich_help_panel", None) == _RESULT for one in params) else _OPTIONS
    for param in params:
        if getattr(param, "hidden", False):
            continue
        option = param.param_type_name == "option"
        group = getattr(param, "rich_help_panel", None) or (_OPTIONS if option else _ARGUMENTS)
        group = last if param.name == "help" else group  # click's own, which knows no group
        yield group, _typed(param) if option else _metavar(param), _said(param)


def _typed(param: Any) -> str:
    """`-o, --output FILE`, `--check, --no-check`."""
    names = sorted([*param.opts, *param.secondary_opts], key=lambda name: name.startswith("--"))
    value = "" if param.is_flag or param.count else param.metavar or param.type.name.upper().removesuffix(" RANGE")
    return f"{', '.join(names)} {value}".strip()


def _metavar(param: Any) -> str:
    return str(param.metavar or param.name.upper()).strip("[]")


def _said(param: Any) -> str:
    """What it does, with the default where there is one."""
    said, shown = (param.help or "").strip(), param.show_default
    default = shown if isinstance(shown, str) else param.default
    plain = (
        not getattr(param, "is_flag", False)
        and isinstance(default, str | int | float)
        and not isinstance(default, bool)
        and default not in ("", "*", 0)
    )
    return f"{said} [{default}]" if plain else said


def _commands(command: Any, context: Any) -> Iterator[tuple[str, str, str]]:
    """(group, name, first sentence) of each command of the program."""
    for name in command.list_commands(context) if hasattr(command, "list_commands") else ():
        one = command.get_command(context, name)
        said = " ".join(inspect.cleandoc(one.help or "").split("\n\n")[0].split())
        yield _COMMANDS, name, said.partition(". ")[0].rstrip(".") + "."


def _row(name: str, said: str, width: int) -> Iterable[str]:
    lines = textwrap.wrap(said, max(width - _NAMES - 2, 24)) or [""]
    fits = len(name) < _NAMES - 2
    first = f"  {name:<{_NAMES - 2}}{lines.pop(0)}".rstrip() if fits else f"  {name}"
    return [first, *(" " * _NAMES + line for line in lines)]

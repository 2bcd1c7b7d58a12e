"""The typer application: all commands, how errors in their arguments are printed, and `--help` on one screen.

typer's own help gives an option four columns and a frame, which makes 150 lines of export's. `rich_help_panel` of an
option, an argument or a command is the group that it stands in.
"""

from __future__ import annotations

import inspect
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Annotated, Any, Protocol, runtime_checkable

import typer
from typer.core import TyperCommand, TyperGroup

from onnxpatch.cli import export_model, inspect_model, registry_commands, show


@runtime_checkable
class _ClickError(Protocol):
    """click's ClickException. Some versions of typer bring click's code along, so that it is not one class."""

    exit_code: int

    def format_message(self) -> str: ...

    def show(self) -> None: ...


class _ShortHelp:
    """Help of a line for each option, in groups."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help, at the width that click found."""
        formatter.write(_help_text(self, ctx, formatter.width))

    def get_params(self, ctx: object) -> list[Any]:
        """The parameters, also `--help`."""
        params: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for param in params:
            # typer converts None to a bool with pydantic, whose import takes as long as all the rest of the help.
            if getattr(param, "is_flag", False) and param.default is None and not param.expose_value:
                param.default = False
        return params


class _Command(_ShortHelp, TyperCommand):
    """One command."""


class _OneLineErrors(_ShortHelp, TyperGroup):
    """Prints what is wrong with the arguments in one line, as all other errors are, without typer's box and usage."""

    def main(self, *args: Any, **options: Any) -> object:
        """As click's, but for the errors. With standalone_mode=False they are raised, as click does."""
        standalone = options.get("standalone_mode", True)
        # The words as they were typed, for the page that says how to make the file again (`options.typed`).
        given = args[0] if args else options.get("args")
        options.setdefault("obj", list(sys.argv[1:] if given is None else given))
        # In this mode click raises its errors; otherwise it would print them in its own form and exit.
        options["standalone_mode"] = False
        if not standalone:
            return super().main(*args, **options)
        try:
            code = super().main(*args, **options)
        except Exception as error:
            if not isinstance(error, _ClickError):
                raise
            sys.exit(_print_error(error))
        # click returns the code of a typer.Exit here, and else what the command returned.
        sys.exit(code if isinstance(code, int) else 0)


def _print_error(error: _ClickError) -> int:
    """Print an error in the arguments; returns the exit code."""
    # By name, for the reason that _ClickError states. It is the help, and no message.
    if type(error).__name__ == "NoArgsIsHelpError":
        error.show()
    else:
        command = getattr(getattr(error, "ctx", None), "command_path", "onnxpatch")
        message = " ".join(error.format_message().split()).rstrip(".")
        show.print_error(f"onnxpatch: {message}: see {command} --help")
    return error.exit_code


app = typer.Typer(
    cls=_OneLineErrors,
    help="Export PyTorch models to ONNX, and verify the file against the model.\n\n"
    "Exit codes: 0 right, 1 wrong or refused, 2 bad input, 3 an internal error.\n\n"
    "What the words in a report mean: docs/words.md, and the end of each page that --html writes.",
    epilog="""onnxpatch export "timm:create_model('vgg11')" m.onnx -i 'x=float32[B,3,H,W]'
    onnxpatch doctor script.py:model -i 'x=float32[2,T]'""",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
# By name: the function, and two examples.
_FUNCTIONS: dict[str, tuple[Callable[..., None], str]] = {
    "export": (
        export_model.export_command,
        """onnxpatch export "timm:create_model('vgg11')" m.onnx -i 'x=float32[B,3,H,W]'
        onnxpatch export script.py:model m.onnx -i 'x=float32[2,T]' --branches""",
    ),
    "verify": (
        export_model.verify_command,
        """onnxpatch verify m.onnx script.py:model -i 'x=float32[B,3,H,W]'
        onnxpatch verify m.onnx script.py:model -i x.npy --sizes H=32,518""",
    ),
    "doctor": (
        inspect_model.doctor_command,
        """onnxpatch doctor script.py:model -i 'x=float32[B,3,H,W]'
        onnxpatch doctor script.py:model -i 'x=float32[2,T]' --write-patch fix.py""",
    ),
    "plan": (
        inspect_model.plan_command,
        """onnxpatch plan script.py:model
        onnxpatch plan "timm:create_model('vit_tiny_patch16_224')" --html plan.html""",
    ),
    "list": (
        registry_commands.list_patches,
        """onnxpatch list 'einops*'
        onnxpatch list lgamma --prove""",
    ),
    "prove": (
        registry_commands.prove_command,
        """onnxpatch prove my_patches.py
        onnxpatch prove package.my_patches -v""",
    ),
    "ops": (
        registry_commands.ops,
        """onnxpatch ops 'upsample*'
        onnxpatch ops --missing --exporter trace""",
    ),
    "drift": (
        registry_commands.drift_command,
        """onnxpatch drift
        onnxpatch drift --strict --json""",
    ),
}
for _name, (_function, _examples) in _FUNCTIONS.items():
    app.command(_name, cls=_Command, epilog=_examples)(_function)


def _print_version(asked: bool) -> None:
    if asked:
        import onnxpatch

        print(onnxpatch.__version__)
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None: ...


WIDTH = 100
_NAMES = 26  # columns for what is typed; what is longer has a line of its own
_ARGUMENTS, _OPTIONS, _COMMANDS, _RESULT = "Arguments", "Options", "Commands", "Result"
_GROUPS = (_ARGUMENTS, _COMMANDS, "Input", "File", "Patches", "Where it fails", "Compare", _OPTIONS, _RESULT)


def _help_text(command: Any, context: Any, width: int) -> str:
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

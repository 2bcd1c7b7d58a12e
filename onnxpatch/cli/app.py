"""The typer application: all commands, and how errors in their arguments are printed."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Annotated, Any, Protocol, runtime_checkable

import typer
from typer.core import TyperCommand, TyperGroup

from onnxpatch.cli import (
    diagnose,
    export_model,
    help_text,
    list_patches,
    operator_table,
    plan_model,
    prove_file,
    show,
    show_drift,
    verify_file,
)


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
        formatter.write(help_text.help_text(self, ctx, formatter.width))

    def get_params(self, ctx: object) -> list[Any]:
        """The parameters, also `--help`."""
        params: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for param in params:
            # typer converts None to a bool with pydantic, whose import takes as long as all the rest of the help.
            if getattr(param, "is_flag", False) and param.default is None and not param.expose_value:
                param.default = False
        return params


class Command(_ShortHelp, TyperCommand):
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
_COMMANDS: dict[str, tuple[Callable[..., None], str]] = {
    "export": (
        export_model.export,
        """onnxpatch export "timm:create_model('vgg11')" m.onnx -i 'x=float32[B,3,H,W]'
        onnxpatch export script.py:model m.onnx -i 'x=float32[2,T]' --branches""",
    ),
    "verify": (
        verify_file.verify,
        """onnxpatch verify m.onnx script.py:model -i 'x=float32[B,3,H,W]'
        onnxpatch verify m.onnx script.py:model -i x.npy --sizes H=32,518""",
    ),
    "doctor": (
        diagnose.doctor,
        """onnxpatch doctor script.py:model -i 'x=float32[B,3,H,W]'
        onnxpatch doctor script.py:model -i 'x=float32[2,T]' --write-patch fix.py""",
    ),
    "plan": (
        plan_model.plan,
        """onnxpatch plan script.py:model
        onnxpatch plan "timm:create_model('vit_tiny_patch16_224')" --html plan.html""",
    ),
    "list": (
        list_patches.list_patches,
        """onnxpatch list 'einops*'
        onnxpatch list lgamma --prove""",
    ),
    "prove": (
        prove_file.prove,
        """onnxpatch prove my_patches.py
        onnxpatch prove package.my_patches -v""",
    ),
    "ops": (
        operator_table.ops,
        """onnxpatch ops 'upsample*'
        onnxpatch ops --missing --exporter trace""",
    ),
    "drift": (
        show_drift.drift,
        """onnxpatch drift
        onnxpatch drift --strict --json""",
    ),
}
for _name, (_function, _examples) in _COMMANDS.items():
    app.command(_name, cls=Command, epilog=_examples)(_function)


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

"""The commands, gathered; each has a file of its own."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from onnxpatch.cli import diagnose, export_model, list_patches, operator_table, plan_model, show, verify_file


class OneLine(TyperGroup):
    """Says in one line what is wrong with a command, as everything else here does: no box, no usage."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        alone = kwargs.get("standalone_mode", True)
        kwargs["standalone_mode"] = False
        if not alone:
            return super().main(*args, **kwargs)
        try:
            code = super().main(*args, **kwargs)
        except Exception as error:
            if not hasattr(error, "format_message"):  # not click's own, which some versions of typer bring along
                raise
            sys.exit(_complain(error))
        sys.exit(code if isinstance(code, int) else 0)


def _complain(error: Any) -> int:
    """Prints it; returns the exit code."""
    if type(error).__name__ == "NoArgsIsHelpError":
        error.show()
    else:
        asked = getattr(getattr(error, "ctx", None), "command_path", "onnxpatch")
        told = " ".join(error.format_message().split()).rstrip(".")
        show.complaint(f"onnxpatch: {told}: {asked} --help says what can be given")
    return int(error.exit_code)


app = typer.Typer(
    cls=OneLine,
    help="Export PyTorch models to ONNX right, and prove it.\n\n"
    "Exit codes: 0 right, 1 wrong or refused, 2 bad input, 3 a fault of onnxpatch itself.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("list")(list_patches.list_patches)
app.command("plan")(plan_model.plan)
app.command("export")(export_model.export)
app.command("verify")(verify_file.verify)
app.command("doctor")(diagnose.doctor)
app.command("ops")(operator_table.ops)


def _version(wanted: bool) -> None:
    if wanted:
        import onnxpatch

        print(onnxpatch.__version__)
        raise typer.Exit


@app.callback()
def _main(version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True)] = False) -> None: ...

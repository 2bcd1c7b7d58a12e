"""The commands, gathered; each has a file of its own."""

from __future__ import annotations

from typing import Annotated

import typer

from onnxpatch.cli import diagnose, export_model, list_patches, operator_table, plan_model, verify_file

app = typer.Typer(
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

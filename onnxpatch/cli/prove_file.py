"""The command `onnxpatch prove`: runs the proofs of the patches in a file or module."""

from __future__ import annotations

from typing import Annotated

import typer

from onnxpatch.cli import show
from onnxpatch.cli.failure import RIGHT, WRONG, errors_in_one_line
from onnxpatch.cli.options import DebugOpt, VerboseOpt
from onnxpatch.errors import InputError


def prove(
    place: Annotated[str, typer.Argument(metavar="FILE", help="script.py or package.module, which declares patches.")],
    verbose: VerboseOpt = 0,
    debug: DebugOpt = False,
) -> None:
    """Run the proofs of the patches in FILE. Each must be right with its patch, and wrong or refused without it.

    Exit code 1: a proof fails.
    """
    with errors_in_one_line(debug, verbose):
        from onnxpatch.cli.target import load_patches
        from onnxpatch.patching.registry import REGISTRY
        from onnxpatch.prove import prove as run

        # The kit's own patches are in the registry already.
        before = {patch.name for patch in REGISTRY}
        load_patches([place])
        declared = [patch for patch in REGISTRY if patch.name not in before]
        if not declared:
            raise InputError(f"{place} declares no patch of its own: write one with @onnxpatch.patch(...)")
        outcomes = [(p.name, e, run(p, e)) for p in declared for e in (p.proof.served() if p.proof else ())]
        rows: list[tuple[str, str, str]] = [(name, exporter, outcome.sentence) for name, exporter, outcome in outcomes]
        rows += [
            (patch.name, "", "it has no proof: give it proof=onnxpatch.Proof(...)")
            for patch in declared
            if not patch.proof
        ]
        show.table("proofs", ("patch", "exporter", "outcome"), rows)
        held = all(outcome.holds for _, _, outcome in outcomes) and all(patch.proof for patch in declared)
        raise typer.Exit(RIGHT if held else WRONG)

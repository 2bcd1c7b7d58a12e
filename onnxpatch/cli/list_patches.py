"""The command `onnxpatch list`: the installed patches, what each stands in for, when it applies, and its proof."""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated

import typer

from onnxpatch.cli import show
from onnxpatch.cli.completion import patch_names
from onnxpatch.cli.failure import RIGHT, WRONG, errors_in_one_line
from onnxpatch.cli.json_types import Patches, PatchRow, ProofRow
from onnxpatch.cli.options import DebugOpt, JsonOpt, PatchesOpt, RuntimeOpt, runtime_names
from onnxpatch.errors import InputError
from onnxpatch.settings import Settings

if TYPE_CHECKING:
    from onnxpatch.patching.registry import Patch


def list_patches(
    pattern: Annotated[
        str,
        typer.Argument(help="Only patches of this name or with this target; * is allowed.", autocompletion=patch_names),
    ] = "*",
    prove: Annotated[bool, typer.Option("--prove", help="Run the proofs now (a second or two each).")] = False,
    patches: PatchesOpt = [],  # noqa: B006  typer takes a list default for an option that may be given several times
    runtime: RuntimeOpt = None,
    json: JsonOpt = False,
    debug: DebugOpt = False,
) -> None:
    """List the patches: their targets, conditions, reasons and proofs. Exit code 1: a proof failed."""
    with errors_in_one_line(debug, patches=patches):
        from onnxpatch.patching.registry import REGISTRY

        matching = [patch for patch in REGISTRY if _matches(patch, pattern)]
        if not matching and pattern != "*":
            raise InputError(_no_match(pattern, [patch.name for patch in REGISTRY]))
        rows = _rows(matching, prove, runtime_names(runtime))
        if json:
            show.as_json(Patches(schema=1, patches=rows, failures=dict(REGISTRY.failures)))
        else:
            _print_table(rows, REGISTRY.failures)
        raise typer.Exit(WRONG if any(row["proof"].get("failed") for row in rows) else RIGHT)


def _no_match(pattern: str, known: list[str]) -> str:
    near = difflib.get_close_matches(pattern.strip("*"), known, n=3, cutoff=0.4)
    hint = f"did you mean {' or '.join(near)}?" if near else "`onnxpatch list` shows all of them"
    return f"no patch has the name or the target {pattern!r}: {hint}"


def _matches(patch: Patch, pattern: str) -> bool:
    return any(fnmatchcase(name, pattern) for name in (patch.name, *patch.targets))


def _rows(patches: list[Patch], prove: bool, runtime: list[str] | None) -> list[PatchRow]:
    rows: list[PatchRow] = []
    with show.progress("proofs") if prove else contextlib.nullcontext() as progress:
        for done, patch in enumerate(patches):
            if progress:
                progress(patch.name, done, len(patches))
            rows.append(_row(patch, _proof_row(patch, prove, runtime)))
    return rows


def _row(patch: Patch, proof: ProofRow) -> PatchRow:
    when = patch.when
    return {
        "name": patch.name,
        "kind": patch.kind,
        "targets": list(patch.targets),
        "why": patch.why,
        "link": patch.link,
        "requires": list(when.requires),
        "exporters": list(when.exporters),
        "opset": list(when.opset),
        "declared_at": patch.declared_at,
        # No exporter and no opset are named: what is left to refuse by are the versions of libraries.
        "refused_here": when.refusal(Settings()),
        "proof": proof,
    }


def _proof_row(patch: Patch, prove: bool, runtime: list[str] | None) -> ProofRow:
    if patch.proof is None:
        return {"status": "none"}
    exporters: list[str] = list(patch.proof.served())
    if not prove:
        return {"status": "declared", "exporters": exporters}
    from onnxpatch.prove import prove as run

    outcomes = {exporter: run(patch, exporter, runtime) for exporter in patch.proof.served()}
    failed = any(not outcome.holds for outcome in outcomes.values())
    sentences: dict[str, str] = {exporter: outcome.sentence for exporter, outcome in outcomes.items()}
    return {"status": "failed" if failed else "proven", "exporters": exporters, "failed": failed, "outcomes": sentences}


def _print_table(rows: list[PatchRow], failures: Mapping[str, str]) -> None:
    cells = [(row["name"], ", ".join(row["targets"]), _when(row), _status(row["proof"]), row["why"]) for row in rows]
    show.table("patches", ("patch", "stands in for", "when", "proof", "why"), cells)
    for name, reason in failures.items():
        show.print_error(f"{name} could not be loaded: {reason}")


def _when(row: PatchRow) -> str:
    """The patch's conditions, or the reason why it does not apply here."""
    if row["refused_here"]:
        return row["refused_here"]
    lowest, highest = row["opset"]
    opset = f"opset {lowest or ''}–{highest or ''}" if lowest or highest else ""
    return "; ".join(part for part in (", ".join(row["requires"]), "/".join(row["exporters"]), opset) if part)


def _status(proof: ProofRow) -> str:
    if "outcomes" in proof:
        return "; ".join(f"{exporter}: {sentence}" for exporter, sentence in proof["outcomes"].items())
    return f"{proof['status']} ({'/'.join(proof['exporters'])})" if proof.get("exporters") else proof["status"]

"""`onnxpatch list`: every patch that is installed, what it stands in for, when it applies, and whether it is proven."""

from __future__ import annotations

import contextlib
from fnmatch import fnmatchcase
from typing import Annotated, Any

import typer

from onnxpatch.cli import show
from onnxpatch.cli.failure import RIGHT, WRONG, told_in_one_line
from onnxpatch.cli.options import DebugOpt, JsonOpt
from onnxpatch.errors import InputError
from onnxpatch.patching.registry import REGISTRY, Patch
from onnxpatch.settings import Settings


def list_patches(
    pattern: Annotated[str, typer.Argument(help="Only patches whose name or target fits; * is allowed.")] = "*",
    prove: Annotated[bool, typer.Option("--prove", help="Run the proofs now (a second or two each).")] = False,
    json: JsonOpt = False,
    debug: DebugOpt = False,
) -> None:
    """Patches: targets, conditions, why, and whether they are proven. Exit code 1: a proof failed."""
    with told_in_one_line(debug):
        patches = [patch for patch in REGISTRY if _fits(patch, pattern)]
        if not patches and pattern != "*":
            raise InputError(f"no patch fits {pattern!r}; there are {', '.join(p.name for p in REGISTRY)}")
        rows = _described(patches, prove)
        if json:
            show.as_json({"schema": 1, "patches": rows, "failures": REGISTRY.failures})
        else:
            _tabulate(rows)
        raise typer.Exit(WRONG if any(row["proof"].get("failed") for row in rows) else RIGHT)


def _fits(patch: Patch, pattern: str) -> bool:
    return any(fnmatchcase(name, pattern) for name in (patch.name, *patch.targets))


def _described(patches: list[Patch], prove: bool) -> list[dict[str, Any]]:
    rows = []
    with show.progress("proofs") if prove else contextlib.nullcontext() as progress:
        for done, patch in enumerate(patches):
            if progress:
                progress(patch.name, done, len(patches))
            rows.append(describe(patch) | {"proof": _proof(patch, prove)})
    return rows


def describe(patch: Patch) -> dict[str, Any]:
    """A patch as plain values."""
    conditions = patch.conditions
    return {
        "name": patch.name,
        "kind": patch.kind,
        "targets": list(patch.targets),
        "why": patch.why,
        "link": patch.link,
        "requires": list(conditions.requires),
        "exporters": list(conditions.exporters),
        "opset": list(conditions.opset),
        "declared_at": patch.declared_at,
        "refused_here": conditions.refusal(Settings()),
    }


def _proof(patch: Patch, prove: bool) -> dict[str, Any]:
    if patch.proof is None:
        return {"status": "none"}
    served = patch.proof.served()
    if not prove:
        return {"status": "declared", "exporters": list(served)}
    from onnxpatch.prove import prove as run

    outcomes = {exporter: run(patch, exporter) for exporter in served}
    failed = any(not outcome.holds for outcome in outcomes.values())
    told = {exporter: outcome.sentence for exporter, outcome in outcomes.items()}
    return {"status": "failed" if failed else "proven", "exporters": list(served), "failed": failed, "outcomes": told}


def _tabulate(rows: list[dict[str, Any]]) -> None:
    cells = [(row["name"], ", ".join(row["targets"]), _when(row), _proven(row["proof"]), row["why"]) for row in rows]
    show.table("patches", ("patch", "stands in for", "when", "proof", "why"), cells)
    for name, reason in REGISTRY.failures.items():
        show.complaint(f"{name} could not be loaded: {reason}")


def _when(row: dict[str, Any]) -> str:
    if row["refused_here"]:
        return str(row["refused_here"])
    lowest, highest = row["opset"]
    opset = f"opset {lowest or ''}–{highest or ''}" if lowest or highest else ""
    return "; ".join(part for part in (", ".join(row["requires"]), "/".join(row["exporters"]), opset) if part)


def _proven(proof: dict[str, Any]) -> str:
    if "outcomes" in proof:
        return "; ".join(f"{exporter}: {told}" for exporter, told in proof["outcomes"].items())
    return f"{proof['status']} ({'/'.join(proof['exporters'])})" if proof.get("exporters") else str(proof["status"])

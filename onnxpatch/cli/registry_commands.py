"""The commands about the kit and torch, without a model: `list` and `prove` for patches, `ops` for torch's operators,
`drift` for the code that patches rely on.
"""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated

import typer
from typing_extensions import TypedDict  # pydantic reads typing's from Python 3.12 on only; typer brings this

import onnxpatch
from onnxpatch.cli import options, show
from onnxpatch.cli.show import RIGHT, WRONG, errors_in_one_line
from onnxpatch.errors import InputError
from onnxpatch.onnxfile.metadata import versions
from onnxpatch.settings import Settings

if TYPE_CHECKING:
    from onnxpatch.diagnosis.operator_support import Operator
    from onnxpatch.patching.registry import Patch


class _Proof(TypedDict):
    status: str


class _ProofRow(_Proof, total=False):
    """status: none, declared, proven or failed. exporters: those that the proof runs with.

    failed, outcomes (a sentence by exporter): with --prove only.
    """

    exporters: list[str]
    failed: bool
    outcomes: dict[str, str]


class _PatchRow(TypedDict):
    """One patch.

    opset: lowest and highest, null for no bound. refused_here: why it does not apply to the installed versions.
    """

    name: str
    kind: str
    targets: list[str]
    why: str
    link: str | None
    requires: list[str]
    exporters: list[str]
    opset: list[int | None]
    declared_at: str
    refused_here: str | None
    proof: _ProofRow


class _Patches(TypedDict):
    """`onnxpatch list --json`. failures: declarations that could not be loaded, with the reason."""

    schema: int
    patches: list[_PatchRow]
    failures: dict[str, str]


def list_patches(
    pattern: Annotated[
        str,
        typer.Argument(
            help="Only patches of this name or with this target; * is allowed.", autocompletion=options.patch_names
        ),
    ] = "*",
    prove: Annotated[bool, typer.Option("--prove", help="Run the proofs now (a second or two each).")] = False,
    patches: options.PatchesOpt = [],  # noqa: B006  for an option that may be given several times
    runtime: options.RuntimeOpt = None,
    json: options.JsonOpt = False,
    debug: options.DebugOpt = False,
) -> None:
    """List the patches: their targets, conditions, reasons and proofs. Exit code 1: a proof failed."""
    with errors_in_one_line(debug, patches=patches):
        from onnxpatch.patching.registry import REGISTRY

        matching = [patch for patch in REGISTRY if _matches(patch, pattern)]
        if not matching and pattern != "*":
            raise InputError(_no_match(pattern, [patch.name for patch in REGISTRY]))
        rows = _rows(matching, prove, options.listed(runtime))
        if json:
            show.as_json(_Patches(schema=1, patches=rows, failures=dict(REGISTRY.failures)))
        else:
            _print_table(rows, REGISTRY.failures)
        raise typer.Exit(WRONG if any(row["proof"].get("failed") for row in rows) else RIGHT)


def _no_match(pattern: str, known: list[str]) -> str:
    near = difflib.get_close_matches(pattern.strip("*"), known, n=3, cutoff=0.4)
    hint = f"did you mean {' or '.join(near)}?" if near else "`onnxpatch list` shows all of them"
    return f"no patch has the name or the target {pattern!r}: {hint}"


def _matches(patch: Patch, pattern: str) -> bool:
    return any(fnmatchcase(name, pattern) for name in (patch.name, *patch.targets))


def _rows(patches: list[Patch], prove: bool, runtime: list[str] | None) -> list[_PatchRow]:
    rows: list[_PatchRow] = []
    with show.progress("proofs") if prove else contextlib.nullcontext() as progress:
        for done, patch in enumerate(patches):
            if progress:
                progress(patch.name, done, len(patches))
            rows.append(_row(patch, _proof_row(patch, prove, runtime)))
    return rows


def _row(patch: Patch, proof: _ProofRow) -> _PatchRow:
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


def _proof_row(patch: Patch, prove: bool, runtime: list[str] | None) -> _ProofRow:
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


def _print_table(rows: list[_PatchRow], failures: Mapping[str, str]) -> None:
    cells = [(row["name"], ", ".join(row["targets"]), _when(row), _status(row["proof"]), row["why"]) for row in rows]
    show.print_table("patches", ("patch", "stands in for", "when", "proof", "why"), cells)
    for name, reason in failures.items():
        show.print_error(f"{name} could not be loaded: {reason}")


def _when(row: _PatchRow) -> str:
    """The patch's conditions, or the reason why it does not apply here."""
    if row["refused_here"]:
        return row["refused_here"]
    lowest, highest = row["opset"]
    opset = f"opset {lowest or ''}–{highest or ''}" if lowest or highest else ""
    return "; ".join(part for part in (", ".join(row["requires"]), "/".join(row["exporters"]), opset) if part)


def _status(proof: _ProofRow) -> str:
    if "outcomes" in proof:
        return "; ".join(f"{exporter}: {sentence}" for exporter, sentence in proof["outcomes"].items())
    return f"{proof['status']} ({'/'.join(proof['exporters'])})" if proof.get("exporters") else proof["status"]


def prove_command(
    place: Annotated[str, typer.Argument(metavar="FILE", help="script.py or package.module, which declares patches.")],
    verbose: options.VerboseOpt = 0,
    debug: options.DebugOpt = False,
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
        show.print_table("proofs", ("patch", "exporter", "outcome"), rows)
        held = all(outcome.holds for _, _, outcome in outcomes) and all(patch.proof for patch in declared)
        raise typer.Exit(RIGHT if held else WRONG)


class _OperatorRow(TypedDict):
    """One aten operator.

    dynamo: translated, decomposed or none. trace_opset: the lowest opset in which the TorchScript exporter writes it,
    null for none. onnx: the ONNX operators of dynamo's translation, each with the opset that introduced it; opset: the
    highest of these.
    """

    name: str
    dynamo: str
    trace_opset: int | None
    onnx: dict[str, int]
    opset: int | None


class _Operators(TypedDict):
    """`onnxpatch ops --json`."""

    schema: int
    versions: dict[str, str]
    operators: list[_OperatorRow]


def ops(
    pattern: Annotated[str, typer.Argument(help="Only operators of this name, such as 'upsample*'.")] = "*",
    exporter: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="dynamo, trace or script: the exporter that --missing asks about."),
    ] = None,
    missing: Annotated[bool, typer.Option("--missing", help="Only operators that the exporter cannot write.")] = False,
    json: options.JsonOpt = False,
    debug: options.DebugOpt = False,
) -> None:
    """List aten operators: how each exporter of the installed torch writes them, and the lowest opset they need."""
    with errors_in_one_line(debug):
        from onnxpatch.diagnosis.operator_support import operators

        chosen = options.checked_exporter(exporter)
        matching = [operator for operator in operators().values() if _is_like(operator, pattern)]
        if not matching:
            raise InputError(
                f"torch has no operator like {pattern!r}: names are written as in aten::upsample_bicubic2d"
            )
        if missing:
            exporters = (chosen,) if chosen else ("dynamo", "trace")
            matching = [operator for operator in matching if not all(map(operator.supported, exporters))]
        if json:
            rows = [_json_row(operator) for operator in matching]
            show.as_json(_Operators(schema=1, versions=versions(), operators=rows))
        else:
            header = ("operator", "dynamo", "trace/script", "ONNX", "from ONNX operators")
            show.print_table("operators", header, [_operator_cells(operator) for operator in matching])


def _is_like(operator: Operator, pattern: str) -> bool:
    name = operator.name.removeprefix("aten::")
    wanted = pattern.removeprefix("aten::").replace("aten.", "")
    # With or without the overload: `add` finds `add.Tensor`.
    return fnmatchcase(name, wanted) or fnmatchcase(name.partition(".")[0], wanted)


def _json_row(operator: Operator) -> _OperatorRow:
    return {
        "name": operator.name,
        "dynamo": operator.dynamo,
        "trace_opset": operator.trace,
        "onnx": dict(operator.onnx),
        "opset": operator.opset,
    }


def _operator_cells(operator: Operator) -> tuple[str, ...]:
    return (
        operator.name,
        operator.dynamo,
        f"opset {operator.trace}" if operator.trace else "none",
        f"opset {operator.opset}" if operator.opset else "",
        ", ".join(f"{name} ({since})" for name, since in operator.onnx.items()),
    )


def drift_command(
    json: options.JsonOpt = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit code 1 also for private torch functions whose body changed.")
    ] = False,
    debug: options.DebugOpt = False,
) -> None:
    """Compare the code that patches know, and the private torch APIs, with the installed libraries.

    Exit code 1: a method that a patch knows changed or is gone, or a private API is gone.
    """
    with errors_in_one_line(debug):
        found = onnxpatch.drift()
        print(found.to_json() if json else found)
        raise typer.Exit(RIGHT if found.ok or not (strict or found.acted_upon()) else WRONG)


JSON: dict[str, type] = {"patches": _Patches, "operators": _Operators}
"""What `--json` of `list` and of `ops` writes. The published JSON Schemas are made from it."""

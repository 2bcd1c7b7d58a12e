"""What `--json` of `list`, `plan` and `ops` writes, as types: their JSON Schemas are read off them."""

from __future__ import annotations

from typing import TypedDict


class _Proof(TypedDict):
    status: str


class ProofRow(_Proof, total=False):
    """status: none, declared, proven or failed. outcomes: a sentence for each exporter, with --prove."""

    exporters: list[str]
    failed: bool
    outcomes: dict[str, str]


class PatchRow(TypedDict):
    """One patch. opset: lowest and highest; refused_here: why it does not apply to the installed versions."""

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
    proof: ProofRow


class Patches(TypedDict):
    """`onnxpatch list --json`. failures: declarations that could not be loaded, with the reason."""

    schema: int
    patches: list[PatchRow]
    failures: dict[str, str]


SwapRow = TypedDict(
    "SwapRow", {"path": str, "class": str, "patch": str, "why": str, "aliases": list[str]}
)  # "class" is no name in Python


class FunctionRow(TypedDict):
    targets: list[str]
    patch: str
    why: str


class MissRow(TypedDict):
    """What matched and is left alone; path is null for a function."""

    path: str | None
    patch: str
    reason: str


class PlanRows(TypedDict):
    """`onnxpatch plan --json`."""

    schema: int
    model: str
    swaps: list[SwapRow]
    functions: list[FunctionRow]
    near_misses: list[MissRow]
    findings: list[str]


class OperatorRow(TypedDict):
    """One aten operator. dynamo: translated, decomposed or none; trace_opset: null where the exporter has no form."""

    name: str
    dynamo: str
    trace_opset: int | None
    onnx: dict[str, int]
    opset: int | None


class Operators(TypedDict):
    """`onnxpatch ops --json`."""

    schema: int
    versions: dict[str, str]
    operators: list[OperatorRow]

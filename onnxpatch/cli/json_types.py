"""The types of what `--json` of `list`, `plan` and `ops` writes. The published JSON Schemas are made from them."""

from __future__ import annotations

# Not typing's: pydantic, which makes the schemas, reads that one from Python 3.12 on only. typer brings this package.
from typing_extensions import TypedDict


class _Proof(TypedDict):
    status: str


class ProofRow(_Proof, total=False):
    """status: none, declared, proven or failed. exporters: those that the proof runs with.

    failed, outcomes (a sentence by exporter): with --prove only.
    """

    exporters: list[str]
    failed: bool
    outcomes: dict[str, str]


class PatchRow(TypedDict):
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
    proof: ProofRow


class Patches(TypedDict):
    """`onnxpatch list --json`. failures: declarations that could not be loaded, with the reason."""

    schema: int
    patches: list[PatchRow]
    failures: dict[str, str]


SwapRow = TypedDict(
    "SwapRow", {"path": str, "class": str, "patch": str, "why": str, "aliases": list[str]}
)  # "class" cannot be written as a name in a class body


class FunctionRow(TypedDict):
    """A patch of functions, which acts while the patched model is exported."""

    targets: list[str]
    patch: str
    why: str


class MissRow(TypedDict):
    """A patch that matched but does not apply, with the reason. path: of the module, null for a function."""

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


class Operators(TypedDict):
    """`onnxpatch ops --json`."""

    schema: int
    versions: dict[str, str]
    operators: list[OperatorRow]

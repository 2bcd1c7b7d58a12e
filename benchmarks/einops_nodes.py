"""Nodes of einops rearrangements with dynamic axes, plain export against the kit's.

usage: python -m benchmarks.einops_nodes

Prints a Markdown table and writes it to benchmarks/results/einops_nodes.md. Constants are not counted.
"""

from __future__ import annotations

import io
from importlib import metadata
from pathlib import Path

import onnx
import torch

import onnxpatch
from benchmarks.einops_cases import PATTERNS, Pattern
from benchmarks.quiet import quiet

RESULTS = Path(__file__).parent / "results" / "einops_nodes.md"
VERSIONS = ("torch", "onnx", "onnxscript", "onnxruntime", "einops")


def nodes(file: bytes) -> int:
    """Nodes of the graph and of its functions, constants not counted."""
    proto = onnx.load_from_string(file)
    graphs = [proto.graph, *proto.functions]
    return sum(node.op_type != "Constant" for graph in graphs for node in graph.node)


def exported(model: torch.nn.Module, x: torch.Tensor, dynamic: dict[int, str], exporter: str) -> bytes:
    """The model's ONNX file at opset 18."""
    file = io.BytesIO()
    if exporter == "dynamo":
        torch.onnx.export(
            model, (x,), file, dynamo=True, dynamic_shapes=(dynamic,), input_names=["x_in"], verbose=False
        )
    else:
        torch.onnx.export(
            model, (x,), file, dynamo=False, dynamic_axes={"x_in": dynamic}, input_names=["x_in"], opset_version=18
        )
    return file.getvalue()


def example(case: Pattern) -> torch.Tensor:
    """An input of the case's shape and dtype."""
    return torch.zeros(case.shape, dtype=case.dtype)


def counted(case: Pattern) -> list[int]:
    """[dynamo, dynamo with the kit, trace, trace with the kit]"""
    from einops.layers.torch import Rearrange

    counts = []
    for exporter in ("dynamo", "trace"):
        model = Rearrange(case.pattern, **case.lengths)
        counts.append(nodes(exported(model, example(case), case.dynamic, exporter)))
        with onnxpatch.patched(model, exporter=exporter):
            counts.append(nodes(exported(model, example(case), case.dynamic, exporter)))
    return counts


def versions() -> str:
    """The versions that a table was made with."""
    return ", ".join(f"{name} {metadata.version(name)}" for name in VERSIONS)


def main() -> None:
    quiet()
    torch.set_num_threads(1)
    rows, totals = [], [0, 0, 0, 0]
    for case in PATTERNS:
        counts = counted(case)
        totals = [total + count for total, count in zip(totals, counts, strict=True)]
        lengths = ", ".join(f"{axis}={length}" for axis, length in case.lengths.items())
        dtype = str(case.dtype).removeprefix("torch.")
        dynamic = ", ".join(map(str, case.dynamic))
        rows.append(f"| `{case.pattern}` | {lengths} | {dtype} | {dynamic} | " + " | ".join(map(str, counts)) + " |")
    text = "\n".join(
        [
            "# Nodes of einops rearrangements with dynamic axes",
            f"{len(PATTERNS)} patterns; {versions()}; opset 18; made by `python -m benchmarks.einops_nodes`.",
            "",
            "| pattern | lengths | dtype | dynamic | dynamo | with the kit | trace | with the kit |",
            "|---|---|---|---|--:|--:|--:|--:|",
            *rows,
            "| **all** | | | | " + " | ".join(f"**{total}**" for total in totals) + " |",
            "",
        ]
    )
    RESULTS.write_text(text)
    print(text)


if __name__ == "__main__":
    main()

"""What one bare operator of onnxruntime takes beside the function of eager that needs it: `python -m
benchmarks.operators.floors`.

No form of the function in ONNX is faster than the operator that no form can do without. Of 131,072 elements, or of a
matrix of 517 x 517; medians of thread CPU time, one thread.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch
from onnx import helper

RESULTS = Path(__file__).parent.parent / "results" / "operators_floors.md"
_N, _ROWS, _TURNS = 131_072, 517, 9


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    x, whole, matrix = torch.randn(_N), torch.randint(-9, 9, (_N,)), torch.randn(_ROWS, _ROWS)
    half = torch.tensor([_N // 2])
    smallest = {"axis": 0, "largest": 0, "sorted": 0}
    cases: list[tuple[str, Callable[[], object], str, list[torch.Tensor], dict[str, Any], int]] = [
        ("median", x.median, "TopK, half, unsorted", [x, half], smallest, 1),
        ("sort", x.sort, "TopK, all", [x, half * 2], {**smallest, "sorted": 1}, 1),
        ("maximum of int64", lambda: torch.maximum(whole, whole), "Max", [whole, whole], {}, 1),
        ("max of int64", whole.max, "ReduceMax", [whole], {}, 1),
        ("sign of int64", whole.sign, "Sign", [whole], {}, 1),
        ("clamp of int64", lambda: whole.clamp(-3, 3), "Clip", [whole, torch.tensor(-3), torch.tensor(3)], {}, 1),
        # Column by column: a graph has no operator that factors a block of columns.
        ("qr", lambda: torch.linalg.qr(matrix), "Sub, float64, for each column", [matrix.double()] * 2, {}, _ROWS),
    ]  # fmt: skip
    lines = [
        _line(name, _timed(eager), bare, times * _timed(_bare(bare.split()[0].strip(","), given, attributes)))
        for name, eager, bare, given, attributes, times in cases
    ]
    about = " ".join((__doc__ or "").partition("\n\n")[2].split())
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in ("torch", "onnxruntime"))
    head = ["| function | eager | bare operator | time | |", "|---" * 5 + "|"]
    RESULTS.write_text(
        "\n".join(["# Operators: what the runtime's own kernels take", "", f"{about} {versions}.", "", *head, *lines])
        + "\n",
        encoding="utf-8",
    )


def _line(name: str, eager: float, bare: str, found: float) -> str:
    return f"| {name} | {eager * 1e6:,.0f} µs | {bare} | {found * 1e6:,.0f} µs | {found / eager:.1f} x |"


def _bare(kind: str, given: list[torch.Tensor], attributes: dict[str, Any]) -> Callable[[], object]:
    arrays = {f"in{i}": one.numpy() for i, one in enumerate(given)}
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(one.dtype), one.shape)
        for name, one in arrays.items()
    ]
    outputs = ["out", "places"][: 2 if kind == "TopK" else 1]
    node = helper.make_node(kind, list(arrays), outputs, **attributes)
    graph = helper.make_graph([node], "bare", inputs, [onnx.ValueInfoProto(name=name) for name in outputs])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    feed: dict[str, np.ndarray[Any, Any]] = arrays
    return lambda: session.run(None, feed)


def _timed(run: Callable[[], object]) -> float:
    times = []
    for _ in range(_TURNS):
        began = time.thread_time()
        run()
        times.append(time.thread_time() - began)
    return statistics.median(times[2:])


if __name__ == "__main__":
    main()

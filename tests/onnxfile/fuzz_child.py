"""Reads ONNX files with other bytes than they had, in a process of its own: runtimes crash, too.

    python -m tests.onnxfile.fuzz_child READER EXAMPLES SEED FOLDER    (READER: a name of READERS, or all)

Every file is kept as FOLDER/last.onnx before it is read. The process ends with 0 where each reader answered or raised
an OnnxpatchError, with 1 and a traceback where it raised anything else; a crash shows as the signal's number.
"""

from __future__ import annotations

import contextlib
import faulthandler
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import torch
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

import onnxpatch
from onnxpatch.onnxfile.metadata import read as read_stamp
from tests.onnxfile.hostile import OUTPUTS, STAMP, with_metadata

X = torch.ones(2, 2)
MAX_SECONDS = 2.0


class Relu(torch.nn.Module):
    def forward(self, x):
        return x.relu()


def session(file: Path) -> None:
    onnxpatch.Session(file, max_seconds=MAX_SECONDS)(X)


def session_of_bytes(file: Path) -> None:
    onnxpatch.Session(file.read_bytes(), max_seconds=MAX_SECONDS)(X)


def verify(file: Path) -> None:
    report = onnxpatch.verify(file, MODEL, (X,), max_probes=2, guards=False, max_seconds=MAX_SECONDS)
    assert str(report) and report.to_markdown() and report.to_json()


def stamp(file: Path) -> None:
    try:
        proto = onnx.load(str(file), load_external_data=False)
    except Exception:  # onnx.load is not ours
        return
    made = read_stamp(proto)
    assert made is None or made.sentence()


def page(file: Path) -> None:
    from onnxpatch import html

    html.write_report(file.with_suffix(".html"), MODEL, onnxpatch.Report(str(file), "Relu"), file)


READERS: dict[str, Callable[[Path], None]] = {
    one.__name__: one for one in (session, session_of_bytes, verify, stamp, page)
}
MODEL = Relu().eval()


def whole() -> list[bytes]:
    """Files to start from: with structure and stamp, and with an initializer, a function's scope and an If."""
    tree = '{"kind": "dataclass", "class": "m:Found", "items": {"boxes": {"kind": "tensor", "name": "y", "flag": "there", "present": true}}}'  # noqa: E501
    value = helper.make_tensor_value_info
    add = helper.make_node(
        "Add", ["x", "w"], ["a"], name="/blocks/0/Add", doc_string='File "m.py", line 3, in forward\n  x'
    )
    add.metadata_props.add(key="pkg.torch.onnx.name_scopes", value="['', 'blocks.0', 'add']")
    side = [
        helper.make_graph([helper.make_node(op, ["a"], [op])], op, [], [value(op, 1, None)]) for op in ("Relu", "Abs")
    ]
    nodes = [add, helper.make_node("If", ["there"], ["y"], then_branch=side[0], else_branch=side[1])]
    graph = helper.make_graph(
        nodes, "graph", [value("x", 1, ["n", 2])], [value("y", 1, ["n", 2])],
        [helper.make_tensor("w", 1, [2], [0.0, 0.0]), helper.make_tensor("there", TensorProto.BOOL, [], [True])],
    )  # fmt: skip
    more = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    return [with_metadata(STAMP | {OUTPUTS: tree}).SerializeToString(), more.SerializeToString()]


@st.composite
def other_bytes(draw: Any, files: list[bytes]) -> bytes:
    """A file with a few bytes changed, removed or put in, or cut off; at times any bytes at all."""
    if draw(st.integers(0, 20)) == 0:
        return draw(st.binary(max_size=200))
    data = bytearray(draw(st.sampled_from(files)))
    for _ in range(draw(st.integers(1, 5))):
        at = draw(st.integers(0, max(0, len(data) - 1)))
        action = draw(st.sampled_from(["set", "bit", "drop", "put", "copy"]))
        if action == "set":
            data[at : at + 1] = bytes([draw(st.integers(0, 255))])
        elif action == "bit" and data:
            data[at] ^= 1 << draw(st.integers(0, 7))
        elif action == "drop":
            del data[at : at + draw(st.integers(1, 8))]
        elif action == "put":
            data[at:at] = draw(st.binary(max_size=4))
        else:
            start = draw(st.integers(0, max(0, len(data) - 1)))
            data[at:at] = data[start : start + draw(st.integers(1, 16))]
    return bytes(data)


def main(reader: str, examples: str, number: str, folder: str) -> None:
    faulthandler.enable()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    last, count = Path(folder) / "last.onnx", [0]
    readers = list(READERS.values()) if reader == "all" else [READERS[reader]]

    @seed(int(number))
    @settings(
        max_examples=int(examples),
        deadline=None,
        database=None,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(other_bytes(whole()))
    def check(data: bytes) -> None:
        count[0] += 1
        last.write_bytes(data)
        (last.parent / "count").write_text(str(count[0]))
        for read in readers:
            with contextlib.suppress(onnxpatch.OnnxpatchError):
                read(last)

    check()


if __name__ == "__main__":
    main(*sys.argv[1:])

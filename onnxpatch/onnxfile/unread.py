"""Changing an ONNX file in place without reading its weights: saving it, and removing what nothing reads."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onnxpatch.onnxfile.graph import all_nodes
from onnxpatch.onnxfile.mapped_weights import is_large, take_in, without_weights

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto


def drop_unread(graph: GraphProto) -> None:
    """Take out nodes that nothing reads any more, and what is said or stored for their values alone."""
    wanted = {one.name for one in graph.output}
    kept: list[NodeProto] = []
    for node in reversed(graph.node):
        if wanted.intersection(node.output):
            kept.append(node)
            wanted.update(_read_by(node))
    left = {name for node in kept for name in node.output}
    dropped = [node for node in graph.node if not left.intersection(node.output)]
    gone = {name for node in dropped for name in node.output}
    idle = {name for node in dropped for name in node.input} - wanted - {one.name for one in graph.input}
    _drop(graph.value_info, gone)
    _drop(graph.initializer, idle)
    nodes = list(reversed(kept))
    del graph.node[:]
    graph.node.extend(nodes)


def _drop(repeated: Any, names: set[str]) -> None:
    for place in reversed(range(len(repeated))):
        if repeated[place].name in names:
            del repeated[place]


def _read_by(node: NodeProto) -> set[str]:
    """The values that a node and its inner graphs read."""
    inner = (one for attribute in node.attribute if attribute.HasField("g") for one in all_nodes(attribute.g))
    return {name for one in (node, *inner) for name in one.input}


@contextlib.contextmanager
def edited(file: str | os.PathLike[str]) -> Iterator[ModelProto]:
    """Gives the block the file's ModelProto to change; writes it back at the end, but not if the block raises.

    Weights in a file beside it (external data) are neither read nor written.
    """
    import onnx

    if is_large(file):
        path = Path(file)
        proto, small = onnx.load_from_string(without_weights(path)), path.with_name(f"{path.name}.edited")
        yield proto
        small.write_bytes(proto.SerializeToString())
        # The weights go from the old file into the new one, a piece at a time, and the new one takes its name.
        take_in(small, path.name)
        os.replace(small, path)
        return
    proto = onnx.load(os.fspath(file), load_external_data=False)
    yield proto
    onnx.save(proto, os.fspath(file))

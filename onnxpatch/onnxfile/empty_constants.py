"""Makes weights without elements while the graph runs: OpenVINO reads such a constant as one with an element.

A transformer without class tokens has such a weight, (1, 0, 32). onnxruntime folds the node into a constant again.
"""

from __future__ import annotations

import os

from onnxpatch.onnxfile.unread import edited


def write_as_nodes(file: str | os.PathLike[str]) -> None:
    """Replace every weight of two dimensions or more that has no element by a ConstantOfShape."""
    import onnx

    with edited(file) as proto:
        graph = proto.graph
        empty = [one for one in graph.initializer if len(one.dims) > 1 and 0 in one.dims]
        for one in reversed(empty):
            graph.initializer.remove(one)
            sizes = onnx.helper.make_tensor("", onnx.TensorProto.INT64, [len(one.dims)], one.dims)
            shape = f"{one.name}_shape"
            filling = onnx.helper.make_tensor("", one.data_type, [1], [0])
            made = onnx.helper.make_node("ConstantOfShape", [shape], [one.name], name=f"{one.name}_made", value=filling)
            # In front: any node may read it.
            graph.node.insert(0, made)
            graph.node.insert(0, onnx.helper.make_node("Constant", [], [shape], name=shape, value=sizes))

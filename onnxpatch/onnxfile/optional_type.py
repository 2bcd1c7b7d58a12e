"""ONNX's own optional type in place of a value and its flag, for outputs whose author asked for `form="onnx"`."""

from __future__ import annotations

import os
from typing import Any

from onnxpatch.onnxfile import output_structure
from onnxpatch.onnxfile.editing import edited


def wants_optionals(tree: output_structure.Tree) -> bool:
    """Whether a structure has outputs marked so: files without are not read for it."""
    return any(leaf.get("form") == "onnx" for leaf in output_structure.leaves(tree))


def write_optionals(file: str | os.PathLike[str]) -> None:
    """Turn the outputs marked so in a file's structure into `optional(tensor)`.

    The value and its flag go into an If whose branches give the value or nothing. Needs opset 16 or later.
    """
    with edited(file) as proto:
        outputs = [output.name for output in proto.graph.output]
        tree = output_structure.read({entry.key: entry.value for entry in proto.metadata_props}, outputs)
        assert tree is not None, "name_outputs wrote it"
        for leaf in output_structure.leaves(tree):
            if leaf.get("form") == "onnx" and "flag" in leaf:
                _join(proto.graph, leaf)
        output_structure.note(proto, tree)


def _join(graph: Any, leaf: output_structure.Tree) -> None:
    from onnx import helper

    name, flag, present = leaf["name"], leaf.pop("flag"), leaf.pop("present")
    value = f"{name}_value"
    output_structure.rename_outputs(graph, {name: value})
    outputs = {output.name: output for output in graph.output}
    kind = helper.make_optional_type_proto(outputs[value].type)
    there, gone = _branch("there", kind, [value]), _branch("gone", kind, [], type=outputs[value].type)
    sides = (there, gone) if present else (gone, there)
    graph.node.append(helper.make_node("If", [flag], [name], then_branch=sides[0], else_branch=sides[1]))
    kept = [output for output in graph.output if output.name != flag]
    joined = [helper.make_value_info(name, kind) if output.name == value else output for output in kept]
    del graph.output[:]
    graph.output.extend(joined)


def _branch(name: str, kind: Any, inputs: list[str], **attributes: Any) -> Any:
    from onnx import helper

    node = helper.make_node("Optional", inputs, [name], **attributes)
    return helper.make_graph([node], f"{name}_branch", [], [helper.make_value_info(name, kind)])

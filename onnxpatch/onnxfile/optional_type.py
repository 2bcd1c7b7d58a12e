"""Outputs of ONNX's optional type, for `optional_output(form="onnx")`.

The exporters write an optional output as two: the value, and a bool that says whether it is there. This turns the two
into one `optional(tensor)`, by an If on the flag whose branches are `Optional(value)` and an empty `Optional()`.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from onnxpatch.onnxfile import output_structure
from onnxpatch.onnxfile.unread import edited

if TYPE_CHECKING:
    from onnx import GraphProto, TypeProto


def wants_optionals(tree: output_structure.Tree) -> bool:
    """Whether any output asks for the optional type."""
    return any(leaf.get("form") == "onnx" for leaf in output_structure.leaves(tree))


def write_optionals(file: str | os.PathLike[str]) -> None:
    """Change a file in place: outputs that ask for it become `optional(tensor)`, and lose their flag.

    The file must have its structure in the metadata already. The graph needs opset 16 or later.
    """
    with edited(file) as proto:
        outputs = [output.name for output in proto.graph.output]
        tree = output_structure.read({entry.key: entry.value for entry in proto.metadata_props}, outputs)
        assert tree is not None, "the output structure is written first"
        for leaf in output_structure.leaves(tree):
            if leaf.get("form") == "onnx" and "flag" in leaf:
                _join(proto.graph, leaf)
        output_structure.write_metadata(proto, tree)


def _join(graph: GraphProto, leaf: output_structure.Tree) -> None:
    """Replace the outputs of a value and its flag by one optional output with the value's name."""
    from onnx import helper

    name, flag, present = leaf["name"], leaf.pop("flag"), leaf.pop("present")
    value = f"{name}_value"
    output_structure.rename_outputs(graph, {name: value})
    outputs = {output.name: output for output in graph.output}
    kind = helper.make_optional_type_proto(outputs[value].type)
    full, empty = _branch("full", kind, [value]), _branch("empty", kind, [], element=outputs[value].type)
    # A flag may say that the value is there, or that it is to be ignored.
    sides = (full, empty) if present else (empty, full)
    graph.node.append(helper.make_node("If", [flag], [name], then_branch=sides[0], else_branch=sides[1]))
    rest = [output for output in graph.output if output.name != flag]
    joined = [helper.make_value_info(name, kind) if output.name == value else output for output in rest]
    del graph.output[:]
    graph.output.extend(joined)


def _branch(name: str, kind: TypeProto, inputs: list[str], element: TypeProto | None = None) -> GraphProto:
    """A branch of the If with one Optional node; `element` says of which type, where there is no input to tell."""
    from onnx import helper

    node = helper.make_node("Optional", inputs, [name], **({} if element is None else {"type": element}))
    return helper.make_graph([node], f"{name}_branch", [], [helper.make_value_info(name, kind)])

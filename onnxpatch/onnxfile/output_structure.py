"""The structure of a model's output as plain data, written into the ONNX file's metadata and read back from it.

A graph has a flat list of outputs; a model may return `{"boxes": b, "aux": (m, None), "n": 3}`. The metadata key
`onnxpatch.outputs` says, in JSON, how the one is put together from the other:

    {"kind": "dict", "items": {
        "boxes": {"kind": "tensor", "name": "boxes"},
        "aux": {"kind": "tuple", "items": [
            {"kind": "tensor", "name": "aux_0"},
            {"kind": "tensor", "name": "aux_1", "flag": "has_aux_1", "present": true}]},
        "n": {"kind": "constant", "value": 3}}}

`Tree` lists the entries of a node. The containers that a model may return are taken apart by `parts` and `at`. The
exporters write an optional output as two: the value, and a bool that says whether it is there. For
`optional_output(form="onnx")`, `write_optionals` turns the two into one `optional(tensor)`, by an If on the flag whose
branches are `Optional(value)` and an empty `Optional()`.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Collection, Hashable, Iterator, Mapping, MutableSequence, Sequence
from typing import TYPE_CHECKING, TypeAlias

from onnxpatch.onnxfile.editing import edited
from onnxpatch.onnxfile.graph import all_graphs, all_nodes, inner_graphs
from onnxpatch.onnxfile.metadata import parse_json
from onnxpatch.onnxfile.tree import Plain, Tree, checked_tree, nodes_of

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto, TypeProto

__all__ = ["KEY", "Tree", "name_leaves", "output_leaves", "read_structure", "rename_outputs", "unused",
           "write_metadata", "write_structure"]  # fmt: skip

KEY = "onnxpatch.outputs"
Path: TypeAlias = tuple[Hashable, ...]
"""Where a value is in a structure: keys, indices and field names from the top."""

_PLAIN = (bool, int, float, str, type(None))
_LONGEST = 200  # characters of an object that is described, not rebuilt


def output_leaves(tree: Tree) -> Iterator[Tree]:
    """The tensor nodes, in the order of the graph's outputs."""
    return (node for node in nodes_of(tree) if node["kind"] == "tensor")


def name_leaves(tree: Tree, names: Sequence[str] = (), used: Collection[str] = ()) -> list[str]:
    """Write `name` and `flag` into every tensor node; returns the graph's output names, each value before its flag.

    names: the user's, for the values in order, or for values and flags. Outputs beyond them are named after their place
    in the structure: `mask`, `aux`, `output_1`. used: names that the graph has already, which are avoided.
    """
    nodes = list(output_leaves(tree))
    # As many names as values and flags together: the user names the flags too.
    with_flags = len(nodes) < len(names) == len(nodes) + sum("present" in leaf for leaf in nodes)
    user_names, taken = iter(names), list(used)
    start = len(taken)
    for leaf in nodes:
        # The hint has done its work: the file has names alone.
        hint = leaf.pop("hint", "output")
        leaf["name"] = next(user_names, None) or unused(hint, taken)
        taken.append(leaf["name"])
        if "present" in leaf:
            default = f"has_{leaf['name']}" if leaf["present"] else f"{leaf['name']}_is_ignored"
            leaf["flag"] = next(user_names) if with_flags else unused(default, taken)
            taken.append(leaf["flag"])
    return taken[start:]


def unused(name: str, taken: Collection[str]) -> str:
    """The name, or with a number after it, so that it is not among those taken."""
    number, candidate = 1, name
    while candidate in taken:
        number, candidate = number + 1, f"{name}_{number}"
    return candidate


def write_structure(proto: ModelProto, tree: Tree, names: Sequence[str] = ()) -> None:
    """Name the outputs of a model after the structure, and write the structure into its metadata.

    names: the user's, as `name_leaves` takes them. Raises ValueError where structure or names do not fit the graph.
    """
    _tell_apart(proto.graph)
    before = [output.name for output in proto.graph.output]
    after = name_leaves(tree, names, _value_names(proto.graph) - set(before))
    if len(after) != len(before):
        raise ValueError(f"the graph has {len(before)} outputs, its structure {len(after)}")
    changed = {old: new for old, new in zip(before, after, strict=True) if old != new}
    if not set(changed.values()).isdisjoint(before):  # in two steps: two outputs may swap their names
        temporary = {old: f"onnxpatch.{number}" for number, old in enumerate(changed)}
        rename_outputs(proto.graph, temporary)
        changed = {temporary[old]: new for old, new in changed.items()}
    rename_outputs(proto.graph, changed)
    write_metadata(proto, tree)


def _tell_apart(graph: GraphProto) -> None:
    """Give each output a value of its own: a model may return one tensor twice."""
    import onnx

    # ONNX allows no name twice among the outputs.
    seen: set[str] = set()
    for number, output in enumerate(graph.output):
        if output.name in seen:
            other = unused(f"{output.name}_again_{number}", seen | _value_names(graph))
            graph.node.append(onnx.helper.make_node("Identity", [output.name], [other]))
            output.name = other
        seen.add(output.name)


def write_metadata(proto: ModelProto, tree: Tree) -> None:
    """Write the structure into the metadata, in place of an earlier one."""
    from onnx import helper

    kept = {entry.key: entry.value for entry in proto.metadata_props}
    helper.set_model_props(proto, {**kept, KEY: json.dumps(tree)})


def _value_names(graph: GraphProto) -> set[str]:
    """Every name of a value in a graph."""
    names = {name for node in graph.node for name in (*node.output, *names_in_subgraphs(node))}
    return names | {value.name for value in (*graph.input, *graph.initializer)}


def rename_outputs(graph: GraphProto, names: Mapping[str, str]) -> None:
    """Rename outputs of a graph in place. names: old -> new; outputs that are not in it keep theirs.

    The value itself is renamed where a node computes it. Where it is an input or an initializer, or a subgraph reads
    it, an Identity node is added instead: renaming would change the model's interface, or break the subgraph.
    Raises ValueError where the graph has the new name already.
    """
    import onnx

    if all(names.get(output.name, output.name) == output.name for output in graph.output):
        return
    computed = {name for node in graph.node for name in node.output}
    used = _value_names(graph)
    for output in graph.output:
        old, new = output.name, names.get(output.name, output.name)
        if old == new:
            continue
        if new in used:
            raise ValueError(f"the graph has a value called {new!r} already: choose other output names")
        if old in computed and old not in {name for node in graph.node for name in names_in_subgraphs(node)}:
            for node in graph.node:
                _replace_name(node.output, old, new)
                _replace_name(node.input, old, new)
        else:
            graph.node.append(onnx.helper.make_node("Identity", [old], [new]))
        output.name = new


def _replace_name(names: MutableSequence[str], old: str, new: str) -> None:
    for index, name in enumerate(names):
        if name == old:
            names[index] = new


def names_in_subgraphs(node: NodeProto) -> Iterator[str]:
    """The names that the subgraphs of a node read or return."""
    for graph in inner_graphs(node):
        yield from (name for inner in all_nodes(graph) for name in inner.input)
        yield from (output.name for within in all_graphs(graph) for output in within.output)


def read_structure(metadata: Mapping[str, str], outputs: Collection[str]) -> Tree | None:
    """The structure in a file's metadata, or None where onnxpatch wrote none.

    outputs: the names of the graph's outputs. Raises InputError for a structure that `write_structure` does not write.
    """
    return checked_tree(KEY, parse_json(KEY, metadata[KEY]), outputs) if KEY in metadata else None


def parts(value: object) -> Mapping[Hashable, object]:
    """The parts of a container by key, index or field name; empty for other values."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, dict):
        return dict(value)
    if isinstance(value, tuple | list):
        return dict(enumerate(value))
    return {}


def at(output: object, where: Path) -> object:
    """The value at a place; None where the output has no such place."""
    for key in where:
        output = parts(output).get(key)
    return output


def label(container: object, key: Hashable) -> Hashable:
    """What a part is called in the name of an output: a named tuple's parts by their fields."""
    fields: tuple[str, ...] | None = getattr(container, "_fields", None)
    return fields[key] if fields is not None and isinstance(key, int) else key


def name_hint(labels: Path) -> str:
    """A name for the graph's output, from its place: `aux_0` for `["aux"][0]`, `output_1` for `[1]`."""
    named = [str(part) for part in labels if not isinstance(part, int)]
    numbers = [str(part) for part in labels if isinstance(part, int)]
    return "_".join([*(named or ["output"]), *numbers]) or "output"


def constant_node(value: object) -> Tree:
    """The node of a value that is no tensor and no container: it stands in the file as it is."""
    plain: Plain = value if isinstance(value, _PLAIN) else repr(value)
    return {"kind": "constant", "value": plain if len(str(plain)) <= _LONGEST else f"<{type(value).__name__}>"}


def container(like: object, trees: Mapping[Hashable, Tree]) -> Tree:
    """The node of a container. like: an example of its type; trees: the nodes of its parts."""
    name = f"{type(like).__module__}:{type(like).__qualname__}"
    if dataclasses.is_dataclass(like):
        return _named_items("dataclass", trees, name)
    if isinstance(like, dict):
        return _named_items("dict", trees, None)
    fields: Sequence[str] | None = getattr(like, "_fields", None)
    if fields is not None:
        return _named_items("namedtuple", dict(zip(fields, trees.values(), strict=True)), name)
    return {"kind": "tuple" if isinstance(like, tuple) else "list", "items": list(trees.values())}


def _named_items(kind: str, trees: Mapping[Hashable, Tree], class_name: str | None) -> Tree:
    tree: Tree = {"kind": kind, "items": {str(key): inner for key, inner in trees.items()}}
    if kind == "dict" and not all(isinstance(key, str) for key in trees):
        tree["keys"] = [key if isinstance(key, _PLAIN) else str(key) for key in trees]
    return tree if class_name is None else {**tree, "class": class_name}


def wants_optionals(tree: Tree) -> bool:
    """Whether any output asks for the optional type."""
    return any(leaf.get("form") == "onnx" for leaf in output_leaves(tree))


def write_optionals(file: str | os.PathLike[str]) -> None:
    """Change a file in place: outputs that ask for it become `optional(tensor)`, and lose their flag.

    The file must have its structure in the metadata already. The graph needs opset 16 or later.
    """
    with edited(file) as proto:
        outputs = [output.name for output in proto.graph.output]
        tree = read_structure({entry.key: entry.value for entry in proto.metadata_props}, outputs)
        assert tree is not None, "the output structure is written first"
        for leaf in output_leaves(tree):
            if leaf.get("form") == "onnx" and "flag" in leaf:
                _join(proto.graph, leaf)
        write_metadata(proto, tree)


def _join(graph: GraphProto, leaf: Tree) -> None:
    """Replace the outputs of a value and its flag by one optional output with the value's name."""
    from onnx import helper

    name, flag, present = leaf["name"], leaf.pop("flag"), leaf.pop("present")
    value = f"{name}_value"
    rename_outputs(graph, {name: value})
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

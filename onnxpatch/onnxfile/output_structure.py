"""The structure of a model's output as plain data, written into the ONNX file's metadata and read back from it.

Metadata key `onnxpatch.outputs`, JSON: a tree whose nodes have a `kind`. "tensor" has `name` (a graph output) and, if
it may be missing, `flag` (the graph output that says so) and `present` (the flag's value for "there"); "tuple" and
"list" have `items`; "dict", "dataclass" and "namedtuple" have `items` by name and, but for dicts, `class`; a dict whose
keys are not all strings has its `keys`; "constant" has `value`.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from onnxpatch.onnxfile.metadata import parsed
from onnxpatch.onnxfile.tree_check import checked

KEY = "onnxpatch.outputs"
Tree = dict[str, Any]


def leaves(tree: Tree) -> Iterator[Tree]:
    """The tensor nodes, in the order of the graph's outputs."""
    if tree["kind"] == "tensor":
        yield tree
    items = tree.get("items", ())
    for item in items.values() if isinstance(items, dict) else items:
        yield from leaves(item)


def named(tree: Tree, names: Sequence[str] = (), used: Collection[str] = ()) -> list[str]:
    """Give every tensor node its names; returns the names of the graph's outputs, values before their flags.

    names: the user's, for the values in order, or for values and flags; the rest are called after their place: `mask`,
    `aux`, `output_1`. used: names that the graph has already, which are avoided.
    """
    nodes = list(leaves(tree))
    with_flags = len(nodes) < len(names) == len(nodes) + sum("present" in leaf for leaf in nodes)
    given, taken = iter(names), list(used)
    start = len(taken)
    for leaf in nodes:
        hint = leaf.pop("hint", "output")
        leaf["name"] = next(given, None) or _unused(hint, taken)
        taken.append(leaf["name"])
        if "present" in leaf:
            spelled = f"has_{leaf['name']}" if leaf["present"] else f"{leaf['name']}_is_ignored"
            leaf["flag"] = next(given) if with_flags else _unused(spelled, taken)
            taken.append(leaf["flag"])
    return taken[start:]


def _unused(name: str, taken: Sequence[str]) -> str:
    number, found = 1, name
    while found in taken:
        number, found = number + 1, f"{name}_{number}"
    return found


def write(proto: Any, tree: Tree, names: Sequence[str] = ()) -> None:
    """Name the outputs of an onnx.ModelProto after the structure and put the structure into its metadata."""
    have = [output.name for output in proto.graph.output]
    wanted = named(tree, names, _names_of(proto.graph) - set(have))
    if len(wanted) != len(have):
        raise ValueError(f"the graph has {len(have)} outputs, its structure {len(wanted)}")
    changed = {old: new for old, new in zip(have, wanted, strict=True) if old != new}
    between = {old: f"onnxpatch.{number}" for number, old in enumerate(changed)}  # names may change places
    rename_outputs(proto.graph, between)
    rename_outputs(proto.graph, {between[old]: new for old, new in changed.items()})
    note(proto, tree)


def note(proto: Any, tree: Tree) -> None:
    """Put the structure into the metadata."""
    props = [entry for entry in proto.metadata_props if entry.key != KEY]
    del proto.metadata_props[:]
    proto.metadata_props.extend(props)
    proto.metadata_props.add(key=KEY, value=json.dumps(tree))


def _names_of(graph: Any) -> set[str]:
    """Every name of a value in a graph."""
    found = {name for node in graph.node for name in (*node.output, *_inner_inputs(node))}
    return found | {value.name for value in (*graph.input, *graph.initializer)}


def rename_outputs(graph: Any, names: Mapping[str, str]) -> None:
    """Rename graph outputs; one that is an input, an initializer or inside a subgraph's reach gets an Identity."""
    import onnx

    made = {name for node in graph.node for name in node.output}
    used = _names_of(graph)
    for output in graph.output:
        old, new = output.name, names.get(output.name, output.name)
        if old == new:
            continue
        if new in used:
            raise ValueError(f"the graph has a value called {new!r} already: choose other output names")
        if old in made and old not in {name for node in graph.node for name in _inner_inputs(node)}:
            for node in graph.node:
                _swap(node.output, old, new)
                _swap(node.input, old, new)
        else:
            graph.node.append(onnx.helper.make_node("Identity", [old], [new]))
        output.name = new


def _swap(names: Any, old: str, new: str) -> None:
    for index, name in enumerate(names):
        if name == old:
            names[index] = new


def _inner_inputs(node: Any) -> Iterator[str]:
    """Names that the subgraphs of a node use."""
    for attribute in node.attribute:
        for inner in attribute.g.node if attribute.HasField("g") else ():
            yield from inner.input
            yield from _inner_inputs(inner)
        if attribute.HasField("g"):
            yield from (output.name for output in attribute.g.output)


def read(metadata: Mapping[str, str], outputs: Collection[str]) -> Tree | None:
    """The structure in a file's metadata, or None where the kit wrote none.

    outputs: the names of the graph's outputs. Raises InputError for a structure that `write` cannot have written.
    """
    return checked(KEY, parsed(KEY, metadata[KEY]), outputs) if KEY in metadata else None

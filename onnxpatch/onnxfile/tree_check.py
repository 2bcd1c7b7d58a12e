"""Checks the output structure in a file's metadata before anything is built from it: the file may come from anywhere.

Checked: the kind of every node, the entries that the kind needs and their types, that tensors name outputs of the
graph, and the depth. A class is only a name here; `rebuild.Classes` decides what it may mean.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TypeAlias, cast

from onnxpatch.onnxfile.metadata import Json, damaged
from onnxpatch.onnxfile.tree import Tree

_DEEPEST = 100  # levels: far more than any model's output, and below Python's recursion limit
_PLAIN = (bool, int, float, str, type(None))
_Node: TypeAlias = dict[str, Json]


def checked_tree(key: str, tree: Json, outputs: Collection[str]) -> Tree:
    """`tree` itself, if it is a structure as `Tree` documents it and names only these outputs of the graph.

    key: the metadata key, for messages. Raises InputError that says what is wrong and where.
    """
    _check_node(key, tree, frozenset(outputs), "output", 0)
    return cast(Tree, tree)


def _check_node(key: str, node: Json, outputs: frozenset[str], where: str, depth: int) -> None:
    if depth > _DEEPEST:
        raise damaged(key, f"it is nested more than {_DEEPEST} levels deep")
    kind = node.get("kind") if isinstance(node, dict) else None
    check = _CHECKS.get(kind) if isinstance(kind, str) else None
    if check is None or not isinstance(node, dict):
        raise damaged(key, f"{where} is of no known kind")
    leaf = kind in ("tensor", "constant")
    problem = "a leaf has no items" if leaf and "items" in node else check(node, outputs)
    if problem:
        raise damaged(key, f"{where}: {problem}")
    for name, item in _children(node):
        # The end of the place is enough: a file may have names of megabytes.
        _check_node(key, item, outputs, f"{where[-60:]}[{name!r}]", depth + 1)


def _children(node: _Node) -> Iterator[tuple[str | int, Json]]:
    items = node.get("items")
    if isinstance(items, dict):
        yield from items.items()
    elif isinstance(items, list):
        yield from enumerate(items)


# Each check of a kind returns what is wrong with a node, "" where it is right.


def _tensor(node: _Node, outputs: frozenset[str]) -> str:
    for entry in ("name", "flag") if "flag" in node else ("name",):
        output = node.get(entry)
        if not isinstance(output, str) or output not in outputs:
            # Only strings are shown: what is nested may be too deep to be printed.
            shown = repr(output[:60]) if isinstance(output, str) else f"(a {type(output).__name__})"
            return f"its {entry} {shown} is not an output of the graph"
    if ("flag" in node) != ("present" in node) or not isinstance(node.get("present", True), bool):
        return "it must have both flag and present, or neither, and present must be true or false"
    return ""


def _constant(node: _Node, outputs: frozenset[str]) -> str:
    return "" if "value" in node and isinstance(node["value"], _PLAIN) else "its value is not a number, string or null"


def _sequence(node: _Node, outputs: frozenset[str]) -> str:
    return "" if isinstance(node.get("items"), list) else "its items are not a list"


def _dict(node: _Node, outputs: frozenset[str]) -> str:
    items, keys = node.get("items"), node.get("keys")
    if not isinstance(items, dict):
        return "its items are not an object"
    if keys is None:
        return ""
    if not isinstance(keys, list) or not all(isinstance(one, _PLAIN) for one in keys):
        return "its keys are not a list of numbers and strings"
    return "" if len(set(keys)) == len(keys) == len(items) else f"its keys do not fit its {len(items)} items"


def _fields(node: _Node, outputs: frozenset[str]) -> str:
    items, cls = node.get("items"), node.get("class")
    if not isinstance(items, dict):
        return "its items are not an object"
    if not isinstance(cls, str):
        return "it has no class"
    wrong = [name for name in items if not name.isidentifier() or name.startswith("__")]
    return f"{wrong[0][:60]!r} is not a name of a field" if wrong else ""


_CHECKS = {
    "tensor": _tensor,
    "constant": _constant,
    "tuple": _sequence,
    "list": _sequence,
    "dict": _dict,
    "dataclass": _fields,
    "namedtuple": _fields,
}

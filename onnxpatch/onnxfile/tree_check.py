"""Checking the structure of outputs that a file's metadata states, before anything is built from it."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from onnxpatch.onnxfile.metadata import damaged

_DEEPEST = 100
_PLAIN = (bool, int, float, str, type(None))


def checked(key: str, tree: Any, outputs: Collection[str]) -> dict[str, Any]:
    """`tree`, where it has the form that `layout` documents and names only these outputs of the graph.

    key: the metadata key, for messages. Raises InputError that says what is wrong and where.
    """
    _node(key, tree, frozenset(outputs), "output", 0)
    found: dict[str, Any] = tree
    return found


def _node(key: str, node: Any, outputs: frozenset[str], where: str, depth: int) -> None:
    if depth > _DEEPEST:
        raise damaged(key, f"it is nested more than {_DEEPEST} levels deep")
    kind = node.get("kind") if isinstance(node, dict) else None
    check = _CHECKS.get(kind) if isinstance(kind, str) else None
    if check is None:
        raise damaged(key, f"{where} is no node with a known kind")
    leaf = kind in ("tensor", "constant")
    problem = "a leaf has no items" if leaf and "items" in node else check(node, outputs)
    if problem:
        raise damaged(key, f"{where}: {problem}")
    for name, item in _children(node):
        _node(key, item, outputs, f"{where[-60:]}[{name!r}]", depth + 1)


def _children(node: dict[str, Any]) -> list[tuple[Any, Any]]:
    items = node.get("items")
    return list(items.items() if isinstance(items, dict) else enumerate(items or ()))


def _tensor(node: dict[str, Any], outputs: frozenset[str]) -> str:
    for entry in ("name", "flag"):
        named = node.get(entry)
        if named is None and entry == "flag":
            continue
        if not isinstance(named, str) or named not in outputs:
            return f"its {entry} {str(named)[:60]!r} is no output of the graph"
    if ("flag" in node) != ("present" in node) or not isinstance(node.get("present", True), bool):
        return "flag and present belong together, and present is true or false"
    return ""


def _constant(node: dict[str, Any], outputs: frozenset[str]) -> str:
    return "" if "value" in node and isinstance(node["value"], _PLAIN) else "its value is no number, string or null"


def _sequence(node: dict[str, Any], outputs: frozenset[str]) -> str:
    return "" if isinstance(node.get("items"), list) else "its items are no list"


def _dict(node: dict[str, Any], outputs: frozenset[str]) -> str:
    items, keys = node.get("items"), node.get("keys")
    if not isinstance(items, dict):
        return "its items are no object"
    if keys is None:
        return ""
    if not isinstance(keys, list) or not all(isinstance(one, _PLAIN) for one in keys):
        return "its keys are no list of numbers and strings"
    return "" if len(set(keys)) == len(keys) == len(items) else f"it has {len(items)} items and other keys"


def _fields(node: dict[str, Any], outputs: frozenset[str]) -> str:
    items, cls = node.get("items"), node.get("class")
    if not isinstance(items, dict):
        return "its items are no object"
    if not isinstance(cls, str):
        return "it names no class"
    wrong = [name for name in items if not name.isidentifier() or name.startswith("__")]
    return f"{wrong[0][:60]!r} is no name of a field" if wrong else ""


_CHECKS = {
    "tensor": _tensor,
    "constant": _constant,
    "tuple": _sequence,
    "list": _sequence,
    "dict": _dict,
    "dataclass": _fields,
    "namedtuple": _fields,
}

"""The containers that a model may return: their parts by key, index or field name, and the nodes that describe them."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Mapping, Sequence
from typing import TypeAlias

from onnxpatch.onnxfile.tree import Plain, Tree

Path: TypeAlias = tuple[Hashable, ...]
"""Where a value is in a structure: keys, indices and field names from the top."""

_PLAIN = (bool, int, float, str, type(None))
_LONGEST = 200  # characters of an object that is described, not rebuilt


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


def constant(value: object) -> Tree:
    """The node of a value that is neither a tensor nor a container: the file has the value itself."""
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

"""Putting a model's outputs together again, from the values of a graph and the structure that its file states.

The structure is data. It chooses between containers that stand here and classes that the caller handed over; it names
nothing that is imported, looked up or called.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from onnxpatch.errors import InputError
from onnxpatch.onnxfile.output_structure import Tree


class Record(tuple):
    """What stands for a dataclass, a named tuple or a transformers ModelOutput: `out.name`, `out["name"]`, `out[0]`.

    A tuple of the fields' values in order, with every field as an attribute too, whatever it is called; `vars(out)` is
    the dict of all.
    """

    def __new__(cls, fields: Mapping[str, Any]) -> Record:
        made = super().__new__(cls, fields.values())
        made.__dict__.update(fields)
        return made

    def __getnewargs__(self) -> tuple[dict[str, Any]]:
        return (dict(self.__dict__),)

    def __getitem__(self, key: Any) -> Any:
        return self.__dict__[key] if isinstance(key, str) else tuple.__getitem__(self, key)

    def __repr__(self) -> str:
        return f"Record({', '.join(f'{name}={value!r}' for name, value in self.__dict__.items())})"


class Classes:
    """The classes that a caller hands over, found by the name that a structure gives.

    Raises InputError for what is neither a dataclass (transformers' ModelOutput is one) nor a named tuple.
    """

    def __init__(self, classes: Iterable[type]) -> None:
        self._classes = list(classes)
        for cls in self._classes:
            if not isinstance(cls, type) or not (dataclasses.is_dataclass(cls) or _is_namedtuple(cls)):
                raise InputError(f"classes: {cls!r} is no dataclass, named tuple or transformers ModelOutput")

    def check(self, tree: Tree) -> None:
        """Raises InputError where a class that the structure names was handed over and has other fields."""
        for node in _nodes(tree):
            if "class" in node and node["kind"] in ("dataclass", "namedtuple"):
                self.find(node)

    def find(self, node: Tree) -> type | None:
        """The class for this node, or None where the caller gave none of that name."""
        module, _, name = node["class"].partition(":")
        last = name.rpartition(".")[2]
        named = [cls for cls in self._classes if cls.__name__ == last]
        named.sort(key=lambda cls: (cls.__module__, cls.__qualname__) != (module, name))
        fitting = [cls for cls in named if _fields_of(cls) == set(node["items"])]
        if named and not fitting:
            raise InputError(
                f"classes: {last} has the fields {', '.join(sorted(_fields_of(named[0])))}, the file's "
                f"{', '.join(sorted(node['items']))}: hand over the class that the model returned at the export"
            )
        return fitting[0] if fitting else None


def _is_namedtuple(cls: type) -> bool:
    fields = getattr(cls, "_fields", None)
    return issubclass(cls, tuple) and isinstance(fields, tuple) and all(isinstance(name, str) for name in fields)


def _fields_of(cls: Any) -> set[str]:
    """Names of the fields that the class is made from."""
    if dataclasses.is_dataclass(cls):
        return {field.name for field in dataclasses.fields(cls) if field.init}
    return set(cls._fields)


def _nodes(tree: Tree) -> Iterator[Tree]:
    yield tree
    items = tree.get("items", ())
    for item in items.values() if isinstance(items, dict) else items:
        yield from _nodes(item)


def rebuilt(tree: Tree, values: Mapping[str, Any], classes: Classes) -> Any:
    """The output as eager returned it, from the graph's outputs by name; None where a flag says so.

    tree: as `tree_check` lets it pass. Raises InputError where a class refuses its fields, or a flag is no bool.
    """
    kind, items = tree["kind"], tree.get("items")
    if kind == "tensor":
        gone = "flag" in tree and _flag(tree["flag"], values[tree["flag"]]) is not tree["present"]
        return None if gone else values[tree["name"]]
    if kind == "constant":
        return tree["value"]
    if kind in ("tuple", "list"):
        found = [rebuilt(item, values, classes) for item in items or ()]
        return tuple(found) if kind == "tuple" else found
    parts = {name: rebuilt(item, values, classes) for name, item in (items or {}).items()}
    if kind == "dict":
        return dict(zip(tree.get("keys") or parts, parts.values(), strict=True))
    cls = classes.find(tree)
    return Record(parts) if cls is None else _made(cls, parts)


def _made(cls: type, parts: dict[str, Any]) -> Any:
    try:
        return cls(**parts)
    except Exception as error:
        raise InputError(f"classes: {cls.__name__} refuses the file's outputs: {error}") from error


def _flag(name: str, value: Any) -> bool:
    import numpy as np

    array = np.asarray(value)
    if array.size != 1 or array.dtype != np.bool_:
        raise InputError(f"the graph's output {name!r} says whether another output is there: it is no single bool")
    return bool(array.reshape(()))

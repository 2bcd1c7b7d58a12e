"""`Tree`: one node of the structure of a model's output, as the metadata has it; and the output put together by it.

The file may come from anywhere. First the structure is checked: the kind of every node, the entries that the kind needs
and their types, that tensors name outputs of the graph, and the depth. Then it only chooses: between the containers
named here, and the classes that the caller gave. No name in it is imported, looked up or called. A dataclass, named
tuple or ModelOutput whose class the caller did not give becomes a `Record`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, SupportsIndex, TypeAlias, TypedDict, cast

from onnxpatch.errors import InputError
from onnxpatch.onnxfile.metadata import Json, damaged

Plain: TypeAlias = bool | int | float | str | None
_Class = TypedDict("_Class", {"class": str}, total=False)  # "class" cannot be written as a name in a class body
_DEEPEST = 100  # levels: far more than any model's output, and below Python's recursion limit
_PLAIN = (bool, int, float, str, type(None))
_Node: TypeAlias = dict[str, Json]


class _Kind(TypedDict):
    kind: str


class Tree(_Kind, _Class, total=False):
    """One node. kind: tensor, constant, tuple, list, dict, dataclass or namedtuple; it decides what else there is.

    tensor: `name`, the graph's output. Where it may be missing: `flag`, the bool output that says so, and `present`,
    the flag's value when the tensor is there. `hint`: the name wanted, until the outputs are named. `form`: "onnx"
    where ONNX's optional type was asked for.
    constant: `value`.
    tuple, list: `items`, a list. dict, dataclass, namedtuple: `items` by name.
    dict: `keys`, where they are not all strings. dataclass, namedtuple: `class`, as `module:qualified.name`.
    """

    name: str
    flag: str
    present: bool
    hint: str
    form: str
    value: Plain
    items: list[Tree] | dict[str, Tree]
    keys: list[Plain]


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


class Record(tuple):
    """An output with named fields whose class is not known: `out.name`, `out["name"]`, `out[0]`.

    It replaces a dataclass, a named tuple or a transformers ModelOutput. It is a tuple of the fields' values in
    order; each field is an attribute too, whatever its name, and `vars(out)` is the dict of all. As in a ModelOutput,
    a field that is None has no place in the tuple; in a named tuple it has.
    """

    def __new__(cls, fields: Mapping[str, object], skip_none: bool = False) -> Record:
        """skip_none: places are counted without the fields that are None, as ModelOutput does."""
        record = super().__new__(cls, (one for one in fields.values() if one is not None or not skip_none))
        record.__dict__.update(fields)
        return record

    def __getnewargs__(self) -> tuple[dict[str, object], bool]:
        fields = dict(self.__dict__)  # copy and pickle make it from the fields, not from a plain tuple
        return fields, len(self) < len(fields)

    def __getitem__(self, key: SupportsIndex | slice | str) -> Any:
        return self.__dict__[key] if isinstance(key, str) else tuple.__getitem__(self, key)

    def __repr__(self) -> str:
        return f"Record({', '.join(f'{name}={value!r}' for name, value in self.__dict__.items())})"


class Classes:
    """The classes that the caller gave for outputs, to be found by the names in a structure.

    Raises InputError for one that is neither a dataclass (transformers' ModelOutput is one) nor a named tuple.
    """

    def __init__(self, classes: Iterable[type]) -> None:
        self._classes = list(classes)
        for cls in self._classes:
            if not isinstance(cls, type) or not (dataclasses.is_dataclass(cls) or _is_namedtuple(cls)):
                raise InputError(f"classes: {cls!r} is not a dataclass, named tuple or transformers ModelOutput")

    def check(self, tree: Tree) -> None:
        """Raise InputError where a class of the structure is among those given, but has other fields."""
        for node in nodes_of(tree):
            if "class" in node and node["kind"] in ("dataclass", "namedtuple"):
                self.find(node)

    def find(self, node: Tree) -> type | None:
        """The class for this node, or None where none of that name was given.

        Found by its bare name, since `__main__` and moved modules change the rest; one from the same module is first.
        Raises InputError where the only classes of that name have other fields.
        """
        module, _, name = node["class"].partition(":")
        last = name.rpartition(".")[2]
        fields = _items_by_name(node).keys()
        named = [cls for cls in self._classes if cls.__name__ == last]
        named.sort(key=lambda cls: (cls.__module__, cls.__qualname__) != (module, name))
        fitting = [cls for cls in named if _fields_of(cls) == fields]
        if named and not fitting:
            raise InputError(
                f"classes: {last} has the fields {', '.join(sorted(_fields_of(named[0])))}, the file's "
                f"{', '.join(sorted(fields))}: give the class that the model returned when it was exported"
            )
        return fitting[0] if fitting else None


def _is_namedtuple(cls: type) -> bool:
    fields = getattr(cls, "_fields", None)
    return issubclass(cls, tuple) and isinstance(fields, tuple) and all(isinstance(name, str) for name in fields)


def _fields_of(cls: type) -> set[str]:
    """The fields that `cls(...)` takes."""
    if dataclasses.is_dataclass(cls):
        return {field.name for field in dataclasses.fields(cls) if field.init}
    return set(getattr(cls, "_fields", ()))


def _items_by_name(tree: Tree) -> dict[str, Tree]:
    items = tree["items"]
    assert isinstance(items, dict), "checked by tree_check"
    return items


def _items(tree: Tree) -> Iterable[Tree]:
    items = tree.get("items", ())
    return items.values() if isinstance(items, dict) else items


def nodes_of(tree: Tree) -> Iterator[Tree]:
    """A tree and all nodes below it, in the order of the graph's outputs."""
    yield tree
    for item in _items(tree):
        yield from nodes_of(item)


def rebuilt(tree: Tree, values: Mapping[str, object], classes: Classes) -> object:
    """The output as eager returned it. An optional tensor whose flag says that it is missing is None.

    tree: one that `checked_tree` has returned. values: the graph's outputs by name.
    Raises InputError where a class raises, or a flag is not a single bool.
    """
    kind = tree["kind"]
    if kind == "tensor":
        missing = "flag" in tree and _flag(tree["flag"], values[tree["flag"]]) is not tree["present"]
        return None if missing else values[tree["name"]]
    if kind == "constant":
        return tree["value"]
    if kind in ("tuple", "list"):
        parts = [rebuilt(item, values, classes) for item in _items(tree)]
        return tuple(parts) if kind == "tuple" else parts
    fields = {name: rebuilt(item, values, classes) for name, item in _items_by_name(tree).items()}
    if kind == "dict":
        # The tree is JSON, whose keys are strings: `keys` has the model's own where these are others.
        return dict(zip(tree.get("keys") or fields, fields.values(), strict=True))
    cls = classes.find(tree)
    return Record(fields, skip_none=kind == "dataclass") if cls is None else _instance(cls, fields)


def _instance(cls: type, fields: dict[str, object]) -> object:
    try:
        return cls(**fields)
    # A class may refuse values in its __post_init__, with any error.
    except Exception as error:
        raise InputError(f"classes: {cls.__name__} raises for the file's outputs: {error}") from error


def _flag(name: str, value: object) -> bool:
    # A sequence or an optional has no dtype.
    dtype, shape = getattr(value, "dtype", None), tuple(getattr(value, "shape", ()))
    if str(dtype) not in ("bool", "torch.bool") or math.prod(shape) != 1:
        found = f"a {type(value).__name__}" if dtype is None else f"of dtype {dtype} and shape {shape}"
        raise InputError(
            f"the graph's output {name!r} is a flag for another output, and must be a single bool; it is {found}: "
            "export the file again"
        )
    return bool(value)

"""`Tree`: one node of the structure of a model's output, as `output_structure` writes it into the metadata."""

from __future__ import annotations

from typing import TypeAlias, TypedDict

Plain: TypeAlias = bool | int | float | str | None


class _Kind(TypedDict):
    kind: str


_Class = TypedDict("_Class", {"class": str}, total=False)  # "class" cannot be written as a name in a class body


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

"""What the nodes of a traced graph say about memory: which give a view of their input, and which write to it.

Both are in the `schema()` of a node: `Tensor(a) self` is shared, `Tensor(a!) self` is written. If that moves, no node
counts as a view or as a write, and writes through views are lost under trace, as in torch's own export.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import torch


def views_made(node: Any) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """(nodes, value) of each tensor that a view gives: one, or the members of its list."""
    if node.output().type().kind() != "ListType":
        yield (node,), node.output()
        return
    for use in node.output().uses():
        if use.user.kind() == "prim::ListUnpack":
            for value in use.user.outputs():
                yield (node, use.user), value


def written_by(node: Any, kind: str) -> Any | None:
    """The value that a node writes to, or None."""
    return node.inputsAt(0) if writes(kind) and _writes_first(node) else None


@functools.cache
def writes(kind: str) -> bool:
    """Whether it is a method such as `add_` or `__iadd__`; those with two underscores are none (`__and__`)."""
    name = kind.removeprefix("aten::")
    return name != kind and (name.startswith("__i") or (name.endswith("_") and not name.endswith("__")))


def _writes_first(node: Any) -> bool:
    return "(Tensor(a!) self" in _schema(node) and node.outputsSize() == 1


def is_view(node: Any) -> bool:
    """Whether what a node returns shares the memory of its first input, at the example."""
    schema = _schema(node)
    if not schema.partition("(")[2].startswith(("Tensor(a) self", "Tensor(a -> *) self")):
        return False
    return bool(node.outputsSize() == 1) and not _is_copy(node)


def _schema(node: Any) -> str:
    try:
        return str(node.schema())
    except RuntimeError:  # a node that torch has no schema of: one of the kit's own
        return ""


# They share memory where the elements lie so that they can.
_EITHER = ("aten::reshape", "aten::flatten", "aten::reshape_as", "aten::contiguous", "aten::to", "aten::type_as",
           "aten::unflatten", "aten::ravel")  # fmt: skip


def _is_copy(node: Any) -> bool:
    if node.kind() not in _EITHER:
        return False
    before, after = node.inputsAt(0).type(), node.output().type()
    if before.dtype() != after.dtype() or None in (before.sizes(), before.strides(), after.sizes()):
        return True
    example = torch.empty_strided(before.sizes(), before.strides(), device="meta")
    if node.kind() == "aten::contiguous":
        return not example.is_contiguous()
    return not example.reshape(after.sizes())._is_view()

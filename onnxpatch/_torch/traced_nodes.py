"""The nodes that `traced_writes` writes into a traced graph: a tensor after a write, and the tensors it is a view of.

Which nodes give a view of their input, and which write to it, is in the `schema()` of a node: `Tensor(a) self` is
shared, `Tensor(a!) self` is written. Nodes are written by the graph of `torch._C._get_tracing_state()`: `create`,
`createClone`, `insertConstant`, types of values. If one of these moves, writes through views are lost under trace, as
they are in torch's own export.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

if TYPE_CHECKING:
    from torch import Graph, Node, Value

# Done twice they change nothing.
_EXCHANGED = ("aten::t", "aten::transpose", "aten::swapaxes", "aten::swapdims", "aten::numpy_T", "aten::mT",
              "aten::adjoint", "aten::mH", "aten::matrix_H")  # fmt: skip
# They keep the elements in their order.
_RESHAPED = ("aten::view", "aten::reshape", "aten::flatten", "aten::unflatten", "aten::unsqueeze", "aten::squeeze",
             "aten::view_as", "aten::reshape_as", "aten::_unsafe_view", "aten::ravel")  # fmt: skip
_KEPT = ("aten::detach", "aten::alias", "aten::contiguous", "aten::to", "aten::type_as", "aten::data")
_TYPES = (("TensorType", "create_from_tensor"), ("TensorType", "get"), ("ListType", "ofInts"), ("IntType", "get"),
          ("NoneType", "get"))  # fmt: skip
# They share memory where the elements lie so that they can.
_EITHER = ("aten::reshape", "aten::flatten", "aten::reshape_as", "aten::contiguous", "aten::to", "aten::type_as",
           "aten::unflatten", "aten::ravel")  # fmt: skip


def can_write() -> bool:
    """Whether torch has all that a new value needs. Asked before: a graph is not left half rewritten."""
    return all(hasattr(getattr(torch._C, kind, None), name) for kind, name in _TYPES)


class View(NamedTuple):
    """How a value is seen through another: `nodes` from `parent` to it, the last one's output of number `place`."""

    parent: Value
    nodes: tuple[Node, ...]
    place: int


class NodeEmitter:
    """Writes nodes into a graph that is being traced."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph

    def after(self, node: Node) -> Node:
        """A node before which others can be written, so that they come after `node`."""
        # Several nodes put after one node would come in reverse order: so a constant that nobody reads marks the place.
        mark = self._graph.create("prim::Constant", [], 1)
        mark.insertAfter(node)
        mark.output().setType(torch._C.NoneType.get())
        return mark

    def written(self, node: Node, before: Value) -> Value:
        """The value that an in-place node writes, where `before` are the elements it writes to."""
        if node.kind() == "aten::copy_":
            return self._copied(node, before)
        # The exporter translates a write into a tensor that shares no memory. So the node writes into a clone.
        none = self._constant(None, node)
        node.replaceInput(0, self._new("aten::clone", [before, none], before, node))
        return node.output()

    def _copied(self, node: Node, before: Value) -> Value:
        source = new = node.inputsAt(1)
        if source.type().dtype() != before.type().dtype():
            new = self._new("aten::type_as", [source, before], source, node, dtype=before.type().dtype())
        new = self._new("aten::expand_as", [new, before], before, node)
        # The node stays, since tensors of the model may be what it returns. Nobody reads it, and it falls away.
        node.replaceInput(0, self._new("aten::clone", [before, self._constant(None, node)], before, node))
        return new

    def seen(self, view: View, parent: Value, place: Node) -> Value:
        """The view anew, of other elements."""
        for number, node in enumerate(view.nodes):
            # Each node reads what the one before it gave. One that unpacks a list gives several: `place` says which.
            clone: Node = self._graph.createClone(node, lambda value: value)  # type: ignore[attr-defined]
            clone.replaceInput(0, parent)
            clone.insertBefore(place)
            parent = clone.outputsAt(view.place if number else 0)
        return parent

    def put_back(self, views: Sequence[View], old: Value, new: Value, place: Node) -> Value:
        """What the last of `views` was taken from, with the elements `new` of the first one and its own (`old`)."""
        if len(views) > 1 or not turned_alone(views[0]):
            return self._scattered(views, old, new, place)
        node, kind = views[0].nodes[0], views[0].nodes[0].kind()
        if kind in _KEPT:
            return new
        if kind in _EXCHANGED:
            turned = self.seen(views[0], new, place)
            turned.setType(_like(old))
            return turned
        if kind in _RESHAPED:
            return self._shaped(new, old, place)
        return self._permuted(new, old, _numbers(node.inputsAt(1)) or (), place)

    def _permuted(self, new: Value, old: Value, order: Sequence[int], place: Node) -> Value:
        # The inverse permutation: where each axis of the owner went.
        whole = [axis % len(order) for axis in order]
        back = self._ints([whole.index(axis) for axis in range(len(order))], place)
        return self._new("aten::permute", [new, back], old, place)

    def _scattered(self, views: Sequence[View], old: Value, new: Value, place: Node) -> Value:
        """By the places of the elements: the views of 0, 1, 2, ..."""
        whole = self._new("aten::numel", [old], None, place)
        whole.setType(torch._C.IntType.get())
        long, none = self._constant(4, place), self._constant(None, place)
        numbers = self._new("aten::arange", [whole, long, none, none, none], old, place, _count(old), torch.int64)
        places = self._shaped(numbers, old, place)
        places.setType(_like(old, dtype=torch.int64))
        for view in reversed(views):
            if view.nodes[0].kind() not in _KEPT:  # which would give them the dtype of the elements
                places = self.seen(view, places, place)
                places.setType(_like(places, dtype=torch.int64))
        flat = self._flat(old, place)
        parts = [flat, self._constant(0, place), self._flat(places, place), self._flat(new, place)]
        return self._shaped(self._new("aten::scatter", parts, flat, place), old, place)

    def _flat(self, value: Value, place: Node) -> Value:
        return self._new("aten::reshape", [value, self._ints([-1], place)], value, place, _count(value))

    def _shaped(self, value: Value, like: Value, place: Node) -> Value:
        size = self._new("aten::size", [like], None, place)
        size.setType(torch._C.ListType.ofInts())
        return self._new("aten::reshape", [value, size], like, place, dtype=value.type().dtype())

    def _ints(self, numbers: Sequence[int], place: Node) -> Value:
        made = self._new("prim::ListConstruct", [self._constant(one, place) for one in numbers], None, place)
        made.setType(torch._C.ListType.ofInts())
        return made

    def _constant(self, value: int | None, place: Node) -> Value:
        node = self._graph.create("prim::Constant", [], 1)
        if value is not None:
            node.i_("value", value)
        node.output().setType(torch._C.NoneType.get() if value is None else torch._C.IntType.get())
        node.insertBefore(place)
        return node.output()

    def _new(
        self,
        kind: str,
        inputs: list[Value],
        like: Value | None,
        place: Node,
        sizes: Sequence[int] | None = None,
        dtype: torch.dtype | None = None,
    ) -> Value:
        """A new node's value. like: what has its dtype and sizes, unless these are given; None for no tensor."""
        node = self._graph.create(kind, inputs, 1)
        node.insertBefore(place)
        if like is not None:
            node.output().setType(_like(like, sizes, dtype))
        return node.output()


def turned_alone(view: View) -> bool:
    """Whether a view has all elements of its parent, so that they are put back without places."""
    node = view.nodes[0]
    if node.kind() == "aten::permute":
        return _numbers(node.inputsAt(1)) is not None
    return node.kind() in (*_KEPT, *_EXCHANGED, *_RESHAPED)


def _like(value: Value, sizes: Sequence[int] | None = None, dtype: torch.dtype | None = None) -> torch._C.TensorType:
    """The type of `value`, with other sizes or another dtype where they are given."""
    kind: Any = value.type()  # a tensor's
    sizes, dtype = kind.sizes() if sizes is None else sizes, dtype or kind.dtype()
    if sizes is None or dtype is None:
        return torch._C.TensorType.get()
    example = torch.empty(sizes, dtype=dtype, device="meta")
    return torch._C.TensorType.create_from_tensor(example).with_device(kind.device())  # type: ignore[attr-defined]


def _count(value: Value) -> list[int] | None:
    """The size of `value` laid out in one axis, at the example."""
    kind: Any = value.type()  # a tensor's
    sizes = kind.sizes()
    return None if sizes is None else [math.prod(sizes)]


def _numbers(value: Value) -> list[int] | None:
    """The list of constants that a value is, or None."""
    found: list[Any] = [one.toIValue() for one in value.node().inputs()]
    return None if None in found else found


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
    return node.inputsAt(0) if is_in_place(kind) and _writes_first(node) else None


@functools.cache
def is_in_place(kind: str) -> bool:
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

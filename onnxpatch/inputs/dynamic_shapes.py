"""`dynamic_shapes` and `dynamic_axes`, in every form torch takes, turned into each other and into named dimensions.

One normal form stands between: for every leaf of the arguments, a dict from axis to what was asked of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.export import Dim

from onnxpatch._torch import pytree
from onnxpatch.errors import InputError
from onnxpatch.inputs.leaves import Inputs, Leaf

AxisSpec = Any  # str | Dim | Dim.AUTO/DYNAMIC/STATIC | int | None
LeafSpec = dict[int, AxisSpec]


def is_hint(spec: AxisSpec) -> bool:
    """Dim.AUTO, Dim.DYNAMIC or Dim.STATIC, with or without bounds."""
    return type(spec).__name__ == "_DimHint"


def is_dynamic(spec: AxisSpec) -> bool:
    if spec is None or isinstance(spec, int):
        return False
    kind = getattr(spec, "type", spec)  # in torch 2.6 a hint is the enum's member itself
    return not (is_hint(spec) and getattr(kind, "name", "") == "STATIC")


def _is_dim(spec: AxisSpec) -> bool:
    """A torch.export.Dim, or one derived from it; not by its class, which in torch 2.6 is a function."""
    return all(hasattr(spec, name) for name in ("__name__", "min", "max"))


# ------------------------------------------------------------------ reading what the user wrote
def read(
    inputs: Inputs,
    dynamic_shapes: Any = None,
    dynamic_axes: Mapping[str, Any] | None = None,
    input_names: Sequence[str] | None = None,
    exporter: str = "dynamo",
    output_names: Collection[str] = (),
) -> list[LeafSpec]:
    """One dict of axis -> spec for every leaf. Raises InputError, naming the argument and what is there instead."""
    if dynamic_shapes is not None and dynamic_axes is not None:
        raise InputError("dynamic_shapes and dynamic_axes were both given: they say the same thing, give one")
    if dynamic_axes is not None:
        return _from_axes(inputs, dynamic_axes, input_names, exporter, output_names)
    return _from_shapes(inputs, dynamic_shapes)


def _from_shapes(inputs: Inputs, dynamic_shapes: Any) -> list[LeafSpec]:
    specs: list[LeafSpec] = []
    by_name = _shapes_by_argument(inputs, dynamic_shapes)
    for argument, value in inputs.arguments.items():
        specs += [_checked(argument, leaf, spec) for leaf, spec in _pair(argument, value, by_name.get(argument))]
    return _in_leaf_order(inputs, specs)


def _in_leaf_order(inputs: Inputs, by_argument: list[LeafSpec]) -> list[LeafSpec]:
    """The signature's order to the order of the flattened (args, kwargs): they differ where kwargs are shuffled."""
    names = list(inputs.arguments)
    in_signature = sorted(inputs.leaves, key=lambda leaf: (_position(names, leaf), leaf.index))
    out: list[LeafSpec] = [{} for _ in inputs.leaves]
    for leaf, spec in zip(in_signature, by_argument, strict=True):
        out[leaf.index] = spec
    return out


def _position(names: list[str], leaf: Leaf) -> int:
    return names.index(leaf.argument) if leaf.argument in names else len(names)


def _shapes_by_argument(inputs: Inputs, dynamic_shapes: Any) -> dict[str, Any]:
    names = list(inputs.arguments)
    if dynamic_shapes is None:
        return {}
    if hasattr(dynamic_shapes, "dynamic_shapes") and not isinstance(dynamic_shapes, dict):
        raise InputError("a ShapesCollection has to be resolved first: give collection.dynamic_shapes(model, args)")
    if isinstance(dynamic_shapes, tuple | list):
        return _from_sequence(inputs, names, dynamic_shapes)
    if not isinstance(dynamic_shapes, Mapping):
        raise InputError(f"dynamic_shapes must be a dict by argument name or a tuple, not {dynamic_shapes!r}")
    spread = _spread_keywords(inputs, dict(dynamic_shapes))
    missing = [name for name in spread if name not in names]
    if missing:
        told = ", ".join(map(repr, missing))
        raise InputError(f"dynamic_shapes names {told}, but the call gives only {', '.join(names) or 'nothing'}")
    return spread


def _from_sequence(inputs: Inputs, names: list[str], dynamic_shapes: Sequence[Any]) -> dict[str, Any]:
    if inputs.variadic in names and len(dynamic_shapes) == len(inputs.args):  # one spec for each of forward's *args
        head = names.index(str(inputs.variadic))
        return {**dict(zip(names[:head], dynamic_shapes, strict=False)), names[head]: tuple(dynamic_shapes[head:])}
    if len(dynamic_shapes) > len(names):
        raise InputError(
            f"dynamic_shapes has {len(dynamic_shapes)} entries, the call gives {len(names)}: {', '.join(names)}"
        )
    return dict(zip(names, dynamic_shapes, strict=False))


def _spread_keywords(inputs: Inputs, shapes: dict[str, Any]) -> dict[str, Any]:
    """forward(**kwargs): the specs may be given flat, as the keywords themselves are."""
    for name, value in inputs.arguments.items():
        if isinstance(value, dict) and value and all(k in inputs.kwargs for k in value) and name not in inputs.kwargs:
            flat = {key: shapes.pop(key) for key in list(shapes) if key in value}
            if flat:
                shapes[name] = {**{key: None for key in value}, **flat}
    return shapes


def _pair(where: str, value: Any, spec: Any) -> Iterator[tuple[Any, Any]]:
    """(leaf value, its spec) along the structure of one argument."""
    children = _children(value)
    if children is None:
        yield value, spec
        return
    for key, child in children:
        yield from _pair(f"{where}[{key!r}]", child, _child_spec(where, children, spec, key))


def _children(value: Any) -> list[tuple[Any, Any]] | None:
    """(key, child) of a container, None for a leaf: dicts by key, everything else that torch registers by position."""
    if isinstance(value, dict) and type(value) in pytree.SUPPORTED_NODES:
        return list(value.items())
    node = pytree.SUPPORTED_NODES.get(pytree._get_node_type(value))
    if node is None:
        return None
    return list(enumerate(node.flatten_fn(value)[0]))


def _child_spec(where: str, children: list[tuple[Any, Any]], spec: Any, key: Any) -> Any:
    if spec is None or (isinstance(spec, Mapping) and not spec):
        return None
    if isinstance(spec, Mapping):
        unknown = [k for k in spec if k not in {k for k, _ in children}]
        if unknown:
            raise InputError(f"dynamic_shapes of {where} names {unknown[0]!r}; it holds {[k for k, _ in children]}")
        return spec.get(key)
    if not isinstance(spec, tuple | list) or len(spec) != len(children):
        raise InputError(f"{where} holds {len(children)} values, its dynamic_shapes is {spec!r}: they must match")
    return spec[[k for k, _ in children].index(key)]


def _checked(where: str, value: Any, spec: Any) -> LeafSpec:
    """The spec of one leaf as a dict, every axis in range and every static size the example's."""
    if spec is None or (isinstance(spec, dict | tuple | list) and not spec):
        return {}
    if not isinstance(value, torch.Tensor):
        raise InputError(f"{where} is {type(value).__name__}, not a tensor: it has no dynamic shape (found {spec!r})")
    axes = dict(enumerate(spec)) if isinstance(spec, tuple | list) else spec
    if not isinstance(axes, Mapping):
        raise InputError(f"the dynamic shape of {where} must be a dict of axis to name, found {spec!r}")
    return {_axis(where, value, axis): _axis_spec(where, value, axis, axes[axis]) for axis in axes}


def _axis(where: str, value: torch.Tensor, axis: Any) -> int:
    if not isinstance(axis, int) or not -value.dim() <= axis < value.dim():
        raise InputError(f"{where} has {value.dim()} dimensions {tuple(value.shape)}; there is no axis {axis!r}")
    return axis % value.dim()


def _axis_spec(where: str, value: torch.Tensor, axis: int, spec: AxisSpec) -> AxisSpec:
    known = spec is None or isinstance(spec, int | str) or is_hint(spec) or _is_dim(spec)
    if not known:
        raise InputError(f"axis {axis} of {where}: {spec!r} is no name, torch.export.Dim, hint, int or None")
    size = value.shape[axis]
    if isinstance(spec, int) and spec != size:
        raise InputError(f"axis {axis} of {where} is declared {spec}, the example has {size}")
    minimum, maximum = bounds(spec)
    if is_dynamic(spec) and (size < minimum or (maximum is not None and size > maximum)):
        raise InputError(f"axis {axis} of {where} is {size} in the example, outside {minimum}..{maximum or ''}")
    return spec


def bounds(spec: AxisSpec) -> tuple[int, int | None]:
    """(minimum, maximum) that a Dim or a hint declares; 1 and None where it says nothing."""
    low, high = getattr(spec, "min", None), getattr(spec, "max", None)
    return _finite(low) or 1, _finite(high)


def _finite(bound: Any) -> int | None:
    try:
        number = int(bound)
    except (TypeError, ValueError, OverflowError, AttributeError):
        return None
    return number if abs(number) < 2**31 else None


# ------------------------------------------------------------------ dynamic_axes
def _from_axes(
    inputs: Inputs,
    dynamic_axes: Mapping[str, Any],
    input_names: Sequence[str] | None,
    exporter: str,
    output_names: Collection[str],
) -> list[LeafSpec]:
    graph = inputs.graph_leaves(exporter)
    given = dict(zip(input_names or (), graph, strict=False))
    out: list[LeafSpec] = [{} for _ in inputs.leaves]
    for name, axes in dynamic_axes.items():
        leaf = given.get(name) or inputs.find(name)
        if leaf is None:
            if name in output_names or (not output_names and input_names is not None and name not in input_names):
                continue  # an output: its shape follows from the inputs
            known = list(dict.fromkeys([*given, *(leaf.name for leaf in graph)]))
            raise InputError(f"dynamic_axes names {name!r}; the inputs are {', '.join(known)}")
        spec = {a: Dim.DYNAMIC for a in axes} if isinstance(axes, tuple | list) else axes
        out[leaf.index] = _checked(name, leaf.value, spec)
    return out


def to_axes(specs: Sequence[LeafSpec], graph: Sequence[Leaf], names: Sequence[str]) -> dict[str, dict[int, str]]:
    """`dynamic_axes` for the TorchScript exporter, by the names of the graph's inputs."""
    axes: dict[str, dict[int, str]] = {}
    for leaf, name in zip(graph, names, strict=True):
        dynamic = {a: dim_name(leaf, a, s) for a, s in specs[leaf.index].items() if is_dynamic(s)}
        if dynamic:
            axes[name] = dynamic
    return axes


def dim_name(leaf: Leaf, axis: int, spec: AxisSpec) -> str:
    """The name that the graph shows for this axis."""
    if isinstance(spec, str):
        return spec
    name = getattr(spec, "__name__", None)
    return str(name) if name and not is_hint(spec) else f"{leaf.name}_dim{axis}"


# ------------------------------------------------------------------ dynamic_shapes for torch.export
def to_shapes(inputs: Inputs, specs: Sequence[LeafSpec]) -> dict[str, Any] | None:
    """`dynamic_shapes` for torch.export: by argument name, complete, in the structure of the arguments."""
    if not any(is_dynamic(s) for spec in specs for s in spec.values()):
        return None
    names = list(inputs.arguments)
    in_signature = sorted(inputs.leaves, key=lambda leaf: (_position(names, leaf), leaf.index))
    pending = iter(specs[leaf.index] for leaf in in_signature)
    return {name: _tree(value, pending) for name, value in inputs.arguments.items()}


def _tree(value: Any, pending: Iterator[LeafSpec]) -> Any:
    children = _children(value)
    if children is None:
        return next(pending) or None
    built = [_tree(child, pending) for _, child in children]
    if isinstance(value, dict):
        return dict(zip(value, built, strict=True))
    return tuple(built) if isinstance(value, tuple) else built

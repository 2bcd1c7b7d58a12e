"""`dynamic_shapes` and `dynamic_axes`, in every form that torch takes, read into one normal form and written from it.

The normal form is a list with a dict for each leaf: axis -> what was asked of it. For `model(x, [a, b])`:

    dynamic_shapes=({0: "n"}, [None, {1: Dim.DYNAMIC}])      read ->  [{0: "n"}, {}, {1: Dim.DYNAMIC}]
    dynamic_axes={"x": {0: "n"}}                             read ->  [{0: "n"}, {}, {}]

`to_shapes` writes it for torch.export (complete, in the structure of the arguments), `to_axes` for the TorchScript
exporter (by the names of the graph's inputs).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from torch.export import Dim

from onnxpatch._torch import pytree
from onnxpatch.errors import InputError
from onnxpatch.inputs.axis_specs import AxisSpec, LeafSpec, bounds, checked_leaf_spec, is_dynamic, is_hint
from onnxpatch.inputs.leaves import Inputs, Leaf
from onnxpatch.inputs.opened_objects import spread_shapes

__all__ = ["AxisSpec", "LeafSpec", "ShapesSpec", "bounds", "dim_name", "is_dynamic", "is_hint", "read_shapes",
           "to_axes", "to_shapes"]  # fmt: skip

# `dynamic_shapes` as the user writes it: None, or dicts and sequences in the structure of the arguments, the innermost
# of which are the axes of a tensor. Users get it wrong in every way, so each level is checked where it is read.
ShapesSpec: TypeAlias = object
AxesSpec: TypeAlias = Mapping[str, Mapping[int, str] | Sequence[int]]


# ------------------------------------------------------------------ reading what the user wrote
def read_shapes(
    inputs: Inputs,
    dynamic_shapes: ShapesSpec = None,
    dynamic_axes: AxesSpec | None = None,
    input_names: Sequence[str] | None = None,
    exporter: str = "dynamo",
    output_names: Collection[str] = (),
) -> list[LeafSpec]:
    """The normal form: a dict of axis -> spec for every leaf.

    input_names, exporter: needed for `dynamic_axes`, which goes by the names of the graph's inputs.
    output_names: names in `dynamic_axes` that are outputs, and are passed over.
    Raises InputError that names the argument and says what is wrong there.
    """
    if dynamic_shapes is not None and dynamic_axes is not None:
        raise InputError("dynamic_shapes and dynamic_axes were both given, and say the same thing: give one of them")
    if dynamic_axes is not None:
        return _from_axes(inputs, dynamic_axes, input_names, exporter, output_names)
    return _from_shapes(inputs, dynamic_shapes)


def _from_shapes(inputs: Inputs, dynamic_shapes: ShapesSpec) -> list[LeafSpec]:
    specs: list[LeafSpec] = []
    by_name = _shapes_by_argument(inputs, dynamic_shapes)
    if inputs.has_objects:
        given = inputs.given_arguments
        by_name = {name: spread_shapes(name, given.get(name), spec) for name, spec in by_name.items()}
    for argument, value in inputs.arguments.items():
        pairs = _leaves_with_specs(argument, value, by_name.get(argument))
        specs += [checked_leaf_spec(argument, leaf, spec) for leaf, spec in pairs]
    return _in_leaf_order(inputs, specs)


def _in_leaf_order(inputs: Inputs, by_argument: list[LeafSpec]) -> list[LeafSpec]:
    """The specs reordered from the signature's order to that of the flattened (args, kwargs).

    The two differ where keyword arguments are given in another order than forward declares them.
    """
    specs: list[LeafSpec] = [{} for _ in inputs.leaves]
    for leaf, spec in zip(inputs.in_signature_order(), by_argument, strict=True):
        specs[leaf.index] = spec
    return specs


def _shapes_by_argument(inputs: Inputs, dynamic_shapes: ShapesSpec) -> dict[str, ShapesSpec]:
    names = list(inputs.arguments)
    if dynamic_shapes is None:
        return {}
    if hasattr(dynamic_shapes, "dynamic_shapes") and not isinstance(dynamic_shapes, dict):
        raise InputError(
            "dynamic_shapes is a ShapesCollection: resolve it first, and give collection.dynamic_shapes(model, args)"
        )
    if isinstance(dynamic_shapes, tuple | list):
        return _from_sequence(inputs, names, dynamic_shapes)
    if not isinstance(dynamic_shapes, Mapping):
        raise InputError(f"dynamic_shapes must be a dict by argument name or a tuple, not {dynamic_shapes!r}")
    spread = _spread_keywords(inputs, dict(dynamic_shapes))
    if missing := [name for name in spread if name not in names]:
        raise InputError(_misnamed(inputs, dynamic_shapes, missing))
    return spread


def _misnamed(inputs: Inputs, dynamic_shapes: Mapping[Any, ShapesSpec], missing: Sequence[object]) -> str:
    """What to write in place of keys that are no arguments: axes, parts of an argument, or other names."""
    names = list(inputs.arguments)
    if all(isinstance(axis, int) for axis in dynamic_shapes):
        return (
            f"dynamic_shapes={dynamic_shapes!r} does not say of which argument these axes are: write "
            f"({dynamic_shapes!r},) for the first argument, or {{{names[0] if names else 'x'!r}: {dynamic_shapes!r}}}"
        )
    said = f"dynamic_shapes names {', '.join(map(repr, missing))}, but the call gives only "
    for name, value in inputs.arguments.items():
        if isinstance(value, Mapping) and all(part in value for part in missing):
            return f"{said}{', '.join(names)}: write {{{name!r}: {dynamic_shapes!r}}}"
    return said + (", ".join(names) or "nothing")


def _from_sequence(inputs: Inputs, names: list[str], dynamic_shapes: Sequence[ShapesSpec]) -> dict[str, ShapesSpec]:
    head = names.index(str(inputs.variadic)) if inputs.variadic in names else len(names)
    flat = head < len(names) and len(dynamic_shapes) == len(inputs.args)  # one spec for each of forward's *args
    # With one value, torch's own form, `(({0: "n"},),)`, has as many entries.
    if flat and not (len(inputs.args) == head + 1 and _is_nested(inputs.args[head], dynamic_shapes[head])):
        # torch.export wants them as one tuple, under the name of `*args`.
        return {**dict(zip(names[:head], dynamic_shapes, strict=False)), names[head]: tuple(dynamic_shapes[head:])}
    if len(dynamic_shapes) > len(names):
        raise InputError(
            f"dynamic_shapes has {len(dynamic_shapes)} entries, the call gives {len(names)}: {', '.join(names)}"
        )
    return dict(zip(names, dynamic_shapes, strict=False))


def _is_nested(value: object, spec: ShapesSpec) -> bool:
    """Whether `spec` is a tuple around the spec of this one value, and not its own."""
    if not isinstance(spec, tuple | list) or len(spec) != 1:
        return False
    children = _children(value)
    # Axes are names or numbers: a dict, or a sequence, is a whole spec.
    if children is None:
        return isinstance(spec[0], Mapping | tuple | list)
    if isinstance(value, Mapping):
        return isinstance(spec[0], Mapping) and value.keys() >= spec[0].keys()
    return len(children) != 1 or _is_nested(children[0][1], spec[0])


def _spread_keywords(inputs: Inputs, shapes: dict[str, ShapesSpec]) -> dict[str, ShapesSpec]:
    """For forward(**kwargs): specs that are given flat, as the keywords are, moved below the name `kwargs`."""
    for name, value in inputs.arguments.items():
        if isinstance(value, dict) and value and all(k in inputs.kwargs for k in value) and name not in inputs.kwargs:
            flat = {key: shapes.pop(key) for key in list(shapes) if key in value}
            if flat:
                # torch.export wants an entry for every keyword.
                shapes[name] = {**{key: None for key in value}, **flat}
    return shapes


def _leaves_with_specs(where: str, value: object, spec: ShapesSpec) -> Iterator[tuple[object, object]]:
    """(leaf value, its spec) for every leaf of one argument."""
    children = _children(value)
    if children is None:
        yield value, spec
        return
    for key, child in children:
        yield from _leaves_with_specs(f"{where}[{key!r}]", child, _child_spec(where, children, spec, key))


def _children(value: object) -> list[tuple[object, object]] | None:
    """(key, child) for the children of a container; None for a leaf.

    Dicts go by key; everything else that is registered with torch's pytree goes by position.
    """
    if isinstance(value, dict) and type(value) in pytree.SUPPORTED_NODES:  # OrderedDict and defaultdict too
        return list(value.items())
    node = pytree.SUPPORTED_NODES.get(pytree._get_node_type(value))
    if node is None:
        return None
    return list(enumerate(node.flatten_fn(value)[0]))


def _child_spec(where: str, children: list[tuple[object, object]], spec: ShapesSpec, key: object) -> ShapesSpec:
    if spec is None or (isinstance(spec, Mapping) and not spec):
        return None
    if isinstance(spec, Mapping):
        unknown = [k for k in spec if k not in {k for k, _ in children}]
        if unknown:
            raise InputError(f"dynamic_shapes of {where} names {unknown[0]!r}; it has {[k for k, _ in children]}")
        return spec.get(key)
    if not isinstance(spec, tuple | list) or len(spec) != len(children):
        raise InputError(
            f"{where} has {len(children)} values, its dynamic_shapes is {spec!r}: give one entry for each value"
        )
    return spec[[k for k, _ in children].index(key)]


# ------------------------------------------------------------------ dynamic_axes, read and written
def _from_axes(
    inputs: Inputs,
    dynamic_axes: AxesSpec,
    input_names: Sequence[str] | None,
    exporter: str,
    output_names: Collection[str],
) -> list[LeafSpec]:
    graph = inputs.graph_leaves(exporter)
    by_input_name = dict(zip(input_names or (), graph, strict=False))
    specs: list[LeafSpec] = [{} for _ in inputs.leaves]
    for name, axes in dynamic_axes.items():
        # The user's names first; an argument's own name is what torch gives it without any.
        leaf = by_input_name.get(name) or inputs.find(name)
        if leaf is None:
            if name in output_names or (not output_names and input_names is not None and name not in input_names):
                continue  # an output: its shape follows from the inputs
            known = list(dict.fromkeys([*by_input_name, *(leaf.name for leaf in graph)]))
            raise InputError(f"dynamic_axes names {name!r}; the inputs are {', '.join(known)}")
        # A list of axes gives no names to them.
        spec = {a: Dim.DYNAMIC for a in axes} if isinstance(axes, tuple | list) else axes
        specs[leaf.index] = checked_leaf_spec(name, leaf.value, spec)
    return specs


def to_axes(specs: Sequence[LeafSpec], graph: Sequence[Leaf], names: Sequence[str]) -> dict[str, dict[int, str]]:
    """`dynamic_axes` for the TorchScript exporter. graph, names: the graph's inputs and their names, in order."""
    axes: dict[str, dict[int, str]] = {}
    for leaf, name in zip(graph, names, strict=True):
        dynamic = {a: dim_name(leaf, a, s) for a, s in specs[leaf.index].items() if is_dynamic(s)}
        if dynamic:
            axes[name] = dynamic
    return axes


def dim_name(leaf: Leaf, axis: int, spec: AxisSpec) -> str:
    """The name of this axis in the graph: the user's, or `x_dim0`."""
    if isinstance(spec, str):
        return spec
    name = getattr(spec, "__name__", None)
    return str(name) if name and not is_hint(spec) else f"{leaf.name}_dim{axis}"


# ------------------------------------------------------------------ dynamic_shapes, written for torch.export
def to_shapes(inputs: Inputs, specs: Sequence[LeafSpec]) -> dict[str, object] | None:
    """`dynamic_shapes` for torch.export: by argument name, in the structure of the arguments; None if all is static."""
    if not any(is_dynamic(s) for spec in specs for s in spec.values()):
        return None
    # torch.export reads dynamic_shapes by the parameters of forward, in their order.
    pending = iter(specs[leaf.index] for leaf in inputs.in_signature_order())
    return {name: _in_structure(value, pending) for name, value in inputs.arguments.items()}


def _in_structure(value: object, pending: Iterator[LeafSpec]) -> object:
    """The next specs, arranged as the leaves of `value` are; a leaf that is static gets None."""
    children = _children(value)
    if children is None:
        return next(pending) or None
    built = [_in_structure(child, pending) for _, child in children]
    if isinstance(value, dict):
        return dict(zip(value, built, strict=True))
    return tuple(built) if isinstance(value, tuple) else built

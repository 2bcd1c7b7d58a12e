"""The call of a model in a form that exporters accept, and where the tensors are in what it returns.

Exporters take tensors, lists and dicts, each argument with a name. A model may take or return a cache of keys and
values or a dataclass, or return strings. Then the exporter sees a forward of tensors: inside it the cache is built, and
the output is flattened to tensors, in the order in which eager's are compared. For `forward(**inputs)` the exporter
sees the names of the call, since torch.export takes no dynamic shapes for such a parameter.

`OutputLayout` comes from what eager returned, before the export. A dataclass that nobody registered, a string, a Python
number, or a dict with keys that are no strings make exporters refuse the model: the root's forward gives them the
tensors, and the structure around these is written into the file.

Axes that the user gave one name have one symbol under torch.export from the first line of the forward on, by
`same_sizes`. torch.export gives every axis a symbol of its own, and takes two for one from where the model compares
them. Up to there, `y.view(x.shape[0], -1)` has quotients of two batch sizes in its shape, and the export is refused, or
a size is fixed that is equal in the example. A Dim that two axes share would do it too, but torch.export refuses such a
Dim for guards that it lets pass for `Dim.DYNAMIC`.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import inspect
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.hooks import RemovableHandle

from onnxpatch._torch import pytree
from onnxpatch.inputs.axis_specs import LeafSpec, has_operator
from onnxpatch.inputs.leaves import Inputs, signature
from onnxpatch.inputs.opened_objects import closed, has_caches, has_objects, opened
from onnxpatch.onnxfile import output_structure
from onnxpatch.onnxfile.output_structure import Path, at, constant_node, container, label, name_hint, parts
from onnxpatch.onnxfile.tree import Tree
from onnxpatch.patching.mixins import watched_functions
from onnxpatch.patching.swap import UndoLog
from onnxpatch.process import undone

_NUMBERS = (bool, int, float)
_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)
# (index of the leaf in the flattened call, axis)
_Axis = tuple[int, int]


@dataclasses.dataclass(frozen=True)
class OutputLayout:
    """The structure of an output, with a hint for the name of each tensor in it; and the places of the tensors.

    nested: exporters take the output as it is. numbers: some places hold Python numbers that differ from input to
    input, which are outputs of the graph too. dtypes: of the tensors at the places, those of such numbers included.
    """

    tree: Tree
    places: tuple[Path, ...]
    nested: bool
    numbers: bool
    dtypes: tuple[torch.dtype, ...] = ()

    def flat(self, output: object) -> list[torch.Tensor]:
        """What eager returned as the graph gives it."""
        values = self.values(output)
        if values is None:  # another structure than at the example: the comparison finds another number of tensors
            return [leaf for leaf in pytree.tree_leaves(opened(output)) if isinstance(leaf, torch.Tensor)]
        return [_as_tensor(value) for value in values]

    def for_exporter(self, output: object) -> object:
        """What the root's forward gives to an exporter: the tensors of its output alone, where these are all there."""
        values = self.values(output)
        if values is None:
            return output
        return tuple(map(_as_tensor, values))

    def values(self, output: object) -> list[object] | None:
        """The values at the places; None where the output has another structure than the one known."""
        inside = opened(output)
        found = [at(inside, place) for place in self.places]
        return found if all(isinstance(value, (torch.Tensor, *_SYMBOLIC, *_NUMBERS)) for value in found) else None

    def named(self, given: Sequence[str], used: Sequence[str]) -> tuple[Tree, list[str]]:
        """(the structure with the names of the graph's outputs in it, these names in order).

        given: the user's names, for the first outputs; used: names that are taken already.
        """
        tree = copy.deepcopy(self.tree)
        name = next(iter(given), tree.get("hint", "output"))
        if tree["kind"] == "tensor" and name not in used:  # one tensor
            return {"kind": "tensor", "name": name}, [name]
        return tree, output_structure.name_leaves(tree, given, used)


def _as_tensor(value: object) -> torch.Tensor:
    """A Python number, perhaps a symbolic one, as the tensor that stands for it in the graph: int64, bool or float."""
    if isinstance(value, torch.Tensor):
        return value
    number: Any = value  # torch's annotations know no symbolic numbers
    truth, whole = isinstance(value, bool | torch.SymBool), isinstance(value, int | torch.SymInt)
    return torch.scalar_tensor(number, dtype=torch.bool if truth else torch.int64 if whole else None)


def layout_of(
    answers: Sequence[object], flatten: Callable[[object], Sequence[object]], names: Sequence[str] | None = None
) -> OutputLayout | None:
    """The layout of a model's output, from what eager returned: at the example first, at other inputs after it.

    flatten: an output -> its tensors in the graph's order. names: of the tensors, where they are known. Returns None
    where the tensors are not the leaves of the output in their order: the graph's outputs have names alone then.
    """
    walk = _Walk()
    tree = walk.tree(list(answers), (), ())
    flat = [one for one, place in zip(walk.found, walk.places, strict=True) if place not in walk.numbers]
    wanted = list(flatten(answers[0]))
    # By identity: two outputs may have equal values.
    if len(flat) != len(wanted) or any(one is not other for one, other in zip(flat, wanted, strict=True)):
        return None
    if names is not None and len(names) == len(walk.places):
        for leaf, name in zip(output_structure.output_leaves(tree), names, strict=True):
            leaf["hint"] = name
    nested, dtypes = not (walk.plain or walk.unregistered), tuple(_as_tensor(one).dtype for one in walk.found)
    return OutputLayout(tree, tuple(walk.places), nested, bool(walk.numbers), dtypes)


def _is_unregistered(value: object) -> bool:
    """Whether exporters take a container for what it is not."""
    # pytree takes such an object for one leaf, and exporters refuse a leaf that is no tensor.
    if dataclasses.is_dataclass(value) and type(value) not in pytree.SUPPORTED_NODES:
        return True
    # Of keys that are no strings the trace exporter makes outputs, too.
    return isinstance(value, dict) and not all(isinstance(key, str) for key in value)


class _Walk:
    """Walks what eager returned at several inputs at once. plain, unregistered: what exporters refuse was met."""

    def __init__(self) -> None:
        self.found: list[object] = []
        self.places: list[Path] = []
        self.numbers: set[Path] = set()
        self.plain = self.unregistered = False

    def tree(self, values: Sequence[object], where: Path, labels: Path) -> Tree:
        first = values[0]
        # A number that changes with the input is computed from it: an output of the graph, and no constant.
        differs = isinstance(first, _NUMBERS) and any(one != first for one in values[1:])
        if isinstance(first, torch.Tensor) or differs:
            self.found.append(first)
            self.places.append(where)
            self.numbers |= {where} if differs else set()
            self.plain |= differs
            return {"kind": "tensor", "hint": name_hint(labels) if labels else "output"}
        inside: Mapping[Hashable, object] = parts(first)
        if not inside and not isinstance(first, dict | tuple | list):
            self.plain |= first is not None
            return constant_node(first)
        self.unregistered |= _is_unregistered(first)
        others = [parts(value) for value in values[1:]]
        below = {
            key: self.tree(
                [one, *(other[key] for other in others if key in other)], (*where, key), (*labels, label(first, key))
            )
            for key, one in inside.items()
        }
        return container(first, below)


@dataclass
class _OpenedCall:
    """The arguments for an exporter."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


@contextlib.contextmanager
def opened_call(model: Any, inputs: Inputs, layout: OutputLayout | None = None) -> Iterator[_OpenedCall]:
    """The call for an exporter. Inside the block, the model accepts it. layout: of the output, if it is known."""
    call = _OpenedCall(*inputs.rebuild_opened(inputs.values()))
    # What the model returns is not known before it runs: its configuration says what it may.
    odd_output = _may_return_caches(model) or (layout is not None and not layout.nested)
    # Patches compute with both parts of a complex number; exporters take them for a last axis of 2.
    pairs = "complex-numbers" in watched_functions(model) and any(map(_is_complex, inputs.values()))
    plain = not (inputs.has_objects or inputs.keywords or odd_output or pairs)
    # Scripted code is compiled: a mixin in front of its class would not run.
    if isinstance(model, torch.jit.ScriptModule) or plain:
        yield call
        return
    log = UndoLog()
    with undone(log.undo):
        log.specialise(model, _mixin(inputs, _by_name(signature(model), inputs), layout))
        if pairs:
            call = _OpenedCall(*pytree.tree_map(_as_real, (call.args, call.kwargs)))
        yield call


def _is_complex(value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.is_complex()


def _as_real(value: Any) -> object:
    return torch.view_as_real(value.resolve_conj()) if _is_complex(value) else value


def _as_complex(example: object, value: object) -> object:
    """An argument in which what is complex in the example is complex, too."""
    (wanted, spec), given = pytree.tree_flatten(example), pytree.tree_leaves(value)
    pairs = zip(wanted, given, strict=True)
    made = [torch.view_as_complex(one) if _is_complex(like) and not _is_complex(one) else one for like, one in pairs]
    return pytree.tree_unflatten(made, spec)


def _may_return_caches(model: torch.nn.Module) -> bool:
    """Whether a submodule is a transformers model that returns a cache by default."""
    return any(hasattr(_config(module), "use_cache") for module in model.modules())


def _config(module: torch.nn.Module) -> object:
    try:
        return getattr(module, "config", None)
    except Exception:  # a property of the user's that means something else
        return None


def _by_name(shown: inspect.Signature | None, inputs: Inputs) -> inspect.Signature | None:
    """The signature with the given keywords in place of `**inputs`."""
    if shown is None or not inputs.keywords:
        return shown
    own = [p for p in shown.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
    named = {parameter.name for parameter in own}
    more = [name for name in inputs.kwargs if name not in named]
    return shown.replace(parameters=[*own, *(inspect.Parameter(n, inspect.Parameter.KEYWORD_ONLY) for n in more)])


def _closed(
    inputs: Inputs, shown: inspect.Signature | None, args: tuple[object, ...], kwargs: dict[str, object]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The call with objects built again. Arguments go by name: the TorchScript exporter passes them by position."""
    pairs = [name for name, given in inputs.arguments.items() if any(map(_is_complex, pytree.tree_leaves(given)))]
    if not inputs.has_objects and not pairs:
        return args, kwargs
    if shown is None:
        return inputs.closed(args, kwargs)
    bound = shown.bind(*args, **kwargs)
    for name in pairs:
        bound.arguments[name] = _as_complex(inputs.arguments[name], bound.arguments[name])
    all_given = {**inputs.given_arguments, **inputs.given.kwargs}
    for name, given in all_given.items():
        if has_objects(given) and name in bound.arguments:
            bound.arguments[name] = closed(given, bound.arguments[name])
    return bound.args, bound.kwargs


def show_signature(forward: Any, parameters: Sequence[inspect.Parameter]) -> None:
    """Have exporters read these parameters as those of a method, behind `self`."""
    # Nothing may come before a positional-only parameter but another one.
    only = inspect.Parameter.POSITIONAL_ONLY
    kind = only if any(one.kind is only for one in parameters) else inspect.Parameter.POSITIONAL_OR_KEYWORD
    forward.__signature__ = inspect.Signature([inspect.Parameter("self", kind), *parameters])


def _mixin(inputs: Inputs, shown: inspect.Signature | None, layout: OutputLayout | None) -> type:
    class Opened:
        def forward(self, *args: object, **kwargs: object) -> Any:
            args, kwargs = _closed(inputs, shown, args, kwargs)
            output = super().forward(*args, **kwargs)  # type: ignore[misc]
            if layout is not None and not layout.nested:
                return layout.for_exporter(output)
            if not has_caches(output):
                return output
            return tuple(leaf for leaf in pytree.tree_leaves(opened(output)) if isinstance(leaf, torch.Tensor))

    if shown is not None:
        show_signature(Opened.forward, list(shown.parameters.values()))
    return Opened


@contextlib.contextmanager
def same_sizes(model: torch.nn.Module, call: _OpenedCall, inputs: Inputs, specs: Sequence[LeafSpec]) -> Iterator[None]:
    """Inside the block, the model compares the sizes of axes with one name before its forward runs."""
    groups = [axes for axes in _axes_by_name(inputs, specs).values() if len(axes) > 1]
    if not groups or not isinstance(model, torch.nn.Module) or isinstance(model, torch.jit.ScriptModule):
        yield
        return
    # Keywords may come in another order than the example's: leaves are numbered in that of the call.
    order = list(call.kwargs)

    def compare(module: torch.nn.Module, args: tuple[object, ...], kwargs: dict[str, object]) -> None:
        if len(args) != len(call.args) or set(kwargs) != set(order):
            return  # called in another way: which leaf is which is not known
        leaves = pytree.tree_leaves((args, {name: kwargs[name] for name in order}))
        for (leaf, axis), *others in groups:
            size = leaves[leaf].shape[axis]
            for other, place in others:
                # Not for the answer: a bool that is asked for makes torch.export replace one symbol by the other.
                bool(size == leaves[other].shape[place])

    handles: list[RemovableHandle] = []

    def remove() -> None:
        for handle in handles:
            handle.remove()

    with undone(remove):
        handles.append(model.register_forward_pre_hook(compare, with_kwargs=True))
        yield


def _axes_by_name(inputs: Inputs, specs: Sequence[LeafSpec]) -> dict[str, list[_Axis]]:
    """Where each name stands. The leaves are in the order of the call's."""
    found: dict[str, list[_Axis]] = {}
    for leaf in inputs.leaves:
        for axis, spec in specs[leaf.index].items() if leaf.is_tensor else ():
            if isinstance(spec, str) and not has_operator(spec):
                found.setdefault(spec, []).append((leaf.index, axis))
    return found

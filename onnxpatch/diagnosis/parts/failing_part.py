"""A part that fails: how it is exported alone, and the recorded calls from which a patch's proof is made."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch.export import Dim

from onnxpatch.diagnosis.parts.isolated_module import Case, IsolatedModule
from onnxpatch.diagnosis.parts.module_calls import CallTree, Unit
from onnxpatch.diagnosis.trial import Subject, Trial


@dataclass
class FailingPart:
    """A part that fails by itself while nothing that it calls does.

    also: names of other parts of the same class, configuration and shapes. wrapped_is_right: it exports right when its
    optional arguments are left out of the graph.
    """

    unit: Unit
    subject: Subject
    trial: Trial
    also: list[str] = field(default_factory=list)
    wrapped_is_right: bool = False


def part_subject(case: Case, parent: Trial, loose: bool = False) -> Subject:
    """The subject for exporting a part alone, under the conditions it has inside its parent.

    loose: let torch.export fix the part's sizes, also where its parent was refused.
    """
    # A size that is an expression in the parent (height * width) may be fixed there without an error. Alone it is a
    # size of its own, and Dim.DYNAMIC would refuse what the parent accepts; Dim.AUTO fixes it as silently.
    may_fix = loose or parent.status in ("silent", "slow")
    specs = [{axis: Dim.AUTO if may_fix else spec for axis, spec in one.items()} for one in case.specs]
    # Where the parent is wrong, eager's own unsteadiness in the part is what makes it wrong: no excuse there.
    return Subject(case.model, case.inputs, specs, case.probes, strict=parent.wrong_at())


def plain_layer(unit: Unit, tree: CallTree) -> bool:
    """Whether a unit is one of torch's own layers that calls no other module."""
    return type(unit.module).__module__.startswith("torch.nn.modules") and not tree.children(unit)


Args = tuple[object, ...]
_MOST_CALLS = 4  # the example and three other sizes or data say what a proof has to say


@dataclass(frozen=True)
class RecordedPart:
    """A module or one of its methods, and positional arguments that it was called with, the example first.

    calls: empty where they cannot be given by position. dynamic_shapes: the axes whose size differs between the calls.
    """

    path: str
    module: torch.nn.Module
    method: str
    calls: tuple[Args, ...]
    dynamic_shapes: tuple[dict[int, str] | None, ...] | None


def recorded_part(part: FailingPart) -> RecordedPart:
    """What was recorded of a part. Tensors are cloned on the CPU; arguments that are no tensors must be equal in all
    calls, so other calls are left out."""
    unit = part.unit
    calls = [
        _by_position(getattr(unit.module, unit.method), *_call(part, probe.values)) for probe in part.subject.probes
    ]
    usable = [call for call in calls if call is not None and _alike(call, calls[0])]
    distinct = _with_other_shapes(usable)[:_MOST_CALLS]
    return RecordedPart(unit.path, unit.module, unit.method, tuple(distinct), _dynamic(distinct))


def _call(part: FailingPart, values: Sequence[object]) -> tuple[Args, dict[str, object]]:
    model = part.subject.model
    if isinstance(model, IsolatedModule):
        return model.call_of([value for value in values if isinstance(value, torch.Tensor)])
    return part.subject.inputs.rebuild(values)


def _by_position(method: object, args: Args, kwargs: dict[str, object]) -> Args | None:
    """The arguments by position, as far as the last one that was given; None where that is not possible."""
    assert callable(method)
    try:
        bound = inspect.signature(method).bind(*args, **kwargs)
    except (TypeError, ValueError):
        return None
    given = list(bound.arguments)
    bound.apply_defaults()
    if bound.kwargs:
        return None
    names = list(bound.arguments)
    # Defaults behind the last argument that was given are left out. `*args` is one name for several positions.
    last = names.index(given[-1]) + 1 if given else 0
    return tuple(_copied(value) for value in bound.args[: max(last, len(bound.args) - len(names) + last)])


def _copied(value: object) -> object:
    return value.detach().cpu().clone() if isinstance(value, torch.Tensor) else value


def _alike(call: Args, first: Args | None) -> bool:
    """Whether two calls differ in tensors only."""
    if first is None or len(call) != len(first):
        return False
    return all(
        isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor) and a.dim() == b.dim()
        if isinstance(a, torch.Tensor) or isinstance(b, torch.Tensor)
        else type(a) is type(b) and a == b
        for a, b in zip(call, first, strict=True)
    )


def _with_other_shapes(calls: Sequence[Args]) -> list[Args]:
    """The calls, those first whose shapes were not there before; the example stays the first."""
    seen: set[tuple[torch.Size, ...]] = set()
    new: list[Args] = []
    more: list[Args] = []
    for call in calls:
        shapes = _shapes(call)
        (more if shapes in seen else new).append(call)
        seen.add(shapes)
    return [*new, *more]


def _shapes(call: Args) -> tuple[torch.Size, ...]:
    return tuple(value.shape for value in call if isinstance(value, torch.Tensor))


def _dynamic(calls: Sequence[Args]) -> tuple[dict[int, str] | None, ...] | None:
    """dynamic_shapes: an axis with several sizes has a name; axes that always have the same size have the same."""
    names: dict[tuple[int, ...], str] = {}

    def axes(values: Sequence[object]) -> dict[int, str] | None:
        tensors = [value for value in values if isinstance(value, torch.Tensor)]
        if len(tensors) < len(values):
            return None
        found = {}
        for axis in range(tensors[0].dim()):
            sizes = tuple(tensor.shape[axis] for tensor in tensors)
            if len(set(sizes)) > 1:
                found[axis] = names.setdefault(sizes, f"n{len(names)}")
        return found or None

    made = tuple(axes(values) for values in zip(*calls, strict=True))
    return made if any(made) else None

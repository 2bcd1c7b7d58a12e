"""Wraps one submodule as a model of its own, with inputs recorded inside the whole model: `record` runs every probe in
eager, and clones inputs and outputs.

A graph has tensors as inputs and outputs, a submodule may take and return anything. What varies between the recorded
calls becomes a graph input, the rest stays a constant:

    self.pool(x, (h, w), mode="mean")    x: tensor         a graph input
                                         h, w: sizes       tensors of zeros [h] and [w]; their lengths are passed on
                                         "mean": constant  kept in the wrapper
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar, cast

import torch
from torch.export import Dim

from onnxpatch.diagnosis.parts.module_calls import Key, Unit, Value, form_key, graph_outputs, taken_apart
from onnxpatch.inputs.dynamic_shapes import LeafSpec
from onnxpatch.inputs.leaves import Inputs
from onnxpatch.process import undone
from onnxpatch.verification.eager import Eager
from onnxpatch.verification.probe import Probe

T = TypeVar("T")


Role = Literal["tensor", "size", "constant"]
"""What becomes of one leaf of the arguments or results."""


@dataclass
class _RecordedCall:
    """One call of a unit: its inputs and outputs, cloned."""

    inputs: Value
    outputs: list[object]


Calls = list[list[_RecordedCall]]
"""Of one unit, for each probe."""


def _cloned(leaves: Iterable[object]) -> list[object]:
    return [leaf.detach().clone() if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]


# ------------------------------------------------------------------ recording
def record(model: torch.nn.Module, inputs: Inputs, probes: Sequence[Probe], units: Sequence[Unit]) -> dict[Key, Calls]:
    """Run every probe in eager; for each unit, by its key, and each probe, the calls it gets. model: not patched."""
    found: dict[Key, Calls] = {unit.key: [] for unit in units}
    undo: list[Callable[[], object]] = []
    with undone(lambda: [one() for one in undo]):
        for unit in units:
            _record_calls(unit, found[unit.key], undo)
        eager = Eager(model, inputs)
        for probe in probes:
            for calls in found.values():
                calls.append([])
            eager.ask(probe.values)
    return found


def _record_calls(unit: Unit, into: Calls, undo: list[Callable[[], object]]) -> None:
    """Have the calls of a unit appended to the last list of `into`, and what takes the hooks out to `undo`."""
    pending: list[Value] = []

    def enter(args: object, kwargs: object) -> None:
        given = taken_apart((args, kwargs))
        pending.append(Value(_cloned(given.leaves), given.form))

    def leave(output: object) -> None:
        into[-1].append(_RecordedCall(pending.pop(), _cloned(graph_outputs(output))))

    if unit.method != "forward":
        _wrap_method(unit, enter, leave, undo)
        return
    # prepend: before hooks of the model's own, which may change the inputs.
    undo.append(
        unit.module.register_forward_pre_hook(lambda _m, a, k: enter(a, k), with_kwargs=True, prepend=True).remove
    )
    undo.append(unit.module.register_forward_hook(lambda _m, _a, o: leave(o)).remove)


def _wrap_method(
    unit: Unit,
    enter: Callable[[object, object], None],
    leave: Callable[[object], None],
    undo: list[Callable[[], object]],
) -> None:
    """Record a method other than forward, which has no hooks: an instance attribute in front of it."""
    original: Callable[..., object] = getattr(unit.module, unit.method)

    def recording(*args: object, **kwargs: object) -> object:
        enter(args, kwargs)
        output = original(*args, **kwargs)
        leave(output)
        return output

    # An attribute of the instance comes before the method of its class; without it the method is back.
    attributes = vars(unit.module)
    undo.append(lambda: attributes.pop(unit.method, None))
    attributes[unit.method] = recording


@dataclass
class Case:
    """A unit ready to be exported alone.

    model: the wrapper, or the module itself. specs: which axes change between the probes. probes: the recorded calls,
    with eager's results.
    """

    unit: Unit
    model: torch.nn.Module
    inputs: Inputs
    specs: list[LeafSpec]
    probes: list[Probe]

    @property
    def key(self) -> tuple[object, ...]:
        """Class and configuration of the unit, shapes and dtypes at every probe: equal keys export alike."""
        shapes = tuple(_shape_key(v) for probe in self.probes for v in probe.values)
        return _config_key(self.unit.module), self.unit.method, shapes


class IsolatedModule(torch.nn.Module):
    """Calls a unit with tensors and sizes taken from the graph's inputs, and the recorded constants."""

    def __init__(self, unit: Unit, inputs: Value, roles: Sequence[Role], output_roles: Sequence[Role]) -> None:
        super().__init__()
        self.module = unit.module
        # The flag alone: eval() would reach into the module, whose children may have modes of their own.
        self.training = unit.module.training
        self.direct = False  # call the method itself, past the module's __call__ and its hooks
        self._method, self.recorded, self.roles = unit.method, inputs, tuple(roles)
        self._output_roles = tuple(output_roles)

    def call_of(self, tensors: Sequence[torch.Tensor]) -> tuple[tuple[object, ...], dict[str, object]]:
        """(args, kwargs) of the unit for the tensors that the graph takes."""
        remaining, leaves = iter(tensors), []
        for role, constant in zip(self.roles, self.recorded.leaves, strict=True):
            tensor = None if role == "constant" else next(remaining)
            leaves.append(constant if tensor is None else tensor.shape[0] if role == "size" else tensor)
        return self.recorded.rebuild(leaves)

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        args, kwargs = self.call_of(tensors)
        through_call = self._method == "forward" and not self.direct
        call = self.module if through_call else getattr(self.module, self._method)
        return _as_tensors(graph_outputs(call(*args, **kwargs)), self._output_roles)


def _as_tensors(leaves: Sequence[object], roles: Sequence[Role]) -> tuple[torch.Tensor, ...]:
    """What a unit takes or returns, as tensors; a size as a tensor of zeros of that length, constants left out."""
    tensors: list[torch.Tensor] = []
    for role, value in zip(roles, leaves, strict=False):
        if role == "tensor" and isinstance(value, torch.Tensor):
            tensors.append(value)
        elif role == "size":
            tensors.append(torch.zeros(cast(int, value), dtype=torch.float32))
    return tuple(tensors)


def case_of(unit: Unit, calls: Calls, probes: Sequence[Probe], which: int) -> Case | None:
    """The case of a unit's call number `which`; None where it cannot be exported alone.

    That is where it takes or returns no tensor, or does not run by itself: it needs what another part has set before.
    """
    pairs = [(one[which], probe) for one, probe in zip(calls, probes, strict=True) if len(one) > which]
    # The example must call it too: the form of its call is what others are compared with.
    if not pairs or pairs[0][1] is not probes[0] or not _has_plain_tensors(pairs[0][0]):
        return None
    first = pairs[0][0]
    pairs = [(call, probe) for call, probe in pairs if _same_form(first, call)]
    roles = _roles([call.inputs.leaves for call, _ in pairs])
    pairs = [(c, p) for c, p in pairs if _same_constants(first, c, roles)]
    output_roles = _roles([call.outputs for call, _ in pairs])
    if not {"tensor", "size"} & set(roles) or not {"tensor", "size"} & set(output_roles):
        return None
    recorded_probes = [_probe(call, probe, roles, output_roles) for call, probe in pairs]
    recorded_probes = _example_first(recorded_probes)
    model = IsolatedModule(unit, first.inputs, roles, output_roles)
    inputs = Inputs(model, tuple(recorded_probes[0].values))
    if not Eager(model, inputs).ask(recorded_probes[0].values).accepted:
        return None
    return Case(unit, model, inputs, _specs(recorded_probes), recorded_probes)


def _has_plain_tensors(call: _RecordedCall) -> bool:
    """Whether all tensors are plain: a nested one can be no graph input, and would fail alone for that reason."""
    tensors = [v for v in (*call.inputs.leaves, *call.outputs) if isinstance(v, torch.Tensor)]
    return all(type(v) in (torch.Tensor, torch.nn.Parameter) and not v.is_nested for v in tensors)


def _same_form(first: _RecordedCall, other: _RecordedCall) -> bool:
    """Whether two calls have the same containers, types, dtypes and ranks, so that one graph can serve both."""
    if form_key(first.inputs.form) != form_key(other.inputs.form) or len(first.outputs) != len(other.outputs):
        return False
    pairs = zip([*first.inputs.leaves, *first.outputs], [*other.inputs.leaves, *other.outputs], strict=True)
    return all(_kind(a) == _kind(b) for a, b in pairs)


def _kind(value: object) -> object:
    if isinstance(value, torch.Tensor):
        return value.dtype, value.dim()
    return type(value)


def _roles(calls: Iterable[Sequence[object]]) -> list[Role]:
    """The role of each leaf, from the leaves of every call."""
    return [_role(values) for values in zip(*calls, strict=True)]


def _role(values: Sequence[object]) -> Role:
    """The role of one leaf, from its values in all calls. Numbers from 0 to 65535 that change count as sizes."""
    if isinstance(values[0], torch.Tensor):
        return "tensor"
    whole = all(isinstance(v, int) and not isinstance(v, bool) and 0 <= v < 1 << 16 for v in values)
    # A number that never changes may be a kernel or an axis, which exporters want constant.
    return "size" if whole and len(set(values)) > 1 else "constant"


def _same_constants(first: _RecordedCall, other: _RecordedCall, roles: Sequence[Role]) -> bool:
    pairs = zip(roles, first.inputs.leaves, other.inputs.leaves, strict=True)
    return all(_equal(a, b) for role, a, b in pairs if role == "constant")


def _equal(a: object, b: object) -> bool:
    if a is b:
        return True
    # An object without a comparison of values (a config, a cache) counts by its class.
    plain = isinstance(a, bool | int | float | str | bytes | complex | torch.dtype | torch.device | torch.Size)
    return bool(a == b) if plain else type(a) is type(b)


def _probe(call: _RecordedCall, probe: Probe, roles: Sequence[Role], output_roles: Sequence[Role]) -> Probe:
    values = list(_as_tensors(call.inputs.leaves, roles))
    return Probe(probe.label, probe.kind, probe.sizes, values, _as_tensors(call.outputs, output_roles))


def _example_first(probes: list[Probe]) -> list[Probe]:
    """The probes, with one in front at which no changing size is 0 or 1: exporters fix those."""
    changing = _changing_axes(probes)
    for probe in probes:
        # torch.export makes constants of sizes 0 and 1.
        if all(probe.values[i].shape[axis] > 1 for i, axis in changing):
            return [probe, *(p for p in probes if p is not probe)]
    return probes


def _changing_axes(probes: Sequence[Probe]) -> list[tuple[int, int]]:
    """(number of the input, axis) of the sizes that differ between probes."""
    shapes = [[tuple(v.shape) for v in probe.values] for probe in probes]
    first = shapes[0]
    places = [(i, axis) for i, shape in enumerate(first) for axis in range(len(shape))]
    return [(i, axis) for i, axis in places if len({shape[i][axis] for shape in shapes}) > 1]


def _specs(probes: Sequence[Probe]) -> list[LeafSpec]:
    specs: list[LeafSpec] = [{} for _ in probes[0].values]
    for i, axis in _changing_axes(probes):
        specs[i][axis] = Dim.DYNAMIC
    return specs


# ------------------------------------------------------------------ equal modules
def _config_key(module: torch.nn.Module) -> tuple[object, ...]:
    """Classes, plain attributes and shapes of a module and its children: equal where they export alike."""
    tensors = [(n, _shape_key(t)) for n, t in (*module._parameters.items(), *module._buffers.items())]
    # Attributes that decide what forward does are nearly always plain; objects would make every module unlike the
    # others.
    plain = [(n, v) for n, v in sorted(vars(module).items()) if isinstance(v, bool | int | float | str | tuple)]
    children = tuple((n, _config_key(c)) for n, c in module._modules.items() if c is not None)
    return type(module), tuple(tensors), repr(plain), children


def _shape_key(value: object) -> object:
    return (tuple(value.shape), str(value.dtype)) if isinstance(value, torch.Tensor) else repr(value)


# ------------------------------------------------------------------ TorchScript
def scriptable(case: Case) -> Case | None:
    """The same case without the wrapper, which torch.jit.script cannot compile; None where the wrapper is needed."""
    wrapper = case.model
    assert isinstance(wrapper, IsolatedModule)
    roles, recorded = wrapper.roles, wrapper.recorded
    # Where sizes come as tensors of zeros, or keywords or another method are needed, there is no doing without the
    # wrapper.
    if "size" in roles or case.unit.method != "forward" or any(part is not None for part in recorded.form[1]):
        return None
    if isinstance(case.unit.module, torch.jit.ScriptModule):
        return None

    def with_constants(values: Sequence[T]) -> list[T]:
        remaining = iter(values)
        return [
            cast("T", constant) if role == "constant" else next(remaining)
            for role, constant in zip(roles, recorded.leaves, strict=True)
        ]

    args, kwargs = recorded.rebuild(with_constants(case.probes[0].values))
    inputs = Inputs(case.unit.module, args, kwargs)
    specs = [s if role == "tensor" else {} for s, role in zip(with_constants(case.specs), roles, strict=True)]
    probes = [Probe(p.label, p.kind, p.sizes, with_constants(p.values), p.expected) for p in case.probes]
    return Case(case.unit, case.unit.module, inputs, specs, probes)

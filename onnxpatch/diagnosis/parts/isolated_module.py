"""One submodule as a model of its own, fed with what it was called with: tensors and sizes in, tensors out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.export import Dim

from onnxpatch.diagnosis.parts.module_calls import Recorded, Unit
from onnxpatch.inputs.dynamic_shapes import LeafSpec
from onnxpatch.inputs.leaves import Inputs
from onnxpatch.inputs.nested import Value, form_key, output_leaves
from onnxpatch.verification.eager import Eager
from onnxpatch.verification.probe import Probe


@dataclass
class Case:
    """A unit ready to be exported: the module to hand over, its inputs, which sizes change, what eager answers."""

    unit: Unit
    model: torch.nn.Module
    inputs: Inputs
    specs: list[LeafSpec]
    probes: list[Probe]

    @property
    def key(self) -> tuple[Any, ...]:
        """Equal keys, equal verdicts: class and configuration of the unit, shapes and dtypes at every probe."""
        shapes = tuple(_shape_key(v) for probe in self.probes for v in probe.values)
        return config_key(self.unit.module), self.unit.method, shapes


class Alone(torch.nn.Module):
    """Calls a unit with what varies taken from the graph's inputs: tensors as they are, whole numbers as sizes."""

    def __init__(self, unit: Unit, inputs: Value, roles: Sequence[str], kept: Sequence[str]) -> None:
        super().__init__()
        self.module = unit.module
        # The flag alone: eval() would reach into the module, whose children may have modes of their own.
        self.training = unit.module.training
        self.direct = False  # call the method itself, past the module's __call__ and its hooks
        self._method, self._inputs, self._roles, self._kept = unit.method, inputs, tuple(roles), tuple(kept)

    def forward(self, *carried: torch.Tensor) -> tuple[torch.Tensor, ...]:
        given, leaves = iter(carried), []
        for role, constant in zip(self._roles, self._inputs.leaves, strict=True):
            leaves.append(constant if role == "constant" else _taken(role, next(given)))
        args, kwargs = self._inputs.rebuild(leaves)
        called = self._method == "forward" and not self.direct
        call = self.module if called else getattr(self.module, self._method)
        return as_tensors(output_leaves(call(*args, **kwargs)), self._kept)


def _taken(role: str, tensor: torch.Tensor) -> Any:
    return tensor.shape[0] if role == "size" else tensor


def as_tensors(outputs: Sequence[Any], kept: Sequence[str]) -> tuple[torch.Tensor, ...]:
    """A whole number goes out as the size of a tensor of zeros: a graph's output keeps its size."""
    made = []
    for role, value in zip(kept, outputs, strict=False):
        if role == "tensor" and isinstance(value, torch.Tensor):
            made.append(value)
        elif role == "size":
            made.append(torch.zeros(value, dtype=torch.float32))
    return tuple(made)


def case_of(unit: Unit, calls: Sequence[Sequence[Recorded]], probes: Sequence[Probe], which: int) -> Case | None:
    """The case of a unit's call number `which`; None where there is nothing to export (no tensor in or out), or where
    the unit does not run by itself: it needs what another part of the model has set before."""
    pairs = [(one[which], probe) for one, probe in zip(calls, probes, strict=True) if len(one) > which]
    if not pairs or pairs[0][1] is not probes[0] or not _plain(pairs[0][0]):
        return None
    first = pairs[0][0]
    pairs = [(call, probe) for call, probe in pairs if _alike(first, call)]
    roles = [_role([call.inputs.leaves[i] for call, _ in pairs]) for i in range(len(first.inputs.leaves))]
    pairs = [(c, p) for c, p in pairs if _same_constants(first, c, roles)]
    kept = [_role([call.outputs[i] for call, _ in pairs]) for i in range(len(first.outputs))]
    if not {"tensor", "size"} & set(roles) or not {"tensor", "size"} & set(kept):
        return None
    recorded = [_probe(call, probe, roles, kept) for call, probe in pairs]
    recorded = _example_first(recorded)
    model = Alone(unit, first.inputs, roles, kept)
    inputs = Inputs(model, tuple(recorded[0].values))
    if not Eager(model, inputs).ask(recorded[0].values).accepted:
        return None
    return Case(unit, model, inputs, _specs(recorded), recorded)


def _plain(call: Recorded) -> bool:
    """A nested or otherwise special tensor can be no graph's input: what fails alone then fails of that."""
    tensors = [v for v in (*call.inputs.leaves, *call.outputs) if isinstance(v, torch.Tensor)]
    return all(type(v) in (torch.Tensor, torch.nn.Parameter) and not v.is_nested for v in tensors)


def _alike(first: Recorded, other: Recorded) -> bool:
    """Same containers, same kinds and ranks: what one graph can stand for."""
    if form_key(first.inputs.form) != form_key(other.inputs.form) or len(first.outputs) != len(other.outputs):
        return False
    pairs = zip([*first.inputs.leaves, *first.outputs], [*other.inputs.leaves, *other.outputs], strict=True)
    return all(_kind(a) == _kind(b) for a, b in pairs)


def _kind(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.dtype, value.dim()
    return type(value)


def _role(values: Sequence[Any]) -> str:
    if isinstance(values[0], torch.Tensor):
        return "tensor"
    whole = all(isinstance(v, int) and not isinstance(v, bool) and 0 <= v < 1 << 16 for v in values)
    return "size" if whole and len(set(values)) > 1 else "constant"


def _same_constants(first: Recorded, other: Recorded, roles: Sequence[str]) -> bool:
    pairs = zip(roles, first.inputs.leaves, other.inputs.leaves, strict=True)
    return all(_equal(a, b) for role, a, b in pairs if role == "constant")


def _equal(a: Any, b: Any) -> bool:
    if a is b:
        return True
    plain = isinstance(a, bool | int | float | str | bytes | complex | torch.dtype | torch.device | torch.Size)
    return bool(a == b) if plain else type(a) is type(b)


def _probe(call: Recorded, probe: Probe, roles: Sequence[str], kept: Sequence[str]) -> Probe:
    values = [_carried(r, v) for r, v in zip(roles, call.inputs.leaves, strict=True) if r != "constant"]
    return Probe(probe.label, probe.kind, probe.sizes, values, as_tensors(call.outputs, kept))


def _carried(role: str, value: Any) -> torch.Tensor:
    return torch.zeros(value) if role == "size" else value


def _example_first(probes: list[Probe]) -> list[Probe]:
    """The example first, unless a size that changes is 0 or 1 there: exporters take those for fixed."""
    moving = _moving(probes)
    for probe in probes:
        if all(probe.values[i].shape[axis] > 1 for i, axis in moving):
            return [probe, *(p for p in probes if p is not probe)]
    return probes


def _moving(probes: Sequence[Probe]) -> list[tuple[int, int]]:
    shapes = [[tuple(v.shape) for v in probe.values] for probe in probes]
    first = shapes[0]
    places = [(i, axis) for i, shape in enumerate(first) for axis in range(len(shape))]
    return [(i, axis) for i, axis in places if len({shape[i][axis] for shape in shapes}) > 1]


def _specs(probes: Sequence[Probe]) -> list[LeafSpec]:
    specs: list[LeafSpec] = [{} for _ in probes[0].values]
    for i, axis in _moving(probes):
        specs[i][axis] = Dim.DYNAMIC
    return specs


# ------------------------------------------------------------------ equal modules
def config_key(module: torch.nn.Module) -> tuple[Any, ...]:
    """What decides how a module exports, weights' values left out: classes, plain attributes, shapes, recursively."""
    tensors = [(n, _shape_key(t)) for n, t in (*module._parameters.items(), *module._buffers.items())]
    plain = [(n, v) for n, v in sorted(vars(module).items()) if isinstance(v, bool | int | float | str | tuple)]
    children = tuple((n, config_key(c)) for n, c in module._modules.items() if c is not None)
    return type(module), tuple(tensors), repr(plain), children


def _shape_key(value: Any) -> Any:
    return (tuple(value.shape), str(value.dtype)) if isinstance(value, torch.Tensor) else repr(value)


# ------------------------------------------------------------------ TorchScript
def scriptable(case: Case) -> Case | None:
    """The same case with the module itself, which torch.jit.script can compile; None where it needs the wrapper."""
    alone = case.model
    assert isinstance(alone, Alone)
    roles, held = alone._roles, alone._inputs
    if "size" in roles or case.unit.method != "forward" or any(part is not None for part in held.form[1]):
        return None
    if isinstance(case.unit.module, torch.jit.ScriptModule):
        return None

    def spread(values: Sequence[Any]) -> list[Any]:
        given = iter(values)
        return [c if role == "constant" else next(given) for role, c in zip(roles, held.leaves, strict=True)]

    args, kwargs = held.rebuild(spread(case.probes[0].values))
    inputs = Inputs(case.unit.module, args, kwargs)
    specs = [one or {} for one in spread(case.specs)]
    specs = [spec if role == "tensor" else {} for spec, role in zip(specs, roles, strict=True)]
    probes = [Probe(p.label, p.kind, p.sizes, spread(p.values), p.expected) for p in case.probes]
    return Case(case.unit, case.unit.module, inputs, specs, probes)

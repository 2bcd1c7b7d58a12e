"""The entries of torch's own tests (`op_db`, `module_db`), each as a small model with inputs.

torch's samples are drawn again with another seed for other values: same shapes, same kinds of numbers. Sizes that eager
lets change are dynamic: all axes of one size together, or each by itself where that is refused.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

# Read when torch's test utilities are imported: they would look for accelerators otherwise.
os.environ.setdefault("PYTORCH_TESTING_DEVICE_ONLY_FOR", "cpu")

import torch
from torch.utils import _pytree as pytree

Tensors = tuple[torch.Tensor, ...]
DTYPES = ("float32", "int64", "bool", "float64")  # the first that an entry takes
NAN = "one NaN"
_MOST_AXES = 12
# Eager's answer to a NaN is what was left in memory; and a table with a NaN in its middle is not sorted.
_WITHOUT_NAN = re.compile(r"polynomial_[uw]$|laguerre_|legendre_|bucketize$|searchsorted$")
# Eager's C code reads whatever is there at another size of this axis: beside fewer classes than are named, and so on.
_UNCHECKED = {"native_batch_norm": 1, "ctc_loss": 2, "CTCLoss": 2, "_segment_reduce.offsets": 0, "histogram": 0}
_WEIGHTED = re.compile(r"conv\w*d\b|linear$|bilinear$|_norm$|embedding|prelu$|native_batch_norm")


class LeftOut(Exception):
    """The entry has no form that can be exported and compared: random, sparse, without tensors."""


@dataclass
class Subject:
    """A model of one sample.

    weights: all tensors but the first are a layer's weights, whose sizes are fixed. groups: (leaf, axis) of axes that
    change together, by name. unchecked: an axis whose size eager does not check. nan: whether eager has an answer to
    one.
    """

    model: torch.nn.Module
    args: Tensors
    others: list[Tensors]
    weights: bool = False
    unchecked: int | None = None
    groups: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    nan: bool = True

    def dynamic_shapes(self) -> tuple[dict[int, str], ...] | None:
        """As torch.onnx.export takes them; None without a dynamic axis."""
        if not self.groups:
            return None
        found: list[dict[int, str]] = [{} for _ in self.args]
        for name, places in self.groups.items():
            for leaf, axis in places:
                found[leaf][axis] = name
        return tuple(found)


@functools.cache
def operators() -> dict[str, Any]:
    from torch.testing._internal.common_methods_invocations import op_db

    return {".".join(filter(None, (info.name, info.variant_test_name))): info for info in op_db}


@functools.cache
def modules() -> dict[str, Any]:
    from torch.testing._internal.common_modules import module_db

    return {info.name: info for info in module_db}


def subject(database: str, name: str, which: str, dtype: str | None = None) -> Subject:
    """The model of one entry. which: "first", "second", or "most" for the sample with the most arguments."""
    wanted = [getattr(torch, one) for one in ([dtype] if dtype else DTYPES)]
    make = _of_operator if database == "operators" else _of_module
    model, args = make(name, which, wanted, 0)
    others = [make(name, which, wanted, seed)[1] for seed in (1, 2)]
    unchecked = next((axis for part, axis in _UNCHECKED.items() if part in name and name != "histogramdd"), None)
    made = Subject(model, args, others, _WEIGHTED.search(name) is not None, unchecked)
    if not args:
        raise LeftOut("no tensor is given")
    if any(x.layout is not torch.strided or x.is_quantized for x in args):
        raise LeftOut("sparse or quantized")
    first = outputs(run(model, args, 0))
    with unseeded():
        second = outputs(run(model, args, 1))
    if not first:
        raise LeftOut("no tensor is returned")
    if any(
        a.shape != b.shape or not torch.equal(torch.nan_to_num(a), torch.nan_to_num(b))
        for a, b in zip(first, second, strict=True)
    ):
        raise LeftOut("random")
    made.groups, made.nan = _groups(made), not _WITHOUT_NAN.search(name)
    if made.groups and _draws(made):
        raise LeftOut("random")
    return made


def _draws(made: Subject) -> bool:
    """Whether other sizes show that it draws: where the example's has one outcome."""
    args = resized(made.args, made.groups, 2)
    with unseeded():
        ways = [outputs(run(made.model, args, seed)) for seed in range(4)]
    return any(
        not torch.equal(x.nan_to_num(), y.nan_to_num()) for way in ways[1:] for x, y in zip(ways[0], way, strict=True)
    )


@contextlib.contextmanager
def unseeded() -> Iterator[None]:
    """torch wraps what draws in a function that sets the seed first: here it does not."""
    from torch.testing._internal import common_methods_invocations as wraps

    before = wraps.wrapper_set_seed
    wraps.wrapper_set_seed = lambda op, *args, **kwargs: op(*args, **kwargs)  # type: ignore[assignment]
    try:
        yield
    finally:
        wraps.wrapper_set_seed = before


def outputs(result: object) -> list[torch.Tensor]:
    return [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor)]


def run(model: torch.nn.Module, args: Tensors, seed: int = 0) -> object:
    torch.manual_seed(seed)
    with torch.no_grad():
        return model(*(x.clone() for x in args))


# ------------------------------------------------------------------ torch's samples
def _of_operator(name: str, which: str, dtypes: Sequence[torch.dtype], seed: int) -> tuple[torch.nn.Module, Tensors]:
    info = operators()[name]
    if "in_place" in info.variant_test_name or info.variant_test_name == "inplace":
        raise LeftOut("in place")
    known = info.supported_dtypes("cpu")
    dtype = next((one for one in dtypes if one in known), None)
    if dtype is None:
        kind = f"no {dtypes[0]}" if len(dtypes) == 1 else "complex or CUDA only"
        raise LeftOut(kind if known else "not on the CPU")
    torch.manual_seed(seed)
    samples = list(info.sample_inputs("cpu", dtype, requires_grad=False))
    sample = _pick([((s.input, *s.args), s.kwargs) for s in samples], which)
    return _model(info.op, *sample)


def _of_module(name: str, which: str, dtypes: Sequence[torch.dtype], seed: int) -> tuple[torch.nn.Module, Tensors]:
    info = modules()[name]
    torch.manual_seed(seed)
    made = info.module_inputs_func(info, device="cpu", dtype=dtypes[0], requires_grad=False, training=False)
    made = [one for one in made if one.forward_input is not None]
    calls = [(tuple(one.forward_input.args), dict(one.forward_input.kwargs), one) for one in made]
    if not calls:
        raise LeftOut("no sample of a call")
    args, kwargs = _pick([call[:2] for call in calls], which)
    one = next(call[2] for call in calls if call[0] is args)
    torch.manual_seed(100)  # the same weights with each draw of the inputs
    layer = info.module_cls(*one.constructor_input.args, **one.constructor_input.kwargs).to(dtypes[0]).eval()
    return _model(layer, args, kwargs)


def _pick(samples: list[tuple[Any, Any]], which: str) -> tuple[Any, Any]:
    if not samples:
        raise LeftOut("no sample")
    if which == "most":
        return max(samples, key=lambda s: len(s[0]) + len(s[1]))
    # A number as tensor shows little: the first with an axis, where there is one.
    usable = [s for s in samples if any(x.dim() and x.numel() for x in outputs(s))] or samples
    return usable[min(1, len(usable) - 1) if which == "second" else 0]


class _Function(torch.nn.Module):
    """Calls a function with its tensors as inputs; whatever else it gets is fixed."""

    def __init__(self, function: Any, leaves: list[Any], spec: Any) -> None:
        super().__init__()
        self.function, self.leaves, self.spec = function, leaves, spec

    def call(self, *tensors: torch.Tensor) -> object:
        given = iter(tensors)
        leaves = [next(given) if leaf is _TENSOR else leaf for leaf in self.leaves]
        args, kwargs = pytree.tree_unflatten(leaves, self.spec)
        return self.function(*args, **kwargs)


_TENSOR = object()


def _model(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[torch.nn.Module, Tensors]:
    leaves, spec = pytree.tree_flatten((tuple(args), dict(kwargs)))
    tensors = tuple(leaf.detach() for leaf in leaves if isinstance(leaf, torch.Tensor))
    rest = [_TENSOR if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
    # One parameter for each tensor: exporters name the inputs by them.
    names = ", ".join(f"x{i}" for i in range(len(tensors)))
    space: dict[str, Any] = {}
    exec(f"def forward(self, {names}):\n    return self.call({names})\n", space)
    kind = type("Calls", (_Function,), {"forward": space["forward"], "__module__": __name__})
    return kind(function, rest, spec).eval(), tensors


# ------------------------------------------------------------------ dynamic sizes
def _groups(subject: Subject) -> dict[str, list[tuple[int, int]]]:
    """The axes that may change: all of one size together, or else each by itself."""
    inputs = subject.args[:1] if subject.weights else subject.args
    places = [(leaf, axis) for leaf, x in enumerate(inputs) for axis in range(x.dim()) if x.shape[axis] > 1]
    places = [(leaf, axis) for leaf, axis in places if axis != subject.unchecked]
    by_size: dict[int, list[tuple[int, int]]] = {}
    for leaf, axis in places[:_MOST_AXES]:
        by_size.setdefault(subject.args[leaf].shape[axis], []).append((leaf, axis))
    found: dict[str, list[tuple[int, int]]] = {}
    for size, group in by_size.items():
        if _accepted(subject, {**found, f"d{size}": group}):
            found[f"d{size}"] = group
            continue
        for leaf, axis in group if len(group) > 1 else ():
            alone = {f"d{size}_{leaf}_{axis}": [(leaf, axis)]}
            if _accepted(subject, {**found, **alone}):
                found.update(alone)
    return found


def _accepted(subject: Subject, groups: dict[str, list[tuple[int, int]]]) -> bool:
    # A graph has as many outputs at every size.
    count = len(outputs(run(subject.model, subject.args)))
    found = (eager(subject.model, resized(subject.args, groups, by)) for by in (1, 3))
    return all(one is not None and len(one) == count for one in found)


def resized(args: Tensors, groups: dict[str, list[tuple[int, int]]], by: int, least: int = 0) -> Tensors:
    """The tensors with every dynamic axis longer by `by` (or of size `least`, if given): repeated, or cut."""
    found = list(args)
    for places in groups.values():
        for leaf, axis in places:
            size = least or args[leaf].shape[axis] + by
            found[leaf] = _longer(found[leaf], axis, size)
    return tuple(found)


def _longer(x: torch.Tensor, axis: int, size: int) -> torch.Tensor:
    """Repeated or cut. What is repeated differs a little: the order of equal numbers is not defined."""
    out = x.index_select(axis, torch.arange(size) % x.shape[axis])
    if size > x.shape[axis] and x.is_floating_point() and bool((x != x.round()).any()):
        # Each by another factor, so that no row of a matrix is a multiple of another one.
        repeated = (torch.arange(size) >= x.shape[axis]).reshape([-1 if a == axis else 1 for a in range(x.dim())])
        factors = 1 - 0.3 * (torch.arange(out.numel()) * 0.618 % 1).reshape(out.shape)
        out = torch.where(repeated, out * factors.to(x.dtype), out)
    return out


def eager(model: torch.nn.Module, args: Tensors) -> list[torch.Tensor] | None:
    """The outputs; None where eager refuses."""
    try:
        return outputs(run(model, args))
    except Exception:
        return None


def trials(subject: Subject) -> Iterator[tuple[str, bool, Tensors]]:
    """(label, whether it is an edge, inputs) at which a file is compared."""
    yield "the example", False, subject.args
    for seed, args in enumerate(subject.others, 1):
        if [(x.shape, x.dtype) for x in args] == [(x.shape, x.dtype) for x in subject.args]:
            yield f"other values {seed}", False, args
            if subject.groups:
                for by in (1, 3) if seed == 1 else (-1,):
                    yield f"sizes {by:+d}", False, resized(args, subject.groups, by)
    for name in subject.groups:
        for by in (2,):
            yield f"{name} {by:+d}", False, resized(subject.args, {name: subject.groups[name]}, by)
        yield f"{name} = 1", True, resized(subject.args, {name: subject.groups[name]}, 0, 1)
    floats = [x.is_floating_point() and x.numel() > 1 for x in subject.args]
    if any(floats):
        yield "equal values", True, tuple(x.round() if f else x for f, x in zip(floats, subject.args, strict=True))
        if subject.nan:
            yield NAN, True, tuple(_with_nan(x) if f else x for f, x in zip(floats, subject.args, strict=True))
        for factor in (30.0, 0.001):
            scaled = (x * factor if f else x for f, x in zip(floats, subject.args, strict=True))
            yield f"times {factor:g}", False, tuple(scaled)


def _with_nan(x: torch.Tensor) -> torch.Tensor:
    out = x.clone()
    out.reshape(-1)[x.numel() // 2] = float("nan")
    return out

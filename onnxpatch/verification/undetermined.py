"""Tells whether a difference from eager is the graph's fault, or whether eager's own answer is arbitrary there.

Eager is run again at the same probe: with equal values sorted in both orders, with gradients recorded, with inputs or
weights changed by one rounding, and in float64. If one of these changes eager's output as much as the graph differs
from it, the check is "unsteady" and not "wrong". If the graph has eager's output with equal values in the other order,
it is right:

    inverse of a nearly singular matrix    float32 and float64 differ by 2 %; so may the graph
    topk of equal scores                   torch leaves the order open, unless a sort is stable
    x == 7, with 7 in the probe            the value was chosen exactly: its inputs are not moved

A float32 output of a model that computes in bfloat16 on the way, within autocast say, is right where it is as near as a
bfloat16 output must be, and eager's own changes as much when inputs or weights move by one rounding of bfloat16.
"""

from __future__ import annotations

import copy
import functools
import inspect
import itertools
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch.overrides import TorchFunctionMode

from onnxpatch.inputs.held_objects import each_once
from onnxpatch.onnxfile.runtimes.interface import as_array
from onnxpatch.results.checks import Checked, OutputParity
from onnxpatch.verification.comparison import NON_FINITE, TOLERANCE, accepted, compare_all, tolerance_for
from onnxpatch.verification.eager import Answer, Eager
from onnxpatch.verification.probe import Probe

_LARGEST_COPY = 1 << 27  # parameters


def in_float64(eager: Eager, values: Sequence[object]) -> Answer:
    """The answer of the model converted to float64, what it makes float32 itself included; a refusal if it does not run
    so."""
    # A copy, since `double()` converts a model in place.
    wide = each_once(lambda v: v.double() if isinstance(v, torch.Tensor) and v.is_floating_point() else v, values)
    with _Wide():
        answer = _ask_copy(eager, lambda model: model.double(), wide)
    return answer if answer.outputs is None else replace(answer, outputs=tuple(map(_narrow, answer.outputs)))


class _Wide(TorchFunctionMode):
    """float64 wherever the forward asks for float32: `x.float()`, `softmax(x, dtype=float32)`, `torch.zeros(n)`."""

    def __torch_function__(self, func: Any, types: object, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.Tensor.float:
            func = torch.Tensor.double
        elif func in _FACTORIES and not (kwargs or {}).get("dtype"):
            kwargs = {**(kwargs or {}), "dtype": torch.float64}
        kwargs = {name: _wide(value) for name, value in (kwargs or {}).items()}
        return func(*map(_wide, args), **kwargs)


_FACTORIES: Collection[Any] = {torch.zeros, torch.ones, torch.empty, torch.linspace, torch.eye, torch.rand, torch.randn}


def _wide(value: object) -> object:
    return torch.float64 if value is torch.float32 else value


class _Turned(TorchFunctionMode):
    """Antialiased resizing of 4-D tensors has rows and columns exchanged before and after, which is the same.

    To one column, torch's kernel (2.13) reads its own intermediate result in another order: 1.0 off, in float64 too.
    """

    def __torch_function__(self, func: Any, types: object, args: Any = (), kwargs: Any = None) -> Any:
        if func is not torch.nn.functional.interpolate:
            return func(*args, **(kwargs or {}))
        given = dict(zip(inspect.signature(func).parameters, args, strict=False)) | (kwargs or {})
        if not given.get("antialias") or given["input"].dim() != 4:
            return func(**given)
        sizes = {name: v[::-1] for name, v in given.items() if isinstance(v, list | tuple)}
        return func(**given | sizes | {"input": given["input"].transpose(2, 3)}).transpose(2, 3)


def with_moved_weights(eager: Eager, values: Sequence[object], moved: Callable[[torch.Tensor], Any]) -> Answer:
    """The answer of the model with `moved(weight)` for parameters and buffers, as other roundings leave them."""

    def move(model: torch.nn.Module) -> torch.nn.Module:
        for weight in (*model.parameters(), *model.buffers()):
            weight.data = moved(weight.data)
        return model

    return _ask_copy(eager, move, values)


def _ask_copy(eager: Eager, change: Callable[[torch.nn.Module], torch.nn.Module], values: Sequence[Any]) -> Answer:
    """The answer of a changed copy of the model; a refusal if the model is too large, or cannot be copied."""
    held = sum(p.numel() for p in eager.model.parameters()) if isinstance(eager.model, torch.nn.Module) else 0
    if held > _LARGEST_COPY:
        return Answer(None, "too large to be copied")
    try:
        copied = Eager(change(copy.deepcopy(eager.model)), eager.inputs, eager.flatten)
        copied.limits = 2 * eager.limits[0], 2 * eager.limits[1]  # a double takes twice a float
    except Exception as error:
        return Answer(None, f"no copy: {type(error).__name__}")
    return copied.ask(values)


def _narrow(output: torch.Tensor | None) -> torch.Tensor | None:
    return output.float() if output is not None and output.dtype == torch.float64 else output


class _TiesBroken(TorchFunctionMode):
    """A mode in which unstable sorts keep the order of equal values, or (`last`) reverse it.

    met: whether there was anything in an open order.
    """

    def __init__(self, last: bool) -> None:
        super().__init__()
        self.last, self.met = last, False

    def __torch_function__(self, func: Any, types: object, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        form = _FORMS.get(func)
        return result if form is None else form(self, result, *args, **(kwargs or {}))

    def order(self, x: torch.Tensor, dim: int, descending: bool) -> tuple[torch.Tensor, torch.Tensor]:
        """(values, indices), sorted."""
        if self.last and x.dim():
            # A stable sort of the reversed axis has equal values in the opposite order.
            values, at = torch.sort(x.flip(dim), dim=dim, descending=descending, stable=True)
            at = x.shape[dim] - 1 - at
        else:
            values, at = torch.sort(x, dim=dim, descending=descending, stable=True)
        if x.dim() and x.shape[dim] > 1:
            self.met |= bool((values.narrow(dim, 1, x.shape[dim] - 1) == values.narrow(dim, 0, x.shape[dim] - 1)).any())
        return values, at


def _sort(
    ties: _TiesBroken, result: Any, x: torch.Tensor, dim: int = -1, descending: bool = False, stable: bool = False
) -> object:
    """sort, and argsort, whose result is the places alone."""
    if stable:
        return result
    values, at = ties.order(x, dim, descending)
    return at if isinstance(result, torch.Tensor) else type(result)((values, at))


def _topk(
    ties: _TiesBroken, result: Any, x: torch.Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> object:
    if not x.dim():
        return result
    # torch.topk gives tensors of their own, which a model may view.
    return type(result)(part.narrow(dim, 0, k).contiguous() for part in ties.order(x, dim, largest))


def _unique(
    ties: _TiesBroken,
    result: object,
    x: torch.Tensor,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> object:
    if sorted:
        return result
    ties.met = True
    return torch.unique(x, True, return_inverse, return_counts, dim)


def _place(ties: _TiesBroken, result: Any, x: torch.Tensor, *args: Any, **named: Any) -> object:
    """The first or the last place of the value that mode, median, nanmedian or kthvalue found along an axis."""
    if isinstance(result, torch.Tensor) or not x.dim():
        return result
    dim = named.get("dim", next((one for one in args[:1] if isinstance(one, int)), -1))
    keepdim = result.values.dim() == x.dim()
    values = result.values if keepdim else result.values.unsqueeze(dim)
    equal = (x == values) | (x.isnan() & values.isnan())
    ties.met |= bool((equal.sum(dim) > 1).any())
    at = equal.flip(dim).int().argmax(dim, keepdim) if ties.last else equal.int().argmax(dim, keepdim)
    return type(result)((result.values, x.shape[dim] - 1 - at if ties.last else at))


def _kth(ties: _TiesBroken, result: Any, x: torch.Tensor, k: int, dim: int = -1, keepdim: bool = False) -> object:
    return _place(ties, result, x, dim, keepdim)


# A call with other arguments (out=, names of axes) raises inside the block; that answer is then not used.
_BY_NAME: Mapping[str, Callable[..., Any]] = {
    "sort": _sort, "argsort": _sort, "topk": _topk, "unique": _unique, "kthvalue": _kth,
    "mode": _place, "median": _place, "nanmedian": _place,
}  # fmt: skip
_FORMS = {getattr(home, name): form for home in (torch, torch.Tensor) for name, form in _BY_NAME.items()}


class _Rounded(TorchFunctionMode):
    """A mode in which what products of matrices, softmax and sums give is moved by one rounding: other kernels add in
    another order."""

    def __init__(self, by: float, seed: int) -> None:
        super().__init__()
        self.by, self.seed = by, seed

    def __torch_function__(self, func: Any, types: object, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        rounds = getattr(func, "__name__", "") in _ROUNDS and isinstance(result, torch.Tensor)
        if not rounds or result.dtype != torch.float32:
            return result
        # Numbers of few digits are exact, such as a sum of whole numbers.
        rounded = result.view(torch.int32) & 0xFF != 0
        moved: Any = _nudged(result, self.by, self.seed)
        return torch.where(rounded, moved, result)


_ROUNDS = frozenset({
    "matmul", "__matmul__", "bmm", "einsum", "linear", "conv1d", "conv2d", "cdist", "softmax", "log_softmax",
    "layer_norm", "normalize", "norm", "exp", "sum", "mean",
})  # fmt: skip


class _NanLeftOut(TorchFunctionMode):
    """A mode in which the largest or the smallest is searched among the numbers that are not NaN."""

    def __torch_function__(self, func: Any, types: object, args: Any = (), kwargs: Any = None) -> Any:
        worst = _EXTREMES.get(func)
        if worst is not None and args and args[0].is_floating_point():
            args = (args[0].masked_fill(args[0].isnan(), worst), *args[1:])
        return func(*args, **(kwargs or {}))


_WORST = dict.fromkeys(("max", "amax", "argmax", "topk"), -math.inf) | dict.fromkeys(
    ("min", "amin", "argmin"), math.inf
)
_EXTREMES = {getattr(home, name): worst for home in (torch, torch.Tensor) for name, worst in _WORST.items()}

_ROUNDING = 1e-6
_ROUNDED = "PyTorch's own output changes as much when its inputs change by one rounding"
_DOUBLE = "PyTorch in float64 differs from float32 as much: float32 does not determine this answer"
_WEIGHTS = "PyTorch's own output changes as much when its weights change by one rounding"
_INSIDE = "PyTorch's own output changes as much when a sum, a product or a softmax in it changes by one rounding"
_FAST = "PyTorch's output differs while gradients are recorded: its fast path for inference has its own NaN"
_RESIZED = "PyTorch's output differs as much when rows and columns are exchanged before and after a resize"
_NAN = "max, min, argmax, argmin or topk got a NaN that finite inputs made: runtimes leave it out, or find others"
_TIED = (
    "torch.sort(stable=False), argsort, topk, mode, median or kthvalue got equal values, or unique was called with "
    "sorted=False: PyTorch does not determine their order"
)

Outputs = Sequence[torch.Tensor | None]


def excused(check: Checked, found: Sequence[object], probe: Probe, eager: Eager, tolerance: float) -> Checked:
    """A check with wrong outputs (`found`): unsteady with the reason where eager determines none of them; right where
    they are those of eager with its equal values in another order. Another shape or dtype is never excused."""
    wrong = {i: output for i, output in enumerate(check.outputs) if not output.ok}
    if any(output.first_index is None for output in wrong.values()):
        return check
    if _as_coarse(wrong, probe, eager, tolerance):
        return replace(check, outputs=tuple(map(accepted, check.outputs)), status="right")
    names = [output.name for output in check.outputs]
    orders = [answer.outputs for answer in _other_orders(probe, eager) if answer.outputs is not None]
    for again in (compare_all(names, outputs, found, tolerance) for outputs in orders):
        if all(one.ok for one in again):
            return replace(check, outputs=tuple(again), status="right", error=_TIED)
    unmoved = set(wrong)
    for reason, moved in _movable(wrong, names, found, probe, eager, orders, tolerance):
        unmoved -= moved
        if not unmoved:
            return replace(check, status="unsteady", error=reason)
    return check


def _as_coarse(wrong: Mapping[int, OutputParity], probe: Probe, eager: Eager, tolerance: float) -> bool:
    """Whether all wrong outputs are as near as the dtype allows that eager computes in on the way, and as it moves."""
    if eager.coarse is None or probe.exact:
        return False
    allowed, step = tolerance_for(eager.coarse, tolerance), torch.finfo(eager.coarse).eps
    if any(output.reason == NON_FINITE or output.relative > allowed for output in wrong.values()):
        return False
    unmoved = set(wrong)
    for seed, by in itertools.product((3, 4, 5), (+step, -step)):
        moved = functools.partial(_nudged, by=by, seed=seed)
        for answer in (eager.ask(each_once(moved, probe.values)), with_moved_weights(eager, probe.values, moved)):
            if answer.outputs is not None and len(answer.outputs) == len(probe.expected):
                again = compare_all([""] * len(probe.expected), probe.expected, answer.outputs, tolerance)
                unmoved -= {i for i in unmoved if _as_far(again[i], wrong[i])}
            if not unmoved:
                return True
    return False


def _movable(
    wrong: Mapping[int, OutputParity], names: Sequence[str], found: Sequence[object], probe: Probe, eager: Eager,
    orders: Sequence[Outputs], tolerance: float,
) -> Iterator[tuple[str, set[int]]]:  # fmt: skip
    """(why, which) of the wrong outputs of which another answer of eager's is as far from its own."""

    def moved_by(outputs: Outputs) -> set[int]:
        again = compare_all(names, probe.expected, outputs, tolerance)
        return {i for i, output in wrong.items() if i < len(again) and _as_far(again[i], output)}

    tied = set().union(*map(moved_by, orders))
    yield _TIED, {i for i in tied if _where_ties_are(probe.expected[i], found[i], orders, i)}
    for reason, answer in _other_answers(probe, eager):
        if answer.outputs is not None and len(answer.outputs) == len(names):
            yield reason, moved_by(answer.outputs)


def _other_orders(probe: Probe, eager: Eager) -> Iterator[Answer]:
    # Sorts both ways round: eager may happen to use one of them already.
    for last in (False, True):
        with _TiesBroken(last) as ties:
            answer = eager.ask(probe.values)
        if not ties.met:
            break
        yield answer


def _where_ties_are(expected: torch.Tensor | None, found: object, orders: Sequence[Outputs], which: int) -> bool:
    """Whether half of the elements that differ from eager's change with the order of equal values, too."""
    if expected is None:
        return True
    want = as_array(expected).astype("float64")
    differ = _differs(want, as_array(found).astype("float64"))
    others = [as_array(other).astype("float64") for outputs in orders if (other := outputs[which]) is not None]
    change = np.logical_or.reduce([_differs(want, other) for other in others if other.shape == want.shape])
    # Not all: two orders of several equal values leave some elements as they are.
    return bool(2 * (differ & change).sum() >= differ.sum())


def _differs(want: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    largest = np.abs(want[np.isfinite(want)]).max(initial=0.0)
    return ~np.isclose(other, want, rtol=0.0, atol=TOLERANCE * float(largest), equal_nan=True)


def _other_answers(probe: Probe, eager: Eager) -> Iterator[tuple[str, Answer]]:
    yield _FAST, eager.ask(probe.values, gradients=True)
    with _Turned():
        yield _RESIZED, eager.ask(probe.values)
    # The values were chosen to sit on a comparison: moved by a rounding they take the other branch, which excuses
    # nothing.
    if probe.exact:
        return
    if all(bool(torch.isfinite(v).all()) for v in probe.values if isinstance(v, torch.Tensor)):
        watch = eager.decisions(probe.values)
        if watch is not None and not watch.asks_finite:  # else a NaN has to be where eager has it
            with _NanLeftOut():
                yield _NAN, eager.ask(probe.values)
    for seed, by in itertools.product((3, 4, 5), (+_ROUNDING, -_ROUNDING)):
        yield _ROUNDED, eager.ask(each_once(functools.partial(_nudged, by=by, seed=seed), probe.values))
    if not eager.draws:  # torch draws other random numbers in float64
        yield _DOUBLE, in_float64(eager, probe.values)
    # Where inputs are zero, or whole numbers, they cannot be moved, and the layers still round.
    for seed in (3, 4, 5):
        yield _WEIGHTS, with_moved_weights(eager, probe.values, functools.partial(_nudged, by=_ROUNDING, seed=seed))
        with _Rounded(_ROUNDING, seed):
            yield _INSIDE, eager.ask(probe.values)


def _as_far(again: OutputParity, found: OutputParity) -> bool:
    """Whether eager changed as much as the graph differs. A difference in NaN or infinity needs one in eager, too."""
    if found.reason == NON_FINITE:
        return again.reason == NON_FINITE
    # Half as much is enough: a few nudges rarely find the largest change.
    return again.first_index is not None and again.relative >= found.relative / 2


def _nudged(value: object, by: float, seed: int) -> object:
    if not isinstance(value, torch.Tensor) or not value.is_floating_point():
        return value
    noise = torch.rand(value.shape, generator=torch.Generator().manual_seed(seed), device="cpu").to(value)
    return value * (1 + by * (noise - 0.25))

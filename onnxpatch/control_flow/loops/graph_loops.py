"""Writes a recorded loop body into the graph: an ONNX Scan or Loop under both exporters.

`onnxpatch.scan`, `each` and `while_loop` end here under an exporter, and so do loops found in plain Python.
The body runs once, on one row, and its torch calls are recorded. Then:

    dynamo   torch.ops.higher_order.scan / while_loop with a function that repeats the recorded calls
    trace    a TorchScript function with a real loop in it, compiled from source, which calls the traced body:
                 for i in range(x0.size(0)):
                     r = step(c0, x0[i], a0)
                     c0 = r[0]
                     outs.append(r[1])

Tensors that the body takes from around it (`outside`: weights, say) become further inputs of the loop.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode, handle_torch_function, has_torch_function

from onnxpatch._torch import exporting
from onnxpatch._torch.cond import compiled_function
from onnxpatch._torch.dispatch_modes import storage_key
from onnxpatch._torch.function_modes import tracing_paused
from onnxpatch._torch.symbolic_sizes import sampled_sizes
from onnxpatch.control_flow.pytrees import names_in, tensors
from onnxpatch.control_flow.recording import latest
from onnxpatch.control_flow.tape import Composite, Rebinding, TorchCall, is_mutation, names_made, pruned

Tensor = torch.Tensor
Bias = Tensor | None
Body = Callable[..., list[torch.Tensor]]
TracedBody = Callable[..., "torch.Tensor | tuple[torch.Tensor, ...]"]
Loop = Callable[..., "tuple[torch.Tensor, ...]"]
_numbers = itertools.count()
# Compiled loops of exports without a capture: the traced graph refers to them without owning them.
_alive: list[object] = []


def as_one_call(loop: Callable[..., Sequence[torch.Tensor]], operands: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Run a loop; where branches are exported, as one recorded call, so that a branch can contain it."""
    capture = latest()
    # No path records anything: no branches=True, or the loop is part of another recorded call.
    if capture is None or capture.paused or not capture.explorers:
        return list(loop(*operands))
    return list(capture.execute(_DeclaredLoop(loop), tuple(operands)))


class _DeclaredLoop(Composite):
    """A loop that the model wrote with `scan`, `each` or `while_loop`."""

    __name__ = "Loop"

    def __init__(self, loop: Callable[..., Sequence[torch.Tensor]]) -> None:
        self._loop = loop

    def __call__(self, *operands: torch.Tensor) -> Sequence[torch.Tensor]:
        return self._loop(*operands)


class _RecordingMode(TorchFunctionMode):
    """Records every torch call; under trace, RNN cells run as the plain steps of `rnn_cells`."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[TorchCall] = []

    def __torch_function__(self, function: Any, types: object, args: Any = (), kwargs: Any = None) -> object:
        kwargs = kwargs or {}
        if exporting() == "trace" and function in PLAIN:
            # The mode is off inside its own method; the plain steps are to be recorded too.
            with self:
                return PLAIN[function](*args, **kwargs)
        # A while loop in this body gives its state, as it was: run here, it would be in the graph a second time.
        state = args[2 : 2 + args[1]] if function is _called else args[2] if _is_while(function) else ()
        tensors_only = bool(state) and all(isinstance(one, torch.Tensor) for one in state)
        result = tuple(one.clone() for one in state) if tensors_only else function(*args, **kwargs)
        self.calls.append(TorchCall(function, args, kwargs, result, is_mutation(function, kwargs)))
        return result


def _is_while(function: object) -> bool:
    return exporting() == "dynamo" and function is torch.ops.higher_order.while_loop


class _RecordedBody:
    """A function that ran once, to be repeated on other tensors. outside: tensors it used besides its arguments."""

    def __init__(self, function: Body, example: list[torch.Tensor]) -> None:
        # Copies: a tensor that is both a state and used from outside must not be taken for one thing.
        example = [_in_order(tensor) for tensor in example]
        mode = _RecordingMode()
        with mode:
            self.results = function(*example)
        self.example = example
        needed = names_in(self.results)
        self.calls = pruned(mode.calls, needed)
        known = {id(t): t for call in mode.calls for t in tensors((call.args, call.kwargs, call.result))}
        known.update((id(t), t) for t in self.results)
        inside = names_made(self.calls) | {id(t) for t in example}
        self.outside = [t for name, t in known.items() if name in needed and name not in inside]

    def repeat(self, operands: Sequence[torch.Tensor], outside: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """The results for other operands, in the order of the example."""
        binding = Rebinding()
        binding.bind([*self.example, *self.outside], [*operands, *outside])
        binding.run(self.calls)
        # A body of torch's scan or while_loop may not return one of its operands as it is.
        return [_in_order(binding(result)) for result in self.results]


def _in_order(tensor: torch.Tensor) -> torch.Tensor:
    """A copy, with the strides of its shape: torch's loops refuse a state whose strides change, as of a transpose."""
    return tensor.clone(memory_format=torch.contiguous_format)


def scan_loop(
    step: Body, carry: list[torch.Tensor], rows: Sequence[torch.Tensor], dim: int | None = None, none: bool = False
) -> Sequence[torch.Tensor]:
    """Write `for each in zip(*rows): *carry, *outs = step(*carry, *each)`; returns the last carry and the stacked outs.

    rows: tensors [n, ...]; an out of each round the same shape, stacked to [n, ...]. dim: under trace, the axis along
    which they are concatenated instead; there their sizes may differ. none: whether n may be 0, unless its
    expression says otherwise.
    """
    body = _RecordedBody(step, [*carry, *(tensor.select(0, 0) for tensor in rows)])
    if exporting() == "trace":
        return _traced_scan(body, carry, rows, dim, none and _may_be_none(rows[0]))
    count = len(carry) + len(rows)
    length: object = rows[0].shape[0]
    if isinstance(length, torch.SymInt):
        torch._check(length > 0)  # torch's scan asks it, which of a number that data decides has no answer

    def combine(*operands: torch.Tensor) -> list[torch.Tensor]:
        return body.repeat(operands[:count], operands[count:])

    # Detached: for a backward, torch's second trace would have the body return sizes too, and fail to stack them.
    first, each = ([one.detach() for one in group] for group in (map(_in_order, carry), rows))
    # Of two that share memory, as a tensor and its row, torch says that the loop "might be aliasing the input".
    storages = [storage_key(one) for one in body.outside]
    outside = [
        one.clone() if storages.count(at) > 1 else one.detach() for one, at in zip(body.outside, storages, strict=True)
    ]
    return cast(Sequence[torch.Tensor], torch.ops.higher_order.scan(combine, first, each, tuple(outside)))


def _traced_scan(
    body: _RecordedBody, carry: list[torch.Tensor], rows: Sequence[torch.Tensor], dim: int | None, may_be_none: bool
) -> Sequence[torch.Tensor]:
    outside, count = body.outside, len(carry) + len(rows)
    state, each, extra = _names("c", len(carry)), _names("x", len(rows)), _names("a", len(outside))
    wholes = _names("y", len(body.results) - len(carry))
    gathered = [_gathered(name, len(carry) + at, dim, may_be_none) for at, name in enumerate(wholes)]
    before, inside, after = (list(itertools.chain(*lines)) for lines in zip(*gathered, strict=True))
    count_of = f"{each[0]}.size(0)"
    if may_be_none:
        # onnxruntime joins no empty list. So there is a row more, taken where there is no other.
        rows = [torch.cat([row, row[:1].sum(0, keepdim=True).to(row.dtype)]) for row in rows]
        before += [f"rounds = {count_of} - 1", *(f"first_{name} = {name}" for name in state)]
        after += [f"{name} = {name} if rounds > 0 else first_{name}" for name in state]
        count_of = "max(rounds, 1)"
    lines = [*before, f"for i in range({count_of}):"]
    lines += [f"    r = step({', '.join([*state, *(f'{name}[i]' for name in each), *extra])})"]
    lines += [*_unpacked(state), *inside, *after, f"return ({', '.join([*state, *wholes])},)"]
    sizes = [*map(_fixed_sizes, carry), *((_fixed_sizes(tensor) or [])[1:] for tensor in rows)]

    def repeat(*operands: torch.Tensor) -> tuple[torch.Tensor, ...]:
        shaped = [_with_sizes(t, s) for t, s in zip(operands[:count], sizes, strict=True)]
        return tuple(body.repeat(shaped, operands[count:]))

    functions = {"step": (repeat, [*carry, *(tensor.select(0, 0) for tensor in rows), *outside])}
    return _compiled([*state, *each, *extra], lines, functions)(*carry, *rows, *outside)


def _gathered(name: str, place: int, dim: int | None, may_be_none: bool) -> tuple[list[str], list[str], list[str]]:
    """The lines of a result of every round, `r[place]`: before the loop, in it, and after it, where `name` is whole."""
    axis, parts = dim or 0, f"outs_{name}"
    joined = f"torch.stack({parts})" if dim is None else f"torch.cat({parts}, {dim})"
    # An empty list is one of tensors in TorchScript. The row that is too many is cut off.
    cut = [f"{name} = {name}.narrow({axis}, 0, {name}.size({axis}) * min(rounds, 1))"] if may_be_none else []
    return [f"{parts} = []"], [f"    {parts}.append(r[{place}])"], [f"{name} = {joined}", *cut]


def _sizes(tensor: torch.Tensor) -> Sequence[int | torch.SymInt] | None:
    """The sizes of a traced tensor as expressions of those of the inputs; None where they are not known."""
    capture = latest()
    symbolic = None if capture is None or capture.shadow is None else capture.shadow.get(tensor)
    if not isinstance(symbolic, torch.Tensor):
        return None
    with tracing_paused():
        return symbolic.shape


def _fixed_sizes(tensor: torch.Tensor) -> list[int] | None:
    """-1 for a dynamic one."""
    sizes = _sizes(tensor)
    return None if sizes is None else [size if isinstance(size, int) else -1 for size in sizes]


def _may_be_none(rows: torch.Tensor) -> bool:
    """Whether there may be no row, at some size of the inputs."""
    sizes = _sizes(rows)
    with tracing_paused():
        found = None if sizes is None else sampled_sizes([sizes[0] + 1])  # which are at least 1
    return found is None or min(found) == (1,)


def _with_sizes(tensor: torch.Tensor, sizes: list[int] | None) -> torch.Tensor:
    # Inside a Loop a tensor has no shape, and some operators need the fixed sizes when they are written.
    # reshape can work out one size, no more.
    return tensor.reshape(sizes) if sizes and sizes.count(-1) <= 1 else tensor


def _recorded(operands: list[torch.Tensor], *bodies: Body) -> tuple[list[torch.Tensor], list[Loop]]:
    """(What functions use from outside; the functions, of their operands and of that), each after it ran once."""
    recorded = [_RecordedBody(body, operands) for body in bodies]
    # Each once: torch refuses a tensor that is given twice.
    count, outside = len(operands), list({id(t): t for one in recorded for t in one.outside}.values())

    def repeated(again: _RecordedBody) -> Loop:
        places = [count + at for needed in again.outside for at, one in enumerate(outside) if one is needed]
        return lambda *operands: tuple(again.repeat(operands[:count], [operands[at] for at in places]))

    return outside, [repeated(one) for one in recorded]


def write_if(asked: torch.Tensor, then: Body, other: Body, operands: list[torch.Tensor]) -> Sequence[torch.Tensor]:
    """Write `then(*operands) if asked else other(*operands)` into a trace; both return equally many tensors."""
    outside, (first, second) = _recorded(operands, then, other)
    example = [*operands, *outside]
    names = _names("x", len(example))
    given = ", ".join(names)
    lines = ["if bool(p):", f"    r = then({given})", "else:", f"    r = other({given})", "return r"]
    return _compiled(["p", *names], lines, {"then": (first, example), "other": (second, example)})(asked, *example)


def write_while(condition: Body, body: Body, state: list[torch.Tensor]) -> Sequence[torch.Tensor]:
    """Write `while condition(*state)[0]: state = body(*state)`; returns the last state."""
    outside, (answers, step) = _recorded(state, condition, body)

    def ask(*operands: torch.Tensor) -> torch.Tensor:
        return answers(*operands)[0]

    if exporting() == "trace":
        return _traced_while(ask, step, state, outside)
    first = tuple(map(_in_order, state))  # a state may not be one of the tensors from outside
    return cast(Sequence[torch.Tensor], torch.ops.higher_order.while_loop(ask, step, first, tuple(outside)))


def _traced_while(
    ask: TracedBody, step: TracedBody, state: list[torch.Tensor], outside: list[torch.Tensor]
) -> Sequence[torch.Tensor]:
    names, extra = _names("c", len(state)), _names("a", len(outside))
    operands = ", ".join([*names, *extra])
    lines = [f"go = bool(ask({operands}))", "while go:", f"    r = step({operands})"]
    lines += [*_unpacked(names), f"    go = bool(ask({operands}))", f"return ({', '.join(names)},)"]
    example = [*state, *outside]
    return _compiled([*names, *extra], lines, {"ask": (ask, example), "step": (step, example)}, len(state))(*example)


def _names(prefix: str, count: int) -> list[str]:
    return [f"{prefix}{i}" for i in range(count)]


def _unpacked(names: Iterable[str]) -> list[str]:
    return [f"    {name} = r[{i}]" for i, name in enumerate(names)]


def _compiled(
    names: list[str],
    lines: list[str],
    functions: Mapping[str, tuple[TracedBody, list[torch.Tensor]]],
    count: int = 0,
) -> Loop:
    """A TorchScript function with the body `lines`; it is kept alive as long as the model is patched.

    count: how many operands its results have the shapes and dtypes of.
    """
    # Patches act on the calls of the body, which were recorded as the model made them.
    function: Loop = compiled_function(f"onnxpatch_loop_{next(_numbers)}", names, lines, dict(functions))
    capture = latest()
    (_alive if capture is None else capture.report.compiled).append(function)
    return functools.partial(_called, function, count)


def _called(loop: Loop, count: int, *operands: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """loop(*operands), which a body that is being recorded sees as one call: a loop in a loop."""
    if has_torch_function(operands):
        return handle_torch_function(_called, operands, loop, count, *operands)
    return loop(*operands)


def gru_cell(x: Tensor, h: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Bias = None, b_hh: Bias = None) -> Tensor:
    """[batch, hidden] from x [batch, in] and h [batch, hidden]; weights as torch.gru_cell takes them."""
    (r, z, n), (hr, hz, hn) = _gates(F.linear(x, w_ih, b_ih), w_ih, 3), _gates(F.linear(h, w_hh, b_hh), w_hh, 3)
    keep = torch.sigmoid(z + hz)
    new = torch.tanh(n + torch.sigmoid(r + hr) * hn)
    return new + keep * (h - new)


def lstm_cell(
    x: Tensor, state: tuple[Tensor, Tensor], w_ih: Tensor, w_hh: Tensor, b_ih: Bias = None, b_hh: Bias = None
) -> tuple[Tensor, Tensor]:
    """(h, c), each [batch, hidden]; weights as torch.lstm_cell takes them."""
    h, c = state
    i, f, g, o = _gates(F.linear(x, w_ih, b_ih) + F.linear(h, w_hh, b_hh), w_ih, 4)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(c), c


def _gates(joined: Tensor, weight: Tensor, count: int) -> list[Tensor]:
    """joined [batch, count * hidden], cut into gates of [batch, hidden]; weight [count * hidden, in] has the size."""
    size = int(weight.shape[0]) // count
    return [joined[:, size * number : size * (number + 1)] for number in range(count)]


PLAIN: dict[Callable[..., object], Callable[..., Tensor | tuple[Tensor, Tensor]]] = {
    torch.gru_cell: gru_cell,
    torch.lstm_cell: lstm_cell,
}

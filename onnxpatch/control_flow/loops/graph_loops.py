"""Loops of a graph: a body is recorded once and becomes an ONNX Scan or Loop.

What `onnxpatch.scan`, `each` and `while_loop` do under an exporter, and what loops found in plain Python become.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from onnxpatch._torch import exporting
from onnxpatch._torch.cond import compiled_function
from onnxpatch._torch.trace_state import tracing_paused
from onnxpatch.control_flow.current_capture import latest
from onnxpatch.control_flow.loops.rnn_cells import PLAIN
from onnxpatch.control_flow.tape import Entry, Rebinding, names_in, pruned, tensors

_numbers = itertools.count()
_alive: list[Any] = []


def as_one_call(loop: Callable[..., list[torch.Tensor]], given: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Run a loop as one call where branches are forked, so that a branch can hold it."""
    capture = latest()
    if capture is None or capture.paused or not capture.frames:
        return loop(*given)
    return list(capture.execute(lambda *now: loop(*now), tuple(given), {}))


class _Recorder(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.entries: list[Entry] = []

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if exporting() == "trace" and function in PLAIN:
            with self:
                return PLAIN[function](*args, **(kwargs or {}))
        result = function(*args, **(kwargs or {}))
        self.entries.append(Entry(function, args, kwargs or {}, result, mutates=False))
        return result


class _Recorded:
    """A function run once: its calls can be done again on other tensors; `outside`: the tensors it took from around."""

    def __init__(self, function: Callable[..., list[torch.Tensor]], example: list[torch.Tensor]) -> None:
        # Copies: a tensor that is both a state and used from outside must not be taken for one thing.
        example = [tensor.clone() for tensor in example]
        recorder = _Recorder()
        with recorder:
            self.results = function(*example)
        self.example = example
        needed = names_in(self.results)
        self.entries = pruned(recorder.entries, needed)
        given = {name for entry in self.entries if not entry.constant for name in entry.gives()}
        known = {id(t): t for e in recorder.entries for t in tensors((e.args, e.kwargs, e.result))}
        known.update((id(t), t) for t in self.results)
        mine = {id(t) for t in example}
        self.outside = [t for name, t in known.items() if name in needed and name not in given | mine]

    def again(self, given: Sequence[torch.Tensor], outside: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        binding = Rebinding()
        for old, new in zip([*self.example, *self.outside], [*given, *outside], strict=True):
            binding.bind(old, new)
        binding.run(self.entries)
        return [binding(result).clone() for result in self.results]


def scan_loop(step: Callable[..., list[torch.Tensor]], carry: list[torch.Tensor], rows: torch.Tensor) -> Any:
    recorded = _Recorded(step, [*carry, rows.select(0, 0)])
    outside, count = recorded.outside, len(carry)
    if exporting() == "trace":
        now = [f"c{i}" for i in range(count)]
        extra = [f"a{i}" for i in range(len(outside))]
        lines = ["outs = []", "for i in range(rows.size(0)):"]
        lines += [f"    r = step({', '.join([*now, 'rows[i]', *extra])})"]
        lines += [f"    {name} = r[{i}]" for i, name in enumerate(now)] + [f"    outs.append(r[{count}])"]
        lines += [f"return ({', '.join([*now, 'torch.stack(outs)'])})"]
        sizes = [*map(_fixed_sizes, carry), (_fixed_sizes(rows) or [])[1:]]

        def body(*given: torch.Tensor) -> tuple[torch.Tensor, ...]:
            shaped = [_with_sizes(t, s) for t, s in zip(given[: count + 1], sizes, strict=True)]
            return tuple(recorded.again(shaped, given[count + 1 :]))

        example = {"step": (body, [*carry, rows.select(0, 0), *outside])}
        return _compiled([*now, "rows", *extra], lines, example)(*carry, rows, *outside)

    def combine(*given: torch.Tensor) -> list[torch.Tensor]:
        return recorded.again(given[: count + 1], given[count + 1 :])

    return torch.ops.higher_order.scan(combine, carry, [rows], tuple(outside))


def _fixed_sizes(tensor: torch.Tensor) -> list[int] | None:
    """The sizes of a traced tensor, -1 for a dynamic one; None where they are not known."""
    capture = latest()
    symbolic = None if capture is None or capture.shadow is None else capture.shadow.get(tensor)
    if not isinstance(symbolic, torch.Tensor):
        return None
    with tracing_paused():
        return [size if isinstance(size, int) else -1 for size in symbolic.shape]


def _with_sizes(tensor: torch.Tensor, sizes: list[int] | None) -> torch.Tensor:
    # What a Loop hands to its body has no shape; some operators ask for the fixed sizes when they are written.
    return tensor.reshape(sizes) if sizes and sizes.count(-1) <= 1 else tensor


def while_loop(go: Callable[..., Any], body: Callable[..., Any], state: list[torch.Tensor]) -> Any:
    asked, done = _Recorded(go, state), _Recorded(body, state)
    count, split = len(state), len(state) + len(asked.outside)
    outside = [*asked.outside, *done.outside]
    ask = lambda *given: asked.again(given[:count], given[count:split])[0]  # noqa: E731
    step = lambda *given: tuple(done.again(given[:count], given[split:]))  # noqa: E731
    if exporting() != "trace":
        first = tuple(tensor.clone() for tensor in state)  # a state may not be one of the tensors from outside
        return torch.ops.higher_order.while_loop(ask, step, first, tuple(outside))
    now, extra = [f"c{i}" for i in range(count)], [f"a{i}" for i in range(len(outside))]
    given = ", ".join([*now, *extra])
    lines = [f"go = bool(ask({given}))", "while go:", f"    r = step({given})"]
    lines += [f"    {name} = r[{i}]" for i, name in enumerate(now)] + [f"    go = bool(ask({given}))"]
    lines += [f"return ({', '.join(now)},)"]
    example = [*state, *outside]
    return _compiled([*now, *extra], lines, {"ask": (ask, example), "step": (step, example)})(*example)


def _compiled(names: list[str], lines: list[str], functions: dict[str, Any]) -> Callable[..., Any]:
    with tracing_paused():
        function = compiled_function(f"onnxpatch_loop_{next(_numbers)}", names, lines, functions)
    capture = latest()
    (_alive if capture is None else capture.report.compiled).append(function)
    return function

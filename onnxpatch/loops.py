"""`scan`, `each` and `while_loop`: loops whose number of rounds depends on the input, in a form that can be exported.

torch.jit.trace and torch.export unroll a Python loop as often as the example needs. These decorators take the body of
the loop instead. Outside an export the decorated function is a plain Python loop. Under an exporter the body is
recorded once and becomes an ONNX Scan or Loop. Bodies may use modules and tensors from around them.

    @onnxpatch.scan
    def step(total, row):           # a running sum: totals[i] = rows[: i + 1].sum(0)
        total = total + row
        return total, total

    last, totals = step(torch.zeros(4), rows)
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, TypeVar, cast

import torch

from onnxpatch._torch import exporting
from onnxpatch.control_flow.loops.graph_loops import as_one_call, scan_loop
from onnxpatch.control_flow.loops.graph_loops import write_while as graph_while

State: TypeAlias = torch.Tensor | Sequence[torch.Tensor]
# A decorated function is typed as its body is: parameters and results are of the same kinds, with rows stacked.
ScanBody = TypeVar("ScanBody", bound=Callable[[Any, Any], tuple[Any, torch.Tensor]])
RowBody = TypeVar("RowBody", bound=Callable[[torch.Tensor], torch.Tensor])
WhileBody = TypeVar("WhileBody", bound=Callable[..., State])


def scan(body: ScanBody) -> ScanBody:
    """Turn the body of a loop over rows into the whole loop: one ONNX Scan, also for a dynamic number of rows.

        last, sums = onnxpatch.scan(lambda carry, row: (carry + row, carry + row))(torch.zeros(4), rows)  # rows: [n, 4]

    body(carry, row) -> (carry, out) becomes a function (init, rows) -> (last carry, outs).
    carry, init: a tensor, or a tuple of tensors, whose shapes and dtypes stay the same from round to round.
    rows: [n, ...]; or a tuple of tensors with as many rows, then `row` is a tuple of one row of each.
    outs: the results stacked, [n, ...]. n may be dynamic; it must be at least 1.
    """

    @functools.wraps(body)
    def run(init: State, rows: State) -> tuple[State, torch.Tensor]:
        if exporting() is None:
            return _plain_scan(body, init, rows)
        single, count = isinstance(init, torch.Tensor), len(_as_tuple(init))
        one = isinstance(rows, torch.Tensor)

        def step(*values: torch.Tensor) -> list[torch.Tensor]:
            row = values[count] if one else tuple(values[count:])
            carry, out = body(values[0] if single else tuple(values[:count]), row)
            return [carry, out] if single else [*carry, out]

        flat = [*_as_tuple(init), *_as_tuple(rows)]
        *carry, outs = as_one_call(lambda *values: scan_loop(step, list(values[:count]), values[count:]), flat)
        return (carry[0] if single else tuple(carry)), outs

    return cast(ScanBody, run)


def each(body: RowBody) -> RowBody:
    """Turn a function of one row into a loop over all rows, in which no round uses another one's result.

        lengths = onnxpatch.each(lambda row: row.norm())(rows)  # [n, 4] to [n]

    body(row) -> out becomes a function rows -> outs.
    rows: [n, ...]. outs: the results stacked, [n, ...]. n may be dynamic; it must be at least 1.
    """

    @functools.wraps(body)
    def run(rows: torch.Tensor) -> torch.Tensor:
        if exporting() is None:
            return torch.stack([body(row) for row in rows])
        # Scan needs something to carry: one number, handed on as it is.
        _, outs = scan(lambda unused, row: (unused.clone(), body(row)))(torch.zeros(1), rows)
        return outs

    return cast(RowBody, run)


def while_loop(condition: Callable[..., torch.Tensor]) -> Callable[[WhileBody], WhileBody]:
    """Turn the body of a `while` into the whole loop: one ONNX Loop, which runs as long as `condition` holds.

        halved = onnxpatch.while_loop(lambda x: x.abs().max() > 1)(lambda x: x / 2)(x)

    body(*state) -> state becomes a function from the first state to the last.
    condition(*state): a 0-d bool tensor, asked before every round, so the body may run zero times.
    state: tensors whose shapes and dtypes stay the same. A body with one of them returns the tensor, not a tuple.
    """

    def decorate(body: WhileBody) -> WhileBody:
        @functools.wraps(body)
        def run(*state: torch.Tensor) -> State:
            if exporting() is None:
                while bool(condition(*state)):
                    state = _as_tuple(body(*state))
            else:
                state = tuple(_graph_while(condition, body, state))
            return state[0] if len(state) == 1 else state

        return cast(WhileBody, run)

    return decorate


def _graph_while(
    condition: Callable[..., torch.Tensor], body: Callable[..., State], state: tuple[torch.Tensor, ...]
) -> list[torch.Tensor]:
    def goes_on(*values: torch.Tensor) -> list[torch.Tensor]:
        # Eager takes a Python bool as well, or a tensor of one element.
        return [torch.as_tensor(condition(*values)).reshape(())]

    def step(*values: torch.Tensor) -> list[torch.Tensor]:
        return list(_as_tuple(body(*values)))

    return as_one_call(lambda *values: graph_while(goes_on, step, list(values)), state)


def _plain_scan(
    body: Callable[[Any, Any], tuple[Any, torch.Tensor]], carry: State, rows: State
) -> tuple[State, torch.Tensor]:
    outs = []
    for row in rows if isinstance(rows, torch.Tensor) else zip(*rows, strict=True):
        carry, out = body(carry, row)
        outs.append(out)
    return carry, torch.stack(outs)


def _as_tuple(state: State) -> tuple[torch.Tensor, ...]:
    return (state,) if isinstance(state, torch.Tensor) else tuple(state)

"""Loops that run as often as the data says, written so that a graph can hold them: `scan`, `each`, `while_loop`.

A decorator takes the body. Outside an export the decorated function is a plain Python loop; under an exporter the body
is recorded once and becomes an ONNX Scan or Loop. Bodies may use modules and tensors from outside.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from onnxpatch._torch import exporting
from onnxpatch.control_flow.loops.graph_loops import as_one_call, scan_loop
from onnxpatch.control_flow.loops.graph_loops import while_loop as graph_while

Body = Callable[..., Any]


def scan(body: Body) -> Body:
    """`body(carry, row) -> (carry, out)` over the rows of a tensor: `scan(body)(init, rows) -> (carry, outs)`.

    init, carry: a tensor, or a tuple of tensors whose shapes and dtypes do not change. rows: [n, ...]. outs: the n
    results stacked, [n, ...]. n may be dynamic, and at least 1.
    """

    @functools.wraps(body)
    def run(init: Any, rows: torch.Tensor) -> Any:
        if exporting() is None:
            return _plain_scan(body, init, rows)
        single = isinstance(init, torch.Tensor)
        flat = [init] if single else list(init)

        def step(*given: torch.Tensor) -> list[torch.Tensor]:
            carry, out = body(given[0] if single else tuple(given[:-1]), given[-1])
            return [carry, out] if single else [*carry, out]

        *carry, outs = as_one_call(lambda *now: scan_loop(step, list(now[:-1]), now[-1]), [*flat, rows])
        return (carry[0] if single else tuple(carry)), outs

    return run


def each(body: Body) -> Body:
    """`body(row) -> out` for every row of a tensor, independently: `each(body)(rows) -> outs`, stacked, [n, ...]."""

    @functools.wraps(body)
    def run(rows: torch.Tensor) -> Any:
        if exporting() is None:
            return torch.stack([body(row) for row in rows])
        return scan(lambda nothing, row: (nothing.clone(), body(row)))(torch.zeros(1), rows)[1]

    return run


def while_loop(condition: Callable[..., Any]) -> Callable[[Body], Body]:
    """`@while_loop(condition)` over `body(*state) -> state`: called with the first state, returns the last.

    condition(*state) -> 0-d bool tensor, asked before every round, so the body may run zero times. state: tensors whose
    shapes and dtypes do not change; a body with one of them returns it alone.
    """

    def decorate(body: Body) -> Body:
        @functools.wraps(body)
        def run(*state: torch.Tensor) -> Any:
            if exporting() is None:
                while bool(condition(*state)):
                    state = _as_tuple(body(*state))
            else:
                go = lambda *now: [torch.as_tensor(condition(*now)).reshape(())]  # noqa: E731
                state = tuple(
                    as_one_call(lambda *now: graph_while(go, lambda *s: list(_as_tuple(body(*s))), list(now)), state)
                )
            return state[0] if len(state) == 1 else state

        return run

    return decorate


def _plain_scan(body: Body, carry: Any, rows: torch.Tensor) -> Any:
    outs = []
    for row in rows:
        carry, out = body(carry, row)
        outs.append(out)
    return carry, torch.stack(outs)


def _as_tuple(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else tuple(value) if isinstance(value, list) else (value,)

"""`scan`, `each`, `while_loop`, `cond`: loops and branches that depend on the input, in a form that can be exported.

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
from typing import Any, TypeVar, cast

import torch

from onnxpatch._torch import exporting, pytree
from onnxpatch.control_flow.loops.graph_loops import as_one_call, scan_loop, write_if
from onnxpatch.control_flow.loops.graph_loops import write_while as graph_while

# A decorated function is typed as its body is: parameters and results are of the same kinds, with rows stacked.
ScanBody = TypeVar("ScanBody", bound=Callable[[Any, Any], tuple[Any, Any]])
RowBody = TypeVar("RowBody", bound=Callable[[torch.Tensor], torch.Tensor])
WhileBody = TypeVar("WhileBody", bound=Callable[..., Any])


def scan(body: ScanBody) -> ScanBody:
    """Turn the body of a loop over rows into the whole loop: one ONNX Scan, also for a dynamic number of rows.

        last, sums = onnxpatch.scan(lambda carry, row: (carry + row, carry + row))(torch.zeros(4), rows)  # rows: [n, 4]

    body(carry, row) -> (carry, out) becomes a function (init, rows) -> (last carry, outs).
    carry, init: a tensor, or a tuple of tensors, whose shapes and dtypes stay the same from round to round.
    rows: [n, ...]; or a tuple of tensors with as many rows, then `row` is a tuple of one row of each.
    outs: the results stacked, [n, ...]; of a tuple, each. n may be dynamic; it must be at least 1.
    """

    @functools.wraps(body)
    def run(init: Any, rows: Any) -> Any:
        if exporting() is None:
            return _plain_scan(body, init, rows)
        step, count = _OfLeaves(body, (init, rows)), len(pytree.tree_leaves(init))
        return step.result(as_one_call(lambda *x: scan_loop(step, list(x[:count]), x[count:]), step.leaves))

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
        def run(*state: Any) -> Any:
            if exporting() is None:
                while bool(condition(*state)):
                    state = _as_tuple(body(*state))
            else:
                step = _OfLeaves(body, state)
                goes_on = _OfLeaves(lambda *now: torch.as_tensor(condition(*now)).reshape(()), state)
                state = _as_tuple(step.result(as_one_call(lambda *x: graph_while(goes_on, step, list(x)), step.leaves)))
            return state[0] if len(state) == 1 else state

        return cast(WhileBody, run)

    return decorate


def cond(pred: Any, true_fn: Callable[..., Any], false_fn: Callable[..., Any], operands: Sequence[Any] = ()) -> Any:
    """torch.cond, with the TorchScript exporter too: one ONNX If.

    y = onnxpatch.cond(x.sum() > 0, lambda x: x * 2, lambda x: -x, (x,))
    """
    if exporting() != "trace":
        return torch.cond(pred, true_fn, false_fn, tuple(operands))
    if isinstance(pred, bool | int | float):
        return true_fn(*operands) if pred else false_fn(*operands)
    then, other = _OfLeaves(true_fn, operands), _OfLeaves(false_fn, operands)
    asked = pred.to(torch.bool).reshape(())
    return then.result(as_one_call(lambda asked, *x: write_if(asked, then, other, list(x)), [asked, *then.leaves]))


class _OfLeaves:
    """A function of values in any nest, as one of their tensors, which returns tensors."""

    def __init__(self, function: Callable[..., Any], values: Sequence[Any]) -> None:
        leaves, self._given = pytree.tree_flatten(tuple(values))
        self.leaves = [leaf if isinstance(leaf, torch.Tensor) else torch.as_tensor(leaf) for leaf in leaves]
        self._function, self._made = function, self._given

    def __call__(self, *leaves: torch.Tensor) -> list[torch.Tensor]:
        results, self._made = pytree.tree_flatten(self._function(*pytree.tree_unflatten(leaves, self._given)))
        return list(results)

    def result(self, tensors: Sequence[torch.Tensor]) -> Any:
        """Tensors in the nest that the function returns."""
        return pytree.tree_unflatten(list(tensors), self._made)


def _plain_scan(body: Callable[[Any, Any], tuple[Any, Any]], carry: Any, rows: Any) -> tuple[Any, Any]:
    leaves, nest = pytree.tree_flatten(rows)
    outs = []
    for row in zip(*leaves, strict=True):
        carry, out = body(carry, pytree.tree_unflatten(row, nest))
        outs.append(out)
    return carry, pytree.tree_map(lambda *each: torch.stack(each), *outs)


def _as_tuple(state: Any) -> tuple[Any, ...]:
    return (state,) if isinstance(state, torch.Tensor) else tuple(state)

"""Functions that torch makes of a function: torch.vmap, torch.func.grad, a captured program.

What they make is called once on tensors that hold no values; the operators that ran are called again on those that
the exporter records. Under trace such functions have no form, and torch.export carries out some of them only when it
translates. A captured program has its operators already.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from onnxpatch import Proof, When, op, patch
from onnxpatch.formulas.calls import called_again, of_operators, run_by_functions


def _by_rows(x: Tensor, k: Tensor) -> Any:
    """Each row by its sum or by one of its numbers, a product with a matrix, the slopes of a sum and of a product."""
    rows = torch.func.vmap(lambda r, i: torch.where(i == 0, r.sum(), r[i]) * r)(x, k)
    slopes = torch.func.vmap(torch.func.grad(lambda r: (r * r.sin()).sum()))(x)
    outer = torch.vmap(lambda r, i: (r.outer(r) + i, r.dot(r)), out_dims=(-1, 0))(x, k)
    slopes_of_each = torch.vmap(torch.func.jacrev(lambda r: r.sin() * r.sum()))(x)
    return rows, slopes, *outer, slopes_of_each, torch.vmap(lambda a: torch.mv(x, a) / a.norm(), out_dims=1)(x)


@op(
    "vmap",
    "func.vmap",
    "func.grad",
    "func.grad_and_value",
    "func.jacrev",
    "func.jacfwd",
    "func.hessian",
    name="function-transforms",
    why="Unsupported value kind: Tensor; Cannot access data pointer of Tensor that doesn't have storage; .numpy() "
    "is not supported for tensor subclasses; We found a fake tensor in the exported program constant's list",
    reason=r"Unsupported value kind|data pointer|storage|fake tensor|subclasses|calling \.item",
    link="https://pytorch.org/docs/stable/func.html",
    tries=lambda b, n: (torch.randn(b, n), torch.arange(b) % 2),
    sizes=((3, 5), (4, 7), (2, 3), (1, 2)),
    case=_by_rows,
    beside=("diagonal-scatter",),
)
def function_transforms(
    original: Callable[..., Callable[..., Any]], func: Callable[..., Any], *args: Any, **kwargs: Any
) -> Callable[..., Any]:
    """The same function, whose operators are called again."""
    made = original(func, *args, **kwargs)
    return lambda *given, **named: called_again(made, given, named)


def _program() -> torch.nn.Module:
    def parts(x: Tensor) -> Tensor:
        y = x.flatten(0, 1) * torch.arange(x.shape[0] * x.shape[1])[:, None]
        return (y.softmax(-1)[: x.shape[1]] / x.shape[1]).reshape(-1, 2).lgamma()

    program: torch.nn.Module = make_fx(parts, tracing_mode="symbolic")(torch.randn(2, 5, 4))
    return torch.nn.Sequential(program)  # torch.export looks at no class of a program itself


@patch(
    "torch.fx.GraphModule",
    name="captured-program",
    why="the example's size: torch.ops.aten.sym_size is a Python number under trace, and so is each size it is given; "
    "under dynamo no function's patch answers for the operator that a program calls in its place",
    link="https://pytorch.org/docs/stable/export.html",
    when=When(
        exporters=("trace", "dynamo"),
        subclasses=True,
        accepts=lambda module, _: None if of_operators(module) else "it calls functions, not operators",
    ),
    proof=Proof(
        _program,
        lambda: [(torch.randn(size),) for size in ((2, 5, 4), (3, 7, 4), (1, 2, 4))],
        fails=("trace", "dynamo"),
        reason="_softmax|relative error|reshape|lgamma",
        beside=("lgamma",),
    ),
)
class _CapturedProgram:
    """The graph's operators by their functions of Python."""

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        given = inspect.signature(self.forward).bind(*args, **kwargs)
        return run_by_functions(self, *given.args)

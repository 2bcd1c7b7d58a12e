"""Functions that torch makes of a function: torch.vmap, torch.func.grad, a captured program; torch.cond and its kin;
and torch.func.functional_call.

What they make is called once on tensors that hold no values; the operators that ran are called again on those that
the exporter records. Under trace such functions have no form, and torch.export carries out some of them only when it
translates. A captured program has its operators already.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from onnxpatch import Proof, When, cond, op, patch, scan, while_loop
from onnxpatch.formulas.calls import called_again, in_nest, of_operators, run_by_functions, temporary_attributes
from onnxpatch.patching.proof import randomised


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


# ------------------------------------------------------------------ torch's own branches and loops
class _OwnLoops(torch.nn.Module):
    """A branch within a loop over the rows, sums of them from the last on, one that data ends, and products so far."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = randomised(torch.nn.Linear(4, 4))

    def other(self, h: Tensor) -> Any:
        return torch.cond(h.max() > 0.5, lambda h: h - 1, lambda h: h.cos(), (h,))

    def forward(self, x: Tensor) -> Any:
        own: Any = importlib.import_module("torch._higher_order_ops")

        def step(state: dict[str, Tensor], row: Tensor) -> tuple[dict[str, Tensor], tuple[Tensor, Tensor]]:
            h = torch.cond(row.sum() > 0, lambda h: self.layer(h).tanh(), self.other, (state["h"] + row,))
            return {"h": h}, (h.clone(), row * 2)

        last, outs = own.scan(step, {"h": torch.zeros(2, 4)}, x, dim=1, reverse=True)
        halved = own.while_loop(lambda x, k: x.abs().sum() > 1, lambda x, k: (x / 2, k + 1), (x, torch.tensor(0)))
        return last, outs, halved, _products(x)


def _products(x: Tensor) -> Any:
    """Products and sums of products so far, from the last on."""
    scanned: Any = importlib.import_module("torch._higher_order_ops").associative_scan
    return scanned(lambda a, b: (a[0] * b[0], a[1] * b[0] + b[1]), (x.cos(), x), 1, True, "generic")


_OWN = ("torch-cond", "torch-while-loop", "torch-scan", "torch-associative-scan")


def _row(
    own: str, name: str, exporters: Any = ("trace",), case: Any = _OwnLoops, **options: Any
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    names = [f"torch._higher_order_ops.{own}", *([f"torch.{own}"] if hasattr(torch, own) else [])]
    return op(
        *names,
        name=name,
        why="Detected that you are using FX to torch.jit.trace a dynamo-optimized function",
        reason="dynamo-optimized|Concat|all values",
        link="https://pytorch.org/docs/stable/cond.html",
        exporters=exporters,
        tries=lambda n: torch.randn(2, n, 4),
        sizes=(5, 9, 1),
        case=case,
        beside=tuple(one for one in _OWN if one != name),
        **options,
    )


# Each name is written out: the shell's completion reads it off this file.
_row("cond", name="torch-cond", to=cond)


@_row("while_loop", name="torch-while-loop")
def torch_while_loop(cond_fn: Callable[..., Any], body_fn: Callable[..., Any], carried_inputs: Any) -> tuple[Any, ...]:
    """One Loop."""
    found = while_loop(cond_fn)(body_fn)(*carried_inputs)
    return (found,) if len(carried_inputs) == 1 else found


@_row("scan", name="torch-scan")
def torch_scan(combine_fn: Callable[..., Any], init: Any, xs: Any, *, dim: int = 0, reverse: bool = False) -> Any:
    """One Scan over the first axis."""
    last, outs = scan(combine_fn)(init, in_nest(lambda x: _turned(x.movedim(dim, 0), reverse), xs))
    return last, in_nest(lambda out: _turned(out, reverse).movedim(0, dim), outs)


def _turned(x: Tensor, reverse: bool) -> Tensor:
    return x.flip(0) if reverse else x


@_row(
    "associative_scan", name="torch-associative-scan", exporters=("trace", "dynamo"), case=_products
)  # dynamo unrolls it
def torch_associative_scan(
    combine_fn: Callable[..., Any], xs: Any, dim: int, reverse: bool = False, combine_mode: str = "pointwise"
) -> Any:
    """One Scan, whose first round hands on its row."""

    def step(state: Any, row: Any) -> Any:
        first, before = state
        found = in_nest(lambda now, one: torch.where(first, one, now), combine_fn(before, row), row)
        return (torch.zeros_like(first), found), in_nest(torch.clone, found)

    start = torch.ones((), dtype=torch.bool), in_nest(lambda x: x.select(dim, -1 if reverse else 0), xs)
    return torch_scan(step, start, xs, dim=dim, reverse=reverse)[1]


# ------------------------------------------------------------------ modules with other weights
class _OtherWeights(torch.nn.Module):
    """A layer called with a weight that is computed, and one that keeps the weight that it computes for two calls."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(randomised(torch.nn.Linear(4, 4)), torch.nn.Tanh())
        self.symmetric, self.scale = randomised(torch.nn.Linear(4, 4)), torch.linspace(-1.0, 1.0, 4)
        torch.nn.utils.parametrize.register_parametrization(self.symmetric, "weight", _Symmetric())

    def forward(self, x: Tensor) -> Any:
        weights = {"0.weight": self.scale[:, None] * x[0]}
        with torch.nn.utils.parametrize.cached():
            return self.symmetric(self.symmetric(x)) + torch.func.functional_call(self.layers, weights, (x,))


class _Symmetric(torch.nn.Module):
    def forward(self, weight: Tensor) -> Tensor:
        return weight.triu() + weight.triu(1).T


_weights = functools.partial(
    op,
    why="The stateless API can't be used with Jitted modules; Cannot trace a model while caching parametrizations",
    reason="stateless API|caching parametrizations",
    link="https://docs.pytorch.org/docs/stable/generated/torch.func.functional_call.html",
    exporters=("trace",),
    tries=lambda n: torch.randn(n, 4),
    case=_OtherWeights,
)


@_weights("func.functional_call", name="functional-call", beside=("cached-parametrizations",))
def functional_call(
    original: Callable[..., Any], module: Any, values: Any, args: Any = None, kwargs: Any = None, **options: Any
) -> Any:
    """The module, whose attributes are the given tensors meanwhile."""
    given = dict(values) if isinstance(values, dict) else {name: one for part in values for name, one in part.items()}
    with contextlib.ExitStack() as stack:
        for name, value in given.items():
            path, _, own = name.rpartition(".")
            stack.enter_context(temporary_attributes(module.get_submodule(path), **{own: value}))
        return module(*(args if isinstance(args, tuple) else () if args is None else (args,)), **(kwargs or {}))


@_weights("nn.utils.parametrize.cached", name="cached-parametrizations", beside=("functional-call",))
def cached(original: Callable[..., Any]) -> contextlib.AbstractContextManager[None]:
    """Nothing: each call computes the weight, as the same nodes of the graph."""
    return contextlib.nullcontext()

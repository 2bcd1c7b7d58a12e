"""How a stand-in calls the original: with other attributes meanwhile (`temporary_attributes`), or as operators.

What torch makes of a function, torch.vmap say, is called as the aten operators that it consists of, each by torch's
Python function of that name; exporters record those calls, and stand-ins see them:

    torch.vmap(lambda row: row / row.norm())(x)      x / torch.linalg.vector_norm(x, 2, [1]).view([x.shape[0], 1])
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, TypeVar

import torch
from torch import Tensor

from onnxpatch._torch import pytree
from onnxpatch._torch.function_modes import running_trace
from onnxpatch._torch.signatures import call_of
from onnxpatch._torch.tensor_origins import as_operators, captures, operator_name
from onnxpatch.process import undone

__all__ = [
    "call_of",
    "called_again",
    "in_nest",
    "listed",
    "of_operators",
    "run_by_functions",
    "temporary_attributes",
    "temporary_variable",
]

T = TypeVar("T")
_MISSING = object()


def in_nest(function: Callable[..., object], nest: Any, *more: Any) -> Any:
    """A nest of lists, tuples and dicts with `function` applied to each leaf, and to those of `more` beside it."""
    return pytree.tree_map(function, nest, *more)  # asked when it is called: torch may move it


def listed(given: Sequence[Any]) -> Sequence[Any]:
    """The arguments of a function that takes them one by one, or all in one list."""
    return given[0] if len(given) == 1 and isinstance(given[0], list | tuple) else given


@contextlib.contextmanager
def temporary_attributes(module: torch.nn.Module, **attributes: object) -> Iterator[None]:
    """Inside the block, `module` has these attributes; they hide its parameters and buffers of the same names."""
    here: dict[str, Any] = vars(module)
    before = {name: here.get(name, _MISSING) for name in attributes}

    def put_back() -> None:
        for name, value in before.items():
            if value is _MISSING:
                here.pop(name, None)
            else:
                here[name] = value

    with undone(put_back):
        here.update(attributes)
        yield


@contextlib.contextmanager
def temporary_variable(variable: ContextVar[T], value: T) -> Iterator[None]:
    """Inside the block, `variable` has this value. It must have a default."""
    before = variable.get()
    with undone(lambda: variable.set(before)):
        variable.set(value)
        yield


# ------------------------------------------------------------------ as operators
_END = 1 << 62  # a slice to the end has the largest int64


def called_again(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """`function(*args, **kwargs)`. Without a tensor among the arguments, or without a trace, it is called as it is."""
    leaves, spec = pytree.tree_flatten((tuple(args), dict(kwargs)))
    places = [place for place, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
    result: list[Any] = []

    def of_tensors(*tensors: Tensor) -> list[Any]:
        given = list(leaves)
        for place, tensor in zip(places, tensors, strict=True):
            given[place] = tensor
        positional, named = pytree.tree_unflatten(given, spec)
        flat, shape = pytree.tree_flatten(function(*positional, **named))
        result.append(shape)
        return flat

    tensors = [leaves[place] for place in places]
    if not tensors or not (running_trace() or captures()):  # within another one
        return function(*args, **kwargs)
    flat = run_by_functions(as_operators(of_tensors, tensors), *tensors)
    return pytree.tree_unflatten(list(flat), result[-1])


def of_operators(program: Any) -> bool:
    """Whether a captured program calls operators, as those of torch.export do."""
    return any(operator_name(node.target) for node in program.graph.nodes)


def run_by_functions(program: torch.fx.GraphModule, *given: Any) -> Any:
    """Run a program with torch's functions in place of its operators, so that their patches act."""
    return _OperatorsAgain(program).run(*given)


class _OperatorsAgain(torch.fx.Interpreter):
    """Runs a graph of operators."""

    def call_module(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        # What torch.export assumed of sizes is no part of what is computed.
        return None if target == "_guards_fn" else super().call_module(target, args, kwargs)

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        name = operator_name(target)
        if name is None:  # arithmetic of sizes, and parts of several results
            return target(*args, **kwargs)
        if name.startswith(_CONDITIONS):
            return None
        if name in _FORMS:
            return _FORMS[name](*args, **kwargs)
        if name in _ARITHMETIC and not isinstance(args[0], Tensor):  # 1 - x
            return getattr(operator, _ARITHMETIC[name])(*args)
        # How results lie in memory is nobody's concern.
        kwargs = {key: value for key, value in kwargs.items() if key not in _LAYOUT}
        homes = [torch.linalg] if name.startswith("linalg_") else [torch, Tensor, torch.nn.functional]
        spelled = name.removeprefix("linalg_")
        return next((getattr(home, spelled) for home in homes if hasattr(home, spelled)), target)(*args, **kwargs)


_ARITHMETIC = {"add": "add", "sub": "sub", "mul": "mul", "div": "truediv", "pow": "pow"}
_CONDITIONS = ("_assert_", "sym_constrain_")
_LAYOUT = ("layout", "pin_memory", "memory_format")


def _indexed(x: Tensor, places: Sequence[Tensor | None]) -> Tensor:
    # The dots keep it from `TransformGetItemToIndex`, a mode of torch's for vmap, which takes lists of tensors alone.
    return x[(*(slice(None) if one is None else one for one in places), ...)]


def _sliced(x: Tensor, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Tensor:
    end = None if isinstance(end, int) and end > _END else end
    return x[(slice(None),) * (dim % x.dim()) + (slice(start, end, step),)]


# Operators that no function of Python has by that name, or with other arguments.
_FORMS: dict[str, Callable[..., Any]] = {
    "_log_softmax": lambda x, dim, wide: torch.log_softmax(x, dim),
    "_softmax": lambda x, dim, wide: torch.softmax(x, dim),
    "_to_copy": lambda x, dtype=None, **_: x if dtype is None else x.to(dtype),
    **dict.fromkeys(("_unsafe_view", "view"), lambda x, sizes: x.reshape(sizes)),
    **dict.fromkeys(("alias", "detach", "lift_fresh_copy"), lambda x: x),
    "expand": lambda x, sizes, implicit=False: x.expand(sizes),
    "fill": lambda x, value: torch.full_like(x, value),  # torch.fill has no form under trace
    "index": _indexed,
    "size": lambda x: list(x.shape),
    "slice": _sliced,
    "sym_numel": lambda x: x.numel(),
    "sym_size": lambda x, dim: x.shape[dim],
}

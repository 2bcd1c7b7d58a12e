"""How a call comes to a stand-in, by the names of its arguments, and how a stand-in calls the original.

    @patch("torch.Tensor.index_add", ...)
    def index_add(original, input, dim, index, source, *, alpha=1): ...

    x.index_add(0, index, rows)                           # each of these arrives as
    x.index_add(dim=0, index=index, source=rows)          # index_add(original, x, dim=0, index=index, source=rows)

An argument that the stand-in names differently is matched by position. A stand-in that lacks an argument is not
called when that argument is given. While it calls the original, attributes and context variables may have another
value: `temporary_attributes`.

What torch makes of a function, torch.vmap say, is called as the aten operators that it consists of, each by torch's
Python function of that name; exporters record those calls, and stand-ins see them:

    torch.vmap(lambda row: row / row.norm())(x)      x / torch.linalg.vector_norm(x, 2, [1]).view([x.shape[0], 1])
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, TypeVar

import torch
from torch import Tensor

from onnxpatch._torch import pytree, signatures
from onnxpatch._torch.function_modes import running_trace
from onnxpatch._torch.tensor_origins import as_operators, captures, operator_name
from onnxpatch.process import undone

Call = tuple[tuple[Any, ...], dict[str, Any]]
_Kind = inspect.Parameter
_BY_POSITION = (_Kind.POSITIONAL_ONLY, _Kind.POSITIONAL_OR_KEYWORD)
T = TypeVar("T")
_MISSING = object()


def call_of(
    stand_in: Callable[..., object],
    function: object,
    args: tuple[object, ...],
    kwargs: dict[str, object],
    *,
    takes_original: bool = True,
) -> Call | None:
    """(args, kwargs), after the original, with which `stand_in` takes over a call of `function`.

    takes_original: whether the first parameter of `stand_in` is for the function itself.

    None if `stand_in` cannot take the call: it has no parameter for an option or an overload, or the function itself
    would raise.
    """
    own = _signature(stand_in, takes_original)
    if own is None:  # no signature to read: it gets the call unchanged
        return args, kwargs
    call: Call | None = args, kwargs
    if signatures.signatures(function):
        found = signatures.bound(function, args, kwargs)
        call = None if found is None else _translated(own, found)
    return call if call is not None and _takes(own, call) else None


# Stand-ins live as long as the process, and each is asked for at every call of its function.
@functools.lru_cache(maxsize=1024)
def _signature(stand_in: Callable[..., object], takes_original: bool) -> inspect.Signature | None:
    """The signature of a stand-in without its first parameter, the original."""
    try:
        found = inspect.signature(stand_in)
    except (ValueError, TypeError):
        return None
    parameters = list(found.parameters.values())
    first = parameters[:1] if takes_original else []
    # With `def stand_in(*args)` the original is one of args.
    if first and first[0].kind is not _Kind.VAR_POSITIONAL:
        parameters = parameters[1:]
    return found.replace(parameters=parameters)


def _takes(own: inspect.Signature, call: Call) -> bool:
    try:
        own.bind(*call[0], **call[1])
    except TypeError:
        return False
    return True


def _translated(own: inspect.Signature, call: inspect.BoundArguments) -> Call | None:
    mine = list(own.parameters.values())
    theirs = call.signature.parameters
    listed = [name for name, p in theirs.items() if p.kind is _Kind.VAR_POSITIONAL and name in call.arguments]
    until = list(theirs).index(listed[0]) if listed else 0
    positional: list[Any] = []
    keywords: dict[str, Any] = {}
    for index, (name, parameter) in enumerate(theirs.items()):
        if name not in call.arguments:
            continue
        value = call.arguments[name]
        if parameter.kind is _Kind.VAR_POSITIONAL:
            positional += value
        elif parameter.kind is _Kind.VAR_KEYWORD:
            keywords.update(value)
        # By position where names do not help: the first argument (a method's self has other names in torch's signatures
        # than in stand-ins), what comes before *args, and what the function takes by position only.
        elif index == len(positional) and (index == 0 or index < until or parameter.kind is _Kind.POSITIONAL_ONLY):
            positional.append(value)
        elif (there := _name_for(parameter, index, mine, theirs)) is not None:
            keywords[there] = value
        elif not _is_default(value, parameter):
            return None
    return tuple(positional), keywords


def _name_for(parameter: inspect.Parameter, index: int, mine: list[Any], theirs: Any) -> str | None:
    """The stand-in's name for argument number `index` of the function."""
    name = parameter.name
    names = {p.name: p for p in mine}
    if name in names and names[name].kind in (_Kind.POSITIONAL_OR_KEYWORD, _Kind.KEYWORD_ONLY):
        return name
    positional = index < len(mine) and mine[index].kind in _BY_POSITION and parameter.kind in _BY_POSITION
    # A stand-in's name that the function has too belongs to another argument: it must not be filled by position.
    if positional and mine[index].name not in theirs:
        return str(mine[index].name)
    return name if any(p.kind is _Kind.VAR_KEYWORD for p in mine) else None


def _is_default(value: object, parameter: inspect.Parameter) -> bool:
    if value is parameter.default:
        return True
    # Only plain values are compared: `==` of tensors gives a tensor, and that of symbolic sizes a guard.
    return isinstance(value, bool | int | float | str) and bool(value == parameter.default)


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


def _converted(x: Tensor, dtype: torch.dtype | None = None, **_: Any) -> Tensor:
    return x if dtype is None else x.to(dtype)


# Operators that no function of Python has by that name, or with other arguments.
_FORMS: dict[str, Callable[..., Any]] = {
    "_log_softmax": lambda x, dim, wide: torch.log_softmax(x, dim),
    "_softmax": lambda x, dim, wide: torch.softmax(x, dim),
    "_to_copy": _converted,
    "_unsafe_view": lambda x, sizes: x.reshape(sizes),
    "alias": lambda x: x,
    "detach": lambda x: x,
    "expand": lambda x, sizes, implicit=False: x.expand(sizes),
    "fill": lambda x, value: torch.full_like(x, value),  # torch.fill has no form under trace
    "index": _indexed,
    "lift_fresh_copy": lambda x: x,
    "size": lambda x: list(x.shape),
    "slice": _sliced,
    "sym_numel": lambda x: x.numel(),
    "sym_size": lambda x, dim: x.shape[dim],
    "view": lambda x, sizes: x.reshape(sizes),
}

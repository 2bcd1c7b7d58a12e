"""How a call comes to a stand-in, by the names of its arguments, and how a stand-in calls the original.

    @patch("torch.Tensor.index_add", ...)
    def index_add(original, input, dim, index, source, *, alpha=1): ...

    x.index_add(0, index, rows)                           # each of these arrives as
    x.index_add(dim=0, index=index, source=rows)          # index_add(original, x, dim=0, index=index, source=rows)

An argument that the stand-in names differently is matched by position. A stand-in that lacks an argument is not
called when that argument is given. While it calls the original, attributes and context variables may have another
value: `temporary_attributes`.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any, TypeVar

import torch

from onnxpatch._torch import signatures
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

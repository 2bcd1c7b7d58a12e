"""How a call of a torch function, also of one in C++, comes to a stand-in: by the names of its arguments.

    @patch("torch.Tensor.index_add", ...)
    def index_add(original, input, dim, index, source, *, alpha=1): ...

    x.index_add(0, index, rows)                           # each of these arrives as
    x.index_add(dim=0, index=index, source=rows)          # index_add(original, x, dim=0, index=index, source=rows)

An argument that the stand-in names differently is matched by position. A stand-in that lacks an argument is not called
when that argument is given.

- `torch._C._jit_get_schemas_for_operator`: all overloads of an operator with names, kinds and defaults of arguments.
  C++ functions have no Python signature, and those in `torch.overrides` lack many names. If it moves, a stand-in for
  such a function gets the arguments as the user wrote them.
- `torch._jit_internal.boolean_dispatched`: F.adaptive_max_pool2d and others with `return_indices` are two functions
  behind `*args`. If it moves, they too are called as written.
"""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable
from typing import Any

import torch

from onnxpatch._torch.function_modes import BUILTINS, is_operator, unseen

Call = tuple[tuple[Any, ...], dict[str, Any]]
_Parameter = inspect.Parameter
_BY_POSITION = (_Parameter.POSITIONAL_ONLY, _Parameter.POSITIONAL_OR_KEYWORD)
_METHODS = (types.MethodDescriptorType, types.WrapperDescriptorType)
_NUMBERS = (int, float, complex, torch.SymInt, torch.SymFloat, torch.SymBool)
_FACTORY = {"dtype", "layout", "device", "pin_memory"}
_NUMBERED = {*_FACTORY, "memory_format", "generator"}
# NumPy's names of arguments, which torch's C++ functions accept as well.
_ALIASES = {"axis": "dim", "keepdims": "keepdim", "x": "input", "a": "input", "x1": "input", "x2": "other"}
# Their arguments are parsed by hand in C++: no schema has the forms that Python may use.
_PARSED_BY_HAND = {"tensor": ("data", ()), "as_tensor": ("data", ("dtype", "device"))}


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
    if signatures(function):
        found = bound(function, args, kwargs)
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
    if first and first[0].kind is not _Parameter.VAR_POSITIONAL:
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
    listed = [name for name, p in theirs.items() if p.kind is _Parameter.VAR_POSITIONAL and name in call.arguments]
    until = list(theirs).index(listed[0]) if listed else 0
    positional: list[Any] = []
    keywords: dict[str, Any] = {}
    for index, (name, parameter) in enumerate(theirs.items()):
        if name not in call.arguments:
            continue
        value = call.arguments[name]
        if parameter.kind is _Parameter.VAR_POSITIONAL:
            positional += value
        elif parameter.kind is _Parameter.VAR_KEYWORD:
            keywords.update(value)
        # By position where names do not help: the first argument (a method's self has other names in torch's signatures
        # than in stand-ins), what comes before *args, and what the function takes by position only.
        elif index == len(positional) and (index == 0 or index < until or parameter.kind is _Parameter.POSITIONAL_ONLY):
            positional.append(value)
        elif (there := _name_for(parameter, index, mine, theirs)) is not None:
            keywords[there] = value
        elif not _is_default(value, parameter):
            return None
    return tuple(positional), keywords


def _name_for(parameter: _Parameter, index: int, mine: list[Any], theirs: Any) -> str | None:
    """The stand-in's name for argument number `index` of the function."""
    name = parameter.name
    names = {p.name: p for p in mine}
    if name in names and names[name].kind in (_Parameter.POSITIONAL_OR_KEYWORD, _Parameter.KEYWORD_ONLY):
        return name
    positional = index < len(mine) and mine[index].kind in _BY_POSITION and parameter.kind in _BY_POSITION
    # A stand-in's name that the function has too belongs to another argument: it must not be filled by position.
    if positional and mine[index].name not in theirs:
        return str(mine[index].name)
    return name if any(p.kind is _Parameter.VAR_KEYWORD for p in mine) else None


def _is_default(value: object, parameter: _Parameter) -> bool:
    if value is parameter.default:
        return True
    # Only plain values are compared: `==` of tensors gives a tensor, and that of symbolic sizes a guard.
    return isinstance(value, bool | int | float | str) and bool(value == parameter.default)


def bound(function: object, args: tuple[object, ...], kwargs: dict[str, object]) -> inspect.BoundArguments | None:
    """The arguments of a call by name, for the first overload that fits.

    None if the call fits no overload. `signatures` shows whether any is known.
    """
    for signature in signatures(function):
        for given, named in _spellings(signature, args, kwargs):
            try:
                found = signature.bind(*given, **named)
            except TypeError:
                continue
            if all(_fits(signature.parameters[name].annotation, value) for name, value in found.arguments.items()):
                return found
    return None


@functools.cache
def signatures(function: object) -> tuple[inspect.Signature, ...]:
    """The signatures of all overloads of a function; () if they cannot be read."""
    if isinstance(function, types.MethodWrapperType):  # a property of Tensor, as a TorchFunctionMode sees it
        return (inspect.Signature([_Parameter("self", _Parameter.POSITIONAL_ONLY)]),)
    if isinstance(function, BUILTINS) and is_operator(function):
        return _of_operator(function)
    try:
        # The signature of the function behind the switch, not its own `*args`.
        return (_plain(inspect.signature(_dispatched(function))),)
    except (ValueError, TypeError):
        return ()


def _plain(signature: inspect.Signature) -> inspect.Signature:
    """The signature without annotations, which are not checked for Python functions."""
    return signature.replace(parameters=[p.replace(annotation=p.empty) for p in signature.parameters.values()])


def _dispatched(function: object) -> Any:
    known = getattr(getattr(torch, "_jit_internal", None), "boolean_dispatched", {})
    try:
        # Both sides take the same arguments.
        return known[function]["if_true"]
    except (KeyError, TypeError):
        return function


def _of_operator(function: Any) -> tuple[inspect.Signature, ...]:
    name, method = function.__name__, isinstance(function, _METHODS)
    if name in _PARSED_BY_HAND and not method:
        return (_by_hand(*_PARSED_BY_HAND[name]),)
    schemas: Callable[[str], Any] | None = getattr(torch._C, "_jit_get_schemas_for_operator", None)
    found = schemas(f"aten::{name}") if schemas is not None else []
    made = (_of_schema(schema.arguments, method) for schema in found)
    return tuple(signature for signature in made if signature is not None)


def _by_hand(first: str, further: tuple[str, ...]) -> inspect.Signature:
    keywords = dict.fromkeys((*further, "dtype", "device", "requires_grad", "pin_memory"))
    kind = _Parameter.KEYWORD_ONLY
    # requires_grad and pin_memory are False by default; dtype and device are None.
    rest = [_Parameter(name, kind, default=False if name[-1] in "dy" else None) for name in keywords]
    return inspect.Signature([_Parameter(first, _Parameter.POSITIONAL_OR_KEYWORD), *rest])


def _of_schema(arguments: list[Any], method: bool) -> inspect.Signature | None:
    """A schema as a Python signature: `self` is positional in a method, and named `input` in a function.

    None for overloads with named dimensions, and for those that write into `out`.
    """
    if any(argument.is_out or "Dimname" in str(argument.type) for argument in arguments):
        return None
    if method:
        if all(argument.name != "self" for argument in arguments):
            return None
        # `self` is not always first: aten::where(condition, self, other) is x.where(condition, other).
        arguments = sorted(arguments, key=lambda argument: argument.name != "self")
    taken = {argument.name for argument in arguments}
    parameters = [_of_argument(argument, method) for argument in arguments]
    # Python's factory functions take requires_grad; their schemas do not have it.
    if taken >= _FACTORY and "requires_grad" not in taken:
        parameters.append(_Parameter("requires_grad", _Parameter.KEYWORD_ONLY, default=False))
    try:
        return inspect.Signature(parameters)
    except ValueError:  # a required argument after an optional one: not possible in Python
        return None


def _of_argument(argument: Any, method: bool) -> _Parameter:
    itself = argument.name == "self"
    kind: Any = _Parameter.KEYWORD_ONLY if argument.kwarg_only else _Parameter.POSITIONAL_OR_KEYWORD
    kind = _Parameter.POSITIONAL_ONLY if itself and method else kind
    default = argument.default_value if argument.has_default_value() else _Parameter.empty
    name = "input" if itself and not method else argument.name
    # Schemas have ints for dtypes, layouts and memory formats.
    annotation = _Parameter.empty if name in _NUMBERED else str(argument.type)
    return _Parameter(name, kind, default=default, annotation=annotation)


def _spellings(signature: inspect.Signature, args: tuple[object, ...], kwargs: dict[str, object]) -> list[Call]:
    """The call with NumPy's names replaced; and with several ints as one list, as in `x.flip(0, 1)`."""
    names = signature.parameters
    named = {
        _ALIASES[name] if name not in names and _ALIASES.get(name) in names else name: value
        for name, value in kwargs.items()
    }
    found = [(args, named)]
    positional = [p for p in names.values() if p.kind is not _Parameter.KEYWORD_ONLY]
    own = [p for p in positional if p.name not in ("self", "input")]
    before = len(positional) - len(own)
    if len(own) == 1 and own[0].annotation == "List[int]" and len(args) > before + 1:
        # C++ gathers trailing ints into the one list that the schema has.
        found.append(((*args[:before], tuple(args[before:])), named))
    return found


def _fits(annotation: object, value: object) -> bool:
    """Whether a value may be an argument of a schema's type. Only for choosing an overload."""
    if annotation is _Parameter.empty:
        return True
    kind = str(annotation)
    if kind.startswith("Optional["):
        return value is None or _fits(kind[len("Optional[") : -1], value)
    if kind == "Tensor":
        return not isinstance(value, (*_NUMBERS, str, list, tuple, type(None), torch.dtype))
    if kind.startswith("List["):
        return isinstance(value, list | tuple) or (kind == "List[int]" and _fits("int", value))
    if kind in ("int", "SymInt"):
        # Under trace a size is a 0-d tensor.
        return isinstance(value, int | torch.SymInt) or _is_number_tensor(value)
    if kind in ("float", "number", "bool"):
        return isinstance(value, _NUMBERS) or _is_number_tensor(value)
    return isinstance(value, str) if kind == "str" else True


def _is_number_tensor(value: object) -> bool:
    """Whether a value is a 0-d tensor, such as a size under torch.jit.trace."""
    if not isinstance(value, torch.Tensor):
        return False
    with unseen():  # dim() must not be recorded as a call of the model
        return value.dim() == 0

"""What an export with its branches answers, of all that Python asks: `decisions.ask` has the order.

    known      bool(), int(), float(), an index: the value is the same for all inputs (`static_values`)
    numbers    `builtin_numbers` and `scalar_conversions`
    paths      `conditions`

A call of torch comes in by the TorchFunctionMode of the export. What no mode sees is replaced for its time: builtins in
the modules that define the model's classes, and methods of torch's classes of sizes. Torch itself and other threads get
torch's own.
"""

from __future__ import annotations

import builtins
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from onnxpatch.control_flow import constructors
from onnxpatch.control_flow.builtin_numbers import BUILTINS
from onnxpatch.control_flow.capture import Capture
from onnxpatch.control_flow.conditions import decide_entry, decide_sizes
from onnxpatch.control_flow.recording import running
from onnxpatch.control_flow.scalar_conversions import CONDITIONS, NUMBERS
from onnxpatch.control_flow.static_values import static_value
from onnxpatch.decisions.ask import Answer, Rank, answering, ask
from onnxpatch.decisions.instructions import subscripting
from onnxpatch.decisions.place import deciding_frame, here
from onnxpatch.messages.user_code import is_user_frame
from onnxpatch.patching import rebinding
from onnxpatch.patching.code_modules import defining_modules

Function = Callable[..., object]
_T = torch.Tensor


def _sym_index(capture: Capture, function: Function, size: torch.SymInt) -> int:
    if subscripting():
        return decide_entry(capture, size)
    raise capture.refusal(
        here(),
        f"a dynamic size ({size}) is used as a Python number: a range, a list index or int()",
        remedy="write it for the whole tensor, or put a loop's body into a function marked @onnxpatch.scan or "
        "@onnxpatch.each",
    )


def _tensor_hash(capture: Capture, function: Function, tensor: torch.Tensor) -> object:
    # `table.get(i)` in a loop over a range: eager looks an int up, and a tensor would never be found.
    capture.check_counter(tensor, "a key")
    return NotImplemented


def _method(cls: type, name: str) -> Function:
    # Unwrapped: another thread may be exporting while this file is imported.
    return inspect.unwrap(vars(cls)[name])


_SYM_BOOL, _HASH = _method(torch.SymBool, "__bool__"), _method(_T, "__hash__")
_INDEXES = {name: _method(torch.SymInt, name) for name in ("__index__", "__int__")}
# Methods of torch's classes that torch itself calls as well: then it gets its own answer.
_METHODS = {_SYM_BOOL: (torch.SymBool, "__bool__"), _HASH: (_T, "__hash__")} | {
    method: (torch.SymInt, name) for name, method in _INDEXES.items()
}
_KNOWN: dict[Function, type] = {
    _T.__bool__: bool, _T.is_nonzero: bool, torch.is_nonzero: bool, _SYM_BOOL: bool, builtins.int: int, _T.__int__: int,
    **dict.fromkeys(_INDEXES.values(), int), _T.__index__: int, _T.__float__: float,
}  # fmt: skip
_NUMBERS: dict[Function, Function] = {
    **BUILTINS,
    **NUMBERS,
    _HASH: _tensor_hash,
    **dict.fromkeys(_INDEXES.values(), _sym_index),
}
_PATHS = {**CONDITIONS, _SYM_BOOL: decide_sizes}
QUESTIONS = frozenset({*_KNOWN, *_NUMBERS, *_PATHS})


def _known(capture: Capture, function: Function, number: object = 0, *more: object) -> object:
    value = None if more else static_value(capture, number)
    return NotImplemented if value is None else _KNOWN[function](value)


def _from(answers: Mapping[Function, Callable[..., object]], capture: Capture) -> Answer:
    def answer(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> object:
        convert = answers.get(function)
        if convert is None or running() is not capture or not capture.explorers:
            return NotImplemented
        if function in _METHODS and not _asked_by_user():
            return NotImplemented
        return convert(capture, function, *args, **kwargs)

    return answer


def _asked_by_user() -> bool:
    frame = deciding_frame(1)
    return frame is not None and is_user_frame(frame)


def prepared(model: torch.nn.Module) -> list[rebinding.Substitution]:
    """Where the answers are asked for. Call it before the export: torch.export exchanges builtins of its own."""
    classes = {type(module) for module in model.modules()}
    originals = [(f"builtins.{getattr(function, '__name__', '')}", function) for function in BUILTINS]
    found = rebinding.substitutions(model, originals, classes, ask)
    found += [rebinding.Substitution(method, [place], ask) for method, place in _METHODS.items()]
    return found + constructors.substitutions(list(defining_modules(classes)))


@contextmanager
def answered(capture: Capture, substitutions: Sequence[rebinding.Substitution]) -> Iterator[None]:
    """Inside the block, a capture answers what Python asks in this thread. substitutions: from `prepared`."""
    answers: dict[Rank, Answer | None] = {
        "known": _from(dict.fromkeys(_KNOWN, _known), capture),
        "numbers": _from(_NUMBERS, capture),
        "paths": _from(_PATHS, capture),
    }
    with answering(answers), rebinding.installed(substitutions):
        yield

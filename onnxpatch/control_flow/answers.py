"""Answers what Python asks of tensors and sizes while a model is exported with its branches: see `decisions.ask`.

    known      bool(), int(), float(), an index: the value is the same for all inputs (`capture.static_number`)
    numbers    `python_calls` and `scalar_conversions`
    paths      `capture`

A call of torch comes in by the TorchFunctionMode of the export, which sends it to the capture or to its substitute.
What no mode sees is replaced for its time: builtins in the modules that define the model's classes, and methods of
torch's classes of sizes. Torch itself and other threads get torch's own. Inside a plain loop, updates in place are
recorded as new tensors, so that its rounds can be compared and repeated.
"""

from __future__ import annotations

import builtins
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch.overrides import TorchFunctionMode

from onnxpatch._torch.dispatch_modes import storage_key
from onnxpatch.control_flow import python_calls
from onnxpatch.control_flow.capture import Capture, decide_entry, decide_sizes, static_value
from onnxpatch.control_flow.indexing import takes, writable_args, written
from onnxpatch.control_flow.loops.rows import FilledList
from onnxpatch.control_flow.path_explorer import PathExplorer
from onnxpatch.control_flow.python_calls import BUILTINS, SPLITS
from onnxpatch.control_flow.pytrees import JOINS, StackedRounds, Unbound, same_nest, tensors
from onnxpatch.control_flow.recording import running
from onnxpatch.control_flow.scalar_conversions import CONDITIONS, NUMBERS
from onnxpatch.control_flow.tape import is_mutation
from onnxpatch.decisions.ask import Answer, Rank, answering, ask, deciding_frame, here
from onnxpatch.decisions.functions_run import subscripting
from onnxpatch.messages.user_code import is_user_frame
from onnxpatch.patching import rebinding
from onnxpatch.patching.code_places import defining_modules

Function: TypeAlias = Callable[..., object]
Args: TypeAlias = tuple[object, ...]
Options: TypeAlias = dict[str, object]
_WRITE = torch.Tensor.__setitem__
# Numbers of sizes. Not `sym_fresh_size`, which makes a new one, and not what tells torch a range.
_NAMES = ("sym_float", "sym_int", "sym_ite", "sym_max", "sym_min", "sym_not", "sym_sqrt", "sym_sum")
_OF_SIZES = frozenset(getattr(torch, name) for name in _NAMES if hasattr(torch, name))
_T = torch.Tensor


class _CaptureMode(TorchFunctionMode):
    """Records torch calls in a capture; asks for the answer to those that make Python numbers."""

    def __init__(self, capture: Capture) -> None:
        super().__init__()
        self._capture = capture

    def __torch_function__(self, function: Any, types: object, args: Any = (), kwargs: Any = None) -> object:
        kwargs = kwargs or {}
        if torch.compiler.is_dynamo_compiling():  # in a body of torch.cond, with which this method is compiled
            return function(*args, **kwargs)
        # No explorer: the root's paths are being merged, and these calls are the graph's, not a forward's.
        if self._capture.paused or not self._capture.explorers:
            return function(*args, **kwargs)
        # Their result is an expression of sizes, which says all of itself: nothing needs to be repeated.
        if function in _OF_SIZES and not tensors((args, kwargs)):
            return function(*args, **kwargs)
        capture = self._capture
        if args and isinstance(args[0], FilledList | Unbound):
            args = (_listed(capture, function, args[0]), *args[1:])
        args, kwargs = capture.with_updates((args, kwargs))
        if is_mutation(function, kwargs) and (explorer := capture.looping()) is not None:
            return updated(capture, explorer, function, args, kwargs)
        # What a stand-in computes belongs to the path: choosing a number by sizes is part of the graph.
        answer = ask(function, args, kwargs, capture.recorded) if function in QUESTIONS else NotImplemented
        return capture.execute(function, args, kwargs) if answer is NotImplemented else answer


def _listed(capture: Capture, function: object, rows: FilledList | Unbound) -> object:
    """The rows of an axis for torch.stack, or for another function, which needs to know how many there are."""
    if isinstance(rows, FilledList):
        return rows.entries()
    if function in JOINS:
        return StackedRounds([], rows.whole, [])
    return capture.execute(torch.unbind, (rows.whole,))


def updated(capture: Capture, explorer: PathExplorer, function: Function, args: Args, kwargs: Options) -> object:
    """Make a call that writes in place on a copy. Returns what the call would: its target, or None.

    explorer: the one whose loop runs.
    """
    target = args[0] if args else None
    shown = _shown(capture, explorer, target)
    whole = target if shown is None else shown[0]
    tensors_now = explorer.path.updated
    # What shows a part of a tensor that was updated since does not know the update.
    lost = isinstance(whole, torch.Tensor) and tensors_now.newest(whole) is not whole
    outer = not isinstance(whole, torch.Tensor) or explorer.recorder.is_outer(whole)
    if lost or outer or kwargs.get("out") is not None:
        return capture.execute(function, args, kwargs)  # compared with the other rounds, and refused there
    assert isinstance(whole, torch.Tensor)
    before = tensors_now.written_back
    if function is _WRITE and before and same_nest(args, before):
        return None  # Python writes the row of `out[i] += 1` back itself
    if shown is None:
        new = _replace(capture, explorer, function, whole, args[1:], kwargs)
        return None if function is _WRITE else new
    assert isinstance(target, torch.Tensor)
    new, index = _on_a_copy(capture, function, target, args[1:], kwargs), shown[1]
    tensors_now.written_back = (_replace(capture, explorer, _WRITE, whole, (index, new), {}), index, new)
    return None if function is _WRITE else new


def _shown(capture: Capture, explorer: PathExplorer, target: object) -> tuple[torch.Tensor, object] | None:
    """(the tensor that `target` shows a part of, by which index); None for a tensor that is no view by an index."""
    if id(target) in capture.rows_taken:  # a copy in the graph, a view in eager
        return capture.rows_taken[id(target)]
    if not isinstance(target, torch.Tensor):
        return None
    taken = explorer.recorder.maker(target)
    if taken is None or taken.function is not torch.Tensor.__getitem__:
        return None
    base, index = taken.args
    is_view = isinstance(base, torch.Tensor) and storage_key(base) == storage_key(target)
    return (base, index) if is_view and isinstance(base, torch.Tensor) else None


def _replace(
    capture: Capture, explorer: PathExplorer, function: Function, target: torch.Tensor, rest: Args, kwargs: Options
) -> torch.Tensor:
    sharing = explorer.recorder.sharing(target)
    new = _on_a_copy(capture, function, target, rest, kwargs)
    explorer.path.updated.note(target, new, sharing)
    return new


@dataclass(frozen=True)
class _OnACopy:
    """What `function` does in place, done on a copy of its first argument, which is returned."""

    function: Function
    mutates = False

    def __call__(self, target: torch.Tensor, *args: object, **kwargs: object) -> torch.Tensor:
        copy = target.clone()
        self.function(copy, *args, **kwargs)
        return copy

    @property
    def __name__(self) -> str:
        return getattr(self.function, "__name__", "update").strip("_")


def _on_a_copy(capture: Capture, function: Function, target: torch.Tensor, rest: Args, kwargs: Options) -> torch.Tensor:
    args: Args = (target, *rest)
    if function is _WRITE:
        index, value = rest
        if takes(target, index, value):
            return capture.execute(written, args)
        if capture.exporter == "dynamo":
            args = writable_args(capture, target, index, value)
    return capture.execute(_OnACopy(function), args, kwargs)


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
_PATHS = {**CONDITIONS, _SYM_BOOL: decide_sizes}
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
    **SPLITS,
    **NUMBERS,
    _HASH: _tensor_hash,
    **dict.fromkeys(_INDEXES.values(), _sym_index),
}
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
    return found + python_calls.torch_exchanged(list(defining_modules(classes)))


@contextmanager
def answered(capture: Capture, substitutions: Sequence[rebinding.Substitution]) -> Iterator[None]:
    """Inside the block, a capture answers what Python asks in this thread. substitutions: from `prepared`."""
    answers: dict[Rank, Answer | None] = {
        "known": _from(dict.fromkeys(_KNOWN, _known), capture),
        "numbers": _from(_NUMBERS, capture),
        "paths": _from(_PATHS, capture),
    }
    with answering(answers), rebinding.installed(substitutions), _CaptureMode(capture) as mode:
        capture.mode = mode
        yield

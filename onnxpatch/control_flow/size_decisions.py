"""Conditions on dynamic sizes: under dynamo a SymBool, whose bool is a decision while branches are forked."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from onnxpatch._torch.cond import constant_answer
from onnxpatch.control_flow.capture import Capture
from onnxpatch.control_flow.current_capture import running
from onnxpatch.control_flow.source_sites import here, subscripting
from onnxpatch.messages.user_code import is_user_frame

_lock = threading.Lock()
_holders = 0
_originals: dict[tuple[type, str], Any] = {}


@contextmanager
def decisions_on_sizes() -> Iterator[None]:
    """`bool(x.shape[0] > 4)` in the user's code is a decision inside the block, in threads that fork."""
    global _holders
    with _lock:
        _holders += 1
        if _holders == 1:
            _install()
    try:
        yield
    finally:
        with _lock:
            _holders -= 1
            if _holders == 0:
                for (cls, name), original in _originals.items():
                    setattr(cls, name, original)
                _originals.clear()


def _install() -> None:
    _replace(torch.SymBool, "__bool__", _sym_bool)
    _replace(torch.SymInt, "__index__", _sym_index)
    _replace(torch.SymInt, "__int__", _sym_index)
    _replace(torch.Tensor, "__hash__", _tensor_hash)


def _replace(cls: type, name: str, answer: Any) -> None:
    original = _originals[cls, name] = vars(cls)[name]

    def method(self: Any) -> Any:
        capture = running()
        if capture is None or not capture.frames or not _asked_by_user():
            return original(self)
        found = answer(capture, self)
        return original(self) if found is None else found

    setattr(cls, name, method)


def _asked_by_user() -> bool:
    frame = sys._getframe(2)
    if frame.f_code.co_name == "__bool__" and frame.f_globals.get("__name__") == "torch":
        frame = frame.f_back or frame  # SymInt.__bool__ asks SymBool.__bool__
    return is_user_frame(frame)


def _sym_bool(capture: Capture, condition: torch.SymBool) -> bool | None:
    known = constant_answer(condition)
    if known is not None:
        return known
    return capture.decide(as_predicate(capture, condition), condition)


def _tensor_hash(capture: Capture, tensor: torch.Tensor) -> int | None:
    """`table.get(i)` in a loop over a range: eager looks an int up, a tensor would never be found."""
    capture.check_counter(tensor, "a key")
    return None


def bool_of(capture: Capture, condition: Any) -> bool:
    """The answer on this path to a condition on sizes."""
    return bool(condition) if isinstance(condition, bool) else bool(_sym_bool(capture, condition))


def any_of(capture: Capture, size: torch.SymInt, numbers: list[int]) -> bool:
    """The decision whether a whole number from a size or from data is one of two."""
    first, second = numbers
    return bool_of(capture, (size == first) | (size == second))


def as_predicate(capture: Capture, condition: torch.SymBool) -> torch.Tensor:
    """A condition on sizes as a 0-d bool tensor in the graph."""
    made: torch.Tensor = capture.execute(torch.full, ((), condition), {"dtype": torch.bool})
    return made


def _sym_index(capture: Capture, size: torch.SymInt) -> int | None:
    if not size.node.expr.free_symbols:
        return None
    if subscripting():
        return capture.choose(size.node.expr, lambda numbers: any_of(capture, size, numbers))
    raise capture.refusal(
        here(),
        f"a dynamic size ({size}) used as a Python number: a range, a list index or int()",
        remedy="write it for the whole tensor, or put a loop's body into a function marked @onnxpatch.scan or "
        "@onnxpatch.each",
    )


def static_size(size: Any) -> int | None:
    """A size that is the same for all inputs, or None where it may depend on them."""
    if isinstance(size, bool | int):
        return size
    if isinstance(size, torch.SymInt):
        return int(size.node.expr) if not size.node.expr.free_symbols else None
    return None

"""Makes conditions on dynamic sizes decisions under dynamo, where `x.shape[0] > 4` is a SymBool.

Python asks for such a condition through `SymBool.__bool__`. Torch answers at the example's size, and adds a guard that
fixes the branch. While branches are exported, the method is replaced; where the user's code asks, it is a decision:

    if x.shape[0] > 4:       SymBool.__bool__    a decision; the predicate is torch.full((), condition)
    self.layers[x.shape[0]]  SymInt.__index__    a decision for each entry of the list
    range(x.shape[0])        SymInt.__index__    refused here (`builtin_hooks` makes a loop of the usual forms)
    table.get(i)             Tensor.__hash__     refused for the index of a loop, which no dict would find

Torch and other threads that call the methods get torch's own. The methods are class attributes of the whole process:
they are put back when the last export leaves.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch

from onnxpatch._torch.cond import constant_answer
from onnxpatch.control_flow.capture import Capture
from onnxpatch.control_flow.current_capture import running
from onnxpatch.control_flow.known_answers import known_answer
from onnxpatch.decisions.instructions import subscripting
from onnxpatch.decisions.place import here
from onnxpatch.messages.user_code import is_user_frame
from onnxpatch.undone import Shared, undone

SelfT = TypeVar("SelfT")
Answer = Callable[[Capture, SelfT], int | bool | None]


@contextmanager
def size_hooks_installed() -> Iterator[None]:
    """Inside the block, conditions on sizes in the user's code are decisions, in threads that run a capture."""
    with _HOOKS.held():
        yield


@contextmanager
def _replaced() -> Iterator[None]:
    answers: list[tuple[type[Any], str, Answer[Any]]] = [
        (torch.SymBool, "__bool__", _sym_bool), (torch.SymInt, "__index__", _sym_index),
        (torch.SymInt, "__int__", _sym_index), (torch.Tensor, "__hash__", _tensor_hash),
    ]  # fmt: skip
    # Not getattr, which would bind or inherit: exactly what stood there must be put back.
    originals = [(cls, name, vars(cls)[name]) for cls, name, _ in answers]

    def put_back() -> None:
        for cls, name, original in originals:
            setattr(cls, name, original)

    with undone(put_back):
        for (cls, name, answer), (*_, original) in zip(answers, originals, strict=True):
            setattr(cls, name, _method(original, answer))
        yield


_HOOKS = Shared(_replaced)


def _method(original: Callable[..., object], answer: Answer[SelfT]) -> Callable[[SelfT], object]:
    """A method that returns `answer(capture, self)`, or what torch's own does where that is None."""

    @functools.wraps(original)
    def method(self: SelfT) -> object:
        capture = running()
        if capture is None or not capture.explorers or not _called_by_user():
            return original(self)
        answered = answer(capture, self)
        return original(self) if answered is None else answered

    return method


def _called_by_user() -> bool:
    frame = sys._getframe(2)
    if frame.f_code.co_name == "__bool__" and frame.f_globals.get("__name__") == "torch":
        frame = frame.f_back or frame  # SymInt.__bool__ calls SymBool.__bool__
    return is_user_frame(frame)


def _sym_bool(capture: Capture, condition: torch.SymBool) -> bool:
    known = constant_answer(condition)
    known = known_answer(capture, torch.SymBool.__bool__, condition) if known is None else known
    return _decided(capture, condition) if known is None else known


def _decided(capture: Capture, condition: torch.SymBool) -> bool:
    settled = capture.sizes.answer(condition)
    if settled is not None:
        return settled
    # Where and torch.cond are given a tensor, whether sizes decide or data.
    predicate = capture.execute(torch.full, ((), condition), {"dtype": torch.bool})
    return capture.decide(predicate, condition)


def _sym_index(capture: Capture, size: torch.SymInt) -> int | None:
    if not size.node.expr.free_symbols:
        return None
    if subscripting():
        return capture.list_lengths.choose(size.node.expr, lambda numbers: decide_one_of(capture, size, numbers))
    raise capture.refusal(
        here(),
        f"a dynamic size ({size}) is used as a Python number: a range, a list index or int()",
        remedy="write it for the whole tensor, or put a loop's body into a function marked @onnxpatch.scan or "
        "@onnxpatch.each",
    )


def _tensor_hash(capture: Capture, tensor: torch.Tensor) -> None:
    # `table.get(i)` in a loop over a range: eager looks an int up, and a tensor would never be found.
    capture.check_counter(tensor, "a key")


def decide_one_of(capture: Capture, size: torch.SymInt, numbers: list[int]) -> bool:
    """The decision whether a symbolic whole number is one of two."""
    first, second = numbers
    condition = (size == first) | (size == second)
    known = condition if isinstance(condition, bool) else constant_answer(condition)
    return _decided(capture, condition) if known is None else known

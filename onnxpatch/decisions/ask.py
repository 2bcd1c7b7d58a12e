"""What Python asks while a model runs, on which line, and who answers: the first, in this order, that does not decline.

    known      the answer is the same at every size and for all data
    numbers    branches=True: the number stays in the graph, and a range becomes a loop
    patches    a stand-in computes it in the graph, or does what is right on both sides of the `if`
    paths      branches=True: the module runs once for each answer
    (torch)    nobody: torch and Python answer as the example does

Questions are `bool(t)`, `n > 512`, `int(n)`, `len(x)`, `range(n)`, `layers[i]`, `t.item()`. A patched model answers as
`patches` while it runs, and an export with its branches as the three others. The answers of a thread are its own.

The user's line is the one that asks now, on a stack, or in an error's traceback. Frames of torch, the exporters and
onnxpatch are left out; `messages.user_code` says which these are:

    model.py         if x.shape[1] > 8:                  here(): this expression
    torch            SymInt.__gt__, SymBool.__bool__
    onnxpatch        a patch's stand-in for `__bool__`   deciding_frame(1): the frame of model.py

In eager, a `Number` is asked: a float that records its comparisons as those of the size or the datum of which it is
computed. No hook of torch sees what Python does with its own floats, so each operation keeps its inverse:

    if h / w > 2: ...                  noted as: h compared with 2 * w
    total = x.sum().item()
    if total // 10 == 3: ...           noted as: total compared with 35, the middle of 30 to 40
"""

from __future__ import annotations

import contextlib
import itertools
import math
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, Literal, TypeAlias, get_args

import torch

from onnxpatch.decisions.functions_run import columns, instruction
from onnxpatch.messages.user_code import (
    asking_frame,
    is_user_file,
    is_user_frame,
    package_of,
    runs_in,
    user_frame,
    user_frames,
)
from onnxpatch.process import undone

Rank: TypeAlias = Literal["known", "numbers", "patches", "paths"]
# Answers (function, args, kwargs); NotImplemented declines.
Answer: TypeAlias = Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]
_ORDER: tuple[Rank, ...] = get_args(Rank)


class _Thread(threading.local):
    def __init__(self) -> None:
        self.answers: dict[Rank, tuple[Answer, ...]] = {}


_thread = _Thread()


@contextlib.contextmanager
def answering(answers: dict[Rank, Answer | None]) -> Iterator[None]:
    """Inside the block, these answer in this thread, before others of their rank; None: nobody of the rank does."""
    before = _thread.answers
    with undone(lambda: setattr(_thread, "answers", before)):
        # The innermost of nested models first.
        more = {rank: (answer, *before.get(rank, ())) if answer else () for rank, answer in answers.items()}
        _thread.answers = {**before, **more}
        yield


def ask(
    function: object,
    args: tuple[object, ...],
    kwargs: dict[str, object],
    around_patches: Callable[[], contextlib.AbstractContextManager[object]] = contextlib.nullcontext,
) -> Any:
    """The answer to a call of `function`, such as torch.Tensor.__bool__ or int; NotImplemented if all decline.

    around_patches: makes a context in which patches are asked.
    """
    asked = _thread.answers
    for rank in _ORDER:
        if not (answers := asked.get(rank)):
            continue
        with around_patches() if rank == "patches" else contextlib.nullcontext():
            for answer in answers:
                found = answer(function, args, kwargs)
                if found is not NotImplemented:
                    return found
    return NotImplemented


def forking() -> bool:
    """Whether the branches of a model are exported with both sides in this thread: then nothing need be assumed."""
    return bool(_thread.answers.get("paths"))


# What calls stand-ins, or asks for an array of NumPy's: it may stand between an `if` of the model and what answers it.
_BETWEEN = ("onnxpatch.patching", "onnxpatch.decisions.ask", "torch._numpy",
            *(f"onnxpatch.control_flow.{name}" for name in ("answers", "conditions")))  # fmt: skip
# A stack ends where the doctor was called: what lies above is the code that called it, not the model.
_DOCTOR = "onnxpatch.diagnosis"
_DOCTORS_FOLDER = Path(__file__).parents[1] / "diagnosis"
_MOST_FRAMES = 24  # of the model's own code that are kept of one stack; recursive models have thousands


@dataclass(frozen=True)
class Site:
    """A line of Python, or one expression in it.

    columns: first and last column, to tell two decisions in one line apart; (0, 0) for the whole line.
    module: `self` of the method that the line is in, where that is known.
    """

    file: str
    line: int
    function: str = ""
    columns: tuple[int, int] = (0, 0)
    module: object = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        return f"{self.file}:{self.line} in {self.function}"


_UNKNOWN = Site("<unknown>", 0, "<unknown>")


def here() -> Site:
    """The expression of the user's code that is running now."""
    frame = user_frame(sys._getframe(1))
    if frame is None:
        return _UNKNOWN
    return Site(
        frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name, columns(frame.f_code, instruction(frame))
    )


def deciding_frame(depth: int) -> FrameType | None:
    """The frame, from `depth` above the caller's outwards, whose `if` asked; None where torch itself asked.

    Frames of what calls stand-ins are passed over; a question from other code of the kit is no `if` of the model.
    """
    frame = asking_frame(sys._getframe(depth + 1), *_BETWEEN)
    if frame is not None and frame.f_code is torch.SymInt.__bool__.__code__:  # `if size:` asks by way of it
        frame = asking_frame(frame.f_back, *_BETWEEN) if frame.f_back else None
    return None if frame is None or package_of(frame) == "torch" else frame


def of_the_model(function: object, args: object, kwargs: object) -> bool:
    """Whether the model itself asks, and not torch: the `calls=` of a patch that leaves torch its own questions."""
    return deciding_frame(1) is not None


def calling_frame(depth: int) -> FrameType | None:
    """As `deciding_frame`, for the call of a function of torch, which torch may have handed on to the stand-in."""
    return asking_frame(sys._getframe(depth + 1), "torch", *_BETWEEN)


def line_of(error: BaseException) -> Site:
    """The innermost line of the user's code in an error's traceback."""
    return (lines_of_error(error) or [_UNKNOWN])[-1]


def lines_of_error(error: BaseException) -> list[Site]:
    """The lines of the user's code in an error's traceback, outermost first."""
    return [_line(frame, line) for frame, line in user_frames(error)]


def lines_of_stack(frame: FrameType | None) -> tuple[Site, ...]:
    """The model's own lines on a stack, innermost first."""
    return tuple(itertools.islice(_outwards(frame), _MOST_FRAMES))


def _outwards(frame: FrameType | None) -> Iterator[Site]:
    while frame is not None and not runs_in(frame, _DOCTOR):
        if is_user_frame(frame):
            yield _line(frame, frame.f_lineno)
        frame = frame.f_back


def _line(frame: FrameType, line: int) -> Site:
    return Site(frame.f_code.co_filename, line, frame.f_code.co_name, module=owner(frame))


def model_lines(lines: Iterable[Site]) -> list[Site]:
    """The model's own of the lines on a stack, which are given innermost first."""
    below = itertools.takewhile(lambda one: _DOCTORS_FOLDER not in Path(one.file).parents, lines)
    return [one for one in below if is_user_file(one.file)]


def owner(frame: FrameType) -> object:
    """The first argument of the function that a frame runs: `self` in a method; None where it has none."""
    # By position and not by name: some call it `s` or `module`.
    names = frame.f_code.co_varnames[: min(frame.f_code.co_argcount, 1)]
    return frame.f_locals.get(names[0]) if names else None


# (what the source is compared with, None where it never has that value; outcome; by == or !=; by rounding)
Note = Callable[[float | None, bool, bool, bool], object]
Solve = Callable[[float], float]


class Number(float):
    """A float computed from a source: a size, or a value read from a tensor.

    note: called for each comparison. solve: the source at which this has a value. whole: what rounding it returns, made
    of an int.
    """

    note: Note
    solve: Solve
    whole: Callable[[int], Any]

    def __new__(
        cls, value: float, note: Note, whole: Callable[[int], Any] = int, solve: Solve = lambda value: value
    ) -> Number:
        made = super().__new__(cls, value)
        made.note, made.whole, made.solve = note, whole, solve
        return made

    # A copy is a plain float, which keeps no record of this run alive.
    def __reduce__(self) -> Any:
        return float, (float(self),)

    # Python drops the inherited hash of a class that defines __eq__.
    __hash__ = float.__hash__

    def __abs__(self) -> Number:
        return Number(abs(float(self)), self.note, self.whole, self.solve)

    def __neg__(self) -> Number:
        return Number(-float(self), self.note, self.whole, lambda value: self.solve(-value))

    def __floor__(self) -> Any:
        return self._rounded(math.floor(float(self)), 0, 1.0)

    def __ceil__(self) -> Any:
        return self._rounded(math.ceil(float(self)), 1, 1.0)

    def __round__(self, digits: Any = None) -> Any:
        return self._rounded(round(float(self)), 0, 0.5) if digits is None else round(float(self), digits)

    def _rounded(self, value: int, first: int, until: float) -> object:
        """The whole number. first: the one of the smallest sizes, which ends at `until`."""
        # Further steps are nearer to each other than the sizes that are tried anyway.
        if value in (first, first + 1):
            self._compared(until, value > first, False, True)
        return self.whole(value)

    def _compared(self, other: float, answer: bool, equality: bool, rounding: bool = False) -> None:
        try:
            wanted: float | None = self.solve(other)
        except (ZeroDivisionError, OverflowError):
            wanted = None
        if wanted is not None and math.isfinite(wanted) and math.isclose(round(wanted), wanted, rel_tol=1e-9):
            # What an inverse put beside a whole number is that number: 0.1 * 30 is 3.0000000000000004.
            wanted = float(round(wanted))
        self.note(wanted, answer, equality, rounding)


def _computed(name: str, back: Callable[[float, float], float]) -> Any:
    """A method of arithmetic. back: (result, other operand) -> the value that gives this result."""
    plain = getattr(float, f"__{name}__")

    def method(self: Number, other: Any) -> Any:
        value = plain(self, other)
        if not isinstance(value, float):
            return value
        known = float(other)
        return Number(value, self.note, self.whole, lambda wanted: self.solve(back(wanted, known)))

    return method


def _asked(name: str) -> object:
    """A method of comparison."""
    plain = getattr(float, f"__{name}__")

    def method(self: Number, other: object) -> Any:
        answer = plain(self, other)
        if isinstance(other, int | float):
            self._compared(float(other), answer, name in ("eq", "ne"))
        return answer

    return method


for _name, _back in {
    "add": lambda v, c: v - c, "radd": lambda v, c: v - c, "sub": lambda v, c: v + c, "rsub": lambda v, c: c - v,
    "mul": lambda v, c: v / c, "rmul": lambda v, c: v / c, "truediv": lambda v, c: v * c,
    "rtruediv": lambda v, c: c / v, "floordiv": lambda v, c: v * c + c / 2,
}.items():  # fmt: skip
    setattr(Number, f"__{_name}__", _computed(_name, _back))
for _name in ("lt", "le", "gt", "ge", "eq", "ne"):
    setattr(Number, f"__{_name}__", _asked(_name))

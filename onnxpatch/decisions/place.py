"""The user's lines: the one that asks now, those on a stack, and those in an error's traceback.

Frames of torch, the exporters and onnxpatch are left out; `messages.user_code` says which these are.

    model.py         if x.shape[1] > 8:                  here(): this expression
    torch            SymInt.__gt__, SymBool.__bool__
    onnxpatch        a patch's stand-in for `__bool__`   deciding_frame(1): the frame of model.py
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

import torch

from onnxpatch.decisions.instructions import columns, instruction
from onnxpatch.messages.user_code import (
    asking_frame,
    is_user_file,
    is_user_frame,
    package_of,
    runs_in,
    user_frame,
    user_frames,
)

# What calls stand-ins: it may stand between an `if` of the model and the one that answers it.
_BETWEEN = ("onnxpatch.patching", "onnxpatch.decisions.ask",
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


def calling_frame(depth: int) -> FrameType | None:
    """As `deciding_frame`, for the call of a function of torch, which torch may have handed on to the stand-in."""
    return asking_frame(sys._getframe(depth + 1), "torch", *_BETWEEN)


def line_of(error: BaseException) -> Site:
    """The innermost line of the user's code in an error's traceback."""
    lines = list(user_frames(error))
    if not lines:
        return _UNKNOWN
    frame, line = lines[-1]
    return Site(frame.f_code.co_filename, line, frame.f_code.co_name)


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

"""Lines of the model's own code: on a stack, in a traceback, or in an exporter's text.

Frames of torch, the exporters and onnxpatch are left out. A stack ends where onnxpatch's doctor was called: what lies
above is the code that called the doctor, not the model.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from onnxpatch.messages.user_code import is_user_file, is_user_frame, runs_in, user_frames

_DOCTOR = "onnxpatch.diagnosis"
_DOCTORS_FOLDER = Path(__file__).parent
_MOST_FRAMES = 24  # of the model's own code that are kept of one stack; recursive models have thousands


@dataclass(frozen=True)
class Place:
    """A line of Python. module: `self` of the method that the line is in, where that is known."""

    file: str
    line: int
    function: str = ""
    module: object = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


def model_lines(places: Iterable[Place]) -> list[Place]:
    """The model's own lines of a stack, whose lines are given innermost first."""
    below = itertools.takewhile(lambda place: _DOCTORS_FOLDER not in Path(place.file).parents, places)
    return [place for place in below if is_user_file(place.file)]


def place_at(frame: FrameType, line: int) -> Place:
    return Place(frame.f_code.co_filename, line, frame.f_code.co_name, owner(frame))


def owner(frame: FrameType) -> object:
    """The first argument of the function that a frame runs: `self` in a method; None where it has none."""
    # By position and not by name: some call it `s` or `module`.
    names = frame.f_code.co_varnames[: min(frame.f_code.co_argcount, 1)]
    return frame.f_locals.get(names[0]) if names else None


def lines_of_error(error: BaseException) -> list[Place]:
    """The model's own lines in an error's traceback, outermost first."""
    return [place_at(frame, line) for frame, line in user_frames(error)]


def lines_of_stack(frame: FrameType | None) -> tuple[Place, ...]:
    """The model's own lines on a stack, innermost first."""
    return tuple(_outwards(frame))


def _outwards(frame: FrameType | None) -> Iterator[Place]:
    found = 0
    while frame is not None and found < _MOST_FRAMES and not runs_in(frame, _DOCTOR):
        if is_user_frame(frame):
            found += 1
            yield place_at(frame, frame.f_lineno)
        frame = frame.f_back

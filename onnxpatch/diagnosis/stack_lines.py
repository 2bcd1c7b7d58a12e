"""Lines of the model's own code on a stack, in a traceback, or in an exporter's text."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from onnxpatch.messages.user_code import is_user_file, is_user_frame, runs_in, user_frames

_DOCTOR = "onnxpatch.diagnosis"
_DOCTORS_FOLDER = Path(__file__).parent
_DEEP = 24  # frames of the model's own code that are kept of one stack


@dataclass(frozen=True)
class Place:
    """A line of Python, and the module whose code it is where that is known."""

    file: str
    line: int
    function: str = ""
    module: Any = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


def model_lines(places: Iterable[Place]) -> list[Place]:
    """Of a stack, innermost first, the lines of the model itself; what lies above the doctor's called the doctor."""
    below = itertools.takewhile(lambda place: _DOCTORS_FOLDER not in Path(place.file).parents, places)
    return [place for place in below if is_user_file(place.file)]


def place_at(frame: FrameType, line: int) -> Place:
    return Place(frame.f_code.co_filename, line, frame.f_code.co_name, owner(frame))


def owner(frame: FrameType) -> Any:
    """What a frame's first argument is, by the custom of methods."""
    names = frame.f_code.co_varnames[: min(frame.f_code.co_argcount, 1)]
    return frame.f_locals.get(names[0]) if names else None


def lines_of_error(error: BaseException) -> list[Place]:
    """Lines of the traceback that are the model's own code, outermost first."""
    return [place_at(frame, line) for frame, line in user_frames(error)]


def lines_of_stack(frame: FrameType | None) -> tuple[Place, ...]:
    """The model's own lines on a stack, innermost first."""
    return tuple(_outwards(frame))


def _outwards(frame: FrameType | None) -> Iterator[Place]:
    found = 0
    while frame is not None and found < _DEEP and not runs_in(frame, _DOCTOR):
        if is_user_frame(frame):
            found += 1
            yield place_at(frame, frame.f_lineno)
        frame = frame.f_back

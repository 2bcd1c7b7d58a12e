"""Lines of Python: which are the model's own code, which the exporters', torch's or the kit's."""

from __future__ import annotations

import functools
import importlib.util
import itertools
import traceback
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

_TOOLS = ("torch", "sympy", "onnxscript", "onnx_ir", "onnx", "onnxpatch")
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


@functools.cache
def _roots() -> tuple[str, ...]:
    found = [importlib.util.find_spec(name) for name in _TOOLS]
    return tuple(f"{Path(spec.origin).parent}/" for spec in found if spec is not None and spec.origin)


@functools.cache
def is_tool(file: str) -> bool:
    """Whether a file is torch's, an exporter's or the kit's: no line in it is at fault in a model."""
    made_up = file.startswith("<") and not file.startswith("<ipython")
    return made_up or file.startswith(_roots()) or file == warnings.__file__


def is_ours(file: str) -> bool:
    """Whether a line is one of this folder's: what stands above it on a stack called the doctor, not the model."""
    return Path(file).parent == Path(__file__).parent


def inside(places: Iterable[Place]) -> list[Place]:
    """Of a stack, innermost first, the lines of the model itself."""
    return [one for one in itertools.takewhile(lambda p: not is_ours(p.file), places) if not is_tool(one.file)]


def place_at(frame: FrameType, line: int) -> Place:
    return Place(frame.f_code.co_filename, line, frame.f_code.co_name, owner(frame))


def owner(frame: FrameType) -> Any:
    """What a frame's first argument is, by the custom of methods."""
    names = frame.f_code.co_varnames[: min(frame.f_code.co_argcount, 1)]
    return frame.f_locals.get(names[0]) if names else None


def of_error(error: BaseException) -> list[Place]:
    """Lines of the traceback that are the model's own code, outermost first."""
    walked = list(traceback.walk_tb(error.__traceback__))
    return [place_at(frame, line) for frame, line in walked if not is_tool(frame.f_code.co_filename)]


def of_stack(frame: FrameType | None) -> tuple[Place, ...]:
    """The model's own lines on a stack, innermost first."""
    return tuple(_outwards(frame))


def _outwards(frame: FrameType | None) -> Iterator[Place]:
    found = 0
    while frame is not None and found < _DEEP and not is_ours(frame.f_code.co_filename):
        if not is_tool(frame.f_code.co_filename):
            found += 1
            yield place_at(frame, frame.f_lineno)
        frame = frame.f_back

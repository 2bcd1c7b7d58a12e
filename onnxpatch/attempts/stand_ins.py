"""Finds the patch whose stand-in raised an error, from the traceback."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Sequence
from types import CodeType, FrameType

from onnxpatch.errors import error_chain
from onnxpatch.messages.user_code import frames_of, is_user_frame
from onnxpatch.patching.registry import Patch

_IN_TEXT = re.compile(r'File "([^"]+\.py)", line (\d+)')


def stand_in_of(error: BaseException, patches: Sequence[Patch]) -> str:
    """The name of the patch whose stand-in raised the error; "" for none.

    Functions in the file of a stand-in belong to it. A stand-in that calls a module of the model is not at fault for an
    error in that module. Errors of torch.jit.script have no frames of the model: the last line in their text counts.
    """
    places = {code: patch.name for patch in patches for code in _codes(patch.stand_in)}
    files = {code.co_filename: patch.name for patch in patches for code in _codes(patch.stand_in)}
    # From the root cause outwards: the errors around it are the exporter's own.
    for one in reversed(error_chain(error)):
        name = None
        for frame, _ in frames_of(one):
            name = _owner(frame, name, places, files)
        if name is not None:
            return name
        named = _IN_TEXT.findall(str(one))
        if named and named[-1][0] in files:
            return _nearest(patches, named[-1][0], int(named[-1][1]))
    return ""


def _owner(frame: FrameType, before: str | None, places: dict[CodeType, str], files: dict[str, str]) -> str | None:
    """The patch that a frame belongs to; "" for the model's code; `before` for code of a library."""
    if frame.f_code in places:
        return places[frame.f_code]
    if before and files.get(frame.f_code.co_filename):
        return before
    return "" if is_user_frame(frame) else before


def _codes(stand_in: object) -> Iterator[CodeType]:
    """The code objects of a stand-in: of the function, or of the class's methods."""
    if not isinstance(stand_in, type):
        unwrapped = inspect.unwrap(stand_in) if callable(stand_in) else stand_in
        code = getattr(unwrapped, "__code__", None)
        if isinstance(code, CodeType):
            yield code
        return
    # Without `object`, which ends every __mro__, and torch's own classes: their code is no patch's.
    for cls in (cls for cls in stand_in.__mro__[:-1] if cls.__module__.partition(".")[0] != "torch"):
        for value in vars(cls).values():
            code = getattr(getattr(value, "__func__", value), "__code__", None)
            if isinstance(code, CodeType):
                yield code


def _nearest(patches: Sequence[Patch], file: str, line: int) -> str:
    """The patch whose code starts last before a line of a file."""
    starts = [
        (code.co_firstlineno, patch.name)
        for patch in patches
        for code in _codes(patch.stand_in)
        if code.co_filename == file and code.co_firstlineno <= line
    ]
    return max(starts, default=(0, ""))[1]

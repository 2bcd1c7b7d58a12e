"""Which frames and files are the user's code, and which belong to torch, an exporter or onnxpatch.

A frame is judged by the package of its module (`__name__` in its globals). Where only the name of a file is left, in an
ExportedProgram's `stack_trace` say, it is judged by the folder in which the package is installed. A part of the path is
never enough: a user's checkout may be called onnxpatch-demo, and lie under /home/torch/.

    torch/nn/modules/module.py   _call_impl     package torch: a tool
    model.py                     forward        the user's line
    <string>                     __eq__         generated, of a dataclass say: passed over
    contextlib.py                inner          Python's own wrapper: passed over

Libraries of layers (timm, transformers, einops) count as the user's code: a line in them can be at fault.
"""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

_WRAPPERS = frozenset({"contextlib", "functools", "warnings"})
_OURS = frozenset({"onnxpatch", "pytest_onnxpatch"})
_TOOLS = frozenset({"torch", "sympy", "onnxscript", "onnx_ir", "onnx"}) | _OURS | _WRAPPERS


def package_of(frame: FrameType) -> str:
    """The top-level package whose code a frame runs; "" for code that was made without a module."""
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


def runs_in(frame: FrameType, package: str) -> bool:
    """Whether a frame runs the code of a package (`onnxpatch.patching`), its sub-packages included."""
    return f"{frame.f_globals.get('__name__', '')}.".startswith(f"{package}.")


def is_user_frame(frame: FrameType) -> bool:
    """Whether a frame runs the user's code: not torch's, not an exporter's, not onnxpatch's, not generated."""
    package = package_of(frame)
    return package not in _TOOLS and (package == "__main__" or not _generated(frame.f_code.co_filename))


def user_frame(start: FrameType | None) -> FrameType | None:
    """The innermost frame of the user's code, from `start` outwards."""
    while start is not None and not is_user_frame(start):
        start = start.f_back
    return start


def asking_frame(start: FrameType | None, past: str = "onnxpatch") -> FrameType | None:
    """The innermost frame, from `start` outwards, that is neither in the package `past` nor a wrapper of Python's.

    It may be torch's: torch asks for bools and issues warnings too.
    """
    while start is not None and (package_of(start) in _WRAPPERS or runs_in(start, past)):
        start = start.f_back
    return start


def user_frames(error: BaseException) -> Iterator[tuple[FrameType, int]]:
    """(frame, line) of the user's code in an error's traceback, outermost first."""
    return ((frame, line) for frame, line in frames_of(error) if is_user_frame(frame))


def frames_of(error: BaseException) -> Iterator[tuple[FrameType, int]]:
    """(frame, line) of an error's traceback, outermost first."""
    at = error.__traceback__
    while at is not None:
        yield at.tb_frame, at.tb_lineno
        at = at.tb_next


@functools.cache
def is_user_file(file: str) -> bool:
    """Whether a source file is the user's code, where no frame is left to ask."""
    return not _generated(file) and not file.startswith(_folders()) and file not in _wrapper_files()


def _generated(file: str) -> bool:
    """Whether code came from no file; what is typed into IPython has a made-up name, and is the user's."""
    return file.startswith("<") and not file.startswith("<ipython")


@functools.cache
def _folders() -> tuple[str, ...]:
    """The folders that hold the packages of _TOOLS, as their code names them."""
    specs = [importlib.util.find_spec(name) for name in sorted(_TOOLS - _WRAPPERS)]
    return tuple(f"{folder}/" for spec in specs if spec is not None for folder in spec.submodule_search_locations or ())


@functools.cache
def _wrapper_files() -> frozenset[str]:
    specs = [importlib.util.find_spec(name) for name in sorted({*_WRAPPERS, *_OURS})]
    return frozenset(str(Path(spec.origin)) for spec in specs if spec is not None and spec.origin)

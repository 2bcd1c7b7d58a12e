"""Which frames and files are the user's code, and which belong to torch, an exporter or onnxpatch; where a call stands.

A frame belongs to the package of its module (`__name__` in its globals). Where only a file name is left, as in the
`stack_trace` of an ExportedProgram, the file belongs to the package that is installed in its folder. A part of the path
would not do: a user's checkout may be called onnxpatch-demo and lie under /home/torch/.

    torch/nn/modules/module.py   _call_impl     torch's
    model.py                     forward        the user's line
    <string>                     __eq__         generated, for a dataclass for instance: passed over
    contextlib.py                inner          a wrapper of Python's own: passed over

Libraries of layers (timm, transformers, einops) count as the user's code, since a line in them can be at fault.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import itertools
import sys
import sysconfig
import threading
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType

from onnxpatch.messages.text import one_line, relative, tell

# Python's own modules that call a user's function for him: a decorator's wrapper or a `with` is no line to show.
_WRAPPERS = frozenset({"contextlib", "functools", "warnings"})
_OURS = frozenset({"onnxpatch", "pytest_onnxpatch"})
_IN_A_SCRIPT = "The following operation failed in the TorchScript interpreter."
_TOOLS = frozenset({"torch", "sympy", "opt_einsum", "onnxscript", "onnx_ir", "onnx"}) | _OURS | _WRAPPERS


def package_of(frame: FrameType) -> str:
    """The top-level package whose code a frame runs; "" for code without a module, such as that of `exec`."""
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


def runs_in(frame: FrameType, package: str) -> bool:
    """Whether a frame runs code of this package or module, such as `onnxpatch.patching`, or of one inside it."""
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


def asking_frame(start: FrameType | None, *past: str) -> FrameType | None:
    """The innermost frame, from `start` outwards, that is neither in a package of `past` nor a wrapper of Python's own.

    Unlike `user_frame`, it may be torch's: torch converts tensors to bools and issues warnings too.
    """
    past = past or ("onnxpatch",)
    while start is not None and (package_of(start) in _WRAPPERS or any(runs_in(start, one) for one in past)):
        start = start.f_back
    return start


def code_within(code: CodeType) -> Iterator[CodeType]:
    """A code object, then those of the lambdas, comprehensions and functions inside of it."""
    found = [code]
    for one in found:  # grows
        yield one
        found += [inner for inner in one.co_consts if isinstance(inner, CodeType)]


def names_within(code: CodeType) -> Iterator[str]:
    """The globals and attributes that a code object and those inside of it have by name."""
    return (name for one in code_within(code) for name in one.co_names)


def said_by(error: BaseException) -> str:
    """What an exception says, without a script's traceback before it; a remark where its own `__str__` raises."""
    try:
        text = str(error)
        return text.rpartition("\nRuntimeError: ")[2].strip() if text.startswith(_IN_A_SCRIPT) else text
    except Exception as again:
        return f"its __str__ raises ({type(again).__name__})"


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
    """Whether a source file is the user's code, for where there is no frame, only its file name."""
    return not _generated(file) and not file.startswith(_folders()) and file not in _wrapper_files()


def _generated(file: str) -> bool:
    """Whether code came from no file. Cells of IPython have made-up names too, but are the user's."""
    return file.startswith("<") and not file.startswith("<ipython")


@functools.cache
def _folders() -> tuple[str, ...]:
    """The folders of the packages in _TOOLS, ending in a slash, written as `co_filename` writes them."""
    specs = [importlib.util.find_spec(name) for name in sorted(_TOOLS - _WRAPPERS)]
    return tuple(f"{folder}/" for spec in specs if spec is not None for folder in spec.submodule_search_locations or ())


@functools.cache
def _wrapper_files() -> frozenset[str]:
    specs = [importlib.util.find_spec(name) for name in sorted({*_WRAPPERS, *_OURS})]
    return frozenset(str(Path(spec.origin)) for spec in specs if spec is not None and spec.origin)


# ------------------------------------------------------------------ where an exporter stands that takes long
LONG = 55.0
"""Seconds after which a call says that it goes on."""


@contextlib.contextmanager
def told_when_late(what: str, remedy: str, after: float = LONG) -> Iterator[None]:
    """Says once on stderr, if the block takes longer than `after` seconds, which line of the model it is at.

    what: the subject of that line, such as `dynamo export of Net`. remedy: what the caller can do about it.
    """
    caller = threading.get_ident()

    def tell_place() -> None:
        place = _place(sys._current_frames().get(caller))
        tell(f"onnxpatch: {one_line(f'{what} takes longer than {after:.0f} s, {place}: {remedy}')}")

    timer = threading.Timer(after, tell_place)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _is_pythons(frame: FrameType) -> bool:
    file = frame.f_code.co_filename
    return file.startswith(sysconfig.get_path("stdlib")) and "-packages" not in file


def _place(frame: FrameType | None) -> str:
    stack: list[FrameType] = []
    while frame is not None:
        stack.append(frame)
        frame = frame.f_back
    # What lies outside onnxpatch's attempts is the code that called the export, not the model.
    model = itertools.takewhile(lambda one: not runs_in(one, "onnxpatch.attempts"), stack)
    at = next((one for one in model if is_user_frame(one) and not _is_pythons(one)), None)
    return relative(f"at {at.f_code.co_filename}:{at.f_lineno}") if at is not None else "behind the model's own code"

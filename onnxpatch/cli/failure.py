"""How a command ends: one line and an exit code; a traceback only where it was asked for."""

from __future__ import annotations

import contextlib
import logging
import sys
import warnings
from collections.abc import Iterator

from onnxpatch import errors
from onnxpatch.errors import InputError, OnnxpatchError
from onnxpatch.messages.visible import visible

RIGHT, WRONG, BAD_INPUT, FAULT = 0, 1, 2, 3
# What the caller can mend by asking otherwise; every other error of the kit is an answer about the model.
_ASKED_WRONGLY = (
    InputError,
    errors.UnknownPatchError,
    errors.UnknownExporterError,
    errors.ScriptedModelError,
    errors.DuplicatePatchError,
)


@contextlib.contextmanager
def told_in_one_line(debug: bool) -> Iterator[None]:
    """Turns errors into a line on stderr and the exit code; with `debug` they pass as they are, warnings too."""
    if not debug:
        warnings.simplefilter("ignore")
        for name in ("torch.onnx", "onnxscript", "onnx_ir"):
            logging.getLogger(name).setLevel(logging.ERROR)
    try:
        yield
    except Exception as error:
        if debug or type(error).__module__.split(".")[0] in ("click", "typer"):
            raise
        print(visible(_line(error)), file=sys.stderr)
        raise SystemExit(code_of(error)) from None


def code_of(error: BaseException) -> int:
    """2 for what was asked wrongly, 1 for what came out wrong or refused, 3 for a fault of ours."""
    if isinstance(error, _ASKED_WRONGLY):
        return BAD_INPUT
    return WRONG if isinstance(error, OnnxpatchError) else FAULT


def _line(error: BaseException) -> str:
    if isinstance(error, _ASKED_WRONGLY):
        return f"onnxpatch: {' '.join(str(error).split())}"
    if isinstance(error, OnnxpatchError):
        return f"onnxpatch: {error}"
    told = " ".join(str(error).split())[:300]
    return f"onnxpatch: this should not happen: {type(error).__name__}: {told}; --debug shows where"

"""How a command ends: an error is one line on stderr and an exit code, or a traceback with --debug."""

from __future__ import annotations

import contextlib
import logging
import sys
import warnings
from collections.abc import Iterator, Sequence

from onnxpatch import errors
from onnxpatch.cli.spelled import as_typed
from onnxpatch.errors import InputError, OnnxpatchError
from onnxpatch.messages.visible import visible

RIGHT, WRONG, BAD_INPUT, FAULT = 0, 1, 2, 3
# Errors in what the user typed. Every other OnnxpatchError is a result: it says something about the model.
_BAD_INPUT_ERRORS = (
    InputError,
    errors.UnknownPatchError,
    errors.UnknownExporterError,
    errors.ScriptedModelError,
    errors.DuplicatePatchError,
)


@contextlib.contextmanager
def errors_in_one_line(debug: bool, verbose: int = 0, patches: Sequence[str] = ()) -> Iterator[None]:
    """Turn an error of the block into a line on stderr and an exit code, and silence warnings of the libraries.

    debug: errors and warnings pass as they are. verbose: 1 logs what onnxpatch does, 2 also what torch prints.
    patches: modules with patches of the user's, loaded before the block runs.
    """
    if verbose:
        logging.basicConfig(format="%(name)s: %(message)s")
        logging.getLogger("onnxpatch").setLevel(logging.DEBUG if verbose > 1 else logging.INFO)
    if not debug:  # one export makes dozens of warnings about torch's and onnxscript's own code
        warnings.simplefilter("ignore")
        for name in ("torch.onnx", "onnxscript", "onnx_ir"):
            logging.getLogger(name).setLevel(logging.ERROR)
    try:
        if patches:
            from onnxpatch.cli.target import load_patches

            load_patches(patches)
        yield
    except Exception as error:
        # Errors of click and typer (typer.Exit among them) are their own way to end a command.
        if debug or type(error).__module__.split(".")[0] in ("click", "typer"):
            raise
        print(visible(as_typed(_line(error))), file=sys.stderr)
        raise SystemExit(code_of(error)) from None


def code_of(error: BaseException) -> int:
    """The exit code for an error: 2 bad input, 1 the model is refused or the file wrong, 3 an internal error."""
    if isinstance(error, _BAD_INPUT_ERRORS):
        return BAD_INPUT
    return WRONG if isinstance(error, OnnxpatchError) else FAULT


def _line(error: BaseException) -> str:
    if isinstance(error, _BAD_INPUT_ERRORS):
        return f"onnxpatch: {' '.join(str(error).split())}"
    if isinstance(error, OnnxpatchError):
        return f"onnxpatch: {error}"
    text = " ".join(str(error).split())[:300]
    return f"onnxpatch: internal error: {type(error).__name__}: {text}; run again with --debug and report it"

"""Every error the kit raises: each names the module path, what was found and what to do."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator


class _Named(threading.local):
    path_of: Callable[[object], str] | None = None


_named = _Named()


@contextlib.contextmanager
def paths_named_by(path_of: Callable[[object], str]) -> Iterator[None]:
    """Inside the block, in this thread, `module_path` answers as `path_of`: set while a patched model runs."""
    before, _named.path_of = _named.path_of, path_of
    try:
        yield
    finally:
        _named.path_of = before


def module_path(module: object) -> str:
    """The module's path in the patched model that is running, for messages; "" for its root, or where none runs."""
    return _named.path_of(module) if _named.path_of else ""


class OnnxpatchError(Exception):
    """Base of everything the kit raises on purpose."""


class RefusedError(OnnxpatchError):
    """Raised by a stand-in's `onnxpatch_prepare`: the instance is not swapped; the plan shows the reason."""


class DuplicatePatchError(OnnxpatchError):
    """Two declarations share a name, or claim the same method of the same instance with equal right."""


class UnknownPatchError(OnnxpatchError):
    """`only=` or `exclude=` names neither a patch nor a module path of the model."""


class UnknownExporterError(OnnxpatchError):
    """`exporter=` is none of dynamo, trace, script."""


class ScriptedModelError(OnnxpatchError):
    """The model is a ScriptModule already: nothing in it can be swapped any more."""


class RestoreError(OnnxpatchError):
    """Something could not be put back; everything else was, and the text lists what was not."""


class BranchError(RefusedError):
    """A Python branch or number that depends on data and cannot be exported: says where, and what to write instead."""


class InputError(OnnxpatchError):
    """What was handed in cannot be used: arguments, dynamic shapes, names, paths, files. The model was not touched."""


class ExportError(OnnxpatchError):
    """The exporter itself refused the model; the exporter's own error is the cause."""


class VerificationError(OnnxpatchError):
    """The graph does not compute what the unpatched model computes. `report` holds every figure."""

    def __init__(self, message: str, report: object = None) -> None:
        super().__init__(message)
        self.report = report


def error_chain(error: BaseException) -> list[BaseException]:
    """The error, what caused it, and so on: the root cause last. `raise ... from None` ends the chain."""
    found: list[BaseException] = []
    one: BaseException | None = error
    while one is not None and all(one is not other for other in found):
        found.append(one)
        one = one.__cause__ or (None if one.__suppress_context__ else one.__context__)
    return found

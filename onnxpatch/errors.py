"""Every error the kit raises: each names the module path, what was found and what to do."""

from __future__ import annotations

from onnxpatch.messages.visible import visible


class OnnxpatchError(Exception):
    """Base of everything the kit raises on purpose.

    Its text shows what models and files call things, with control characters spelled out.
    """

    def __str__(self) -> str:
        return visible(super().__str__())


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


class RunError(OnnxpatchError):
    """The graph cannot be run on this input: the runtime refuses it, or it was stopped at its time limit (`stopped`).

    `node`: the node that the runtime names, if it names one.
    """

    def __init__(self, message: str, node: str | None = None, stopped: bool = False) -> None:
        super().__init__(message)
        self.node = node
        self.stopped = stopped


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

"""The errors that onnxpatch raises. Each names the module path or the argument, what was found, and what to do."""

from __future__ import annotations

from onnxpatch.messages.text import in_lines, visible


class OnnxpatchError(Exception):
    """Base class of the errors that onnxpatch raises.

    `str(error)` has no line over 160 characters. It spells out control characters, since names from models and files
    are part of the text. attempts: an `AttemptResult` for each attempt that `export` made before it raised; () for a
    single one, and for other errors. found, advice: of a refused export, what failed first and what to type.
    """

    attempts: tuple[object, ...] = ()
    found: str = ""
    advice: str = ""

    def __str__(self) -> str:
        return in_lines(visible(super().__str__()))


class RefusedError(OnnxpatchError):
    """A patch, or an exporter's form of some code, does not fit: the text says why.

    Raise it in a patch's `onnxpatch_prepare` where the patch cannot replace this module: the module then stays as it
    is, and the plan shows the reason. Raise it in a stand-in where it cannot compute what was asked: the export fails,
    and `export` tries without the patch.
    """


class DuplicatePatchError(OnnxpatchError):
    """Two patches have the same name, or replace the same method of a module with equal rank."""


class UnknownPatchError(OnnxpatchError):
    """A name in `only=` or `exclude=` is neither a patch nor the path of a module in the model."""


class UnknownExporterError(OnnxpatchError):
    """`exporter=` is not one of dynamo, trace, script."""


class ScriptedModelError(OnnxpatchError):
    """The model is a torch.jit.ScriptModule, whose code is compiled and cannot be swapped."""


class RestoreError(OnnxpatchError):
    """Parts of the model could not be restored. The text lists them; everything else was restored."""


class BranchError(RefusedError):
    """Python code that depends on tensor values and cannot be exported. The text says where, and what to write instead.

    From `export` it comes as the `__cause__` of an ExportError. what: the text without place and remedy.
    """

    what: str = ""


class InputError(OnnxpatchError):
    """An argument cannot be used: inputs, dynamic shapes, names, paths, files. The model was not changed."""


class ExportError(OnnxpatchError):
    """torch.onnx.export refused the model. Its error is the `__cause__`."""


class RunError(OnnxpatchError):
    """The runtime cannot run the graph on this input.

    node: the node that the runtime's error names, or None. stopped: True where the run reached its time limit.
    """

    def __init__(self, message: str, node: str | None = None, stopped: bool = False) -> None:
        super().__init__(message)
        self.node = node
        self.stopped = stopped


class VerificationError(OnnxpatchError):
    """The file is wrong: an output differs from the unpatched model's, or the file does not run where the model does.

    report: the `Report` with every check.
    """

    def __init__(self, message: str, report: object = None) -> None:
        super().__init__(message)
        self.report = report


def error_chain(error: BaseException) -> list[BaseException]:
    """The error, its cause, the cause of that, and so on: the root cause last. `raise ... from None` ends the chain."""
    chain: list[BaseException] = []
    current: BaseException | None = error
    while current is not None and all(current is not other for other in chain):
        chain.append(current)
        current = current.__cause__ or (None if current.__suppress_context__ else current.__context__)
    return chain


def cut_off(error: BaseException, handled: BaseException | None) -> None:
    """Take what the caller was handling (`sys.exc_info()[1]` at the start) off the chain of an error that came later.

    Python makes it the context of the first error raised while it is handled, whose root it would be taken for.
    """
    for one in error_chain(error):
        one.__context__ = None if one.__context__ is handled else one.__context__

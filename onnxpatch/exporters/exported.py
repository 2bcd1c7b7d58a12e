"""`export`: runs the exporter that a request names, and explains its error. `Exported`: the file that it wrote.

The explanation is one paragraph: the first cause, the module, and the user's line.
"""

from __future__ import annotations

import functools
import re
import sys
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from onnxpatch._torch import relied_on
from onnxpatch._torch.exporters import parts_in_modes, scripted_parts
from onnxpatch._torch.one_export import one_export, quiet_torch
from onnxpatch.errors import BranchError, ExportError, InputError, OnnxpatchError, cut_off, error_chain
from onnxpatch.exporters.artifact import without_room
from onnxpatch.exporters.request import ExportRequest
from onnxpatch.messages.text import relative
from onnxpatch.messages.user_code import frames_of, is_user_file, is_user_frame
from onnxpatch.onnxfile.editing import mentions

_LONGEST = 400  # characters of the exporter's message
# torch's advice on its debug switches and on how to write code, with what follows it; its first words before a list
_HINTS = re.compile(
    r"\s*(?:For more information, run with|For extended logs|If you suspect the guard was triggered|\(unhinted: ).*|"
    r"Found the following conflicts between user-specified ranges and inferred ranges from model tracing:[\s-]*|"
    r",? ?please report a bug to PyTorch\.?|"
    r"\s*\[Caused by the value .*?'\.?\](?=\s)|\n\s*Inputs:\n.*",
    re.S,
)
_COPY = "; return a copy from the body, x.clone(), or use onnxpatch.scan"
_QUANTIZED = (
    "the model is quantized by torch, and torch.export cannot read its packed weights: ask for exporter='trace', which "
    "takes statically quantized layers"
)
_FLOAT = "; or export the float model, and quantize the file with onnxruntime.quantization"
OUT_OF_TORCH = "stay in torch: NumPy's numbers would be constants of the graph"
_FIXED = (
    "; a line of the model fixes that size while it is exported: onnxpatch.doctor names it; or leave that axis out of "
    "dynamic_shapes"
)
_RESIZED = (
    "; no operator that is recorded computes this: Tensor.resize_, Tensor.set_ and .data change a tensor beside the "
    "graph, so make a new one, by reshape and slices"
)
_REMEDIES = {
    "not have observable data dependence": _RESIZED,
    "Expected IntList but got GenericList": _RESIZED,
    "but tracing inferred a static shape of": _FIXED,
    "operator 'quantized::": _FLOAT.replace("or ", ""),
    "might be aliasing": _COPY,
    "do not support aliasing": _COPY,
    "is not supported for tensor subclasses": f"; {OUT_OF_TORCH}",
    "Tracer cannot set value trace for type": "; a scripted part gives out a number: let it return a tensor, or "
    "put the module that it was made from in its place",
    " not in VR[": "; an operator asks for sizes that the example does not have: torch.compiler.is_compiling() leads "
    "the model another way, so give the arguments that it makes itself in eager, such as attention_mask",
    "nsupported attribute type": "; an operator takes a list of fixed numbers here, and a number computed from a size "
    "is in it: keep that dimension fixed, or compute with a tensor in place of the list",
    "TraceTypeManual.cpp": "; a list of fixed numbers is asked for here, and one of them is computed from a size, as "
    "in torchao's layers with dynamic activations: export with exporter='dynamo'",
    "alias_analysis.cpp": "; a function of torch got arguments in the trace that none of its forms takes, a flag in "
    "place of a number for instance: convert them before the call, or export with exporter='dynamo'",
}


@dataclass(frozen=True)
class Exported:
    """A file that an exporter wrote at `path`.

    program: the ONNXProgram of dynamo, else None. plan: the patches that acted, a row each. notes: for the report.
    flatten: turns an output of the model into tensors in the file's order; None if these are the output's leaves.
    refusal: what to raise if the file is wrong: with branches, conditions on sizes that became no decisions.
    """

    request: ExportRequest
    path: Path
    program: Any = None
    plan: Sequence[dict[str, Any]] = ()
    notes: Sequence[str] = ()
    flatten: Callable[[Any], Sequence[Any]] | None = None
    refusal: Exception | None = None

    def may_have(self, *operators: str) -> bool:
        """Whether one of these ONNX operators may be in the file: dynamo's program says so without a look into it."""
        return mentions(self.path, operators) if self.program is None else not self._operators.isdisjoint(operators)

    def may_hold(self, dtype: int) -> bool:
        """Whether a value of the file may have this dtype of ONNX's: dynamo's program says so of its own."""
        return self.program is None or not self._dtypes.isdisjoint((dtype, None))

    @functools.cached_property
    def _nodes(self) -> list[Any]:
        from onnxscript import ir

        assert self.program is not None
        return list(ir.traversal.RecursiveGraphIterator(self.program.model.graph))

    @functools.cached_property
    def _operators(self) -> set[str]:
        return {node.op_type for node in self._nodes}

    @functools.cached_property
    def _dtypes(self) -> set[int | None]:
        graph = self.program.model.graph
        made = (value for node in self._nodes for value in node.outputs)
        return {value.dtype for value in (*graph.inputs, *graph.initializers.values(), *made)}


def run_exporter(request: ExportRequest, path: Path) -> Exported:
    """Call the exporter that the request names. Raises ExportError with the reason, module and line if it fails."""
    handled = sys.exc_info()[1]  # by the caller, who may export in an `except` block
    try:
        # torch prints graphs and advice on its own debug switches: the error says what matters.
        quiet = quiet_torch(asked=bool(request.options.get("verbose")))
        # Eager is compared without gradients. With them a model may take another `if`, and torch.export refuses a write
        # to a part of unknown size, which autograd takes twice.
        gradients = torch.set_grad_enabled(request.plain and torch.is_grad_enabled())
        with one_export(), quiet, parts_in_modes(request.model), gradients:
            # onnxscript, which dynamo writes with, takes a second to load.
            if request.exporter == "dynamo":
                from onnxpatch.exporters.dynamo import export_dynamo

                return Exported(request, path, export_dynamo(request, path))
            from onnxpatch.exporters.torchscript import export_torchscript

            export_torchscript(request, path)
            return Exported(request, path)
    # What the caller gave is at fault, not the exporter: the error says so itself.
    except InputError:
        raise
    except Exception as error:
        cut_off(error, handled)
        if (full := without_room(error)) is not None:  # no other attempt has more
            raise full from None
        raise ExportError(refusal_text(error, request.model, request.exporter)) from error


def refusal_text(error: BaseException, model: torch.nn.Module, exporter: str) -> str:
    """The message of ExportError. The exporter's own error is its `__cause__`."""
    message = relative(f"{exporter} export refused {type(model).__name__}: {reason(error)}")
    if _FIXED in message and (scripted := scripted_parts(model)):
        name = next(name for name, part in model.named_modules() if part is scripted[0])
        message = message.replace(
            _FIXED,
            f"; {name} is scripted, and torch.export sees its sizes as numbers: put the module that it was made from "
            "in its place, or ask for exporter='trace'",
        )
    if isinstance(root_of(error), BranchError):  # its message has module and line already
        return message
    where = " ".join(part for part in place_of(error, model) if part) or translated(error)
    return f"{message}\n  {relative(where)}" if where else message


def reason(error: BaseException) -> str:
    """The first cause, on one line: `TypeError: …`."""
    root = root_of(error)
    lacking = next((said for one in error_chain(error) if (said := relied_on.explain(one))), None)
    if lacking:
        return lacking
    if "__obj_flatten__" in str(root):  # torch's words name a method that nobody has called
        return _QUANTIZED + _FLOAT
    # torch colours some of its messages for a terminal.
    text = re.sub(r"\x1b\[[0-9;]*m", "", _HINTS.sub("", str(root)))
    return f"{type(root).__name__}: {textwrap.shorten(text, _LONGEST, placeholder=' …')}{remedy(text)}"


def remedy(text: str) -> str:
    """What to do about an error of torch's, to be put behind its words; "" where nothing is known."""
    return next((said for sign, said in _REMEDIES.items() if sign in text), "")


def root_of(error: BaseException) -> BaseException:
    """The error of the chain that says most: onnxpatch's own if there is one, else the innermost.

    onnxpatch's error about a branch or loop names module, line and remedy; the errors below it are its raw material.
    """
    chain = error_chain(error)
    return next((one for one in chain if isinstance(one, OnnxpatchError)), chain[-1])


def place_of(error: BaseException, model: torch.nn.Module) -> tuple[str, str]:
    """(`in module PATH (CLASS)`, `at FILE:LINE in FUNCTION`), each "" if not known.

    The innermost module of the model that ran, and the innermost line of the user's code.
    """
    paths = {id(m): name for name, m in model.named_modules()} if isinstance(model, torch.nn.Module) else {}
    module, line = "", ""
    for one in reversed(error_chain(error)):
        for frame, number in frames_of(one):
            # A frame of a module's method has the module as its self.
            owner = frame.f_locals.get("self")
            if id(owner) in paths:
                module = f"in module {paths[id(owner)] or '(root)'} ({type(owner).__name__})"
            # Lines before the first module are those that called the export.
            if module and is_user_frame(frame):
                line = f"at {frame.f_code.co_filename}:{number} in {frame.f_code.co_name}"
        if module:
            break
    return module, line


def translated(error: BaseException) -> str:
    """The line that called the operator whose translation failed. The forward is over by then."""
    for one in error_chain(error):
        for frame, _ in frames_of(one):
            meta = getattr(frame.f_locals.get("node"), "meta", None)
            trace = meta.get("stack_trace") if isinstance(meta, dict) else None
            calls = re.findall(r'File "([^"]+)", line (\d+), in (\S+)', trace or "")
            own = [call for call in calls if is_user_file(call[0])]
            if own:
                return f"{frame.f_locals['node'].target} at {own[-1][0]}:{own[-1][1]} in {own[-1][2]}"
    return ""

"""Compares a patched export with the plain one: the graphs, what goes in and out, the size, and how right each is."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from onnxpatch.errors import ExportError, OnnxpatchError
from onnxpatch.export import export
from onnxpatch.messages.text import Progress, in_bytes
from onnxpatch.onnxfile.graph import dtype_name, operator_counts
from onnxpatch.onnxfile.mapped_weights import bytes_of
from onnxpatch.onnxfile.runtime import load_graph
from onnxpatch.patching.plan import Plan
from onnxpatch.patching.plan import plan as make_plan
from onnxpatch.results.report import Report
from onnxpatch.verify import verify

if TYPE_CHECKING:
    from onnx import ModelProto, ValueInfoProto


_CALL = ("args", "kwargs", "dynamic_shapes", "input_names")
_KITS = ("only", "exclude", "branches", "image_size", "attempts", "prefer", "bounds")  # plain torch has none of these
_PLANNING = ("only", "exclude", "image_size", "branches")


@dataclass
class _Side:
    """One export. proto: its graph without weights, None where there is none; error: why there is none; size: of the
    file, for people."""

    title: str
    report: Report | None = None
    proto: Any = None
    error: str = ""
    size: str = ""

    @property
    def ok(self) -> bool:
        return not self.error and self.report is not None and self.report.ok

    @property
    def verdict(self) -> str:
        """That of the report: right, wrong, unproven, unchecked or refused."""
        if self.report is None:
            return "refused" if self.proto is None else "wrong"
        return self.report.verdict

    @property
    def score(self) -> str:
        """The verdict with its count: `wrong at 10 of 18 runs`."""
        if self.report is None or self.verdict not in ("right", "wrong"):
            return self.verdict
        wrong, runs = sum(not check.ok for check in self.report.checks), len(self.report.checks)
        return f"{self.verdict} at {wrong or runs} of {runs} runs"

    @property
    def sentence(self) -> str:
        """What the runs were: refused ones counted apart, since they have no error that could be small."""
        if self.report is None or not self.report.checks or self.verdict == "refused":
            return ""
        checks = self.report.checks
        refused, wrong = (sum(check.status == status for check in checks) for status in ("refused", "wrong"))
        parts = [f"does not run at {refused}, where eager does"] if refused else []
        parts += [f"other numbers or shapes at {wrong}"] if wrong else []
        errors = [check.relative for check in checks if check.ok]
        parts += [f"largest relative error where it is right {max(errors):.1e}"] if errors else []
        return "; ".join(parts)

    def histogram(self) -> dict[str, int]:
        """How often each ONNX operator occurs in it."""
        return dict(operator_counts(self.proto)) if self.proto is not None else {}


@dataclass
class Comparison:
    """What a page shows: the model, the plan, and one or two sides (plain first, patched last).

    call: the line of Python that makes or checks the file again. command: the same for a shell, where it was one.
    """

    model: torch.nn.Module
    sides: list[_Side] = field(default_factory=list)
    plan: Plan | None = None
    call: str = ""
    command: str = ""

    @property
    def result(self) -> _Side:
        """The export that was asked for."""
        return self.sides[-1]


def compared_with_plain(
    model: torch.nn.Module,
    report: Report,
    file: str | os.PathLike[str] | None,
    arguments: Mapping[str, object],
    progress: Progress | None = None,
    command: str = "",
) -> Comparison:
    """Compare the export of `report` (its `file`, None if none was left) with a plain one, which is made here.

    arguments: the keywords that `onnxpatch.export` was called with.
    """
    asked: dict[str, Any] = {"exporter": report.exporter, "opset": report.opset}
    asked |= {key: arguments[key] for key in _PLANNING if key in arguments}
    made = make_plan(model, **{**asked, **_delivered(report, asked)})
    # A wrong file was not delivered; how its graph differs is what the page is read for.
    graph = _undelivered(model, report, arguments) if report.verdict == "wrong" and file is None else _graph(file)
    patched = _Side("with onnxpatch", report, graph, size=size(file))
    sides = [_plain(model, report, arguments, progress), patched]
    return Comparison(model, sides, made, _whole_call(report.call, file, arguments), command)


def _undelivered(model: torch.nn.Module, report: Report, arguments: Mapping[str, Any]) -> Any:
    """The graph of a wrong file, made again; None where it cannot be made."""
    asked = {key: value for key, value in arguments.items() if key not in ("attempts", "prefer", "bounds")}
    with tempfile.TemporaryDirectory(prefix="onnxpatch-") as folder:
        file = Path(folder) / "wrong.onnx"
        try:
            export(model, f=file, **{**asked, "exporter": report.exporter, "check": False, "progress": False})
        except OnnxpatchError:
            return None
        return _graph(file)


def _whole_call(call: str, file: str | os.PathLike[str] | None, arguments: Mapping[str, object]) -> str:
    """A call of `export` with the names of the caller's inputs, the file and the sizes in place of `...`."""
    words = ["args", *([repr(Path(file).name)] if file is not None else [])]
    words += ["kwargs=kwargs"] if arguments.get("kwargs") else []
    sizes = arguments.get("dynamic_shapes")
    if sizes is not None:
        written = repr(sizes)
        # torch.export.Dim has no text that could be pasted.
        words.append(f"dynamic_shapes={written if 'Dim' not in written and '<' not in written else 'dynamic_shapes'}")
    return call.replace("...", ", ".join(words), 1)


def _delivered(report: Report, asked: Mapping[str, Any]) -> dict[str, object]:
    """The options of a plan that the delivered attempt had, in place of those that were asked for."""
    made = next((one for one in report.attempts if one.delivered), None)
    if made is None:
        return {}
    if made.plain:
        return {"only": (), "exclude": None, "branches": made.branches}
    before = asked.get("exclude") or ()
    excluded = (*((before,) if isinstance(before, str) else before), *made.exclude)
    return {"branches": made.branches, **({"exclude": excluded} if excluded else {})}


def alone(model: torch.nn.Module, report: Report, file: str | os.PathLike[str]) -> Comparison:
    """A file that was only verified."""
    call = f"onnxpatch.verify({Path(file).name!r}, model, args)"
    return Comparison(model, [_Side(Path(file).name, report, _graph(file), size=size(file))], call=call)


def _plain(model: torch.nn.Module, report: Report, arguments: Mapping[str, Any], progress: Progress | None) -> _Side:
    """A plain torch.onnx.export with the same arguments and without patches, compared with the model."""
    title = "plain torch.onnx.export"
    asked = {key: value for key, value in arguments.items() if key not in _KITS}
    with tempfile.TemporaryDirectory(prefix="onnxpatch-") as folder:
        file = Path(folder) / "plain.onnx"
        try:
            # An empty `only` names no patch, so none acts. Not checked here: `verify` compares the file below.
            export(model, f=file, **{**asked, "exporter": report.exporter, "only": (), "check": False})
        except (ExportError, OnnxpatchError) as error:
            return _Side(title, error=str(error).partition("\nnext: ")[0])  # advice on this export is not wanted
        call = {key: arguments[key] for key in _CALL if arguments.get(key) is not None}
        try:
            tolerance = arguments.get("tolerance", 1e-3)
            report = verify(file, model, **call, tolerance=tolerance, guards=False, progress=progress)
        except OnnxpatchError as error:
            return _Side(title, None, _graph(file), str(error), size(file))
        return _Side(title, report, _graph(file), size=size(file))


def _graph(file: str | os.PathLike[str] | None) -> Any:
    import onnx

    if file is None or not Path(file).is_file():
        return None
    proto = load_graph(Path(file))
    try:
        # The TorchScript exporter leaves out the shapes of most values.
        shaped = onnx.shape_inference.infer_shapes(proto)
    except Exception:  # shapes only label the drawing
        return proto
    return shaped


@dataclass(frozen=True)
class _FileValue:
    """One input or output. shape: sizes, and the names of those that are free."""

    name: str
    dtype: str
    shape: list[tuple[str, bool]]


def file_inputs(proto: ModelProto) -> list[_FileValue]:
    """The inputs, without the weights that old files list among them."""
    weights = {initializer.name for initializer in proto.graph.initializer}
    return _values(value for value in proto.graph.input if value.name not in weights)


def file_outputs(proto: ModelProto) -> list[_FileValue]:
    """The outputs."""
    return _values(proto.graph.output)


def _values(declared: Iterable[ValueInfoProto]) -> list[_FileValue]:
    found = []
    for value in declared:
        tensor = value.type.tensor_type
        dims = [
            (str(d.dim_value), False) if d.HasField("dim_value") else (d.dim_param or "?", True)
            for d in tensor.shape.dim
        ]
        found.append(_FileValue(value.name, dtype_name(tensor.elem_type) if tensor.elem_type else "optional", dims))
    return found


def size(file: str | os.PathLike[str] | None) -> str:
    """The size of a file and of its external weights as text, such as `4.2 MB`; "" if there is no file."""
    total = bytes_of(file) if file is not None else 0
    return in_bytes(total) if total else ""

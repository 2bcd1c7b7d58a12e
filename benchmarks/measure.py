"""One case through one exporter, plain or with the kit, judged in onnxruntime against eager PyTorch."""

from __future__ import annotations

import contextlib
import copy
import copyreg
import dataclasses
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils import _pytree as pytree

from benchmarks import forked
from benchmarks.case import Case
from benchmarks.declared import as_printed
from benchmarks.steady import in_order, movement
from onnxpatch import Report
from onnxpatch.errors import InputError
from onnxpatch.limits import peak_of_process
from onnxpatch.onnxfile import size_bounds
from onnxpatch.onnxfile.runtimes.openvino import openvino_error
from onnxpatch.onnxfile.size_bounds import SizeBound

# Some models keep one, which copy.deepcopy does not know.
copyreg.pickle(staticmethod, lambda kept: (staticmethod, (kept.__func__,)))

EXPORTERS = ("dynamo", "trace")
# torch alone, inside onnxpatch.patched, the same with only the batch dynamic, through onnxpatch.export in one attempt
# as asked, the same with branches=True, with all attempts of this exporter as export makes them by default ("called":
# and with its default bounds, judged at the inputs that such a file does not refuse), with
# exporter="auto" and all its attempts, the same with bounds="narrow": such a file is judged at the inputs that it does
# not refuse; "declared": as "default", and where that is refused with sizes to declare, once more with these, which
# must leave out none of the case's
KITS = ("plain", "patched", "static", "export", "branches", "default", "declared", "called", "auto", "narrow")
AUTO = "auto"  # a kit, and the exporter of its answers and of those of NARROW
NARROW = "narrow"
OPSET = 18
Run = Callable[[dict[str, np.ndarray]], list[np.ndarray]]


@dataclasses.dataclass
class Outcome:
    """right; wrong: the export reported success and the graph differs or fails; refused: the export raised.

    unproven: the kit itself says that it compared no other size of a dynamic dimension; it counts as no success.
    unsteady: no verdict, eager's own answer differs as much when its input moves by one rounding.
    seconds: of the processor, to export and, with the kit, to compare.
    attempts: how many onnxpatch.export made; call: what makes the file at once, by its report.
    openvino: the verdict of OpenVINO on a file that is right in onnxruntime, where it was asked; openvino_reason: why.
    peak: bytes that eager's operators took at the peak of any run, limit: what one might take, by the kit's report.
    probes: inputs that the kit compared, left_out: that it did not run since they would take more than the limit.
    process: bytes that the process, or one that it started, took at most beside what it had before the export.
    """

    verdict: str
    reason: str = ""
    error: float | None = None
    nodes: int | None = None
    seconds: float | None = None
    attempts: int | None = None
    call: str = ""
    openvino: str = ""
    openvino_reason: str = ""
    peak: float | None = None
    limit: float | None = None
    probes: int = 0
    left_out: float = 0
    process: float | None = None

    def as_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def tensors(value: Any) -> list[torch.Tensor]:
    return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def dynamic_axes(case: Case, names: list[str]) -> dict[str, dict[int, str]]:
    """dynamic_shapes as the TorchScript exporter takes them: by the name of the flattened input."""
    specs: list[dict[int, str]] = []

    def walk(value: Any, spec: Any) -> None:
        if isinstance(value, torch.Tensor):
            specs.append(dict(spec or {}))
            return
        for item, inner in zip(value, spec or [None] * len(value), strict=True):
            walk(item, inner)

    shapes = case.dynamic_shapes or (None,) * len(case.inputs[0])
    for value, spec in zip(case.inputs[0], shapes.values() if isinstance(shapes, dict) else shapes, strict=True):
        walk(value, spec)
    return {name: spec for name, spec in zip(names, specs, strict=True) if spec}


def write(case: Case, exporter: str, kit: str, path: Path, names: list[str]) -> Report | None:
    """Export to ``path``, with the kit's report where it has one; raises whatever the exporter raises."""
    args = copy.deepcopy(case.inputs[0])
    if kit in ("export", "branches", "default", "called", AUTO, NARROW):
        import onnxpatch

        return onnxpatch.export(
            case.model, args, str(path), exporter=exporter, dynamic_shapes=case.dynamic_shapes, input_names=names,
            opset_version=OPSET, branches=kit == "branches",
            attempts="asked" if kit in ("export", "branches") else "auto",
            # most tables count what is right at every size
            bounds={NARROW: "narrow", "called": None}.get(kit, "never"),
        )  # fmt: skip
    with patched(case.model, exporter, kit):
        if exporter == "dynamo":
            torch.onnx.export(case.model, args, path, dynamo=True, dynamic_shapes=case.dynamic_shapes,
                              input_names=names, opset_version=OPSET, external_data=False, verbose=False)  # fmt: skip
        else:
            torch.onnx.export(case.model, args, str(path), dynamo=False, dynamic_axes=dynamic_axes(case, names),
                              input_names=names, opset_version=OPSET)  # fmt: skip
    return None


@contextlib.contextmanager
def patched(model: nn.Module, exporter: str, kit: str) -> Iterator[None]:
    if kit == "plain":
        yield
        return
    import onnxpatch

    with onnxpatch.patched(model, exporter=exporter, opset=OPSET):
        yield


def deviation(got: np.ndarray, want: torch.Tensor) -> float | str:
    """The error as a part of ``want``'s largest magnitude, or why there is none to give."""
    if tuple(got.shape) != tuple(want.shape):
        return f"shape {tuple(got.shape)}, eager has {tuple(want.shape)}"
    if want.numel() == 0:
        return 0.0
    if not want.is_floating_point():
        return float((torch.from_numpy(got) != want).double().mean())
    reference = want.detach().double().numpy()
    finite = np.isfinite(reference)
    if (np.isfinite(got) != finite).any():
        return "non-finite values differ"
    difference = np.abs(got.astype("float64") - reference)[finite].max(initial=0.0)
    return float(difference / max(1e-6, np.abs(reference[finite]).max(initial=0.0)))


def in_onnxruntime(path: Path) -> tuple[set[str], Run]:
    """(Names of the inputs, what runs the file): one thread, on the CPU."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return {value.name for value in session.get_inputs()}, lambda feed: session.run(None, feed)


def in_openvino(path: Path) -> tuple[set[str], Run]:
    """The same in OpenVINO: one thread, on the CPU, in float32 on every processor."""
    import openvino

    settings = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 1}
    try:
        compiled = openvino.Core().compile_model(str(path), "CPU", settings)
    except RuntimeError as error:
        # Without the lines of OpenVINO's own source, which come first.
        raise openvino_error(error) from None
    names = {name for value in compiled.inputs for name in value.names}

    def run(feed: dict[str, np.ndarray]) -> list[np.ndarray]:
        try:
            found = compiled(feed)
        except RuntimeError as error:
            raise openvino_error(error) from None
        return [found[output] for output in compiled.outputs]

    return names, run


def judge(
    path: Path,
    case: Case,
    wanted: list[list[torch.Tensor]],
    names: list[str],
    opened: Callable[[Path], tuple[set[str], Run]] = in_onnxruntime,
) -> Outcome:
    """Run the file at every input and compare; the first deviation beyond the tolerance decides."""
    import onnx

    worst = 0.0
    try:
        file = onnx.load(path, load_external_data=False)
        nodes = sum(node.op_type != "Constant" for node in file.graph.node)
        bounds = size_bounds.read_bounds({entry.key: entry.value for entry in file.metadata_props})
        known, run = opened(path)
    except Exception as error:
        return Outcome("wrong", f"the file does not load: {brief(error)}")
    for args, want in zip(case.inputs, wanted, strict=True):
        if stated_outside(bounds, names, args):
            continue
        sizes = ", ".join(str(tuple(t.shape)) for t in tensors(args))
        feed = {n: t.numpy() for n, t in zip(names, tensors(args), strict=True) if n in known}
        try:
            outputs = run(feed)
        except Exception as error:
            return Outcome(
                "wrong", f"{opened.__name__.removeprefix('in_')} fails at {sizes}: {brief(error)}", nodes=nodes
            )
        if len(outputs) != len(want):
            return Outcome("wrong", f"{len(outputs)} outputs, eager has {len(want)}", nodes=nodes)
        errors = [deviation(*pair) for pair in zip(outputs, want, strict=True)]
        if any(isinstance(error, str) or not error <= case.tolerance for error in errors):
            ordered = [deviation(*pair) for pair in zip(outputs, in_order(case.model, args), strict=True)]
            if not any(isinstance(error, str) or not error <= case.tolerance for error in ordered):
                errors = ordered
        for error in errors:
            if isinstance(error, str):
                return Outcome("wrong", f"at {sizes}: {error}", nodes=nodes)
            worst = max(worst, error)
            if not error <= case.tolerance and movement(case.model, args) >= error / 2:
                return Outcome(
                    "unsteady", f"at {sizes}: eager's own answer moves as far with one rounding", error, nodes
                )
            if not error <= case.tolerance:
                return Outcome("wrong", f"at {sizes}: relative error {error:.2g}", error, nodes)
    return Outcome("right", error=worst, nodes=nodes)


def stated_outside(bounds: Sequence[SizeBound], names: list[str], args: tuple[Any, ...]) -> bool:
    """Whether the file says itself that it is not right at these sizes (`bounds="narrow"`)."""
    try:
        size_bounds.check(bounds, {name: tuple(t.shape) for name, t in zip(names, tensors(args), strict=True)})
    except InputError:
        return True
    return False


def brief(error: BaseException, length: int = 300) -> str:
    """The root cause in one line, without colours and line breaks."""
    root = error
    while root.__cause__ is not None:
        root = root.__cause__
    text = re.sub(r"\x1b\[[0-9;]*m|\s+", " ", f"{type(root).__name__}: {root}")
    return text.strip()[:length]


def static(case: Case) -> Case:
    """The case with no dynamic dimension but the first, and the inputs that fit the example then."""
    shapes = [[t.shape[1:] for t in tensors(args)] for args in case.inputs]
    inputs = [args for args, own in zip(case.inputs, shapes, strict=True) if own == shapes[0]]
    first = tuple({dim: name for dim, name in (one or {}).items() if dim == 0} for one in case.dynamic_shapes or ())
    return dataclasses.replace(case, inputs=inputs, dynamic_shapes=first)


def second_opinion(path: Path, case: Case, wanted: list[list[torch.Tensor]], names: list[str]) -> tuple[str, str]:
    """(right, wrong or refused, why) of OpenVINO, in a process of its own, which may crash."""
    found = forked.run(lambda: judge(path, case, wanted, names, in_openvino).as_dict(), 120)
    refused = found["verdict"] != "right" and (" fails at " in found["reason"] or "does not load" in found["reason"])
    return "refused" if refused else found["verdict"], found["reason"]


def measure(case: Case, exporter: str, kit: str, openvino: bool = False) -> Outcome:
    """Export ``case`` and judge the file. ``kit``: one of KITS. openvino: judge what is right in OpenVINO, too."""
    if kit == "static":
        case = static(case)
    case.model.eval()
    with torch.no_grad():
        reference = copy.deepcopy(case.model)
        wanted = [tensors(reference(*copy.deepcopy(args))) for args in case.inputs]
    names = [f"in{i}" for i in range(len(tensors(case.inputs[0])))]
    before = peak_from_here()
    started = time.process_time()
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        path = Path(folder) / "model.onnx"
        try:
            again = kit.replace("declared", "default")
            export = lambda asked: write(asked, exporter, again, path, names)  # noqa: E731
            report = as_printed(case, export) if kit == "declared" else export(case)
        except Exception as error:
            said = getattr(error, "report", None)
            return Outcome(
                "refused", brief(error), seconds=time.process_time() - started,
                attempts=len(getattr(error, "attempts", ())) or 1, **memory(said, before),
            )  # fmt: skip
        seconds, took = time.process_time() - started, memory(report, before)
        outcome = judge(path, case, wanted, names)
        if outcome.verdict == "right" and report is not None and report.verdict == "unproven":
            outcome = dataclasses.replace(
                outcome, verdict="unproven", reason="no other size of a dimension was compared"
            )
        if openvino and outcome.verdict == "right":
            outcome.openvino, outcome.openvino_reason = second_opinion(path, case, wanted, names)
    outcome = dataclasses.replace(outcome, seconds=seconds, attempts=1, **took)
    if report is not None:
        outcome.attempts, outcome.call = len(report.attempts), report.call
    return outcome


def peak_from_here() -> int:
    """Bytes that the process has now. Its peak is counted from here on, where Linux lets it."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return peak_of_process() or 0


def memory(report: Report | None, before: int) -> dict[str, Any]:
    """What an export took, as in Outcome. before: what the process had."""
    said = report.memory if report is not None else {}
    most = max(peak_of_process() or 0, peak_of_process(children=True) or 0)
    probes = {"probes": len(report.checks), "left_out": said.get("left_out", 0)} if report is not None else {}
    return {"peak": said.get("peak"), "limit": said.get("limit"), "process": most - before if most else None, **probes}

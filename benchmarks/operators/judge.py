"""Exports one entry and holds the file against eager: right, wrong, wrong at the edge, refused, with the reason."""

from __future__ import annotations

import functools
import re
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch

from benchmarks.operators import kernels
from benchmarks.operators.entries import NAN, LeftOut, Subject, Tensors, eager, outputs, subject, trials
from onnxpatch.inputs.leaves import Inputs
from onnxpatch.onnxfile.runtimes.onnxruntime import LimitedRuns
from onnxpatch.results.checks import Checked
from onnxpatch.verification.eager import Eager
from onnxpatch.verification.probe import Probe
from onnxpatch.verification.runner import judged

Answer = dict[str, Any]
TOLERANCE = 1e-3


def answer(
    database: str, name: str, which: str, exporter: str, kit: str, dtype: str | None = None, opset: int = 18
) -> Answer:
    """The verdict on one entry, made in this process."""
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    started = time.perf_counter()
    try:
        made = subject(database, name, which, dtype)
    except LeftOut as reason:
        return {"verdict": "left out", "reason": str(reason)}
    except Exception as error:
        return {"verdict": "left out", "reason": f"its sample: {_words(error)}"}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "m.onnx"
        try:
            (_plain if kit == "plain" else _patched)(made, file, exporter, opset)
        except BaseException as error:
            found = {"verdict": "refused", "reason": _words(error)}
        else:
            found = verdict(made, file)
    axes = sorted(made.groups)
    return {**found, "dynamic": len(axes), "seconds": round(time.perf_counter() - started, 2)}


def _plain(made: Subject, file: Path, exporter: str, opset: int = 18) -> None:
    names = [f"x{i}" for i in range(len(made.args))]
    shapes = made.dynamic_shapes()
    options: dict[str, Any] = {"input_names": names, "opset_version": opset}
    if exporter == "dynamo":
        shapes_by_name = None if shapes is None else dict(zip(names, shapes, strict=True))
        torch.onnx.export(
            made.model, made.args, file, dynamo=True, dynamic_shapes=shapes_by_name, verbose=False, **options
        )
    else:
        axes = {name: axes for name, axes in zip(names, shapes or (), strict=False) if axes}
        torch.onnx.export(made.model, made.args, str(file), dynamo=False, dynamic_axes=axes or None, **options)


def _patched(made: Subject, file: Path, exporter: Any, opset: int = 18) -> None:
    import onnxpatch

    onnxpatch.export(
        made.model, made.args, file, exporter=exporter, dynamic_shapes=made.dynamic_shapes(),
        opset_version=opset,
    )  # fmt: skip


def export_once(exporter: str) -> None:
    """Export a layer, so that a process forked after it has imported what exporting needs."""
    made = Subject(torch.nn.ReLU().eval(), (torch.randn(2, 3),), [])
    with tempfile.TemporaryDirectory() as folder:
        _plain(made, Path(folder) / "m.onnx", exporter)
        _patched(made, Path(folder) / "m.onnx", exporter)


def verdict(made: Subject, file: Path) -> Answer:
    """The verdict on a file."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    except Exception as error:
        return {"verdict": "refused", "reason": f"onnxruntime does not load it: {_words(error)}"}
    runtime = LimitedRuns(session)  # NumPy has no bfloat16
    names = [node.name for node in session.get_inputs()]
    edges: list[Answer] = []
    for label, at_edge, args in trials(made):
        wanted = eager(made.model, args)
        if wanted is None or (not at_edge and label != "the example" and not _finite(wanted)):
            continue
        arrays = {f"x{i}": _array(x) for i, x in enumerate(args)}
        feed = {name: arrays[name] for name in names}
        try:
            problem = _problem(runtime.run(None, feed, None), made.model, args, wanted)
        except Exception as error:
            problem = f"onnxruntime: {_words(error)}"
        if problem and not at_edge:
            return {"verdict": "wrong", "reason": f"{label}: {problem}"}
        if problem and _steady(made.model, args, wanted):
            right = functools.partial(_right, made.model, args, wanted)
            kernel = kernels.at_fault(file, feed, right) if label == NAN else ""
            reason = f"onnxruntime's {kernel}" if kernel else f"{label}: {problem}"
            edges.append({"verdict": "nan" if kernel else "edge", "reason": reason})
    return min(edges, key=lambda one: one["verdict"], default={"verdict": "right", "reason": ""})


def _right(model: torch.nn.Module, args: Tensors, wanted: list[torch.Tensor], found: list[Any]) -> bool:
    return not _problem(found, model, args, wanted)


def _steady(model: torch.nn.Module, args: Tensors, wanted: list[torch.Tensor]) -> bool:
    """Whether eager has the same in float64: what its own rounding decides (at a pole) is nobody's answer."""
    wide = eager(model, tuple(x.double() if x.is_floating_point() else x for x in args))
    if wide is None:
        return True
    pairs = [(x, y) for x, y in zip(wanted, wide, strict=True) if x.is_floating_point() and x.shape == y.shape]
    return all(torch.allclose(x.double(), y.double(), rtol=0.01, atol=0.01, equal_nan=True) for x, y in pairs)


def _problem(found: list[Any], model: torch.nn.Module, args: Tensors, wanted: list[torch.Tensor]) -> str:
    if len(found) != len(wanted):
        return f"{len(found)} outputs, eager has {len(wanted)}"
    # Where a file has complex numbers, it has them as pairs.
    flatten = (
        _as_pairs
        if any(
            x.is_complex() and not isinstance(y, torch.Tensor) and y.dtype.kind == "f"
            for x, y in zip(wanted, found, strict=True)
        )
        else outputs
    )
    reference = Eager(model, Inputs(model, args, {}), flatten)
    probe = Probe("", "data", {}, list(args), tuple(flatten(wanted)))
    names = [f"output {at}" for at in range(len(found))]
    check = judged(Checked("onnxruntime", "", "data", {}), names, found, probe, reference, TOLERANCE)
    return "" if check.status in ("right", "unsteady") else next(one.reason for one in check.outputs if one.reason)


def _as_pairs(result: object) -> list[torch.Tensor]:
    return [torch.view_as_real(x.resolve_conj()) if x.is_complex() else x for x in outputs(result)]


def _array(x: torch.Tensor) -> np.ndarray[Any, Any]:
    x = x.detach().resolve_conj()
    return (x.float() if x.dtype == torch.bfloat16 else x).numpy()


def _finite(found: list[torch.Tensor]) -> bool:
    return all(bool(torch.isfinite(x).all()) for x in outputs(found) if x.is_floating_point())


def _words(error: BaseException) -> str:
    """What an exporter or a runtime says, in one line and without what changes from run to run."""
    text = " ".join(str(error).split())
    # What a second, plain attempt says is not the reason of a file that differs.
    known = not text.startswith("the ONNX output differs") and re.search(
        r"(?:Exporting the operator '([\w:.]+)')|(?:No ONNX function found for <OpOverload\(op='([\w:.]+)')", text
    )
    if known:
        return f"{known.group(1) or known.group(2)} is not supported by the exporter"
    text = re.sub(r"/\S+/", "", text)
    text = re.sub(r"[0-9]+\.[0-9]+ s\b|0x[0-9a-f]+", "…", text)
    return f"{type(error).__name__}: {text}"[:240]

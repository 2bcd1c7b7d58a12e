"""Exports one module once, without any patch of its own, and compares the graph with eager.

What the exporters report on the way is kept in the trial, with the stacks of the user's code: warnings of
torch.jit.trace and conditions that torch.export fixed name the lines at fault later.
"""

from __future__ import annotations

import contextlib
import functools
import io
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import FrameType

import torch
from torch.jit import TracerWarning  # type: ignore[attr-defined]

from onnxpatch._torch.exporters import dynamo_capture, input_symbols, kept_translations, watched_sizes
from onnxpatch._torch.function_modes import trace_error_recovery
from onnxpatch._torch.one_export import one_export, quiet_exporters
from onnxpatch._torch.operator_tables import few_decompositions
from onnxpatch.decisions.ask import lines_of_error, lines_of_stack
from onnxpatch.diagnosis.trial import Condition, Subject, Trial
from onnxpatch.errors import InputError, RunError, error_chain
from onnxpatch.exporters.dynamo import torch_shapes
from onnxpatch.exporters.opened_call import opened_call
from onnxpatch.exporters.request import ExportRequest, chosen_exporter
from onnxpatch.limits import TimeLimit, limited
from onnxpatch.messages.user_code import frames_of
from onnxpatch.onnxfile.runtime import Graph
from onnxpatch.patching.forward_state import Snapshot
from onnxpatch.process import filtered, printed, warned
from onnxpatch.results.checks import Checked
from onnxpatch.verification.eager import Eager, flatten_output
from onnxpatch.verification.input_matching import feed_of
from onnxpatch.verification.probe import Probe
from onnxpatch.verification.runner import check_at, judged

# The model, for a probe at which a difference that eager does not determine is no error; else None.
Excusing = Callable[[Probe], Eager | None]
# Parts of the names of nodes in which torch.export writes its conditions. Under other names they raise, and the check
# says "refused" in place of "wrong".
_ASSERTING = ("_assert", "sym_constrain_range", "_guards_fn")
_MOST_KEPT = 500  # warnings, and conditions, of one export


def attempt(
    subject: Subject,
    exporter: str,
    opset: int,
    tolerance: float = 1e-3,
    seconds: float | None = None,
    quick: bool = False,
) -> Trial:
    """Export a subject and compare the graph with eager at its probes. A failing export raises nothing.

    seconds: limit for export and comparison together. quick: under dynamo, stop where torch.export's first try is
    refused, or where its program is wrong already.
    """
    trial, start = Trial(), time.perf_counter()
    # Kept by the trial and deleted with it: the graph is run again when lines are looked for.
    trial.folder = tempfile.TemporaryDirectory(prefix="onnxpatch-")
    state = Snapshot(subject.model)
    try:
        with limited(seconds):
            if exporter == "dynamo":
                _record_step(trial, lambda: _export_program(subject, trial, quick))
                # The exporter has run forward, which may have written into buffers.
                state.restore()
            if quick and trial.captured is not None and trial.status == "right":
                checks = check_captured(trial.captured, subject.probes, tolerance, _excusing(subject))
                _note_checks(checks, trial)
            if trial.status == "right":
                _record_step(trial, lambda: _export_file(subject, exporter, opset, trial))
                state.restore()
            if trial.status == "right":
                _check_graph(subject, exporter, opset, tolerance, trial)
    except TimeLimit as late:
        trial.status, trial.error, trial.kind = "slow", f"took more than {late.seconds:.0f} s", "TimeLimit"
        trial.places = lines_of_error(late)
    finally:
        state.restore()
    trial.seconds = time.perf_counter() - start
    return trial


# ------------------------------------------------------------------ exporting
def _record_step(trial: Trial, step: Callable[[], None]) -> None:
    """Run a step of an export; note its warnings, its output and its error in the trial."""
    printed_by_it = io.StringIO()
    note = functools.partial(_note_warning, trial)
    with filtered("always"), warned(lambda _before: note), _captured_output(printed_by_it), torch.no_grad():
        try:
            step()
        except Exception as error:
            _note_refusal(error, trial)
    # torch prints whole graphs, which may be many megabytes.
    trial.printed += printed_by_it.getvalue()[-200_000:]


@contextlib.contextmanager
def _captured_output(into: io.StringIO) -> Iterator[None]:
    """Keep what is printed off the terminal: exporters print whole graphs when they fail."""
    with printed(lambda _stream, text, _writer: into.write(text) >= 0), quiet_exporters():
        yield


def _note_warning(trial: Trial, message: object, category: type[Warning], *_where: object) -> None:
    """Keep a tracer warning. It is called while the code that is warned about runs: the stack has the user's line."""
    if issubclass(category, TracerWarning) and len(trial.warned) < _MOST_KEPT:
        trial.warned.append((lines_of_stack(sys._getframe(1)), str(message)))


def _export_program(subject: Subject, trial: Trial, once: bool) -> None:
    sizes = torch_shapes(subject.inputs, subject.specs)
    watched = watched_sizes(functools.partial(_note_condition, trial))
    with one_export(), watched, opened_call(subject.model, subject.inputs) as call:
        trial.captured = dynamo_capture(subject.model, call.args, call.kwargs, sizes, once)


def _export_file(subject: Subject, exporter: str, opset: int, trial: Trial) -> None:
    path = _onnx_file(trial)
    if exporter == "dynamo":
        sizes = torch_shapes(subject.inputs, subject.specs)
        watched = watched_sizes(functools.partial(_note_condition, trial))
        opened = opened_call(subject.model, subject.inputs)
        with one_export(), watched, few_decompositions(False), kept_translations(), opened as call:
            # What was captured is translated: capturing again would take as long again.
            trial.program = torch.onnx.export(
                trial.captured or subject.model, call.args, kwargs=call.kwargs or None, dynamo=True,
                dynamic_shapes=sizes, opset_version=opset, verbose=False,
            )  # fmt: skip
        assert trial.program is not None
        trial.program.save(str(path))
    else:
        _export_traced(subject, exporter, opset, path)


def _onnx_file(trial: Trial) -> Path:
    assert trial.folder is not None
    return Path(trial.folder.name) / "model.onnx"


class _CaughtError(Exception):
    pass


def _export_traced(subject: Subject, exporter: str, opset: int, path: Path) -> None:
    """Export through TorchScript: traced, or scripted."""
    from onnxpatch.exporters.torchscript import call_torchscript

    with one_export(), trace_error_recovery() as lost, opened_call(subject.model, subject.inputs) as call:
        call_torchscript(_request(subject, exporter, opset), subject.model, call.args, call.kwargs, path)
    if lost:
        text = f"a torch call raises and the model catches it: torch.jit.trace ends the process there ({lost[0]})"
        raise _CaughtError(text).with_traceback(lost[0].__traceback__) from None


def _note_condition(trial: Trial, condition: Condition, frame: FrameType | None, env: object) -> None:
    if len(trial.size_conditions) < _MOST_KEPT:
        trial.size_conditions.append((condition, lines_of_stack(frame)))
    trial.symbols = trial.symbols or input_symbols(env)


def _request(subject: Subject, exporter: str, opset: int) -> ExportRequest:
    chosen = chosen_exporter(exporter)
    return ExportRequest(subject.model, subject.inputs, subject.specs, chosen, opset, subject.input_names)


def _note_refusal(error: Exception, trial: Trial) -> None:
    errors = error_chain(error)
    # The innermost is the cause; the exporters wrap it in errors of their own.
    root = errors[-1]
    trial.status, trial.kind, trial.caught = "refused", type(root).__name__, isinstance(root, _CaughtError)
    trial.error = " ".join(str(root).split()) or type(root).__name__
    trial.places = [place for one in errors for place in lines_of_error(one)]
    # A refusal of the translation: torch.export went through, and its program has the lines of the operators.
    # It is in the local names of an error's frames: what the exporter was translating.
    names = (value for one in errors for frame, _ in frames_of(one) for value in frame.f_locals.values())
    trial.captured = next((one for one in names if isinstance(one, torch.export.ExportedProgram)), trial.captured)


# ------------------------------------------------------------------ comparing
def _check_graph(subject: Subject, exporter: str, opset: int, tolerance: float, trial: Trial) -> None:
    try:
        trial.graph = Graph(_onnx_file(trial))
        trial.feed = feed_of(trial.graph, _request(subject, exporter, opset))
    # Exported without an error and not usable: that counts as silent.
    except (RunError, InputError) as error:
        trial.status, trial.error, trial.kind = "silent", str(error), type(error).__name__
        return
    excusing = _excusing(subject)
    checks = [check_at(trial.graph, trial.feed, probe, excusing(probe), tolerance) for probe in subject.probes]
    _note_checks(checks, trial)


def _excusing(subject: Subject) -> Excusing:
    """The model for each probe, and None for those that the subject is strict at."""
    eager = Eager(subject.model, subject.inputs, subject.flatten)
    return lambda probe: None if probe.label in subject.strict else eager


def _note_checks(checks: list[Checked], trial: Trial) -> None:
    if not checks:
        return
    trial.checks = checks
    wrong = trial.first_wrong()
    if wrong is not None:
        trial.status, trial.error, trial.kind = "silent", wrong.sentence(), wrong.status


def check_captured(
    program: torch.export.ExportedProgram, probes: Sequence[Probe], tolerance: float, excusing: Excusing
) -> list[Checked]:
    """Run a program at every probe; [] where it cannot be run at all. Its module takes tensors only.

    tolerance: relative, as in `onnxpatch.verify`. excusing: the model, for a probe at which a difference that eager
    does not determine is no error.
    """
    try:
        interpreter = _WithoutAsserts(program.module())
    except Exception:  # some programs cannot be made a module again; their ONNX graph is checked instead
        return []
    return [_check(interpreter, probe, tolerance, excusing(probe)) for probe in probes]


def _check(interpreter: _WithoutAsserts, probe: Probe, tolerance: float, eager: Eager | None) -> Checked:
    head = Checked("torch.export", probe.label, probe.kind, probe.sizes)
    # A program may write into its inputs.
    values = [v.clone() for v in probe.values if isinstance(v, torch.Tensor)]
    try:
        with torch.no_grad():
            results = flatten_output(interpreter.run(*values))
    except Exception as error:
        return replace(head, error=" ".join(str(error).split())[:500], status="refused")
    return judged(head, [str(i) for i in range(len(results))], results, probe, eager, tolerance)


class _WithoutAsserts(torch.fx.Interpreter):
    """Runs a program, and leaves out the nodes that check its sizes."""

    def run_node(self, n: torch.fx.Node) -> object:
        if n.op in ("call_function", "call_module") and any(part in str(n.target) for part in _ASSERTING):
            return None
        return super().run_node(n)

"""What is put back at the end of a block is put back whatever interrupts it."""

import contextlib
import random
import sys
import threading
import warnings

import pytest
import torch
from torch.fx.experimental import _config
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from onnxpatch import process as module
from onnxpatch._torch.exporters import watched_sizes
from onnxpatch._torch.fake_sizes import _OBLIVIOUS
from onnxpatch._torch.one_export import no_graphs_printed, quiet_torch
from onnxpatch._torch.script_tracing import traced, weights_left_out
from onnxpatch.control_flow.answers import prepared
from onnxpatch.diagnosis.part_export import _record_step
from onnxpatch.diagnosis.trial import Trial
from onnxpatch.patching import rebinding
from onnxpatch.patching.forward_state import process_state_kept
from onnxpatch.process import Shared, filtered, printed, undone, warned


class Interrupt(BaseException):
    pass


@pytest.mark.parametrize("shared", [False, True])
def test_an_interrupt_at_any_line_is_followed_by_the_undoing(shared):
    number, stopped = 0, 0
    while True:
        number += 1
        seen, place, tracer = [0], {"value": "before"}, sys.gettrace()

        def undo(place=place):
            place["half"] = True
            place["value"] = "before"

        @contextlib.contextmanager
        def change(place=place, undo=undo):
            with undone(undo):
                place["value"] = "changed"
                yield

        def trace(frame, event, argument, seen=seen, undo=undo, number=number):
            if frame.f_code.co_filename != module.__file__ and frame.f_code is not undo.__code__:
                return None
            if event == "line":
                seen[0] += 1
                if seen[0] == number:
                    raise Interrupt
            return trace

        common = Shared(change)
        try:
            sys.settrace(trace)
            with common.held() if shared else change():
                assert place["value"] == "changed"
        except Interrupt:
            stopped += 1
        finally:
            sys.settrace(tracer)
        assert place["value"] == "before", f"after an interrupt at line {number}"
        assert free_for_others(common), f"after an interrupt at line {number}"
        if seen[0] < number:
            break
    assert stopped > 5


def free_for_others(common):
    """Whether another thread may use it."""
    taken = []
    thread = threading.Thread(target=lambda: taken.append(common._lock.acquire(timeout=5)))
    thread.start()
    thread.join()
    return taken == [True]


def overlapping(first, second):
    """Run two contexts in two threads: the second is entered before the first is left, and left after it."""
    events = [threading.Event() for _ in range(3)]

    def one():
        with first():
            events[0].set()
            assert events[1].wait(60)
        events[2].set()

    def two():
        assert events[0].wait(60)
        with second():
            events[1].set()
            assert events[2].wait(60)

    threads = [threading.Thread(target=run) for run in (one, two)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@contextlib.contextmanager
def of_the_doctor():
    """What the doctor does around each export that it tries."""
    left, entered = threading.Event(), threading.Event()
    trial = Trial()

    def wait():
        entered.set()
        assert left.wait(60)

    step = threading.Thread(target=lambda: _record_step(trial, wait))
    step.start()
    assert entered.wait(60)
    try:
        yield
    finally:
        left.set()
        step.join()


@contextlib.contextmanager
def drawing():
    with process_state_kept(seed=5):
        torch.set_default_dtype(torch.float64)
        yield


def questions_replaced():
    return rebinding.installed(prepared(torch.nn.Module()))


CONTEXTS = [
    quiet_torch, no_graphs_printed, lambda: weights_left_out(0, 0), lambda: watched_sizes(print), of_the_doctor,
    questions_replaced, traced, lambda: filtered("ignore"), drawing, _OBLIVIOUS.held,
]  # fmt: skip


@pytest.mark.parametrize("first", CONTEXTS)
@pytest.mark.parametrize("second", CONTEXTS)
def test_two_threads_that_overlap_leave_nothing_changed(first, second):
    def process():
        return (
            sys.stdout, sys.stderr, warnings.showwarning, warnings.filters[:], torch._C._jit_onnx_log,
            torch._C._jit_pass_onnx_deduplicate_initializers, ShapeEnv._log_guard, vars(torch.SymBool)["__bool__"],
            vars(torch.SymInt)["__index__"], torch.get_default_dtype(), torch.get_rng_state().tolist(),
            random.getstate(), _config.backed_size_oblivious,
        )  # fmt: skip

    before = process()
    overlapping(first, second)
    assert process() == before


def test_warnings_and_output_of_other_threads_are_theirs(capsys):
    shown = []

    def speak():
        print("a line")
        warnings.warn("a warning", stacklevel=1)

    def other():
        thread = threading.Thread(target=speak)
        thread.start()
        thread.join()

    with warnings.catch_warnings(record=True) as passed:
        warnings.simplefilter("default")
        with filtered("always"), warned(lambda before: lambda *one: shown.append(one)), printed(lambda *_: True):
            speak()
            speak()
            other()
        with filtered("ignore"):
            speak()
    assert len(shown) == 2 and [str(one.message) for one in passed] == ["a warning"]
    assert capsys.readouterr().out == "a line\n" * 2


def test_what_torch_prints_is_kept_from_the_threads_that_asked(capsys):
    def printed(name):
        exec("import sys; sys.stderr.write('a line\\n')", {"__name__": name})

    with quiet_torch(), quiet_torch():
        printed("torch.inner")
        other = threading.Thread(target=printed, args=("torch.inner",))
        other.start()
        other.join()
        printed("mine")
    printed("torch.inner")
    assert capsys.readouterr().err == "a line\n" * 3


def test_an_error_of_the_block_passes():
    done = []
    with pytest.raises(ZeroDivisionError), undone(lambda: done.append(1)):
        1 / 0  # noqa: B018
    assert done == [1]  # a second time is only for what an interrupt stopped


def test_a_stream_that_is_closed_is_no_terminal(monkeypatch, tmp_path):
    """torch.export asks sys.stdout.isatty(), which raises for a closed file."""
    with open(tmp_path / "out", "w") as closed:
        monkeypatch.setattr(sys, "stdout", closed)
    with printed(lambda *_: False):
        assert sys.stdout.isatty() is False

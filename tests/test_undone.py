"""What is put back at the end of a block is put back whatever interrupts it."""

import contextlib
import sys
import threading
import warnings

import pytest
import torch

from onnxpatch import undone as module
from onnxpatch._torch.quiet import no_graphs_printed, quiet_torch
from onnxpatch._torch.traced_weights import weights_left_out
from onnxpatch.undone import Shared, undone


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


@pytest.mark.parametrize("context", [quiet_torch, no_graphs_printed, lambda: weights_left_out(0, 0)])
def test_two_threads_that_overlap_leave_nothing_changed(context):
    def process():
        return (
            sys.stderr, warnings.showwarning, warnings.filters[:], torch._C._jit_onnx_log,
            torch._C._jit_pass_onnx_deduplicate_initializers,
        )  # fmt: skip

    before = process()
    overlapping(context, context)
    assert process() == before


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

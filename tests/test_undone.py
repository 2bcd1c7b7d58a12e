"""What is put back at the end of a block is put back whatever interrupts it."""

import sys

import pytest

from onnxpatch import undone as module
from onnxpatch.undone import undone


class Interrupt(BaseException):
    pass


def test_an_interrupt_at_any_line_is_followed_by_the_undoing():
    number, stopped = 0, 0
    while True:
        number += 1
        seen, place, tracer = [0], {"value": "before"}, sys.gettrace()

        def undo(place=place):
            place["half"] = True
            place["value"] = "before"

        def trace(frame, event, argument, seen=seen, undo=undo, number=number):
            if frame.f_code.co_filename != module.__file__ and frame.f_code is not undo.__code__:
                return None
            if event == "line":
                seen[0] += 1
                if seen[0] == number:
                    raise Interrupt
            return trace

        try:
            sys.settrace(trace)
            with undone(undo):
                place["value"] = "changed"
        except Interrupt:
            stopped += 1
        finally:
            sys.settrace(tracer)
        assert place["value"] == "before", f"after an interrupt at line {number}"
        if seen[0] < number:
            break
    assert stopped > 5


def test_an_error_of_the_block_passes():
    done = []
    with pytest.raises(ZeroDivisionError), undone(lambda: done.append(1)):
        1 / 0  # noqa: B018
    assert done == [1]  # a second time is only for what an interrupt stopped

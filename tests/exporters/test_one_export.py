"""Exports in several threads and in forked processes: all are right, and the process is as it was afterwards."""

import builtins
import math
import os
import signal
import threading
import time
import traceback

import numpy as np
import pytest
import torch
from torch import nn

import onnxpatch
from onnxpatch._torch.one_export import one_export

pytestmark = pytest.mark.exports

SHAPES = ({0: "B"},)


class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(8, width)

    def forward(self, x):
        y = self.linear(x)
        return y.reshape(max(x.shape[0], 1), -1).softmax(-1) * min(x.shape[1], 2)


def exported(width, exporter):
    model = Layer(width).eval()
    return onnxpatch.export(model, (torch.randn(3, 8),), None, dynamic_shapes=SHAPES, exporter=exporter, max_probes=3)


def by_the_user(width, exporter):
    model = Layer(width).eval()
    with onnxpatch.patched(model):
        torch.onnx.export(model, (torch.randn(3, 8),), os.devnull, dynamo=exporter == "dynamo", verbose=False)


def diagnosed(width, exporter):
    model = Layer(width).eval()
    return onnxpatch.doctor(model, (torch.randn(3, 8),), dynamic_shapes=SHAPES, exporter=exporter)


def at_once(calls):
    """The result, or the error, of each call, made in a thread of its own."""
    found, ready = [None] * len(calls), threading.Barrier(len(calls))

    def run(number, call):
        ready.wait(60)
        try:
            found[number] = call()
        except Exception as error:
            found[number] = error

    threads = [threading.Thread(target=run, args=(number, call)) for number, call in enumerate(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def process():
    return {**vars(builtins), "pow": math.pow, "export": torch.onnx.export, "exporting": torch.compiler.is_compiling()}


@pytest.mark.parametrize(("exporter", "threads"), [("trace", 4), ("dynamo", 3)])
def test_different_models_are_exported_at_once_and_the_next_alone(exporter, threads):
    before = process()
    found = at_once([lambda width=width: exported(width, exporter) for width in range(3, 3 + threads)])
    assert [(getattr(one, "ok", one), len(getattr(one, "attempts", ()))) for one in found] == [(True, 1)] * threads
    assert process() == before
    assert exported(9, exporter).ok


@pytest.mark.parametrize("exporter", ["trace", pytest.param("dynamo", marks=pytest.mark.slow)])
def test_the_users_own_exports_and_the_doctor_wait_as_well(exporter):
    before = process()
    calls = [lambda: exported(3, exporter), lambda: by_the_user(4, exporter), lambda: diagnosed(5, exporter)]
    found = at_once([*calls, lambda: by_the_user(6, exporter)])
    assert not [one for one in found if isinstance(one, Exception)]
    report, written, diagnosis, _ = found
    assert report.ok and len(report.attempts) == 1 and written is None and diagnosis.ok
    assert process() == before


def test_an_export_waits_for_one_of_torchs_that_began_before():
    """The user's own, of a model that is not patched: torch knows one at a time."""
    inside = threading.Event()

    class Waits(Layer):
        def forward(self, x):
            inside.set()
            time.sleep(0.5)
            return super().forward(x)

    def plain():
        torch.onnx.export(Waits(3).eval(), (torch.randn(3, 8),), os.devnull, dynamo=True, verbose=False)

    def after():
        assert inside.wait(60)
        return exported(4, "dynamo")

    nothing, report = at_once([plain, after])
    assert nothing is None and report.ok and len(report.attempts) == 1


def test_what_torch_left_replaced_is_put_back():
    from torch._export.non_strict_utils import _override_builtin_ops

    before, left = process(), [_override_builtin_ops(), _override_builtin_ops()]
    for one in left:  # as two that overlap outside of onnxpatch leave it
        one.__enter__()
    try:
        assert exported(3, "trace").ok
        assert process() == before
    finally:
        left[1].__exit__(None, None, None)
        left[0].__exit__(None, None, None)


def test_an_interrupt_while_waiting_leaves_the_other_export_alone():
    inside, over, taken = threading.Event(), threading.Event(), []

    def hold():
        with one_export():
            inside.set()
            over.wait(60)

    def interrupt(*_):
        raise KeyboardInterrupt

    holder = threading.Thread(target=hold)
    holder.start()
    assert inside.wait(60)
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with pytest.raises(KeyboardInterrupt), one_export():
            taken.append(1)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    third = threading.Thread(target=lambda: [taken.append(3) for _ in [0] if one_export().__enter__() is None])
    third.daemon = True
    third.start()
    third.join(0.3)
    assert not taken
    over.set()
    holder.join()
    third.join(60)
    assert taken == [3]


class Slow(Layer):
    """Waits in the middle of its export."""

    inside, over = threading.Event(), threading.Event()

    def forward(self, x):
        if onnxpatch.exporting():
            self.inside.set()
            assert self.over.wait(100)
        return super().forward(x)


def in_a_child(call):
    """What `call()` gives in a forked process, as text."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            told = f"{call()}"
        except BaseException:
            told = traceback.format_exc()
        os.write(writing, told.encode()[-4000:])
        os._exit(0)
    os.close(writing)
    with open(reading) as told:
        text = told.read()
    os.waitpid(child, 0)
    return text


@pytest.mark.skipif(not hasattr(os, "fork"), reason="Windows has no fork")
@pytest.mark.parametrize("exporter", ["trace", "dynamo"])
def test_a_process_that_is_forked_during_an_export_can_export_by_trace(exporter):
    Slow.inside.clear()
    Slow.over.clear()
    found = []
    thread = threading.Thread(
        target=lambda: found.append(onnxpatch.export(Slow(3).eval(), (torch.randn(3, 8),), exporter=exporter).ok)
    )
    thread.start()
    assert Slow.inside.wait(60)
    try:
        assert in_a_child(lambda: (exported(4, "trace").ok, builtins.min(2, 3), type(builtins.min).__name__)) == (
            "(True, 2, 'builtin_function_or_method')"
        )
        by_dynamo = in_a_child(lambda: exported(4, "dynamo").ok)
        assert by_dynamo == "True" if exporter == "trace" else "InputError: this process was forked" in by_dynamo
    finally:
        Slow.over.set()
        thread.join()
    assert found == [True]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="Windows has no fork")
def test_an_export_in_a_fork_inside_patched_is_right():
    model = Layer(3).eval()
    with onnxpatch.patched(model):
        assert in_a_child(lambda: onnxpatch.export(model, (torch.randn(3, 8),), exporter="trace").ok) == "True"


def test_numpys_numbers_are_patched_inside_of_a_forward_that_is_exported():
    class Nested(Layer):
        def forward(self, x):
            if onnxpatch.exporting():
                with onnxpatch.patched(Layer(3).eval()):
                    assert isinstance(np.float32(2), np.float32) and np.float64(3) == 3
            return super().forward(x) * float(np.float32(x.shape[0]))

    report = onnxpatch.export(Nested(3).eval(), (torch.randn(3, 8),), dynamic_shapes=SHAPES, exporter="trace")
    assert report.ok and len(report.attempts) == 1


@pytest.mark.parametrize("exporter", ["trace", "dynamo"])
def test_an_export_inside_of_a_forward_that_is_exported_is_refused_in_words(exporter):
    found = []

    class Nested(Layer):
        def forward(self, x):
            if onnxpatch.exporting() and not found:
                with pytest.raises(
                    onnxpatch.InputError, match=f"while the {exporter} exporter runs a model"
                ) as refused:
                    exported(3, exporter)
                found.append(refused)
            return super().forward(x)

    assert onnxpatch.export(Nested(3).eval(), (torch.randn(3, 8),), exporter=exporter).ok and found


def test_the_default_device_meta_is_refused_in_words():
    with torch.device("meta"), pytest.raises(onnxpatch.InputError, match="the default device is meta"):
        onnxpatch.export(nn.ReLU().eval(), (torch.ones(2, device="cpu"),))

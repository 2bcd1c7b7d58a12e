"""What one thread exports, another one may run; and what an interrupt leaves behind: nothing."""

import copy
import math
import sys
import threading

import pytest
import torch
from torch import nn

import onnxpatch
from onnxpatch._torch import exporting
from onnxpatch.patching import rebinding
from tests.exporting import export, while_traced


class Waiting(nn.Module):
    """Stops in the middle of an export until it is allowed to go on."""

    def forward(self, x):
        if exporting() is not None:
            REACHED.set()
            assert GO_ON.wait(60)
        return torch.relu(x) * math.sqrt(4.0) * x.shape.numel()


REACHED, GO_ON = threading.Event(), threading.Event()


def wrong(original, x):
    return original(x) + 1000


@pytest.mark.exports
@pytest.mark.parametrize("exporter", ["dynamo", "trace"])
def test_eager_in_another_thread_is_not_disturbed_by_an_export(registry, exporter):
    targets, method = ("torch.relu", "math.sqrt", "torch.Size.numel"), torch.Size.numel
    for target in targets:
        onnxpatch.patch(target, why="w", name=target, registry=registry)(wrong)
    model, x, failed = Waiting(), torch.ones(2), []
    REACHED.clear()
    GO_ON.clear()

    def run():
        try:
            export(model, (x,), exporter)
        except Exception as error:
            failed.append(error)

    with onnxpatch.patched(model, registry=registry) as patched:
        thread = threading.Thread(target=run)
        thread.start()
        assert REACHED.wait(60), failed
        # Not by Module.__call__, which torch.export itself replaces in the whole process.
        found = [model.forward(x).tolist() for _ in range(100)]
        asked = exporting()
        GO_ON.set()
        thread.join()
    assert asked is None
    assert found == [[4.0, 4.0]] * 100
    assert not failed and patched.scope.hits == dict.fromkeys(targets, 1)
    assert torch.Size.numel is method


def test_names_may_be_added_to_a_module_while_it_is_searched(monkeypatch):
    """As another thread's export does, which shadows builtins: dictionary changed size during iteration."""

    class Adds:
        @property
        def __class__(self):  # asked by inspect.isclass
            monkeypatch.setitem(globals(), f"added_{len(globals())}", 0)
            return Adds

    monkeypatch.setitem(globals(), "adds", Adds())
    assert list(rebinding.memoised([Waiting])) == []


def test_a_model_is_patched_by_one_thread_at_a_time(registry):
    model, refused = nn.ReLU(), []

    def second():
        try:
            onnxpatch.patch_model(model, registry=registry)
        except onnxpatch.InputError as error:
            refused.append(str(error))

    def run():
        thread = threading.Thread(target=second)
        thread.start()
        thread.join()

    with onnxpatch.patched(model, registry=registry), onnxpatch.patched(model, registry=registry):
        run()
        assert len(refused) == 1 and "is patched by thread 'MainThread'" in refused[0]
        with onnxpatch.patched(copy.deepcopy(model), registry=registry):
            pass
    run()
    assert len(refused) == 1


class Rooting(nn.Module):
    def forward(self, x):
        return x * math.sqrt(4.0) * 3


class _Interrupt(BaseException):
    pass


def _raise_at(number, files):
    """A trace function that raises at the `number`-th line that is run in `files`; how many were run is in `seen`."""
    seen = [0]

    def tracer(frame, event, argument):
        if frame.f_code.co_filename not in files:
            return None
        if event == "line":
            seen[0] += 1
            if seen[0] == number:
                raise _Interrupt
        return tracer

    return tracer, seen


def test_an_interrupt_at_any_line_leaves_no_name_replaced(registry):
    for target in ("math.sqrt", "builtins.int"):
        onnxpatch.patch(target, why="w", name=target, registry=registry)(lambda original, x: original(x))
    model, files, number, stopped = Rooting(), {rebinding.__file__}, 0, 0
    sqrt = math.sqrt
    with onnxpatch.patched(model, registry=registry):
        while True:
            number += 1
            tracer, seen = _raise_at(number, files)

            def run(tracer=tracer):
                sys.settrace(tracer)
                try:
                    model(torch.ones(1))
                finally:
                    sys.settrace(None)

            try:
                while_traced(run)
            except _Interrupt:
                stopped += 1
            assert math.sqrt is sqrt and "int" not in globals(), f"after an interrupt at line {number}"
            assert not rebinding._standing
            if seen[0] < number:
                break
    assert stopped > 30

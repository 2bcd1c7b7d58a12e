"""An interrupt at any line of the kit leaves nothing changed, once the exception has left the call."""

from __future__ import annotations

import contextlib
import io
import math
import sys
import weakref

import pytest
import torch
from einops.layers.torch import Rearrange
from torch import nn
from torch.overrides import TorchFunctionMode

import onnxpatch
from onnxpatch._torch.fake_sizes import FakeWorld
from onnxpatch._torch.function_modes import modes_kept, unseen
from onnxpatch.patched import asked_by_with
from tests.exporting import while_traced
from tests.patching.interrupting import At, Interrupt, everything, interrupted, leaks

pytestmark = pytest.mark.exports


class Net(nn.Module):
    """A layer that is swapped, functions that are replaced, and an `if` on data."""

    def __init__(self, decides=True):
        super().__init__()
        self.decides = decides
        self.rearrange, self.linear = Rearrange("b c (h p) -> b h (c p)", p=2), nn.Linear(6, 2)

    def forward(self, x):
        y = self.linear(self.rearrange(x)) * math.sqrt(x.shape[2] // 2)
        if self.decides and type(self.linear) is nn.Linear and y.sum() > 1000:
            y = y * 2
        return y


X, SHAPES = torch.zeros(2, 3, 8), {"x": {2: "n"}}


def plain(model, exporter):
    with onnxpatch.patched(model):
        options = dict(dynamo=True, dynamic_shapes=({2: "n"},)) if exporter == "dynamo" else dict(dynamo=False)
        # torch.export binds the containers in a module's attributes to copies: also without the kit.
        attributes = [(vars(module), dict(vars(module))) for module in model.modules()]
        try:
            torch.onnx.export(model, (X,), io.BytesIO(), verbose=False, **options)
        finally:
            for now, before in attributes:
                now.update(before)


def whole(model, exporter):
    onnxpatch.export(model, (X,), exporter=exporter, dynamic_shapes=SHAPES, max_probes=2)


def branches(model, exporter):
    onnxpatch.export(model, (X,), exporter=exporter, dynamic_shapes=SHAPES, branches=True, max_probes=2)


def outcome(how, exporter, times, seed):
    # Plain torch.export refuses an `if` on data.
    model = Net(decides=exporter == "trace" or how is not plain).eval().requires_grad_(False)
    return leaks(model, lambda: how(model, exporter), times, seed)


@pytest.mark.parametrize(("how", "times"), [(plain, 8), (whole, 2)])
def test_an_interrupt_at_random_lines(how, times):
    assert outcome(how, "trace", times, 0) == []


def places_of(names, run):
    """The number of the first run of each line of these functions, while `run` runs."""
    run()
    with At() as count:
        run()
    numbers = [numbers[0] for (code, _), numbers in count.places.items() if code.co_name in names]
    assert len(numbers) > len(names)
    return numbers


@pytest.mark.quick  # what restoring rests on
def test_an_interrupt_at_each_line_around_a_stand_in():
    model = Net().eval().requires_grad_(False)
    numbers = places_of({"_called", "entered", "put_in_force", "claim", "_release"}, lambda: plain(model, "trace"))
    before = everything(model)  # after the first run, which fills what is made once
    for number in numbers:
        assert interrupted(model, lambda: plain(model, "trace"), number, before) == []


def test_an_interrupt_on_the_way_into_a_marked_forward():
    class Marked(nn.Module):
        def forward(self, x):
            return x

        @onnxpatch.onnx_forward
        def forward_onnx(self, x):
            seen.append(1)
            return x + 0

    def run():
        with onnxpatch.patched(model):
            while_traced(lambda: model(torch.zeros(2)))

    seen, model = [], Marked().eval()
    numbers = places_of({"entering"}, run)
    before = everything(model)
    for number in numbers:
        assert interrupted(model, run, number, before) == []
        del seen[:]
        run()
        assert seen  # the interrupted call does not count as one that still runs


def interrupted_at(name, event, cls=onnxpatch.patched, nth=1):
    """A trace function that raises when Python is about to run the first line of, or to leave, a method of `cls`."""
    seen = [0]

    def follow(frame, what, argument):
        code = frame.f_code
        if code.co_name != name or not isinstance(frame.f_locals.get("self"), cls):
            return None

        def inside(frame, what, argument):
            seen[0] += what == event
            if what == event and seen[0] == nth:
                raise Interrupt
            return inside

        return inside

    return follow


@pytest.mark.parametrize(
    ("made", "name", "event"),
    [(onnxpatch.patched, *at) for at in
     (("__enter__", "line"), ("__enter__", "return"), ("__exit__", "line"), ("_leave", "line"))]
    + [(onnxpatch.patch_model, *at) for at in
       (("apply", "line"), ("apply", "return"), ("__enter__", "line"),
        ("__enter__", "return"), ("__exit__", "line"), ("restore", "line"))],
)  # fmt: skip
def test_an_interrupt_where_no_exit_is_called(made, name, event):
    model = Net().eval()
    plain(model, "trace")  # what is made once
    before, tracer = everything(model), sys.gettrace()
    with pytest.raises(Interrupt):
        cls = onnxpatch.patched if made is onnxpatch.patched else onnxpatch.Patched
        sys.settrace(interrupted_at(name, event, cls))
        try:
            with made(model):
                pass
        finally:
            sys.settrace(tracer)
    assert everything(model) == before
    with onnxpatch.patched(model) as patched:  # as ever
        assert patched.plan.swaps
    assert everything(model) == before


def at_instruction(number, codes):
    """A trace function that raises at the `number`-th instruction of these functions; and how many it has seen."""
    seen = [0]

    def follow(frame, what, argument):
        if frame.f_code not in codes:
            return None
        frame.f_trace_opcodes = True

        def inside(frame, what, argument):
            seen[0] += what == "opcode"
            if what == "opcode" and seen[0] == number:
                raise Interrupt
            return inside

        return inside

    return follow, seen


def in_a_with(made, model):
    with made(model):
        pass


@pytest.mark.slow  # seven seconds each; those at lines stay
@pytest.mark.parametrize("made", [onnxpatch.patched, onnxpatch.patch_model])
def test_an_interrupt_at_every_instruction_of_a_with_statement(made):
    model = Net().eval()
    plain(model, "trace")  # what is made once
    names = ("__init__", "__enter__", "__exit__", "apply", "_start", "restore", "_leave")
    methods = [vars(cls)[name] for cls in (onnxpatch.patched, onnxpatch.Patched) for name in names if name in vars(cls)]
    codes = {function.__code__ for function in (*methods, onnxpatch.patch_model, in_a_with)}
    before, tracer, number, places = everything(model), sys.gettrace(), 0, 0
    while number == places:  # every one was reached
        number += 1
        follow, seen = at_instruction(number, codes)
        try:
            sys.settrace(follow)
            in_a_with(made, model)
        except Interrupt:
            pass
        finally:
            sys.settrace(tracer)
        places = seen[0]
        assert everything(model) == before, number
    assert number > 100


@pytest.mark.parametrize("context", [unseen, FakeWorld().running])
def test_an_interrupt_at_every_instruction_of_a_block_of_torch_s(context):
    def block():
        with context():
            pass

    model = nn.Linear(1, 1)
    with context():  # what is made once
        pass
    before, tracer, number, places = everything(model), sys.gettrace(), 0, 0
    while number == places:
        number += 1
        follow, seen = at_instruction(number, {block.__code__})
        try:
            sys.settrace(follow)
            with modes_kept():
                block()
        except Interrupt:
            pass
        finally:
            sys.settrace(tracer)
        places = seen[0]
        assert everything(model) == before, number
    assert number > 10


def test_a_call_that_is_no_context_is_told_from_one_that_is():
    def here():
        return asked_by_with(sys._getframe(1))

    @contextlib.contextmanager
    def context():
        yield

    found = []

    def entered():
        found.append(asked_by_with(sys._getframe(1)))
        return context()

    with entered(), entered() as _:
        pass
    kept = entered()
    with kept:
        pass
    assert found == [True, True, False] and not here() and not asked_by_with(None)


def test_a_mode_that_an_interrupt_left_in_force_ends_with_the_run():
    class Mode(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            return function(*args, **(kwargs or {}))

    class Left(nn.Module):
        def forward(self, x):
            Mode().__enter__()
            return x + math.sqrt(4.0)

    model = Left().eval()
    before = everything(model)
    with onnxpatch.patched(model, branches=True):
        while_traced(lambda: model(torch.zeros(2)))
    assert everything(model) == before


def test_what_patch_model_returned_restores_nothing_unless_it_was_a_context():
    model = Net().eval()
    before, patched = everything(model), onnxpatch.patch_model(model)
    scope, there = weakref.ref(patched), everything(model)
    del patched
    assert scope() is None and everything(model) == there != before


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(1, 8))
@pytest.mark.parametrize(
    ("how", "exporter", "times"),
    [(plain, "trace", 100), (whole, "trace", 60), (branches, "trace", 60), (plain, "dynamo", 30), (whole, "dynamo", 20),
     (branches, "dynamo", 20)],
)  # fmt: skip
def test_interrupts_at_two_thousand_random_lines(how, exporter, times, seed):
    assert outcome(how, exporter, times, seed) == []

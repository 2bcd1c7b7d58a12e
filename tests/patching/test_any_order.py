"""Patching, nesting, restoring in any order, errors, runs, exports, other threads: whatever comes after what, nothing
is left once the last patch is out, and in eager the model answers as ever."""

from __future__ import annotations

import copy
import io
import math
import threading
import warnings

import pytest
import torch
from einops.layers.torch import Rearrange
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test
from torch import nn

import onnxpatch
from tests.patching.interrupting import everything


class Part(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(6, 6)
        self.register_buffer("table", torch.arange(6.0))

    def forward(self, x):
        y = self.linear(x) * math.sqrt(x.shape[1] // 2) + self.table
        return y * 2 if y.sum() > 1000 else y


class Net(nn.Module):
    """A layer that is swapped, functions that are replaced, an `if` on data, a layer under two names, a hook."""

    def __init__(self):
        super().__init__()
        self.rearrange, self.part = Rearrange("b c (h p) -> b h (c p)", p=2), Part()
        self.again = self.part
        self.part.linear.register_forward_hook(lambda module, args, output: output + 1)

    def forward(self, x):
        return self.again(self.part(self.rearrange(x)))


X = torch.linspace(-1, 1, 48).reshape(2, 3, 8)
OPTIONS = st.fixed_dictionaries(
    {}, optional={
        "only": st.sampled_from(["part", "rearrange", "*"]), "exclude": st.sampled_from(["part.linear", "rearrange"]),
        "branches": st.booleans(), "exporter": st.sampled_from(["trace", "dynamo"]),
    },
)  # fmt: skip


def in_a_thread(run):
    found = []
    thread = threading.Thread(target=lambda: found.append(run()))
    thread.start()
    thread.join()
    return found[0]


class AnyOrder(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.model = Net().eval().requires_grad_(False)
        self.expected = self.model(X)
        self.before = everything(self.model)
        self.open = []  # a function for each that takes it out

    @rule(options=OPTIONS)
    def patch(self, options):
        self.open.append(onnxpatch.patch_model(self.model, **options).restore)

    @rule(options=OPTIONS)
    def enter(self, options):
        context = onnxpatch.patched(self.model, **options)
        context.__enter__()
        self.open.append(lambda: context.__exit__(None, None, None))

    @rule(options=OPTIONS)
    def enter_and_lose(self, options):
        contexts = [onnxpatch.patched(self.model, **options)]
        contexts[0].__enter__()
        self.open.append(contexts.clear)

    @precondition(lambda self: self.open)
    @rule(which=st.integers(0, 99), twice=st.booleans())
    def restore(self, which, twice):
        taken_out = self.open.pop(which % len(self.open))
        taken_out()
        if twice and getattr(taken_out, "__name__", "") == "restore":
            taken_out()

    @rule(options=OPTIONS)
    def raise_inside(self, options):
        with pytest.raises(ZeroDivisionError), onnxpatch.patched(self.model, **options):
            1 / 0  # noqa: B018

    @rule()
    def refuse(self):
        with pytest.raises(onnxpatch.UnknownPatchError):
            onnxpatch.patch_model(self.model, only="no such patch")

    @rule()
    def run(self):
        assert torch.equal(self.model(X), self.expected)

    @rule()
    def run_wrong(self):
        with pytest.raises(Exception):  # noqa: B017
            self.model(X[:, :2])

    @rule(seldom=st.integers(0, 5), wrong=st.booleans())
    def export(self, seldom, wrong):
        if seldom == 0:
            x = X[:, :2] if wrong else X
            with warnings.catch_warnings(), torch.no_grad():
                warnings.simplefilter("ignore")
                try:
                    torch.onnx.export(self.model, (x,), io.BytesIO(), dynamo=False, verbose=False)
                except Exception:
                    assert wrong or self.open  # nested contexts may name exporters that are not this one

    @rule()
    def run_in_another_thread(self):
        assert torch.equal(in_a_thread(lambda: self.model(X)), self.expected)

    @rule()
    def patch_in_another_thread(self):
        def attempt():
            try:
                with onnxpatch.patched(self.model):
                    return "patched"
            except onnxpatch.InputError:
                return "refused"

        assert in_a_thread(attempt) == ("refused" if self.open else "patched")

    @rule()
    def copy(self):
        assert torch.equal(copy.deepcopy(self.model)(X), self.expected)

    @invariant()
    def nothing_is_left(self):
        if not self.open:
            after = everything(self.model)
            assert [name for name in self.before if after[name] != self.before[name]] == []

    def teardown(self):
        while self.open:
            self.open.pop()()
        self.nothing_is_left()


def steps(examples, each):
    """Run the machine; each example is a model of its own."""
    run_state_machine_as_test(
        AnyOrder,
        settings=settings(
            max_examples=examples,
            stateful_step_count=each,
            suppress_health_check=list(HealthCheck),
            phases=[Phase.generate],  # to find fewer steps takes minutes
        ),
    )


@pytest.mark.exports
def test_a_few_steps_in_any_order():
    steps(6, 15)


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_twenty_thousand_steps_in_any_order():
    steps(400, 50)

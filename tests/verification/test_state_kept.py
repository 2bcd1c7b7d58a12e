"""What a forward changes, outside the model and in it, is put back before it is asked again, and after an export."""

from __future__ import annotations

import functools
import random
import threading
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

import onnxpatch
from onnxpatch._torch.dispatch_modes import writes_seen
from onnxpatch.inputs.held_objects import copied_value, objects_held
from onnxpatch.inputs.leaves import Inputs
from onnxpatch.patching.forward_state import Snapshot, _TensorContents
from onnxpatch.verification.eager import Eager

pytestmark = pytest.mark.exports

X = torch.randn(3, 4)
SHAPES = {"x": {0: "b"}}


class Slots:
    __slots__ = ("empty", "n")

    def __init__(self):
        self.n = 0


class Own:
    def __init__(self):
        self.n, self.deep, self.array = 0, {"a": [{"b": [0]}]}, np.zeros(2)


class Counting(nn.Module):
    """Counts in everything that can hold a number."""

    __slots__ = ("k",)

    def __init__(self):
        super().__init__()
        self.own, self.slots, self.tensors, self.k = Own(), Slots(), [torch.zeros(1)], 0
        self.generator = torch.Generator().manual_seed(1)
        self.weight = nn.Parameter(torch.tensor([-1.0, 0.5, 2.0, 3.0]))
        self.other = nn.Parameter(torch.ones(4))
        self.register_buffer("table", torch.zeros(4))

    def forward(self, x):
        self.own.n += 1
        self.own.deep["a"][0]["b"][0] += 1
        self.own.array += 1
        self.slots.n += 1
        self.slots.empty = 1
        self.k += 1
        with torch.no_grad():
            self.weight.clamp_(0, 1)
        self.other.data = self.other.data * 2
        self.table.data.add_(1)
        self.tensors[0].add_(1)
        torch.rand(1, generator=self.generator)
        return x * self.weight * self.own.n * self.own.deep["a"][0]["b"][0] * self.slots.n * self.k * self.other

    def state(self):
        return (
            self.own.n, self.own.deep, self.own.array.tolist(), self.slots.n, hasattr(self.slots, "empty"), self.k,
            self.weight.tolist(), self.other.tolist(), self.table.tolist(), self.tensors[0].item(),
            self.generator.get_state().tolist(),
        )  # fmt: skip


def test_whatever_a_forward_counts_in_is_put_back():
    model = Counting().eval()
    before, pointer = repr(model.state()), model.weight.data_ptr()
    state = Snapshot(model)
    with state.watched(), torch.no_grad():
        first = model(X)
    state.restore()
    assert repr(model.state()) == before and model.weight.data_ptr() == pointer
    with torch.no_grad():
        assert torch.equal(model(X), first)
    state.restore()
    assert repr(model.state()) == before and state.lost() == []


class Halved(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight, self.own, self.slots = nn.Parameter(torch.tensor([-1.0, 0.5, 2.0, 3.0])), Own(), Slots()

    def forward(self, x):
        self.own.n += 1
        self.slots.n += 1
        with torch.no_grad():
            self.weight.clamp_(0, 1)
        return x * self.weight * self.own.n * self.slots.n


def test_export_asks_a_model_that_counts_always_from_the_same_state():
    model = Halved().eval()
    assert onnxpatch.export(model, (X,), exporter="trace", dynamic_shapes=SHAPES).ok
    assert model.weight.tolist() == [-1.0, 0.5, 2.0, 3.0] and (model.own.n, model.slots.n) == (0, 0)


class Configured(nn.Module):
    """Its settings are an object of a class written in C, whose own descriptors cannot be set."""

    def __init__(self):
        super().__init__()
        self.settings = SimpleNamespace(scale=3, inner=SimpleNamespace(calls=0))
        self.part = functools.partial(torch.mul, 2)

    def forward(self, x):
        self.settings.inner.calls += 1
        return self.part(x * self.settings.scale * self.settings.inner.calls)


def test_settings_of_a_class_written_in_c_are_put_back():
    model = Configured().eval()
    assert onnxpatch.export(model, (X,), exporter="trace", dynamic_shapes=SHAPES).ok
    assert model.settings == SimpleNamespace(scale=3, inner=SimpleNamespace(calls=0))


def test_what_is_not_seen_to_be_written_is_named():
    model = nn.Linear(2, 2)
    state = Snapshot(model)
    with torch.no_grad():
        model.weight.add_(1)
    state.restore()
    assert state.lost() == ["weight"]


def test_a_large_tensor_is_copied_only_before_it_is_written(monkeypatch):
    monkeypatch.setattr("onnxpatch.patching.forward_state._BUFFER_BYTES", 0)
    model = nn.BatchNorm1d(3)
    contents = _TensorContents(model, [])
    assert all(one.content is None for one in contents._tensors)
    with writes_seen(contents.keep):
        model.running_mean.add_(1)
    contents.restore()
    assert model.running_mean.tolist() == [0, 0, 0]
    assert [one.name for one in contents._tensors if one.content is not None] == ["running_mean"]


# ------------------------------------------------------------------ arguments
class Cache:
    """Grows by each call, as transformers' DynamicCache does."""

    def __init__(self):
        self.rows, self.n = [torch.ones(2, 4)], 0


class Growing(nn.Module):
    def forward(self, x, cache):
        cache.rows.append(x)
        cache.rows[0].add_(1)
        cache.n += 1
        return torch.cat(cache.rows) * cache.n


def test_arguments_of_any_class_are_copied_for_each_run():
    cache = Cache()
    rows = cache.rows[0]
    inputs = Inputs(None, (X, cache))
    eager = Eager(Growing(), inputs)
    answers = [eager.ask(inputs.values()).outputs[0] for _ in range(3)]
    assert all(torch.equal(one, answers[0]) for one in answers) and answers[0].shape == (5, 4)
    assert len(cache.rows) == 1 and cache.rows[0] is rows and rows[0, 0] == 1 and cache.n == 0


def test_a_tensor_that_is_given_twice_is_one():
    def forward(q, kv):
        q += 1
        return kv * (2 if kv is q else 3)

    inputs = Inputs(None, (X, X))
    answer = Eager(forward, inputs).ask(inputs.as_given()).outputs[0]
    assert torch.equal(answer, (X + 1) * 2)
    # An exporter has an input for each.
    assert len({id(one) for one in inputs.values()}) == 2


class Locked:
    def __init__(self):
        self.lock, self.items = threading.Lock(), [1]


def test_what_cannot_be_copied_is_put_back():
    one = Locked()
    assert copied_value(one) is one
    _, restore = objects_held([one])
    one.items.append(2)
    one.more = 3
    restore()
    assert one.items == [1] and not hasattr(one, "more")


def test_a_tensor_amid_an_autograd_graph_is_copied():
    made = copied_value({"x": [torch.ones(2, requires_grad=True) * 2]})
    assert made["x"][0].tolist() == [2, 2]


# ------------------------------------------------------------------ random numbers
class Drawing(nn.Module):
    def forward(self, x):
        return x + 0 * (random.random() + np.random.rand()) + 0 * torch.rand(1).sum()


@pytest.mark.parametrize("verb", ["export", "doctor"])
def test_nobody_elses_random_numbers_are_taken(verb):
    random.seed(3), np.random.seed(3), torch.manual_seed(3)
    before = random.getstate(), repr(np.random.get_state()), torch.get_rng_state().tolist()
    model = Drawing().eval()
    getattr(onnxpatch, verb)(model, (X,), exporter="trace", dynamic_shapes=SHAPES)
    assert (random.getstate(), repr(np.random.get_state()), torch.get_rng_state().tolist()) == before


def test_what_a_forward_sets_for_the_process_is_set_back():
    class Sets(nn.Module):
        def forward(self, x):
            torch.set_grad_enabled(False)
            torch.set_default_dtype(torch.float64)
            return x * torch.ones(3).to(x.dtype)

    before = torch.get_default_dtype(), torch.is_grad_enabled()
    try:
        report = onnxpatch.export(Sets().eval(), (torch.randn(2, 3),), exporter="trace", max_probes=2)
        assert report.ok and (torch.get_default_dtype(), torch.is_grad_enabled()) == before
    finally:
        torch.set_default_dtype(before[0])
        torch.set_grad_enabled(before[1])


class Numbering(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        self.count += 1
        return x * self.count


def test_a_buffer_that_the_trace_writes_is_in_the_file_as_before():
    model = Numbering()
    report = onnxpatch.export(model, (X,), dynamic_shapes=SHAPES, exporter="trace")
    assert report.ok and "count" in report.first_call[0] and int(model.count) == 0


class _Averaging(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mean = nn.Buffer(torch.zeros(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.mean = self.mean * 0.9 + x.mean(0) * 0.1
        return x - self.mean


def test_a_buffer_that_a_forward_assigns_is_the_first_calls() -> None:
    report = onnxpatch.export(
        _Averaging(), (X[:, :3],), None, dynamic_shapes=SHAPES, exporter="trace", attempts="asked"
    )
    assert report.ok

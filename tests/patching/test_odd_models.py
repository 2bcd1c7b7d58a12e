"""Models in odd states: compiled, without values, of classes that refuse or are asked for, copied and pickled while
patched. They work, or there is one clear line."""

from __future__ import annotations

import abc
import copy
import io
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import pytest
import torch
from einops.layers.torch import Rearrange
from torch import nn

import onnxpatch
from tests.layers import Computes
from tests.patching.strict_models import Asserting

pytestmark = pytest.mark.exports


@pytest.fixture(autouse=True)
def compiled_code_removed():
    """torch.compile writes its functions into this module, and a later export removes them: in another test."""
    yield
    torch.compiler.reset()


X = torch.randn(1, 3, 4, 6)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.rearrange = Rearrange("b c (h p) (w q) -> b (h w) (c p q)", p=2, q=2)
        self.linear = nn.Linear(12, 4)

    def forward(self, x):
        return self.linear(self.rearrange(x))


def exported(model, exporter="trace"):
    return onnxpatch.export(model.eval(), (X,), exporter=exporter)


# ------------------------------------------------------------------ compiled
def whole():
    return torch.compile(Net(), backend="eager")


def in_place():
    model = Net()
    model.compile(backend="eager")
    return model


def part():
    return nn.Sequential(nn.Conv2d(3, 3, 1), torch.compile(Net(), backend="eager"))


def forward():
    model = Net()
    model.forward = torch.compile(model.forward, backend="eager")
    return model


@pytest.mark.parametrize("make", [whole, in_place, part, forward])
def test_a_compiled_model_is_exported_as_it_was_written(make):
    model = make().eval()
    before = [dict(vars(module)) for module in model.modules()]
    report = exported(model)
    assert "einops-rearrange" in {row["patch"] for row in report.plan}
    assert [dict(vars(module)) for module in model.modules()] == before  # and is compiled again


@torch.compile(backend="eager")
def _relu(x, times=2):
    return (x * times).relu()


@pytest.mark.parametrize("exporter", ["trace", pytest.param("dynamo", marks=pytest.mark.slow)])
def test_a_compiled_function_is_exported_as_it_was_written(exporter):
    inner = torch.compile(lambda x: x + x.shape[0], backend="eager")
    before = torch._dynamo.config.error_on_nested_fx_trace
    model = Computes(lambda x: inner(_relu(x, times=3))).eval()
    assert onnxpatch.export(model, (torch.randn(3, 4),), dynamic_shapes=(({0: "b"},),), exporter=exporter).ok
    assert torch._dynamo.config.error_on_nested_fx_trace == before and not torch.fx._symbolic_trace.is_fx_tracing()


# ------------------------------------------------------------------ nothing to run
@pytest.mark.parametrize("verb", [exported, lambda model: onnxpatch.doctor(model, (X,))])
@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Net().to("meta"), r"on the meta device \(linear.weight and 1 more\), which hold no values"),
        (lambda: nn.Sequential(nn.LazyConv2d(2, 1)), r"lazy parameters .* \(0.weight and 1 more\):\s+run it once"),
        (lambda: _deep(1500), r"nested deeper than Python's recursion limit \(\d+\)"),
    ],
)
def test_what_cannot_run_is_refused_in_one_line(make, says, verb):
    model = make()
    with pytest.raises(onnxpatch.InputError, match=says):
        verb(model)


def _deep(levels):
    model = nn.ReLU()
    model.training = False
    for _ in range(levels):
        model = nn.Sequential(model)
        model.training = False
    model.eval = lambda: model  # torch's own walks the modules
    return model


def test_plan_and_patched_take_a_model_without_values():
    model = Net().to("meta")
    assert [swap.path for swap in onnxpatch.plan(model).swaps] == ["rearrange"]
    with onnxpatch.patched(model):
        assert model(X.to("meta")).shape == (1, 6, 4)


def test_a_plan_may_be_as_deep_as_it_likes():
    assert onnxpatch.plan(_deep(1500)).swaps == []


# ------------------------------------------------------------------ classes
class Asking(nn.Module):
    """Goes by the class of its layers."""

    def __init__(self):
        super().__init__()
        self.rearrange, self.linear = Rearrange("b c h w -> b (c h) w"), nn.Linear(6, 4)

    def forward(self, x):
        y = self.rearrange(x)
        if type(self.rearrange) is Rearrange:
            y = y * 2
        if self.rearrange.__class__ == Rearrange:
            y = y * 3
        return self.linear(y * {Rearrange: 5.0}.get(type(self.rearrange), 1.0))


def test_a_forward_that_asks_for_the_class_of_a_layer_gets_the_written_one():
    model = Asking().eval()
    want = model(X)
    with onnxpatch.patched(model) as patched:
        assert torch.equal(model(X), want)
        assert len(patched.plan.swaps) == 1 and type(model.rearrange) is not Rearrange
    assert exported(model).ok
    assert "type" not in globals()


STRICT = """
import torch
import onnxpatch
from tests.patching.strict_models import Asserting

rows = (torch.randn(5, 2), torch.tensor([2, 5]))
shapes = ({0: "n"}, None)
made = onnxpatch.export(
    Asserting().eval(), rows, None, dynamic_shapes=shapes, exporter="dynamo", attempts="asked"
)
assert made.ok, made
"""


def test_strict_export_of_a_module_that_asks_for_types():
    # In a process of its own, as in a script: what other tests had Dynamo compile plays no part.
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", STRICT], cwd=root, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]


def test_strict_export_of_a_module_that_would_see_a_stand_in():
    rows = (torch.randn(5, 2), torch.tensor([2, 5]))
    options = {"dynamic_shapes": ({0: "n"}, None), "exporter": "dynamo", "attempts": "asked"}
    with pytest.raises(onnxpatch.ExportError):  # type(layer) would be the stand-in's
        onnxpatch.export(Asserting(Rearrange("n c -> c n")).eval(), rows, None, **options)


class NoAssignment(Rearrange):
    def __setattr__(self, name, value):
        if name == "__class__":
            raise TypeError("no")
        super().__setattr__(name, value)


class FixedClass(Rearrange):
    @property
    def __class__(self):
        return FixedClass


@pytest.mark.parametrize("cls", [NoAssignment, FixedClass])
def test_a_class_that_refuses_to_be_set(cls):
    model = nn.Sequential(cls("b c h w -> b (c h) w"), nn.Linear(6, 2))
    assert exported(model).ok
    assert type(model[0]) is cls


class NoSubclass(type):
    def __new__(mcs, name, bases, namespace):
        if any(isinstance(base, NoSubclass) for base in bases):
            raise TypeError(f"{name} is final")
        return super().__new__(mcs, name, bases, namespace)


class Final(Rearrange, metaclass=NoSubclass):
    pass


def test_a_class_that_takes_no_subclass_is_named_with_the_way_on():
    model = nn.Sequential(Final("b c h w -> b (c h) w"), nn.Linear(6, 2))
    with pytest.raises(onnxpatch.InputError, match=r"0 cannot be patched, since Final takes no subclass"):
        exported(model)
    assert onnxpatch.export(model, (X,), exporter="trace", exclude="0").ok


def test_branches_of_a_class_that_takes_no_subclass_are_explored_by_its_caller():
    class Halves(nn.Module, metaclass=NoSubclass):
        def forward(self, x):
            return x / 2 if x.sum() > 0 else -x

    report = onnxpatch.export(nn.Sequential(Halves()).eval(), (torch.ones(3),), exporter="trace", branches=True)
    assert report.ok


# ------------------------------------------------------------------ bases that come before nn.Module
class Attributes:
    __slots__ = ("__dict__",)


class Named:
    __slots__ = ("label", "note")


class Interface(Protocol):
    def label(self) -> str: ...


@pytest.mark.parametrize("first", [abc.ABC, Generic[TypeVar("T")], Interface, Attributes, Named], ids=str)
@pytest.mark.parametrize("branches", [False, True])
def test_a_class_whose_first_base_has_no_attributes_is_patched_and_restored(first, branches):
    class Layer(first, nn.Module):
        def __init__(self):
            nn.Module.__init__(self)
            self.rearrange = Rearranged("b c h w -> b (c h) w")

        def forward(self, x):
            return self.rearrange(x) + x.new_ones(1)

    class Rearranged(first, Rearrange):
        __init__ = Rearrange.__init__

    model = nn.Sequential(Layer(), nn.Linear(6, 2)).eval()
    with onnxpatch.patched(model, exporter="trace", branches=branches):
        assert type(model[0].rearrange) is not Rearranged
        assert copy.deepcopy(model)(X).shape == (1, 12, 2)
    assert type(model[0]) is Layer and type(model[0].rearrange) is Rearranged
    for exporter in ("trace", "dynamo"):
        assert onnxpatch.export(model, (X,), exporter=exporter, branches=branches).ok


# ------------------------------------------------------------------ copies and pickles
def test_a_copy_is_patched_as_long_as_the_model_is():
    model = Net().eval()
    with onnxpatch.patched(model):
        deep, shallow = copy.deepcopy(model), copy.copy(model.rearrange)
        again = copy.deepcopy(deep)
        for one in (deep.rearrange, shallow, again.rearrange):
            assert type(one) is type(model.rearrange) and one.onnxpatch_plans
        assert deep.linear.weight is not model.linear.weight
    for one in (deep, again):
        assert type(one) is Net and type(one.rearrange) is Rearrange
        assert vars(one.rearrange).keys() == vars(model.rearrange).keys()
        assert torch.equal(one(X), model(X))
        assert "einops-rearrange" in {row["patch"] for row in exported(one).plan}
    assert type(shallow) is Rearrange


def test_a_pickle_holds_the_model_as_it_was_written():
    model = Net().eval()
    with onnxpatch.patched(model):
        pickled, file = pickle.dumps(model), io.BytesIO()
        torch.save(model, file)
        file.seek(0)
        found = [pickle.loads(pickled), torch.load(file, weights_only=False)]
        assert type(model) is not Net
    for one in found:
        assert type(one) is Net and type(one.rearrange) is Rearrange
        assert vars(one.rearrange).keys() == vars(model.rearrange).keys()
        assert torch.equal(one(X), model(X))


class Parent(nn.Module):
    """Refers to itself from below, and is copied by a method of its own."""

    def __init__(self):
        super().__init__()
        self.child = Net()
        self.child.parents = [self]

    def forward(self, x):
        return self.child(x)


def test_a_model_that_refers_to_itself_is_copied():
    model = Parent().eval()
    with onnxpatch.patched(model):
        made = copy.deepcopy(model)
        assert made.child.parents[0] is made and type(made) is type(model)
    assert type(made) is Parent and made.child.parents[0] is made

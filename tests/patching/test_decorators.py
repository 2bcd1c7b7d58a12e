"""Per-layer opt-in and opt-out, by decorators that cost nothing outside export."""

import pytest
import torch
from torch import Tensor, nn

import onnxpatch
from tests import exporting
from tests.layers import Doubling, Layer

pytestmark = pytest.mark.exports


class Clipped(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * 2

    @onnxpatch.onnx_forward
    def export_forward(self, x: Tensor) -> Tensor:
        return self.forward(x).clip(0, 1)


class ClippedBySource(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * 2

    @onnxpatch.onnx_forward
    def export_forward(self, x: Tensor) -> Tensor:
        return torch.clip(x * 2, 0, 1)


class Overriding(Clipped):
    def forward(self, x: Tensor) -> Tensor:
        return x * 3


class Inheriting(Clipped):
    """Overrides nothing, so the parent's choice holds."""


X = torch.tensor([-1.0, 0.25, 3.0])


def run(model, exporter):
    return exporting.run(exporting.export(model, (torch.ones(3),), exporter), (X,))[0]


@pytest.mark.parametrize("cls", [Clipped, ClippedBySource, Inheriting])
@pytest.mark.parametrize("exporter", ["dynamo", "trace"])
def test_the_marked_method_is_forward_during_export_only(cls, exporter):
    model = nn.Sequential(cls())
    with onnxpatch.patched(model) as patched:
        assert run(model, exporter).tolist() == [0.0, 0.5, 1.0]
    assert "is marked @onnx_forward" in str(patched.plan)
    assert model(X).tolist() == [-2.0, 0.5, 6.0]


def test_the_marked_method_can_be_scripted():
    model = nn.Sequential(ClippedBySource())
    with onnxpatch.patched(model):
        assert run(model, "script").tolist() == [0.0, 0.5, 1.0]


def test_a_subclass_with_a_forward_of_its_own_is_a_near_miss():
    plan = onnxpatch.plan(Overriding())
    assert not plan.swaps
    assert plan.near_misses[0].reason == "Overriding overrides forward without opting in itself"


def test_outside_export_nothing_is_changed():
    assert Clipped.forward(Clipped(), X).tolist() == [-2.0, 0.5, 6.0]
    assert Clipped.__call__ is nn.Module.__call__
    assert not vars(Clipped()).keys() - vars(nn.Module()).keys()


class Squaring:
    def forward(self, x: Tensor) -> Tensor:
        return x * x


@onnxpatch.onnx_standin(Squaring)
class NamesItsStandIn(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x**2


class Fused(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.weight = nn.Parameter(module.a.detach() * module.b.detach())

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight


@onnxpatch.onnx_standin(Fused)
class NamesAModule(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Parameter(torch.tensor(2.0)), nn.Parameter(torch.tensor(3.0))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.a * self.b


@pytest.mark.parametrize("cls", [NamesItsStandIn, NamesAModule])
def test_a_class_names_its_own_stand_in(cls):
    model = nn.Sequential(cls())
    plain = model(X)
    with onnxpatch.patched(model) as patched:
        assert [swap.patch.name for swap in patched.plan.swaps] == ["onnx_standin"]
        assert torch.allclose(run(model, "dynamo"), plain)
    assert type(model[0]) is cls and torch.equal(model(X), plain)


def test_keep_opts_a_module_out_with_all_under_it(registry):
    onnxpatch.patch("tests.layers.Layer", why="w", name="doubling", registry=registry)(Doubling)

    def twice(original, *args):
        return original(*args) * 2

    onnxpatch.patch("torch.relu", why="w", name="relu", registry=registry)(twice)

    class Relu(nn.Module):
        def forward(self, x):
            return torch.relu(x)

    model = nn.Sequential(onnxpatch.keep(nn.Sequential(Layer(), Relu())), Layer(), Relu()).requires_grad_(False)
    x = torch.randn(2, 4)
    plain = model[0](x)
    with onnxpatch.patched(model, registry=registry) as patched:
        assert [swap.path for swap in patched.plan.swaps] == ["1"]
        assert patched.plan.near_misses[0].reason == "is under 0, opted out by keep()"
        assert torch.equal(model[0](x), plain)
        exporting.while_traced(lambda: model(x))
        assert patched.scope.hits == {"doubling": 1, "relu": 1}

"""Entering and leaving: the whole plan or none of it, and the model as it was, whatever happens on the way."""

import threading

import pytest
import torch
from torch import nn

import onnxpatch
from onnxpatch.patching import runtime
from tests import exporting
from tests.fingerprint import everything, surroundings
from tests.layers import Doubling, Layer, Model

LAYER = "tests.layers.Layer"


def test_stand_ins_act_inside_and_are_gone_after(kit):
    model, x = Model().requires_grad_(False), torch.randn(2, 4)
    for hidden in (*model.plain, *model.by_name.values()):  # a trace holds no constant that requires a gradient
        hidden.requires_grad_(False)
    plain, before = model(x), everything(model)
    with onnxpatch.patched(model, registry=kit) as patched:
        assert len(patched.plan.swaps) == 6
        assert torch.equal(model(x), plain)
        assert not torch.equal(exporting.while_traced(lambda: model(x)), plain)
    assert everything(model) == before
    assert torch.equal(model(x), plain)


def test_aliases_are_swapped_once_and_listed(kit):
    plan = onnxpatch.plan(Model(), registry=kit)
    first = next(swap for swap in plan.swaps if swap.path == "first")
    assert first.aliases == ["again", "block.2"]
    assert {swap.path for swap in plan.swaps} == {
        "first", "block.0", "frozen", "hooked", "plain[0]", "by_name['only']",
    }  # fmt: skip


def test_the_root_itself(kit):
    layer, x = Layer().requires_grad_(False), torch.randn(4)
    plain, before = layer(x), everything(layer)
    with onnxpatch.patched(layer, registry=kit):
        assert torch.equal(layer(x), plain)
        assert torch.equal(exporting.while_traced(lambda: layer(x)), plain + 2)
        assert isinstance(layer, Layer)
    assert everything(layer) == before


def test_patching_twice_is_a_no_op(kit):
    model = Model()
    before = everything(model)
    first = onnxpatch.patch_model(model, registry=kit)
    patched = everything(model)
    second = onnxpatch.patch_model(model, registry=kit)
    assert not second.plan.swaps
    assert {miss.reason for miss in second.plan.near_misses} == {"acts already: an outer patched() applied it"}
    assert everything(model) == patched
    second.restore()
    assert everything(model) == patched
    first.restore()
    first.restore()
    assert everything(model) == before


def test_two_threads_each_with_its_own_model(kit):
    """A function patch reaches neither the other thread nor plain code in between."""
    seen, barrier = {}, threading.Barrier(2, timeout=30)

    class Asking(nn.Module):
        def forward(self, x):
            import math

            barrier.wait()
            seen[threading.current_thread().name] = (math.sqrt(4.0), runtime.running_model())
            barrier.wait()
            return torch.relu(x)

    def stand_in(original, value):
        return original(value) + 10

    kit.remove("math.sqrt")
    onnxpatch.patch("math.sqrt", why="w", name="math.sqrt", registry=kit)(stand_in)
    before = surroundings()

    def patched_thread():
        with onnxpatch.patched(model := Asking(), registry=kit):
            exporting.while_traced(lambda: model(torch.ones(1)))

    def plain_thread():
        Asking()(torch.ones(1))

    threads = [
        threading.Thread(target=patched_thread, name="patched"),
        threading.Thread(target=plain_thread, name="plain"),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen["patched"][0] == 12.0 and seen["patched"][1] is not None
    assert seen["plain"] == (2.0, None)
    assert surroundings() == before


def test_a_parametrized_layer_is_still_a_layer(kit):
    layer = Layer()
    nn.utils.parametrize.register_parametrization(layer, "weight", nn.Softplus())
    before = everything(layer)
    with onnxpatch.patched(layer, registry=kit) as patched:
        assert [swap.patch.name for swap in patched.plan.swaps] == ["doubling"]
        assert isinstance(layer, Doubling)
    assert everything(layer) == before


def test_a_parametrization_registered_inside_stays_and_the_stand_in_goes(kit):
    layer = Layer()
    with onnxpatch.patched(layer, registry=kit):
        nn.utils.parametrize.register_parametrization(layer, "weight", nn.Softplus())
    assert type(layer).__name__ == "ParametrizedLayer"
    assert type(layer).__mro__[1] is Layer
    nn.utils.parametrize.remove_parametrizations(layer, "weight", leave_parametrized=False)
    assert type(layer) is Layer


def test_an_instance_forward_is_reported_and_stays(kit):
    model = nn.Sequential(Layer(), Layer())
    mine = lambda x: x  # noqa: E731
    model[0].forward = mine
    before = everything(model)
    with onnxpatch.patched(model, registry=kit) as patched:
        assert [swap.path for swap in patched.plan.swaps] == ["1"]
        assert "hides forward" in patched.plan.near_misses[0].reason
        assert "instance attribute `forward`" in str(patched.plan)
    assert model[0].forward is mine
    assert everything(model) == before


def test_a_class_that_registers_its_subclasses_hears_nothing_of_ours(kit):
    born = []

    class Registering(nn.Module):
        def __init_subclass__(cls, kind):
            born.append(cls)

    class Registered(Registering, kind="a"):
        def forward(self, x):
            return torch.relu(x)

    with onnxpatch.patched(Registered(), registry=kit):
        assert born == [Registered]


def test_a_scripted_submodule_and_a_lazy_one_stay_as_they_are(kit):
    model = nn.Sequential(torch.jit.script(nn.Linear(4, 4)), Layer(), nn.LazyLinear(3))
    before = [type(module) for module in model.modules()]
    with onnxpatch.patched(model, registry=kit) as patched:
        assert [swap.path for swap in patched.plan.swaps] == ["1"]
    assert [type(module) for module in model.modules()] == before


def test_a_replacement_takes_the_place_of_the_module_everywhere(registry):
    class Wide(nn.Module):
        def __init__(self, layer):
            super().__init__()
            self.both = nn.Parameter(torch.stack([layer.weight, layer.offset]), requires_grad=False)

        def forward(self, x):
            return x * self.both[0] + self.both[1] + 5

    onnxpatch.patch(LAYER, why="w", name="wide", replaces=True, registry=registry)(lambda module: Wide(module))
    model, x = Model().eval().requires_grad_(False), torch.randn(2, 4)
    plain = model.first(x)
    before = everything(model)
    with onnxpatch.patched(model, registry=registry):
        assert model.first is model.block[2]
        assert torch.allclose(exporting.while_traced(lambda: model.first(x)), x * model.first.both[0] + 6)
        assert torch.equal(model.first(x), plain)  # in eager it is the layer that it was
        assert not model.first.training
        assert model.hooked._forward_hooks
    assert everything(model) == before
    root = Layer()
    before = everything(root)
    with onnxpatch.patched(root, registry=registry):
        assert list(root.state_dict()) == ["both"]
    assert everything(root) == before


def test_torch_script_compiles_the_stand_in(kit):
    model, x = nn.Sequential(Layer(), nn.ReLU()), torch.randn(4)
    plain = model[0](x)
    with onnxpatch.patched(model, registry=kit, exporter="script"):
        scripted = torch.jit.script(model)
    assert torch.allclose(scripted(x), torch.relu(plain + 2))


def test_a_scripted_model_is_refused():
    scripted = torch.jit.script(nn.Linear(2, 2))
    with pytest.raises(onnxpatch.ScriptedModelError, match=r"pass the nn.Module and call torch.jit.script inside"):
        onnxpatch.patch_model(scripted)


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        (dict(exporter="onnx"), onnxpatch.UnknownExporterError, "use one of 'dynamo', 'trace', 'script'"),
        (dict(only="dubling"), onnxpatch.UnknownPatchError, "did you mean 'doubling'"),
        (dict(exclude=["first", "secnd"]), onnxpatch.UnknownPatchError, "'secnd' is neither a patch nor a module path"),
    ],
)
def test_bad_options_leave_the_model_alone(kit, options, error, text):
    model = Model()
    before = everything(model)
    with pytest.raises(error, match=text):
        onnxpatch.patch_model(model, registry=kit, **options)
    assert everything(model) == before


@pytest.mark.parametrize(
    ("options", "paths"),
    [
        (dict(only="block"), {"block.0"}),
        (dict(only=["first", "block"]), {"first", "block.0"}),
        (dict(exclude="block.*"), {"first", "frozen", "hooked", "plain[0]", "by_name['only']"}),
        (dict(only="math.*"), set()),
        (dict(only="doub*", exclude=["first", "plain*", "by_name*", "hooked"]), {"block.0", "frozen"}),
    ],
)
def test_only_and_exclude_take_patches_and_paths(kit, options, paths):
    assert {swap.path for swap in onnxpatch.plan(Model(), registry=kit, **options).swaps} == paths


@pytest.mark.exports
def test_an_output_that_is_a_stored_tensor_can_be_traced(registry):
    class WithLoss(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("zero", torch.tensor(0.5), persistent=False)

        def forward(self, x):
            return x.flip(0), self.zero

    onnxpatch.patch("torch.Tensor.flip", why="w", name="f", registry=registry)(lambda original, x, *a: original(x, *a))
    model, x = WithLoss().eval(), torch.randn(3, 2)
    with onnxpatch.patched(model, registry=registry):
        file = exporting.export(model, (x,), "trace")
        assert model(x)[1] is model.zero
    assert exporting.wrong(exporting.run(file, (x,)), model(x), 1e-6) is None

"""Leaving: the model is as it was, in any order, after failures, and for whatever happens to it afterwards."""

import copy
import gc
import io
import itertools
import pickle
import weakref

import pytest
import torch
from torch import nn

import onnxpatch
from onnxpatch.patching import rebinding, runtime
from onnxpatch.patching.swap import UndoLog
from tests import exporting
from tests.fingerprint import everything
from tests.layers import Doubling, Layer, Model, SubLayer


def other_registry():
    registry = onnxpatch.Registry()

    class Tripling:
        def extra_repr(self):
            return "tripled"

    onnxpatch.patch("tests.layers.Layer", why="w", name="tripling", registry=registry)(Tripling)
    return registry


@pytest.mark.parametrize("inner_first", [True, False])
def test_nested_contexts_leave_in_any_order(kit, inner_first):
    model = Model()
    before = everything(model)
    outer = onnxpatch.patch_model(model, registry=kit)
    inner = onnxpatch.patch_model(model, registry=other_registry())
    assert exporting.while_traced(lambda: repr(model.first)) == "Layer(tripled)"
    leaving = (inner, outer) if inner_first else (outer, inner)
    leaving[0].restore()
    assert (exporting.while_traced(lambda: repr(model.first)) == "Layer(tripled)") is not inner_first
    assert isinstance(model.first, Doubling) is inner_first
    leaving[1].restore()
    assert everything(model) == before


def steps_of_entering(kit, model):
    """Names of UndoLog's steps in the order in which entering takes them."""
    taken = []
    with pytest.MonkeyPatch.context() as patching:
        for name in ("specialise", "set_attr"):
            real = getattr(UndoLog, name)
            patching.setattr(UndoLog, name, lambda *a, real=real, name=name: (taken.append(name), real(*a))[1])
        onnxpatch.patch_model(model, registry=kit).restore()
    return taken


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_failure_at_any_step_of_entering_leaves_nothing(kit, monkeypatch, when):
    model = Model()
    before = everything(model)
    steps = steps_of_entering(kit, model)
    assert len(steps) >= 13  # two for each of six layers and one for the root; before and after each: 26 points
    for failing in range(len(steps)):
        counter = itertools.count()
        with pytest.MonkeyPatch.context() as patching:
            for name in ("specialise", "set_attr"):
                real = getattr(UndoLog, name)

                def step(*arguments, real=real, counter=counter, failing=failing):
                    fails = next(counter) == failing
                    if fails and when == "before":
                        raise KeyboardInterrupt
                    real(*arguments)
                    if fails:
                        raise KeyboardInterrupt

                patching.setattr(UndoLog, name, step)
            with pytest.raises(KeyboardInterrupt):
                onnxpatch.patch_model(model, registry=kit)
        assert everything(model) == before, f"{when} step {failing}: {steps[failing]}"


def test_a_failure_while_the_model_runs_leaves_nothing(kit):
    model = Model()
    before = everything(model)
    layers = [model.first, model.block[1], model.plain[1], model.hooked, model.tied]
    for layer in layers:
        with pytest.raises(ZeroDivisionError), onnxpatch.patched(model, registry=kit):
            handle = layer.register_forward_pre_hook(lambda *_: 1 // 0)
            try:
                model(torch.randn(2, 4))
            finally:
                handle.remove()
        assert everything(model) == before
    assert not rebinding._standing
    assert runtime.running_model() is None


@pytest.mark.exports
@pytest.mark.parametrize("dynamo", [True, False])
def test_a_failing_export_leaves_nothing(kit, dynamo, tmp_path):
    # No plain containers here: torch.export itself rebuilds those that hang on a module.
    model = nn.Sequential(Layer(), SubLayer().eval(), nn.Linear(5, 5))
    before = everything(model)
    with (
        pytest.raises(Exception, match=r"mat1 and mat2|Failed to export the model"),
        onnxpatch.patched(model, registry=kit),
    ):
        torch.onnx.export(model, (torch.randn(2, 4),), str(tmp_path / "m.onnx"), dynamo=dynamo)
    assert everything(model) == before


def test_a_restore_step_that_fails_does_not_stop_the_others():
    done = []
    log = UndoLog()
    log.call(lambda: done.append("first"))
    log.call(lambda: 1 // 0)
    log.call(lambda: done.append("last"))
    with pytest.raises(onnxpatch.RestoreError, match="ZeroDivisionError"):
        log.undo()
    assert done == ["last", "first"]


def test_no_weight_is_copied_and_nothing_keeps_the_model_alive(kit):
    model = Model()
    pointers = {name: value.data_ptr() for name, value in model.named_parameters()}
    with onnxpatch.patched(model, registry=kit):
        assert {name: value.data_ptr() for name, value in model.named_parameters()} == pointers
        model(torch.randn(2, 4))
    alive = weakref.ref(model)
    del model
    gc.collect()
    assert alive() is None


def test_after_leaving_the_model_pickles_copies_and_runs_in_parallel(kit):
    layer = nn.Sequential(Layer(), nn.Linear(4, 4))
    with onnxpatch.patched(layer, registry=kit):
        copied = copy.deepcopy(layer)
        assert copied[0].factor == 2
    x = torch.randn(2, 4)
    again = pickle.loads(pickle.dumps(layer))
    assert torch.equal(again(x), layer(x))
    assert torch.equal(copy.deepcopy(layer)(x), layer(x))
    assert torch.equal(nn.DataParallel(layer)(x), layer(x))
    assert torch.equal(torch.compile(layer, backend="eager")(x), layer(x))


@pytest.mark.exports
def test_training_flags_that_an_exporter_resets_are_put_back(kit):
    model = nn.Sequential(Layer(), nn.BatchNorm1d(4)).train()
    model[1].eval()
    with onnxpatch.patched(model, registry=kit):
        torch.onnx.export(model, (torch.randn(2, 4),), io.BytesIO(), dynamo=False)
        assert model[1].training  # what torch.onnx.export leaves behind
    assert [module.training for module in model.modules()] == [True, True, False]


def test_a_mode_that_the_user_changes_inside_stays(kit):
    model = nn.Sequential(Layer()).train()
    with onnxpatch.patched(model, registry=kit):
        model.eval()
    assert not any(module.training for module in model.modules())


@pytest.mark.parametrize(
    "change", [lambda m: m.to("meta"), lambda m: m.half(), lambda m: m.train(), lambda m: m.eval()]
)
def test_device_dtype_and_mode_stay(kit, change):
    model = change(nn.Sequential(Layer(), SubLayer()))
    before, modes = everything(model), [module.training for module in model.modules()]
    with onnxpatch.patched(model, registry=kit):
        assert [module.training for module in model.modules()] == modes
    assert everything(model) == before


class Counts(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("scale", torch.full((1,), 3.0))

    def forward(self, x):
        self.scale.add_(1)
        return x * 2


@pytest.mark.exports
@pytest.mark.parametrize("exporter", ["trace", "dynamo"])
def test_a_backward_recorded_before_an_export_takes_a_buffer_that_forward_writes(exporter):
    model = Counts().eval()
    x = torch.ones(2, requires_grad=True)
    waiting = (x * model.scale).sum()
    count = model.scale._version
    assert onnxpatch.export(model, (torch.ones(2),), exporter=exporter).ok
    assert model.scale._version == count and model.scale.item() == 3
    waiting.backward()
    assert x.grad.tolist() == [3, 3]

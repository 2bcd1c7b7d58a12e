"""The dry run: what it lists, which of two patches goes first, and that it touches nothing."""

import re

import pytest
from torch import nn

import onnxpatch
from tests.exporting import while_traced
from tests.fingerprint import fingerprint
from tests.layers import Doubling, Layer, Model, SubLayer


def declare(registry, target, name, **conditions):
    stand_in = type(name.title(), (), {"forward": lambda self, x: x, "__module__": __name__})
    onnxpatch.patch(target, why=f"why {name}", name=name, registry=registry, **conditions)(stand_in)


def test_the_plan_prints_and_touches_nothing(registry):
    onnxpatch.patch("tests.layers.Layer", why="the error", name="doubling", registry=registry)(Doubling)
    model = Model()
    before = fingerprint(model)
    text = str(onnxpatch.plan(model, registry=registry))
    assert re.search(r"block\.0 +Layer +doubling +the error", text)
    assert fingerprint(model) == before


def test_functions_that_are_watched_for_take_one_line(registry):
    onnxpatch.patch("torch.nn.functional.relu", why="the error", name="watching", registry=registry)(lambda original: 0)
    text = str(onnxpatch.plan(nn.ReLU(), registry=registry))
    (line,) = (line for line in text.splitlines() if "watching" in line)
    assert line.startswith("1 of 1 function patches fit what its code names: watching (`onnxpatch list`)")
    assert "No module is swapped." in text


def test_subclasses_only_when_asked(registry):
    declare(registry, "tests.layers.Layer", "exact")
    assert not onnxpatch.plan(SubLayer(), registry=registry).swaps
    declare(registry, "tests.layers.Layer", "wide", subclasses=True)
    assert [swap.patch.name for swap in onnxpatch.plan(SubLayer(), registry=registry).swaps] == ["wide"]


def test_any_class_of_a_name(registry):
    declare(registry, "*.Layer", "named")
    copied = type("Layer", (nn.Module,), {"__module__": "somewhere.else"})
    assert onnxpatch.plan(nn.Sequential(copied(), Layer()), registry=registry).swaps[1].patch.name == "named"


def test_a_public_alias_of_a_class(registry):
    declare(registry, "torch.nn.Linear", "alias")
    assert onnxpatch.plan(nn.Linear(2, 2), registry=registry).swaps[0].patch.name == "alias"


def test_the_nearer_class_goes_first_and_the_other_is_a_near_miss(registry):
    declare(registry, "tests.layers.Layer", "far", subclasses=True)
    declare(registry, "tests.layers.SubLayer", "near")
    plan = onnxpatch.plan(SubLayer(), registry=registry)
    assert [swap.patch.name for swap in plan.swaps] == ["near"]
    assert plan.near_misses[0].reason == "near stands in for forward already"


def test_a_users_patch_goes_before_the_kits(registry):
    kit = type("Kit", (), {"forward": lambda self, x: x, "__module__": "onnxpatch.patches.some"})
    onnxpatch.patch("tests.layers.Layer", why="w", name="kit", registry=registry)(kit)
    declare(registry, "tests.layers.Layer", "user")
    plan = onnxpatch.plan(Layer(), registry=registry)
    assert [swap.patch.name for swap in plan.swaps] == ["user"]


def test_two_with_equal_right_are_refused(registry):
    declare(registry, "tests.layers.Layer", "one")
    declare(registry, "tests.layers.Layer", "two")
    with pytest.raises(onnxpatch.DuplicatePatchError, match=r"(?s)one .* and two .* both stand in for forward of"):
        onnxpatch.plan(Layer(), registry=registry)


def test_two_for_different_methods_both_act(registry):
    declare(registry, "tests.layers.Layer", "one")
    other = type("Other", (), {"extra_repr": lambda self: "other"})
    onnxpatch.patch("tests.layers.Layer", why="w", name="two", registry=registry)(other)
    layer = Layer()
    with onnxpatch.patched(layer, registry=registry) as patched:
        assert len(patched.plan.swaps) == 2
        assert while_traced(lambda: (layer(3), repr(layer))) == (3, "Layer(other)")


def test_an_instance_that_is_refused_is_a_near_miss_with_the_reason(registry):
    declare(registry, "tests.layers.Layer", "picky", accepts=lambda module, settings: "too small")

    class Refusing(Doubling):
        @staticmethod
        def onnxpatch_prepare(module, settings):
            raise onnxpatch.RefusedError("axes_lengths is symbolic")

    onnxpatch.patch("tests.layers.SubLayer", why="w", name="refusing", registry=registry)(Refusing)
    plan = onnxpatch.plan(nn.Sequential(Layer(), SubLayer()), registry=registry)
    assert not plan.swaps
    assert [miss.reason for miss in plan.near_misses] == ["too small", "axes_lengths is symbolic"]

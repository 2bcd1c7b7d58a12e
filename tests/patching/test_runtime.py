"""Function patches: they act while an exporter runs the patched model, in its thread, and nowhere else."""

import functools
import math
import sys
import types

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import onnxpatch
from onnxpatch.patching import runtime
from tests.exporting import export, while_traced


class Calling(nn.Module):
    """Calls whatever it was given."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def plus_hundred(original, *args, **kwargs):
    return original(*args, **kwargs) + 100


TORCH = {
    "torch.nn.functional.interpolate": lambda x: F.interpolate(x, scale_factor=2),
    "torch.nn.functional.adaptive_avg_pool2d": lambda x: F.adaptive_avg_pool2d(x, 1),
    "torch.nn.functional.scaled_dot_product_attention": lambda x: F.scaled_dot_product_attention(x, x, x),
    "torch.Tensor.relu": lambda x: x.relu(),
    "torch.Tensor.mT": lambda x: x.mT,
    "torch.arange": lambda x: torch.arange(3),
    "torch.Tensor.item": lambda x: x.sum().item(),
    "torch.stft": lambda x: torch.stft(x.flatten(), 4, window=torch.ones(4), return_complex=True),
}


@pytest.mark.parametrize("target", TORCH)
def test_torch_functions_methods_and_properties(registry, target):
    onnxpatch.patch(target, why="w", name="p", registry=registry)(plus_hundred)
    model, x = Calling(TORCH[target]), torch.randn(1, 2, 4, 4)
    plain = model(x)
    with onnxpatch.patched(model, registry=registry) as patched:
        assert torch.allclose(torch.as_tensor(model(x)), torch.as_tensor(plain))  # not in eager
        assert patched.scope.hits == {}
        assert torch.allclose(torch.as_tensor(while_traced(lambda: model(x))), torch.as_tensor(plain) + 100)
        assert patched.scope.hits == {"p": 1}
        by_itself = while_traced(lambda: TORCH[target](x))  # not by the model
        assert torch.allclose(torch.as_tensor(by_itself), torch.as_tensor(plain))
    assert torch.allclose(torch.as_tensor(model(x)), torch.as_tensor(plain))


def test_a_function_imported_by_name_is_found(registry, monkeypatch):
    library, user = types.ModuleType("some_library"), types.ModuleType("some_user")
    library.thrice = lambda x: 3 * x
    user.thrice, user.renamed = library.thrice, library.thrice
    monkeypatch.setitem(__import__("sys").modules, "some_library", library)
    monkeypatch.setitem(__import__("sys").modules, "some_user", user)
    onnxpatch.patch("some_library.thrice", why="w", name="p", registry=registry)(plus_hundred)
    original, model = library.thrice, Calling(lambda x: (library.thrice(x), user.thrice(x), user.renamed(x)))
    with onnxpatch.patched(model, registry=registry):
        assert while_traced(lambda: model(1)) == (103, 103, 103)
        assert model(1) == (3, 3, 3)
        assert library.thrice(1) == 3
    assert (library.thrice, user.thrice, user.renamed) == (original,) * 3


class Rounding(nn.Module):
    def forward(self, x):
        assert isinstance(3, int) and not isinstance(3.0, int) and issubclass(bool, int)
        assert int == int  # noqa: E721
        assert int.from_bytes(b"\x01", "big") == 1
        return int(x)


def test_builtins_are_shadowed_where_the_model_is_defined_only(registry):
    onnxpatch.patch("builtins.int", why="w", name="p", registry=registry)(plus_hundred)
    other = types.FunctionType((lambda x: int(x)).__code__, {"__builtins__": __builtins__})
    model = Rounding()
    with onnxpatch.patched(nn.Sequential(model, Calling(other)), registry=registry) as patched:
        assert while_traced(lambda: patched.model(2.5)) == 102
        assert patched.model(2.5) == 2
    assert "int" not in globals()


def test_builtins_are_shadowed_where_functions_of_the_model_are_defined(registry, monkeypatch):
    written = {"helping": "def whole(x): return int(x)", "package": "import torch\nfrom helping import whole"}
    for name, text in {**written, "unused": "def whole(x): return int(x)"}.items():
        module = types.ModuleType(name)
        module.torch = torch
        monkeypatch.setitem(sys.modules, name, module)
        exec(text, vars(module))
    package, unused = sys.modules["package"], sys.modules["unused"]
    monkeypatch.setattr(Calling, "__module__", "package")
    onnxpatch.patch("builtins.int", why="w", name="p", registry=registry)(plus_hundred)
    model = Calling(lambda x: (package.whole(x), unused.whole(x)))
    with onnxpatch.patched(model, registry=registry):
        assert while_traced(lambda: model(2.5)) == (102, 2)
        assert model(2.5) == (2, 2)
    assert "int" not in vars(sys.modules["helping"])


def test_inside_a_stand_in_the_function_is_itself_and_others_are_patched(registry):
    def interpolate(original, x, **kwargs):
        return torch.relu(F.interpolate(x, scale_factor=2)) + original(x, scale_factor=2)

    onnxpatch.patch("torch.nn.functional.interpolate", why="w", name="i", registry=registry)(interpolate)
    onnxpatch.patch("torch.relu", why="w", name="r", registry=registry)(plus_hundred)
    model = Calling(lambda x: F.interpolate(x, scale_factor=2))
    with onnxpatch.patched(model, registry=registry) as patched:
        found = while_traced(lambda: model(torch.ones(1, 1, 1, 1)))
        assert torch.equal(found, torch.full((1, 1, 2, 2), 102.0))
        assert patched.scope.hits == {"i": 1, "r": 1}


def test_an_exception_in_a_stand_in_leaves_nothing(registry):
    onnxpatch.patch("math.sqrt", why="w", name="p", registry=registry)(lambda original, x: 1 // 0)
    model = Calling(lambda x: math.sqrt(x))
    with onnxpatch.patched(model, registry=registry):
        for _ in range(2):
            with pytest.raises(ZeroDivisionError):
                while_traced(lambda: model(4.0))
            assert runtime.running_model() is None
            assert math.sqrt(4.0) == 2.0
    assert model(4.0) == 2.0


def test_the_scope_tells_settings_and_paths(registry):
    seen = []

    def stand_in(original, *args):
        current = runtime.running_model()
        seen.append((current.settings.image_size, current.settings.options["form"], current.path_of(model[0])))
        return original(*args)

    onnxpatch.patch("torch.relu", why="w", name="p", options=("form",), registry=registry)(stand_in)
    model = nn.Sequential(Calling(torch.relu))
    with onnxpatch.patched(model, registry=registry, image_size=32, form="static"):
        while_traced(lambda: model(torch.ones(1)))
    assert seen == [((32, 32), "static", "0")]


@pytest.mark.exports
def test_function_patches_act_under_both_exporters(registry, tmp_path):
    import onnxruntime

    onnxpatch.patch("torch.relu", why="w", name="p", registry=registry)(plus_hundred)
    model = Calling(torch.relu)
    for dynamo in (True, False):
        file = str(tmp_path / f"{dynamo}.onnx")
        with onnxpatch.patched(model, registry=registry):
            torch.onnx.export(model, (torch.ones(3),), file, dynamo=dynamo, input_names=["x"], verbose=False)
        session = onnxruntime.InferenceSession(file)
        assert session.run(None, {"x": torch.full((3,), 2.0).numpy()})[0].tolist() == [102.0] * 3


@pytest.mark.exports
def test_patches_of_one_function_for_different_exporters(registry):
    import onnxruntime

    def plus_thousand(original, x):
        return original(x) + 1000

    for name, exporter, stand_in in (("a", "trace", plus_hundred), ("b", "dynamo", plus_thousand)):
        onnxpatch.patch(
            "torch.relu", why="w", name=name, when=onnxpatch.When(exporters=(exporter,)), registry=registry
        )(stand_in)
    model, x = Calling(torch.relu), torch.ones(3)
    for exporter, added in (("trace", 100), ("dynamo", 1000)):
        with onnxpatch.patched(model, registry=registry):
            file = export(model, (x,), exporter)
        assert onnxruntime.InferenceSession(file).run(None, {"in0": x.numpy()})[0].tolist() == [1.0 + added] * 3


def test_a_patch_may_choose_by_the_call(registry):
    def on_whole_numbers(function, args, kwargs):
        return getattr(function, "__name__", "") in ("add", "__add__") and not args[0].is_floating_point()

    def negated(original, *args, **kwargs):
        return -original(*args, **kwargs)

    onnxpatch.patch("torch.*", why="w", name="n", when=onnxpatch.When(calls=on_whole_numbers), registry=registry)(
        negated
    )
    model = Calling(lambda x: x + 1)
    with onnxpatch.patched(model, registry=registry):
        assert while_traced(lambda: model(torch.ones(2, dtype=torch.int64)).tolist()) == [-2, -2]
        assert while_traced(lambda: model(torch.ones(2)).tolist()) == [2.0, 2.0]
        assert model(torch.ones(2, dtype=torch.int64)).tolist() == [2, 2]
    assert model(torch.ones(2, dtype=torch.int64)).tolist() == [2, 2]


def test_a_patch_may_choose_among_the_calls_of_what_it_names(registry):
    asked = []

    def of_negative_numbers(function, args, kwargs):
        asked.append(function)
        return float(args[0]) < 0

    onnxpatch.patch("math.fabs", why="w", name="f", when=onnxpatch.When(calls=of_negative_numbers), registry=registry)(
        lambda original, x: 7
    )
    onnxpatch.patch("torch.neg", why="w", name="n", when=onnxpatch.When(calls=of_negative_numbers), registry=registry)(
        lambda original, x: original(x) + 5
    )
    model = Calling(lambda x: torch.neg(x).abs() + math.fabs(-2.0) + math.fabs(3.0))
    with onnxpatch.patched(model, registry=registry) as patched:
        assert while_traced(lambda: model(torch.tensor(-1.0)).item()) == 6 + 7 + 3
        assert while_traced(lambda: model(torch.tensor(1.0)).item()) == 1 + 7 + 3
        assert patched.scope.hits == {"f": 2, "n": 1}
    assert set(asked) == {torch.neg, math.fabs}  # of no other call


def test_every_function_of_torch_goes_with_a_choice(registry):
    with pytest.raises(TypeError, match=r"goes with when=When\(calls="):
        onnxpatch.patch("torch.*", why="w", registry=registry)(lambda original: None)


@functools.lru_cache
def ramp(length, device):
    return torch.arange(length, device=device).float()


class Cached(nn.Module):
    @staticmethod
    @functools.lru_cache
    def halved(length):
        return torch.arange(length) / 2

    @functools.lru_cache  # noqa: B019
    def doubled(self, length):
        return torch.arange(length) * 2.0

    def forward(self, x):
        return x + ramp(3, x.device) + self.doubled(3) + self.halved(3)


@pytest.mark.exports
@pytest.mark.parametrize("exporter", ["dynamo", "trace"])
def test_an_export_leaves_nothing_in_the_caches_of_functions(exporter):
    """Plain torch.export leaves its FakeTensors there, and the model is broken afterwards."""
    ramp.cache_clear()
    model, x = Cached(), torch.randn(2, 3)
    with onnxpatch.patched(model):
        export(model, (x,), exporter, None)
        assert ramp.cache_info().currsize == 0
    assert type(model(x)) is torch.Tensor
    assert ramp.cache_info().currsize == 1
    assert torch.equal(model(x), x + torch.arange(3) * 3.5)

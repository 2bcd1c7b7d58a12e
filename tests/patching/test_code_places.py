"""`int(size)` in a function of another file stays a size, however the model gets at that function."""

from __future__ import annotations

import functools
import gc
import math
import sys
import types
from collections.abc import Iterator

import pytest
import torch

import onnxpatch
from onnxpatch.patching.code_places import code_modules, find_in_modules, mention

pytestmark = pytest.mark.exports

FAR = """
import torch

def halved(x, times=2):
    return x[:, : int(x.shape[1] / times)] + float(x.shape[1])

def forward(self, x):
    return x[:, : int(x.shape[1] / 2)] + float(x.shape[1])
"""
MODEL = """
import far
import torch

class Named(torch.nn.Module):
    def forward(self, x):
        return far.part.halved(x)

class Held(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)
"""


@pytest.fixture
def model_module(monkeypatch: pytest.MonkeyPatch) -> Iterator[types.ModuleType]:
    """A module with two models, and `far.part`, which no class of theirs is from."""
    far, part, model = (types.ModuleType(name) for name in ("far", "far.part", "near_model"))
    far.__path__, far.part = [], part  # type: ignore[attr-defined]
    for module, source in ((far, ""), (part, FAR), (model, MODEL)):
        monkeypatch.setitem(sys.modules, module.__name__, module)
        exec(source, vars(module))
    yield model


def _right(model: torch.nn.Module) -> bool:
    report = onnxpatch.export(model.eval(), (torch.randn(2, 6),), exporter="trace", dynamic_shapes=({1: "n"},))
    return report.ok and len(report.attempts) == 1


def test_by_the_names_in_the_code(model_module: types.ModuleType) -> None:
    model = model_module.Named()
    assert sys.modules["far.part"] in code_modules(model, [type(model)])
    assert _right(model)


@pytest.mark.parametrize("partial", [False, True])
def test_by_an_attribute(model_module: types.ModuleType, partial: bool) -> None:
    function = sys.modules["far.part"].halved
    model = model_module.Held(functools.partial(function, times=3) if partial else function)
    assert sys.modules["far.part"] in code_modules(model, [type(model)])
    assert _right(model)


@pytest.mark.parametrize("bound", [False, True])
def test_by_a_forward_of_another_file(bound: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    class Replaced(torch.nn.Module):
        pass

    apart, model = types.ModuleType("apart"), Replaced()
    monkeypatch.setitem(sys.modules, "apart", apart)
    exec(FAR, vars(apart))
    if bound:
        model.forward = types.MethodType(apart.forward, model)
    else:
        Replaced.forward = apart.forward
    assert apart in code_modules(model, [Replaced])
    assert _right(model)


def test_by_the_names_in_a_lambda_that_is_an_attribute(model_module: types.ModuleType) -> None:
    model = model_module.Held(eval("lambda x: far.part.halved(x)", vars(model_module)))
    assert sys.modules["far.part"] in code_modules(model, [type(model)])


def test_not_what_the_code_does_not_name(model_module: types.ModuleType) -> None:
    model_module.far.other = types.ModuleType("far.other")
    sys.modules["far.other"] = model_module.far.other
    exec("import torch\ndef unused(x): ...", vars(sys.modules["far.other"]))
    try:
        assert sys.modules["far.other"] not in code_modules(model_module.Named(), [model_module.Named])
    finally:
        del sys.modules["far.other"]


@pytest.mark.parametrize("line", ["import numpy as np", "from math import sqrt", "import numpy.linalg as la", ""])
def test_names_of_numpy(line: str) -> None:
    module = types.ModuleType("written")
    exec(
        f"import torch\nclass A:\n    def f(self):\n        import {'numpy' if not line else 'math'}\n{line}",
        vars(module),
    )
    assert mention("numpy", [math.sqrt], [module])
    assert not mention("scipy", [], [module])


def test_names_of_numpy_in_another_module_of_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    outer, inner = types.ModuleType("written"), types.ModuleType("written.inner")
    monkeypatch.setitem(sys.modules, "written.inner", inner)
    assert not mention("numpy", [math.sqrt], [outer])
    exec("import numpy", vars(inner))
    assert mention("numpy", [math.sqrt], [outer])


def test_a_garbage_collection_may_let_another_thread_import(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "modules", sys.modules.copy())
    imported = iter(range(10**6))

    def another_thread(phase: str, _info: object) -> None:
        sys.modules[f"imported{next(imported)}"] = types.ModuleType("imported")

    before = gc.get_threshold()
    gc.callbacks.append(another_thread)
    gc.set_threshold(20)
    try:
        found = mention("numpy", [math.sqrt], [types.ModuleType("written")])
        find_in_modules([math.sqrt], keep=False)
    finally:
        gc.set_threshold(*before)
        gc.callbacks.remove(another_thread)
    assert not found and next(imported)


def test_a_module_that_is_loaded_late_is_not_loaded(
    model_module: types.ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SpeechBrain has such modules for libraries that are not installed."""

    class Late(types.ModuleType):
        def __getattr__(self, name: str) -> object:
            raise ImportError(f"{name}: not installed")

    monkeypatch.setattr(model_module, "late", Late("late"), raising=False)
    code_modules(model_module.Named(), {model_module.Named})


def test_by_variables_of_the_function_that_made_the_class(model_module: types.ModuleType) -> None:
    part = sys.modules["far.part"]
    halved = part.halved

    class Function(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return halved(x)

    class Module(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return part.halved(x)

    assert _right(Function()) and _right(Module())

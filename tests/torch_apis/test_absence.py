"""Where torch lacks a private API, the kit still imports, and what needs the API falls back or says which one it is."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import onnxpatch
from onnxpatch._torch import operator_tables
from onnxpatch._torch.dispatch_modes import CountedRun, count_writes
from onnxpatch._torch.one_export import one_export
from onnxpatch._torch.operator_tables import tested_operators
from onnxpatch._torch.relied_on import RELIED_ON, find
from tests.torch_apis.hidden import hidden

pytestmark = pytest.mark.exports

ROOT = Path(__file__).parents[2]


def is_there(api) -> bool:
    with contextlib.suppress(LookupError):
        find(api.path)
        return True
    return False


# Some are of later versions of torch than the installed one.
THERE = [api for api in RELIED_ON if is_there(api)]
IMPORTED = """
import contextlib, importlib, json, pkgutil, sys, torch, torch.onnx
from tests.torch_apis.hidden import hidden
stack = contextlib.ExitStack()
for path in json.loads(sys.argv[1]):
    if "()" not in path:  # those of instances are asked of nobody while a module is imported
        stack.enter_context(hidden(path))
import onnxpatch
for found in pkgutil.walk_packages(onnxpatch.__path__, "onnxpatch."):
    if not found.name.endswith("__main__"):
        importlib.import_module(found.name)
assert not onnxpatch.REGISTRY.failures, onnxpatch.REGISTRY.failures
print(len(list(onnxpatch.REGISTRY)))
"""


@pytest.mark.slow  # eleven seconds; the test below takes them away one by one
def test_the_kit_imports_where_every_private_api_is_gone() -> None:
    paths = json.dumps([api.path for api in THERE])
    done = subprocess.run([sys.executable, "-c", IMPORTED, paths], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    assert int(done.stdout) > 50


class Busy(nn.Module):
    """Sizes, a table resized, a bound, a search, an error that is caught."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(1, 2, 3, 3))

    def forward(self, x: Tensor) -> Tensor:
        height, width = x.shape[2], x.shape[3]
        x = x + F.interpolate(self.table, size=(height, width), mode="bilinear")
        with contextlib.suppress(RuntimeError):
            x = x @ self.table.new_ones(7, 7, 2)
        return x.clamp(max=2.0) * (height // 2) + torch.searchsorted(torch.arange(5.0), x)


class Deciding(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        if x.sum() > 0:
            x = x * 2
        return x[: x.shape[0] // 2] if x.shape[0] > 3 else x


class Growing(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return F.interpolate(x, size=(2 * x.shape[2], 2 * x.shape[3]))


class Looping(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        @onnxpatch.while_loop(lambda y: y.sum() < 100)
        def doubled(y: Tensor) -> Tensor:
            return y * 2 + 1

        return doubled(x)


class Compiled(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.compile(torch.sin, backend="eager")(x)


class Writing(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        y = x + 1
        y.t()[0] = 7.0
        return y


SIZES = ({0: "batch", 2: "height"},)


def export(model: nn.Module, dynamo: bool, **options: object) -> bool:
    x = torch.rand(2, 2, 4, 5) if isinstance(model, Busy | Growing) else torch.rand(4, 3)
    sizes = SIZES if isinstance(model, Busy | Growing) else ({0: "n"},)
    report = onnxpatch.export(model.eval(), (x,), dynamic_shapes=sizes, dynamo=dynamo, attempts="asked", **options)  # type: ignore[call-overload]
    return bool(report.ok)


def write() -> bool:
    """The write arrives in the file, or is lost there as in torch's own export, and the file is refused."""
    try:
        return export(Writing(), dynamo=False)
    except onnxpatch.VerificationError:
        return True


def compiled() -> bool:
    """The function runs as written, or is refused as torch refuses it."""
    try:
        return export(Compiled(), dynamo=False)
    except onnxpatch.ExportError:
        return True


def count_back() -> bool:
    """The count of writes is back, or stays as it is."""
    tensor = torch.ones(2)
    count = tensor._version
    tensor += 1
    count_writes(tensor, count)
    return tensor._version in (count, count + 1)


def count() -> bool:
    with CountedRun() as counted:
        torch.ones(3, 3) @ torch.ones(3, 3)
    return counted.operations > 0


def alone() -> bool:
    with one_export():
        return True


def tables() -> bool:
    """Each of them is there, or has no rows."""
    return all(
        isinstance(rows, dict | set | list | bool)
        for rows in (
            operator_tables.onnx_translations(), operator_tables.onnx_decompositions(),
            operator_tables.torchscript_symbolics(), operator_tables.aten_operators(),
            operator_tables.is_composite("aten::add.Tensor"),
        )
    )  # fmt: skip


def named() -> bool:
    """The files are read: nothing is asked of the module itself."""
    return "abs" in tested_operators()


TRACE: Callable[[], bool] = lambda: export(Busy(), dynamo=False)  # noqa: E731
DYNAMO: Callable[[], bool] = lambda: export(Busy(), dynamo=True)  # noqa: E731
BRANCHES: Callable[[], bool] = lambda: (  # noqa: E731
    export(Deciding(), dynamo=False, branches=True) and export(Looping(), dynamo=False)
)
SIDES: Callable[[], bool] = lambda: export(Deciding(), dynamo=True, branches=True)  # noqa: E731
# What asks for the APIs of each file of the folder.
EXERCISES: dict[str, list[Callable[[], bool]]] = {
    "__init__": [DYNAMO, compiled], "function_modes": [TRACE, DYNAMO, SIDES],
    "tensor_origins": [DYNAMO], "dispatch_modes": [count, count_back], "cond": [BRANCHES], "exporters": [DYNAMO],
    "one_export": [alone, TRACE], "guards": [DYNAMO], "operator_tables": [tables, named, DYNAMO],
    "signatures": [TRACE], "symbolic_sizes": [TRACE, DYNAMO, lambda: export(Growing(), dynamo=False)],
    "fake_sizes": [BRANCHES],
    "traced_writes": [write], "traced_nodes": [write], "script_tracing": [compiled, TRACE],
}  # fmt: skip
LONG = {name for name, jobs in EXERCISES.items() if {TRACE, DYNAMO, BRANCHES, SIDES} & set(jobs)}


@pytest.mark.parametrize(
    "api",
    [pytest.param(api, id=api.path, marks=[pytest.mark.slow] * (api.used_in in LONG)) for api in THERE],
)
def test_what_needs_an_api_falls_back_or_names_it(api) -> None:
    for job in EXERCISES[api.used_in]:
        with hidden(api.path):
            try:
                assert job()
            except onnxpatch.OnnxpatchError as error:
                # A long message is written in lines.
                assert f"has no {api.path}: {' '.join(api.without.split())}" in " ".join(str(error).split())


def test_a_hidden_api_is_back_afterwards() -> None:
    for api in THERE:
        before = find(api.path)
        with hidden(api.path), pytest.raises(LookupError):
            find(api.path)
        assert find(api.path) == before  # a bound method is made anew each time

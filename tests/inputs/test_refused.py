"""What is handed in and cannot be used is one InputError that says what to give instead; nothing is left behind."""

import io

import pytest
import torch
from torch import nn

import onnxpatch
from onnxpatch import InputError, Session, doctor, export, patched, plan, verify

pytestmark = pytest.mark.exports

X = torch.rand(2, 4)
MODEL = nn.Linear(4, 4).eval()


class Unhashable(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def __eq__(self, other):
        return self is other

    def forward(self, x):
        return self.linear(x)


class Unwalkable(nn.Module):
    def modules(self):
        raise RuntimeError("not mine")

    def forward(self, x):
        return x + 1


class Mute(Exception):
    def __str__(self):
        raise ValueError("no text")


class Raising(nn.Module):
    def forward(self, x):
        raise Mute


@pytest.fixture
def file(tmp_path):
    export(MODEL, (X,), tmp_path / "m.onnx", exporter="trace", max_probes=1)
    return tmp_path / "m.onnx"


@pytest.mark.parametrize(
    "verb", [plan, lambda m: patched(m).__enter__(), *(lambda m, verb=verb: verb(m, (X,)) for verb in (export, doctor)),
             lambda m: verify("none.onnx", m, (X,))],
)  # fmt: skip
@pytest.mark.parametrize(
    ("model", "says"),
    [
        (None, "must be a torch.nn.Module, not NoneType"),
        (nn.Linear, "not the class Linear: call it first"),
        (Unhashable(), r"the model itself cannot be walked:\s+Unhashable has an __eq__ and no __hash__"),
        (nn.Sequential(nn.ReLU(), Unhashable()), "^1 cannot be walked"),
    ],
)
def test_what_is_no_module_or_cannot_be_walked(verb, model, says):
    with pytest.raises(InputError, match=says):
        verb(model)


@pytest.mark.parametrize("verb", [export, doctor, patched])
def test_a_model_whose_modules_raise(verb):
    with pytest.raises(InputError, match="cannot walk the modules of Unwalkable: RuntimeError: not mine"):
        patched(Unwalkable()).__enter__() if verb is patched else verb(Unwalkable().train(False), (X,))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (dict(args=None), "args must be a tuple"),
        (dict(args=5), "args must be a tuple"),
        (dict(args=(), kwargs=[1]), "kwargs must be a dict"),
        (dict(tolerance="x"), "tolerance='x'"),
        (dict(tolerance=True), "tolerance=True"),
        (dict(max_probes=2.5), "max_probes=2.5"),
        (dict(opset_version="18"), "opset '18'"),
        (dict(data=3), "data must be a list of inputs"),
        (dict(data=X), "data must be a list of inputs"),
        (dict(sizes=["b"]), "sizes must name dimensions"),
        (dict(sizes={"b": "abc"}, dynamic_shapes={"input": {0: "b"}}), "'b' has 'abc'"),
        (dict(sizes={"b": [2.5]}, dynamic_shapes={"input": {0: "b"}}), "'b' has 2.5"),
        (dict(args=(X.to_sparse(),)), "layout torch.sparse_coo"),
        (dict(only=3), "only= and exclude= take names"),
        (dict(exclude=[None]), "only= and exclude= take names"),
        (dict(f=io.StringIO()), "StringIO, which takes text"),
    ],
)
def test_arguments_of_export(options, says):
    with pytest.raises(InputError, match=says):
        export(MODEL, **{"args": (X,), "exporter": "trace", **options})


def test_arguments_of_the_others(file):
    for model in (None, 3, object()):
        with pytest.raises(InputError, match="must be given by its path"):
            Session(model)
        with pytest.raises(InputError, match="must be given by its path"):
            verify(model, MODEL, (X,))
    with pytest.raises(InputError, match="meta"):
        Session(file)(X.to("meta"))
    with pytest.raises(InputError, match="budget='x'"):
        doctor(MODEL, (X,), budget="x")
    with pytest.raises(InputError, match="'x' is a positional-only parameter and a keyword"):
        export(Options().eval(), (X,), kwargs={"x": X})
    with pytest.raises(InputError, match=r"Mute: its __str__ raises \(ValueError\)"):
        export(Raising().eval(), (X,), exporter="trace")


class Options(nn.Module):
    def forward(self, x, /, *, scale=1.0, **options):
        return x * scale + sum(options.values())


class Configured(nn.Module):
    @property
    def config(self):
        raise RuntimeError("not yet")

    def forward(self, x):
        return x + 1


@pytest.mark.parametrize("exporter", ["dynamo", "trace"])
@pytest.mark.parametrize(
    ("model", "kwargs"),
    [(Options(), {"more": torch.ones(1)}), (Configured(), {})],
)
def test_what_plain_exports_is_exported(model, kwargs, exporter):
    assert onnxpatch.export(model.eval(), (X,), kwargs=kwargs, exporter=exporter, max_probes=2).ok

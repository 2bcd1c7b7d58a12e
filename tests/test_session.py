"""`Session` in daily use: what it takes and gives, what it says of inputs that do not fit, calls that are bound."""

from __future__ import annotations

import sys

import numpy as np
import onnx
import pytest
import torch

import onnxpatch
from onnxpatch.errors import InputError
from onnxpatch.session import _UnmatchedError, matched_arguments

pytestmark = pytest.mark.exports


def graph(elem: int = onnx.TensorProto.FLOAT) -> bytes:
    """y = image + image, and n + n as it is: image [B, 3], n int64 scalar."""
    image = onnx.helper.make_tensor_value_info("image", elem, ["B", 3])
    count = onnx.helper.make_tensor_value_info("count", onnx.TensorProto.INT64, [])
    y = onnx.helper.make_tensor_value_info("y", elem, ["B", 3])
    twice = onnx.helper.make_tensor_value_info("twice", onnx.TensorProto.INT64, [])
    nodes = [onnx.helper.make_node("Add", [n, n], [out]) for n, out in (("image", "y"), ("count", "twice"))]
    made = onnx.helper.make_graph(nodes, "doubled", [image, count], [y, twice])
    model = onnx.helper.make_model(made, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=9)
    return model.SerializeToString()


@pytest.fixture(scope="module")
def session():
    return onnxpatch.Session(graph())


def test_it_shows_what_it_takes_and_gives(session):
    assert session.inputs == ["image", "count"] and session.outputs == ["y", "twice"]
    told = "<Session the model given as bytes: image float32[B,3], count int64[] -> y float32[B,3], twice int64[]>"
    assert repr(session) == told


@pytest.mark.parametrize(
    ("args", "kwargs", "told"),
    [
        ((torch.ones(2, 3, dtype=torch.float64), 1), {}, "float64[2,3] was given: convert it to float32 first"),
        (
            (torch.ones(2, 4), 1),
            {},
            "float32[2,4] was given, and only sizes with a name may change",
        ),
        ((torch.ones(3), 1), {}, "float32[3] was given"),
        ((torch.ones(2, 3),), {}, "1 input given; the graph takes 2: image float32[B,3], count int64[]"),
        ((), {"imgae": torch.ones(2, 3)}, "'imgae': did you mean 'image'?"),
    ],
)
def test_inputs_that_do_not_fit(session, args, kwargs, told):
    with pytest.raises(InputError) as refused:
        session(*args, **kwargs)
    assert told in str(refused.value)


def test_python_numbers_take_the_inputs_dtype(session):
    y, twice = session(torch.ones(2, 3), 4)
    assert y.tolist() == [[2.0] * 3] * 2 and twice.item() == 8


@pytest.mark.parametrize("like", [torch.from_numpy, np.asarray], ids=["tensors", "arrays"])
def test_a_bound_call_reads_what_is_in_its_inputs(session, like):
    image, count = like(np.ones((2, 3), np.float32)), like(np.asarray(3))
    call = session.bind(image, count)
    assert call()[0].tolist() == [[2.0] * 3] * 2
    image[:] = 5
    assert call()[0].tolist() == [[10.0] * 3] * 2 and call()[1].item() == 6


def test_what_cannot_be_bound(session):
    with pytest.raises(InputError, match="not contiguous"):
        session.bind(torch.ones(3, 2).T, torch.tensor(1))
    with pytest.raises(InputError, match="convert it to float32"):
        session.bind(torch.ones(2, 3, dtype=torch.float16), torch.tensor(1))


def test_without_onnxruntime_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(ImportError, match=r"pip install 'onnxpatch\[verify\]'"):
        onnxpatch.Session(graph())


class Nested(torch.nn.Module):
    def forward(self, batch, rows, n=None):
        return batch["a"] * rows[0] + batch["b"] * 2 + rows[1] * 3


@pytest.fixture(scope="module")
def nested(tmp_path_factory):
    x, file = torch.randn(2, 3), tmp_path_factory.mktemp("nested") / "nested.onnx"
    assert onnxpatch.export(Nested().eval(), ({"a": x, "b": x + 1}, [x, x]), file, exporter="trace")
    return onnxpatch.Session(file)


def test_what_is_named_goes_to_the_input_of_that_name(nested):
    """Keywords in another order, and dicts with their keys in another order, by keyword and by position."""
    batch, rows = {"b": torch.randn(2, 3), "a": torch.randn(2, 3)}, [torch.randn(2, 3), torch.randn(2, 3)]
    wanted = Nested()(batch, rows)
    for given in (
        nested(rows=rows, batch=batch, n=None),
        nested(batch, rows=rows),
        nested(batch, rows),
        nested(batch_b=batch["b"], rows=rows, batch_a=batch["a"]),
        nested(rows_1=rows[1], batch=batch, rows_0=rows[0]),
    ):
        assert torch.equal(given, wanted)


@pytest.mark.parametrize("other", ["image", "rows_2", "mask"])
def test_a_name_that_is_no_input_is_refused(nested, other):
    x = torch.randn(2, 3)
    with pytest.raises(InputError, match=rf"(?s)'{other}'.*; the graph takes 4:\s+batch_a float32"):
        nested({"a": x, "b": x}, x, **{other: x})


def test_layers_of_a_cache_by_keyword():
    names = ["ids", "past.0.key", "past.0.value", "past.1.key", "past.1.value"]
    pairs = [(1, 2), (3, 4)]
    assert matched_arguments(names, (), {"past": pairs, "ids": 0}) == dict(zip(names, range(5), strict=True))
    layers = [{"value": 2, "key": 1}, {"key": 3, "value": 4}]
    assert matched_arguments(names, (0,), {"past": layers}) == dict(zip(names, range(5), strict=True))
    with pytest.raises(_UnmatchedError):
        matched_arguments(names, (0,), {"past": pairs[:1]})


class Called(torch.nn.Module):
    """It is called with more than its graph has inputs for."""

    def forward(self, x, flip: bool = False, unread=None, *, mode="sum"):
        return getattr(x.flip(0) if flip else x, mode)(1)


@pytest.fixture(scope="module", params=["trace", "dynamo"])
def called(request, tmp_path_factory):
    args, kwargs, file = (
        (torch.randn(4, 3), True, torch.ones(2)),
        {"mode": "mean"},
        tmp_path_factory.mktemp("c") / "m.onnx",
    )
    sizes = {"x": {0: "n"}, "flip": None, "unread": None, "mode": None}
    onnxpatch.export(Called().eval(), args, file, kwargs=kwargs, exporter=request.param, dynamic_shapes=sizes)
    return onnxpatch.Session(file)


def test_what_the_graph_has_no_input_for_may_be_given_as_to_the_model(called):
    x, unread = torch.randn(6, 3), torch.ones(2)
    wanted, least = Called()(x, True, mode="mean"), [x, unread][: len(called.inputs)]
    every, named = [x, True, unread], {"flip": 1, "unread": unread}
    for args, kwargs in ((least, {}), (every, {}), (every, {"mode": "mean"}), ([x], named)):
        assert torch.allclose(called(*args, **kwargs), wanted)


@pytest.mark.parametrize(
    ("args", "kwargs", "told"),
    [
        ((False, torch.ones(2)), {}, "flip is False, and True in this file"),
        ((torch.ones(2), torch.ones(2)), {}, "flip is a Tensor, and True in this file"),
        ((True, torch.ones(2)), {"mode": "amax"}, "mode is 'amax', and 'mean' in this file"),
        ((True, torch.ones(2)), {"other": 1}, "no input is called 'other'"),
        ((True, torch.ones(2), "mean", 1), {}, "5 inputs given"),
    ],
)
def test_what_is_a_constant_in_the_file_cannot_be_another_one(called, args, kwargs, told):
    with pytest.raises(InputError) as refused:
        called(torch.randn(6, 3), *args, **kwargs)
    assert told in str(refused.value)

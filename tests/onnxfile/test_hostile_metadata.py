"""Metadata of a file is data: it starts nothing, and whatever form it has, the answer is outputs or one InputError."""

from __future__ import annotations

import copy
import dataclasses
import json
import math
import pickle
from pathlib import Path
from typing import Any, NamedTuple

import onnx
import pytest
import torch

import onnxpatch
from onnxpatch.messages.text import one_line
from onnxpatch.onnxfile import metadata
from onnxpatch.onnxfile.tree import Record
from tests.onnxfile.hostile import OUTPUTS, STAMP, TENSOR, structured, with_metadata

X = torch.tensor([[1.0, -1.0]])


# ------------------------------------------------------------------ the attacks themselves
def test_a_class_that_the_file_names_is_not_called(tmp_path: Path) -> None:
    victim, started = tmp_path / "victim", tmp_path / "started"
    victim.write_text("kept")
    attacks = [
        ("subprocess:Popen", {"args": {"kind": "list", "items": [_text("touch"), _text(str(started))]}}),
        ("io:FileIO", {"file": _text(str(victim)), "mode": _text("w")}),
        ("builtins:exec", {"source": _text(f"open({str(started)!r}, 'w')")}),
        ("os:system", {"command": _text(f"touch {started}")}),
        ("onnxpatch.session:torch.os.system", {"command": _text(f"touch {started}")}),
    ]
    for name, items in attacks:
        for kind in ("dataclass", "namedtuple"):
            out = onnxpatch.Session(structured({"kind": kind, "class": name, "items": items}))(X)
            assert type(out) is Record and list(vars(out)) == list(items)
    assert victim.read_text() == "kept" and not started.exists()


def _text(value: str) -> dict[str, Any]:
    return {"kind": "constant", "value": value}


# ------------------------------------------------------------------ records, and the caller's classes
FIELDS = ("keys", "items", "values", "get", "count", "index", "class_", "_fields", "name", "self")


def test_fields_of_any_name_are_attributes_items_and_places() -> None:
    tree = {"kind": "dataclass", "class": "a:B", "items": {name: TENSOR for name in FIELDS}}
    out = onnxpatch.Session(structured(tree))(X)
    for index, name in enumerate(FIELDS):
        for found in (getattr(out, name), out[name], out[index], vars(out)[name]):
            assert torch.equal(found, X.relu())
    assert len(out) == len(FIELDS) and out[-1] is out["self"] and len(out[2:4]) == 2
    with pytest.raises(KeyError):
        out["absent"]
    with pytest.raises(AttributeError):
        out.absent  # noqa: B018
    again = pickle.loads(pickle.dumps(copy.deepcopy(out)))
    assert type(again) is Record and list(vars(again)) == list(FIELDS) and "keys=tensor" in repr(again)


@dataclasses.dataclass
class Found:
    boxes: Any
    scores: Any = None


class Pair(NamedTuple):
    boxes: Any
    scores: Any


class Picky(NamedTuple):
    boxes: Any


BOTH = {"boxes": TENSOR, "scores": {"kind": "constant", "value": None}}


@pytest.mark.parametrize("cls", [Found, Pair])
def test_the_callers_classes(cls: type) -> None:
    file = structured({"kind": "dataclass", "class": f"elsewhere:Outer.{cls.__name__}", "items": BOTH})
    out = onnxpatch.Session(file, classes=[cls])(X)
    assert type(out) is cls and torch.equal(out.boxes, X.relu()) and out.scores is None


def test_transformers_outputs() -> None:
    from transformers.modeling_outputs import BaseModelOutput

    items = {field.name: {"kind": "constant", "value": None} for field in dataclasses.fields(BaseModelOutput)}
    file = structured(
        {"kind": "dataclass", "class": "x:BaseModelOutput", "items": items | {"last_hidden_state": TENSOR}}
    )
    assert torch.equal(onnxpatch.Session(file)(X).last_hidden_state, X.relu())
    out = onnxpatch.Session(file, classes=[BaseModelOutput])(X)
    assert type(out) is BaseModelOutput and torch.equal(out[0], X.relu()) and list(out.keys()) == ["last_hidden_state"]


def test_classes_that_do_not_fit_are_refused() -> None:
    file = structured({"kind": "dataclass", "class": "m:Found", "items": {"boxes": TENSOR}})
    with pytest.raises(onnxpatch.InputError, match="Found has the fields boxes, scores, the file's boxes"):
        onnxpatch.Session(file, classes=[Found])
    for wrong in (dict, int, Found(1), "Found", print):
        with pytest.raises(onnxpatch.InputError, match="is not a dataclass, named tuple"):
            onnxpatch.Session(file, classes=[wrong])
    other = dataclasses.make_dataclass("Found", ["boxes"])
    assert type(onnxpatch.Session(file, classes=[Found, other])(X)) is other

    @dataclasses.dataclass
    class Picky:
        boxes: Any

        def __post_init__(self):
            raise RuntimeError("not these")

    file = structured({"kind": "dataclass", "class": "m:Picky", "items": {"boxes": TENSOR}})
    with pytest.raises(onnxpatch.InputError, match="Picky raises for the file's outputs: not these"):
        onnxpatch.Session(file, classes=[Picky])(X)


# ------------------------------------------------------------------ wrong forms
def _deep(depth: int) -> dict[str, Any]:
    tree: dict[str, Any] = TENSOR
    for _ in range(depth):
        tree = {"kind": "list", "items": [tree]}
    return tree


WRONG = [
    "", "nonsense", "[" * 100_000, "1" * 5000, "null", "[]", '"kind"', "{}", '{"kind": "tensor"}',
    '{"kind": ["tensor"]}',
    '{"kind": "function", "name": "y"}', '{"kind": "tensor", "name": "absent"}', '{"kind": "tensor", "name": ["y"]}',
    '{"kind": "tensor", "name": "y", "items": null}',
    '{"kind": "tensor", "name": "y", "flag": null, "present": true}',
    '{"kind": "tensor", "name": ' + "[" * 900 + "]" * 900 + "}",
    '{"kind": "tensor", "name": "y", "flag": "there"}', '{"kind": "tensor", "name": "y", "present": true}',
    '{"kind": "tensor", "name": "y", "flag": "there", "present": 1}', '{"kind": "constant"}',
    '{"kind": "constant", "value": []}', '{"kind": "tuple"}', '{"kind": "tuple", "items": {}}',
    '{"kind": "list", "items": [7]}', '{"kind": "dict", "items": []}', '{"kind": "dict", "items": {}, "keys": [1]}',
    '{"kind": "dataclass", "items": {}}', '{"kind": "dataclass", "class": 3, "items": {}}',
    '{"kind": "dataclass", "class": "a:b", "items": []}',
    json.dumps({"kind": "dataclass", "class": "a:b", "items": {"__class__": TENSOR}}),
    json.dumps({"kind": "dataclass", "class": "a:b", "items": {"no name": TENSOR}}),
    json.dumps({"kind": "dict", "items": {"a": TENSOR, "b": TENSOR}, "keys": [1, True]}),
    json.dumps({"kind": "dict", "items": {"a": TENSOR}, "keys": [{}]}),
    json.dumps({"kind": "constant", "value": "x" * (5 << 20)}),
    json.dumps(_deep(200)),
]  # fmt: skip


@pytest.mark.parametrize("text", WRONG, ids=[text[:40] for text in WRONG])
def test_structures_of_a_wrong_form_are_one_input_error(text: str) -> None:
    with pytest.raises(onnxpatch.InputError, match=r"metadata onnxpatch\.outputs is damaged") as caught:
        onnxpatch.Session(structured(text))
    assert len(str(caught.value)) < 400 and "⏎" not in one_line(str(caught.value))


def test_a_flag_that_is_no_bool() -> None:
    session = onnxpatch.Session(structured({"kind": "tensor", "name": "y", "flag": "y", "present": True}))
    with pytest.raises(onnxpatch.InputError, match="must be a single bool"):
        session(X)


@pytest.mark.parametrize("op", ["SequenceConstruct", "Cast"])
def test_a_flag_that_is_no_array(op: str) -> None:
    tree = {"kind": "tensor", "name": "y", "flag": "odd", "present": True}
    proto = with_metadata({OUTPUTS: json.dumps(tree)})
    if op == "Cast":  # NumPy has no bfloat16
        proto.graph.node.append(onnx.helper.make_node(op, ["x"], ["odd"], to=onnx.TensorProto.BFLOAT16))
        proto.graph.output.append(onnx.helper.make_tensor_value_info("odd", onnx.TensorProto.BFLOAT16, ["n", 2]))
    else:
        proto.graph.node.append(onnx.helper.make_node(op, ["x", "y"], ["odd"]))
        proto.graph.output.append(onnx.helper.make_tensor_sequence_value_info("odd", onnx.TensorProto.FLOAT, None))
    with pytest.raises(onnxpatch.InputError, match=r"must be a single bool;\s+it is"):
        onnxpatch.Session(proto.SerializeToString())(X)


STAMPS = [
    {"onnxpatch.plan": "{"}, {"onnxpatch.plan": "{}"}, {"onnxpatch.plan": "[7]"}, {"onnxpatch.plan": "[{}]"},
    {"onnxpatch.plan": '[{"path": "a", "class": "b", "patch": ["c"]}]'}, {"onnxpatch.versions": "[]"},
    {"onnxpatch.versions": '{"torch": 2}'}, {"onnxpatch.version": "9" * 1000}, {"onnxpatch.digest": "x" * 1000},
    {"onnxpatch.plan": "[" * 100_000}, {"onnxpatch.plan": " " * (5 << 20)},
    {"onnxpatch.plan": json.dumps([{"path": "a", "class": "b", "patch": "c" * 1000}])},
]  # fmt: skip


@pytest.mark.exports
@pytest.mark.parametrize("change", STAMPS, ids=[next(iter(one.items()))[1][:30] for one in STAMPS])
def test_stamps_of_a_wrong_form_are_one_input_error(change: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(onnxpatch.InputError, match=r"metadata onnxpatch\.\w+ is damaged"):
        metadata.read(with_metadata(STAMP | change))
    onnx.save(with_metadata(STAMP | change), str(tmp_path / "m.onnx"))
    with pytest.raises(onnxpatch.InputError, match="is damaged"):
        onnxpatch.verify(tmp_path / "m.onnx", torch.nn.ReLU(), (X,))


CALLS = ["{", "{}", "7", "[7]", "[{}]", '[{"name": 7}]', '[{"name": "x", "value": [1]}]', "[" * 100_000]
CALLS += [json.dumps([{"name": "x", "value": value}]) for value in (1 << 63, "x" * 1000)]
CALLS += [json.dumps([{"name": "x" * 1000}]), json.dumps([{"name": "x", "value": {"a": 1}}])]


@pytest.mark.parametrize("text", CALLS, ids=[text[:30] for text in CALLS])
def test_calls_of_a_wrong_form_are_one_input_error(text: str) -> None:
    with pytest.raises(onnxpatch.InputError, match=r"metadata onnxpatch\.inputs is damaged"):
        onnxpatch.Session(with_metadata({metadata.CALL_KEY: text}).SerializeToString())


@pytest.mark.parametrize("call", [[("x" * 300, None)], [("n", 1 << 64)], [("text", "a" * 300)]])
def test_a_call_is_written_only_if_it_can_be_read(call: list[tuple[str, Any]]) -> None:
    assert metadata.call_entry([("x", X), *call]) == {}
    written = metadata.call_entry([("x", X), ("n", -3), ("share", math.inf), ("text", "a\nb")])
    assert metadata.read_call(written) == {"x": None, "n": -3, "share": math.inf, "text": "a\nb"}


@pytest.mark.parametrize("rows", [[{"name": "other"}], [{"name": "x", "value": 3}], [{"name": "x"}] * 3])
def test_a_call_that_the_graph_does_not_have_changes_nothing(rows: list[dict[str, Any]]) -> None:
    session = onnxpatch.Session(with_metadata({metadata.CALL_KEY: json.dumps(rows)}).SerializeToString())
    assert torch.equal(session(X)[0], X.relu())
    for args in ((X, X), ()):
        with pytest.raises(onnxpatch.InputError):
            session(*args)

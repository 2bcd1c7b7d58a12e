"""Metadata of a file is data: it starts nothing, and whatever form it has, the answer is outputs or one InputError."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import json
import pickle
from pathlib import Path
from typing import Any, NamedTuple

import onnx
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import onnxpatch
from onnxpatch.onnxfile import call_inputs, output_structure, stamp
from onnxpatch.onnxfile.graph import module_of
from onnxpatch.onnxfile.rebuild import Classes, Record, rebuilt
from onnxpatch.verification.findings import source_of
from tests.onnxfile.hostile import OUTPUTS, STAMP, TENSOR, structured, with_metadata

X = torch.tensor([[1.0, -1.0]])
QUICK, LONG = 150, 10_000
_LONG = [pytest.mark.slow, pytest.mark.timeout(1800)]


def fuzzed(quick: int, long: int = LONG):
    """Runs a property a few times in the quick tier, and often in the slow one."""

    def decorate(check):
        fitting = {"deadline": None, "suppress_health_check": list(HealthCheck), "database": None}

        @pytest.mark.parametrize("often", [pytest.param(quick), pytest.param(long, marks=_LONG)])
        def run(often):  # a name of its own: pytest takes no mark for a lambda
            settings(max_examples=often, **fitting)(check)()

        return run

    return decorate


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
    assert len(str(caught.value)) < 400 and "\n" not in str(caught.value)


def test_a_flag_that_is_no_bool() -> None:
    session = onnxpatch.Session(structured({"kind": "tensor", "name": "y", "flag": "y", "present": True}))
    with pytest.raises(onnxpatch.InputError, match="must be a single bool"):
        session(X)


STAMPS = [
    {"onnxpatch.plan": "{"}, {"onnxpatch.plan": "{}"}, {"onnxpatch.plan": "[7]"}, {"onnxpatch.plan": "[{}]"},
    {"onnxpatch.plan": '[{"path": "a", "class": "b", "patch": ["c"]}]'}, {"onnxpatch.versions": "[]"},
    {"onnxpatch.versions": '{"torch": 2}'}, {"onnxpatch.version": "9" * 1000}, {"onnxpatch.digest": "x" * 1000},
    {"onnxpatch.plan": "[" * 100_000}, {"onnxpatch.plan": " " * (5 << 20)},
    {"onnxpatch.plan": json.dumps([{"path": "a", "class": "b", "patch": "c" * 1000}])},
]  # fmt: skip


@pytest.mark.parametrize("change", STAMPS, ids=[next(iter(one.items()))[1][:30] for one in STAMPS])
def test_stamps_of_a_wrong_form_are_one_input_error(change: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(onnxpatch.InputError, match=r"metadata onnxpatch\.\w+ is damaged"):
        stamp.read(with_metadata(STAMP | change))
    onnx.save(with_metadata(STAMP | change), str(tmp_path / "m.onnx"))
    with pytest.raises(onnxpatch.InputError, match="is damaged"):
        onnxpatch.verify(tmp_path / "m.onnx", torch.nn.ReLU(), (X,))


CALLS = ["{", "{}", "7", "[7]", "[{}]", '[{"name": 7}]', '[{"name": "x", "value": [1]}]', "[" * 100_000]
CALLS += [json.dumps([{"name": "x" * 1000}]), json.dumps([{"name": "x", "value": {"a": 1}}])]


@pytest.mark.parametrize("text", CALLS, ids=[text[:30] for text in CALLS])
def test_calls_of_a_wrong_form_are_one_input_error(text: str) -> None:
    with pytest.raises(onnxpatch.InputError, match=r"metadata onnxpatch\.inputs is damaged"):
        onnxpatch.Session(with_metadata({call_inputs.KEY: text}).SerializeToString())


@pytest.mark.parametrize("rows", [[{"name": "other"}], [{"name": "x", "value": 3}], [{"name": "x"}] * 3])
def test_a_call_that_the_graph_does_not_have_changes_nothing(rows: list[dict[str, Any]]) -> None:
    session = onnxpatch.Session(with_metadata({call_inputs.KEY: json.dumps(rows)}).SerializeToString())
    assert torch.equal(session(X)[0], X.relu())
    for args in ((X, X), ()):
        with pytest.raises(onnxpatch.InputError):
            session(*args)


# ------------------------------------------------------------------ fuzzing
_scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
_json = st.recursive(_scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner))
_words = st.sampled_from(
    ["kind", "items", "keys", "class", "name", "flag", "present", "value", "form", "hint", "y", "there"]
)
_leaf = st.sampled_from([
    TENSOR, {"kind": "constant", "value": 1}, {"kind": "tensor", "name": "y", "flag": "there", "present": True},
    {"kind": "tensor", "name": "y", "flag": "there", "present": False}, {"kind": "tensor", "name": "there"},
])  # fmt: skip
_fields = st.sampled_from(["boxes", "scores", "keys", "items", "_x", "é"])


def _containers(inner: Any) -> Any:
    many = st.lists(inner, max_size=3)
    named = st.dictionaries(_fields, inner, max_size=3)
    classes = st.sampled_from(["m:Found", "m:Pair", "subprocess:Popen", "io:FileIO", ":", "a"])
    return st.one_of(
        st.builds(lambda kind, items: {"kind": kind, "items": items}, st.sampled_from(["tuple", "list"]), many),
        st.builds(lambda items: {"kind": "dict", "items": items}, named),
        st.builds(
            lambda kind, cls, items: {"kind": kind, "class": cls, "items": items},
            st.sampled_from(["dataclass", "namedtuple"]), classes, named,
        ),
    )  # fmt: skip


VALID = st.recursive(_leaf, _containers, max_leaves=12)


@st.composite
def mutated(draw: Any) -> Any:
    """A valid structure with some of its nodes or keys replaced."""
    tree = copy.deepcopy(draw(VALID))
    for _ in range(draw(st.integers(0, 3))):
        places = [place for place in _places(tree) if place]
        if not places:
            return draw(_json)
        holder, key = draw(st.sampled_from(places))
        action = draw(st.sampled_from(["replace", "drop", "add"]))
        if action == "replace":
            holder[key] = copy.deepcopy(draw(_json | VALID | _words))
        elif action == "drop" and isinstance(holder, dict):
            del holder[key]
        elif isinstance(holder, dict):
            holder[draw(_words)] = copy.deepcopy(draw(_json | VALID))
    return tree


def _places(tree: Any) -> list[Any]:
    if isinstance(tree, dict | list):
        keys = list(tree) if isinstance(tree, dict) else list(range(len(tree)))
        return [(tree, key) for key in keys] + [place for key in keys for place in _places(tree[key])]
    return []


def _answers(text: str, classes: tuple[type, ...]) -> Any:
    """Reading and building, as Session does; an OnnxpatchError counts as an answer, everything else does not."""
    values = {"y": X.numpy(), "there": torch.tensor(True).numpy()}
    try:
        tree = output_structure.read({OUTPUTS: text}, list(values))
        assert tree is not None
        made = Classes(classes)
        made.check(tree)
        return rebuilt(tree, values, made)
    except onnxpatch.OnnxpatchError as error:
        assert isinstance(error, onnxpatch.InputError) and "\n" not in str(error)
        return error


@fuzzed(QUICK)
@given(VALID)
def test_every_valid_structure_is_built(tree: Any) -> None:
    found = _answers(json.dumps(tree), ())
    assert not isinstance(found, Exception), found
    assert _kinds(tree) == _kinds_of(found)


def _kinds(tree: Any) -> Any:
    items = tree.get("items", ())
    inner = [_kinds(item) for item in (items.values() if isinstance(items, dict) else items)]
    gone = tree.get("present") is False
    if tree["kind"] == "dataclass":  # its Record counts its parts without None, as ModelOutput does
        inner = [kind for kind in inner if kind is not True]
    return [{"tuple": tuple, "list": list, "dict": dict}.get(tree["kind"], Record), inner] if "items" in tree else gone


def _kinds_of(found: Any) -> Any:
    if isinstance(found, tuple | list | dict):
        return [type(found), [_kinds_of(one) for one in (found.values() if isinstance(found, dict) else found)]]
    return found is None


@fuzzed(QUICK)
@given(mutated() | _json, st.sampled_from([(), (Found,), (Found, Pair)]))
def test_structures_give_an_answer_or_an_input_error(tree: Any, classes: tuple[type, ...]) -> None:
    _answers(json.dumps(tree), classes)


@fuzzed(QUICK)
@given(st.text(max_size=60) | st.text('{}[]":,kindtesor0.', max_size=60))
def test_any_text_as_structure(text: str) -> None:
    _answers(text, (Found,))


@fuzzed(40)
@given(mutated() | VALID)
def test_sessions_of_any_structure(tree: Any) -> None:
    with contextlib.suppress(onnxpatch.OnnxpatchError):
        onnxpatch.Session(structured(tree), classes=(Found,))(X)


_rows = st.lists(st.dictionaries(st.sampled_from(["path", "class", "patch", "x"]), _json | st.text(max_size=5)))


@fuzzed(QUICK)
@given(st.dictionaries(st.sampled_from(sorted(STAMP)), st.text(max_size=40) | (_json | _rows).map(json.dumps)))
def test_any_stamp(change: dict[str, str]) -> None:
    try:
        made = stamp.read(
            with_metadata({k: v.encode(errors="replace").decode() for k, v in {**STAMP, **change}.items()})
        )
        assert made is not None and made.sentence()
    except onnxpatch.InputError:
        pass


@fuzzed(QUICK)
@given(
    st.text(max_size=60)
    | st.text("[]'\",{}()x", max_size=80)
    | _json.map(repr)
    | st.integers(1, 500).map(lambda n: "[" * n)
)
def test_any_scopes_and_stack_traces_of_a_node(text: str) -> None:
    node = onnx.helper.make_node("Relu", ["x"], ["y"], name="/a/b", doc_string=text.encode(errors="replace").decode())
    for key in ("pkg.torch.onnx.name_scopes", "pkg.torch.onnx.stack_trace"):
        node.metadata_props.add(key=key, value=text.encode(errors="replace").decode())
    assert isinstance(source_of(node), str) and isinstance(module_of(node), str | None)

"""Metadata of any form, drawn at random: everything that reads it answers, or raises one InputError."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import json
import math
import tempfile
from typing import Any, NamedTuple

import numpy as np
import onnx
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import onnxpatch
from onnxpatch.onnxfile import metadata, output_structure, size_bounds
from onnxpatch.onnxfile.graph import module_of
from onnxpatch.onnxfile.tree import Classes, Record, rebuilt
from onnxpatch.verification.findings import source_line
from tests.onnxfile.hostile import OUTPUTS, STAMP, TENSOR, structured, with_metadata

pytestmark = pytest.mark.exports

X = torch.tensor([[1.0, -1.0]])
QUICK, LONG = 150, 10_000
_LONG = [pytest.mark.slow, pytest.mark.timeout(3600)]  # minutes alone, more beside other work


def fuzzed(quick: int, *drawn: st.SearchStrategy[Any]):
    """Runs a property a few times in the quick tier, and often in the slow one. drawn: its arguments."""

    def decorate(check):
        @pytest.mark.parametrize("often", [pytest.param(quick), pytest.param(LONG, marks=_LONG)])
        def run(often):  # a name of its own: pytest takes no mark for a lambda
            # Given anew: a property takes settings once, and both tiers may run in one process.
            settings(max_examples=often, suppress_health_check=list(HealthCheck))(given(*drawn)(check))()

        return run

    return decorate


@dataclasses.dataclass
class Found:
    boxes: Any
    scores: Any = None


class Pair(NamedTuple):
    boxes: Any
    scores: Any


class Flagged(torch.nn.Module):
    """What the files compute."""

    def forward(self, x):
        return x.relu(), torch.tensor(True)


# ------------------------------------------------------------------ values
DEEP = "<deep>"  # stands for a list in a list in a list, which json.dumps cannot write
# What readers of JSON trip over: null in place of an absent entry, numbers that no float or size can be, halves of
# characters, text of more than one line or too long.
SPECIAL = [
    None, True, False, 0, 1, -1, 2, -7, 1 << 62, 1 << 63, -(1 << 63), 10**400, -(10**400), 0.5, math.nan, math.inf,
    -math.inf, "", "x", "y", "there", "\ud800", "a\nb", "\0", "x" * 300, [], {}, [[]], DEEP,
]  # fmt: skip
_special = st.sampled_from(SPECIAL)
_scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
_json = st.recursive(_scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner))
_words = st.sampled_from(
    ["kind", "items", "keys", "class", "name", "flag", "present", "value", "form", "hint", "y", "there"]
)


@st.composite
def written(draw: Any, values: st.SearchStrategy[Any]) -> str:
    """A value as JSON; at times with a key twice, a list that is nested deeply, or a part that is lost or doubled."""
    text = json.dumps(draw(values))
    if DEEP in text:
        depth = draw(st.sampled_from([5, 99, 150, 400, 900, 990, 5000, 100_000]))
        text = text.replace(f'"{DEEP}"', "[" * depth + "]" * depth)
    action = draw(st.sampled_from(["", "", "", "key", "lost", "doubled"]))
    if action == "key":
        text = text.replace("{", f"{{{json.dumps(draw(_words))}: {json.dumps(draw(_json))}, ", 1)
    elif action:
        start, end = sorted((draw(st.integers(0, len(text))), draw(st.integers(0, len(text)))))
        text = text[: start if action == "lost" else end] + text[start if action == "doubled" else end :]
    return text


# ------------------------------------------------------------------ structures of outputs
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
        action = draw(st.sampled_from(["replace", "null", "drop", "add"]))
        if action == "replace":
            holder[key] = copy.deepcopy(draw(_special | _json | VALID | _words))
        elif action == "null":
            holder[key] = None
        elif action == "drop" and isinstance(holder, dict):
            del holder[key]
        elif isinstance(holder, dict):
            holder[draw(_words)] = copy.deepcopy(draw(_special | _json | VALID))
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
        tree = output_structure.read_structure({OUTPUTS: text}, list(values))
        assert tree is not None
        made = Classes(classes)
        made.check(tree)
        return rebuilt(tree, values, made)
    except onnxpatch.OnnxpatchError as error:
        said = str(error).replace("\n    ", " ")  # a long line goes on below
        assert isinstance(error, onnxpatch.InputError) and "\n" not in said
        return error


@fuzzed(QUICK, VALID)
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


@fuzzed(QUICK, written(mutated() | _json), st.sampled_from([(), (Found,), (Found, Pair)]))
def test_structures_give_an_answer_or_an_input_error(text: str, classes: tuple[type, ...]) -> None:
    _answers(text, classes)


@fuzzed(QUICK, st.text(max_size=60) | st.text('{}[]":,kindtesor0.', max_size=60))
def test_any_text_as_structure(text: str) -> None:
    _answers(text, (Found,))


@fuzzed(40, written(mutated() | VALID))
def test_sessions_of_any_structure(text: str) -> None:
    with contextlib.suppress(onnxpatch.OnnxpatchError):
        onnxpatch.Session(structured(text), classes=(Found,))(X)


# ------------------------------------------------------------------ calls, bounds, stamps
_numbers = st.integers(-1, 9) | _special
_any_call = st.lists(st.fixed_dictionaries({}, optional={
    "name": st.sampled_from(["x", "x", "c", "d", "y"]) | _special, "value": _special | _json, "other": _json,
}), max_size=4)  # fmt: skip
_calls = _any_call | _special.map(lambda value: [{"name": "x"}, {"name": "c", "value": value}])
_axes = st.lists(st.tuples(st.sampled_from(["x", "y"]) | _special, st.integers(-3, 3) | _special), max_size=2)
_bounds = st.lists(st.fixed_dictionaries({}, optional={
    "name": st.just("h") | _special, "low": _numbers, "high": _numbers, "multiple": st.just(1) | _numbers,
    "places": st.just([["x", 0]]) | _axes | _special,
}), max_size=3) | st.lists(st.fixed_dictionaries({
    "name": st.just("h"), "low": st.integers(0, 5), "high": _numbers, "multiple": st.integers(1, 3),
    "places": st.just([["x", 0]]) | _axes,
}), max_size=2)  # fmt: skip


@fuzzed(60, written(_calls | _json), st.sampled_from([1, 3.0, True, "a", math.nan, np.float64(1), np.int8(1), X, None]))
def test_sessions_of_any_call(text: str, value: Any) -> None:
    try:
        session = onnxpatch.Session(with_metadata({metadata.CALL_KEY: text}).SerializeToString())
        assert torch.equal(session(X)[0], X.relu())
    except onnxpatch.InputError as error:
        assert len(str(error)) < 1000
        return
    for args, kwargs in (((X, value), {}), ((value, X), {}), ((X,), {"c": value}), ((X, value), {"c": value})):
        try:
            session(*args, **kwargs)
        except onnxpatch.InputError as error:
            assert len(str(error)) < 1000


@fuzzed(60, written(_bounds | _json))
def test_sessions_of_any_bounds(text: str) -> None:
    try:
        onnxpatch.Session(with_metadata({size_bounds.KEY: text}).SerializeToString())(X)
    except onnxpatch.InputError as error:
        assert len(str(error)) < 1000


@fuzzed(10, written(_bounds), st.integers(0, 4))
def test_verify_of_any_bounds(text: str, size: int) -> None:
    asked = {"dynamic_shapes": ({0: "n"},), "max_probes": 2, "guards": False}
    with tempfile.NamedTemporaryFile(suffix=".onnx") as file:
        file.write(with_metadata({size_bounds.KEY: text}).SerializeToString())
        file.flush()
        try:
            report = onnxpatch.verify(file.name, Flagged(), (torch.ones(size, 2),), **asked)
            assert report.checks and str(report) and report.to_markdown() and report.to_json()
        except onnxpatch.InputError as error:
            assert len(str(error)) < 1000


_row = st.dictionaries(st.sampled_from(["path", "class", "patch", "x"]), _json | _special | st.text(max_size=5))
_stamps = st.text(max_size=40) | written(_json | st.lists(_row) | _special)


@fuzzed(QUICK, st.dictionaries(st.sampled_from(sorted(STAMP)), _stamps))
def test_any_stamp(change: dict[str, str]) -> None:
    try:
        made = metadata.read(
            with_metadata({k: v.encode(errors="replace").decode() for k, v in {**STAMP, **change}.items()})
        )
        assert made is not None and made.sentence()
    except onnxpatch.InputError:
        pass


@fuzzed(
    QUICK,
    st.text(max_size=60)
    | st.text("[]'\",{}()x", max_size=80)
    | _json.map(repr)
    | st.integers(1, 500).map(lambda n: "[" * n)
    | st.integers(300, 5000).map(lambda n: f"{'1' * n} + 1j"),
)
def test_any_scopes_and_stack_traces_of_a_node(text: str) -> None:
    node = onnx.helper.make_node("Relu", ["x"], ["y"], name="/a/b", doc_string=text.encode(errors="replace").decode())
    for key in ("pkg.torch.onnx.name_scopes", "pkg.torch.onnx.stack_trace"):
        node.metadata_props.add(key=key, value=text.encode(errors="replace").decode())
    assert isinstance(source_line(node), str) and isinstance(module_of(node), str | None)

"""The golden record: its node list tells what an export decides, and its comparison names what differs."""

from __future__ import annotations

import argparse
import re

import pytest
from onnx import parser

from benchmarks import golden
from benchmarks.golden_models import MODELS
from benchmarks.node_list import NodeList

MODEL = """<ir_version: 8, opset_import: ["" : 18]>
agraph (float[n, 3] x, bool[1] c) => (float[m] y) <int64[1] axes = {1}, float[3, 3] w = {1, 2, 3, 4, 5, 6, 7, 8, 9}> {
    a = MatMul (x, w)
    b = If (c) <then_branch = t () => (float[n, 3] p) { p = Relu (a) },
                else_branch = e () => (float[n, 3] q) { q = Neg (a) }>
    y = ReduceSum <keepdims = 0> (b, axes)
}"""


def nodes(text: str = MODEL) -> NodeList:
    return NodeList(parser.parse_model(text))


@pytest.mark.parametrize("name", ["a", "b", "p", "w", "n", "m"])
def test_names_of_values_and_of_sizes_do_not_count(name):
    assert nodes(re.sub(rf"\b{name}\b", "another", MODEL)).all == nodes().all


@pytest.mark.parametrize(
    ("old", "new", "order"),
    [
        ("axes = {1}", "axes = {0}", "same"),
        ("keepdims = 0", "keepdims = 1", "same"),
        ("float[3, 3] w", "double[3, 3] w", "same"),
        ("float[n, 3] x", "float[2, 3] x", "same"),
        ("MatMul (x, w)", "MatMul (w, x)", "same"),
        ("q = Neg", "q = Abs", "other"),
    ],
)
def test_operators_constants_attributes_dtypes_shapes_and_connections_count(old, new, order):
    changed = nodes(MODEL.replace(old, new))
    assert changed.all != nodes().all
    assert (changed.order == nodes().order) == (order == "same")


def test_the_operators_of_subgraphs_are_counted():
    assert nodes().histogram == "If 1, MatMul 1, Neg 1, ReduceSum 1, Relu 1"


def line(**changes: object) -> golden.Line:
    made = nodes()
    same = {"nodes": made.all, "order": made.order, "operators": made.histogram, "patches": ["p"], "verdict": "right"}
    return {**same, "findings": [], "probes": "example 1; 1"} | changes


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, []),
        ({"verdict": "wrong"}, ["verdict: right → wrong"]),
        ({"patches": ["p", "q"]}, ["patches: ['p'] → ['p', 'q']"]),
        (
            {"nodes": "1", "operators": "MatMul 2, Relu 1"},
            ["nodes: If 1 → 0, MatMul 1 → 2, Neg 1 → 0, ReduceSum 1 → 0"],
        ),
        ({"nodes": "1", "order": "1"}, ["nodes: the same operators in another order"]),
        (
            {"nodes": "1"},
            ["nodes: the same operators; attributes, constants, dtypes, shapes or connections differ (--show)"],
        ),
    ],
)
def test_what_differs_is_named(changes, said):
    assert [*golden.differences(line(), line(**changes))] == said


def test_a_part_is_written_compared_and_written_again(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(golden, "RECORD", tmp_path)
    asked = {"part": "trace", "only": "symbolic-sqrt|interpolate", "every": 1, "missing": False, "show": False}
    for accept, answer, differ, said in [
        (False, line(), 2, "not in the record"),
        (True, line(), 2, "not in the record"),
        (False, line(), 0, "0 differ"),
        (False, line(verdict="wrong"), 2, "verdict: right → wrong"),
    ]:
        options = argparse.Namespace(accept=accept, **asked)
        assert golden.run(options, lambda key, answer=answer: {**answer}) == differ
        assert said in capsys.readouterr().out


@pytest.mark.exports
def test_a_proof_is_recorded_with_its_own_patch():
    found = golden.made(("symbolic-sqrt", "trace", 18))
    assert (found["verdict"], found["patches"], found["findings"]) == ("right", ["symbolic-sqrt"], [])
    assert found == golden.made(("symbolic-sqrt", "trace", 18))
    assert found["probes"].startswith("data 2, example 1")


def test_whole_models_and_their_patches_are_there():
    assert len(set(MODELS)) == len(MODELS) == 60
    assert {*golden.keys("trace")} >= {(one, "trace", 18) for one in ("interpolate", "symbolic-sqrt")}

"""Who answers what Python asks while a model runs is in tests/snapshots/answerers-*.txt: the order is behaviour.

One line for each question: without branches=True, and with it. The answerers are

    symbolic-len  the patches of `bool`, `int`, `len`, `item` and their like that acted, by name
    paths         branches=True: the module runs once for each answer, and the results are merged
    loop          branches=True: a loop of the graph
    refused       branches=True: the export ends with an error that says so
    torch         none of them: torch answers as the example does, needs no answer, or refuses
"""

from __future__ import annotations

import warnings
from pathlib import Path

import onnx
import pytest
import torch

import onnxpatch
from onnxpatch._torch.exporters import dynamo_capture
from onnxpatch.control_flow import report_of
from onnxpatch.errors import BranchError
from tests.decisions.questions import EXAMPLE, QUESTIONS, Asks
from tests.exporting import export

pytestmark = pytest.mark.exports

SNAPSHOTS = Path(__file__).parents[1] / "snapshots"
_METHODS = ("__bool__", "__int__", "__float__", "__index__", "item", "tolist", "unbind")


@pytest.mark.slow  # twenty seconds of captures; the next test has every fifth line
@pytest.mark.parametrize("exporter", ["dynamo", "trace"])
def test_the_answerers_are_the_committed_ones(exporter, same_as_snapshot):
    same_as_snapshot(f"answerers-{exporter}.txt", "".join(line(question, exporter) for question in QUESTIONS))


@pytest.mark.quick
@pytest.mark.parametrize("exporter", ["dynamo", "trace"])
def test_every_fifth_line_is_a_committed_one(exporter):
    committed = (SNAPSHOTS / f"answerers-{exporter}.txt").read_text(encoding="utf-8").splitlines(keepends=True)
    assert [line(question, exporter) for question in QUESTIONS[::5]] == committed[::5]


def line(question, exporter):
    without, with_paths = (answerers(question, exporter, branches) for branches in (False, True))
    return f"{question.__name__:19}| {without:30}| {with_paths}\n"


def answerers(question, exporter, branches):
    model, found = Asks(question).eval(), []
    patched = onnxpatch.patched(model, exporter=exporter, branches=branches)
    with patched as made, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found += ["loop"] if has_loop(model, exporter) else []
        except Exception as error:
            found += ["refused"] if is_ours(error) else []
        report = report_of(model)
        found += ["paths"] if report is not None and report.decided else []
        found += [name for name in made.scope.hits if answers(onnxpatch.REGISTRY[name])]
    return ", ".join(sorted(found)) or "torch"


def has_loop(model, exporter):
    """Exports the model, as far as its forward is run."""
    if exporter == "dynamo":
        shapes = ({0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC},)
        nodes = dynamo_capture(model, EXAMPLE, {}, shapes, once=True).graph.nodes
        return any(str(node.target) in ("scan", "while_loop") for node in nodes)
    file = export(model, EXAMPLE, exporter, ({0: "b", 1: "n"},))
    return any(node.op_type in ("Loop", "Scan") for node in onnx.load_from_string(file).graph.node)


def is_ours(error):
    while error is not None and not isinstance(error, BranchError):
        error = error.__cause__ or error.__context__
    return error is not None


def answers(patch):
    """Whether a patch stands in for something that Python asks."""
    return any(
        target.startswith("builtins.") or (target.startswith(("torch.Tensor.", "torch.Sym")) and method in _METHODS)
        for target in patch.targets
        for method in [target.rpartition(".")[2]]
    )

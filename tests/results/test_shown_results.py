"""Results in a notebook and in an interpreter: short, escaped, true or false."""

from __future__ import annotations

from dataclasses import replace
from html.parser import HTMLParser

import pytest
import torch

import onnxpatch
from onnxpatch.messages.text import progress_writer
from onnxpatch.results.checks import Checked
from onnxpatch.results.diagnosis import Culprit, Diagnosis, Proposal
from onnxpatch.results.report import Report

ODD = "<script>\x1b[31m"
RESULTS = [
    Report(ODD, ODD, "trace", 18, checks=[Checked("onnxruntime", ODD, "size", {}, error=ODD, status="wrong")]),
    Diagnosis(
        ODD, "trace", 18, "refused",
        culprits=[Culprit("a", ODD, "refused", "trace", ODD, proposals=(Proposal("patch", "x", ODD),))],
    ),
    onnxpatch.plan(torch.nn.Sequential(torch.nn.Conv2d(3, 3, 3), torch.nn.ReLU())),
]  # fmt: skip


class Balanced(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.open, self.tags = [], set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        self.tags.add(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.mark.parametrize("result", RESULTS, ids=lambda result: type(result).__name__)
def test_a_result_in_a_notebook(result):
    text = result._repr_html_()
    page = Balanced(text)
    assert page.open == [] and "script" not in page.tags and "\x1b" not in text
    assert (
        len(repr(result)) < 300 and "\n" not in repr(result) and repr(result).startswith(f"<{type(result).__name__} ")
    )


def test_a_diagnosis_is_true_where_nothing_is_to_cure():
    assert not RESULTS[1] and Diagnosis("M", "trace", 18)


def test_why_the_example_or_most_comparisons_have_no_verdict_is_said():
    tied = Checked("onnxruntime", "n=3", "size", {}, error="equal values have no order", status="unsteady")
    one = Report("f", "M", "trace", 18, checks=[tied, replace(tied, status="right"), tied])
    assert "note: 2 of 3 comparisons have no verdict: equal values have no order" in str(one)
    with pytest.raises(onnxpatch.VerificationError, match="no comparison has a verdict: equal values have no order"):
        replace(one, checks=[tied]).raise_unless_right()
    tied = replace(tied, status="right")
    right = "1 of 1 comparisons are right with equal values in another order: equal values have no order"
    assert f"note: {right}" in str(replace(one, checks=[tied]))
    size, example = replace(tied, error=""), replace(tied, kind="example")
    assert right.replace("of 1", "of 3") in str(replace(one, checks=[example, size, size]))
    assert "another order" not in str(replace(one, checks=[tied, size, size]))


def test_what_patching_returns_is_short():
    with onnxpatch.patched(torch.nn.ReLU(), only=()) as made:
        assert repr(made).startswith("<Patched ReLU: 0 modules swapped")


def test_progress_on_stderr(capsys):
    told = progress_writer(True)
    assert told is not None and progress_writer(None) is progress_writer(False) is None
    told("onnxruntime", 0, 2)
    told("onnxruntime", 1, 2)
    assert capsys.readouterr().err.replace(" ", "").split("\r")[1:] == [
        "onnxpatch:onnxruntime1of2",
        "onnxpatch:onnxruntime2of2\n",
    ]

"""Plain Python loops: right at lengths that no round was run for, or refused with the line and a way on."""

from __future__ import annotations

import copy

import pytest
import torch

import onnxpatch
from tests.control_flow import loop_models
from tests.exporting import export, run, wrong

ROWS = ({0: "rows"},)
LENGTHS = (1, 2, 3, 7, 20)


@pytest.mark.parametrize("exporter", ["dynamo", "trace"])
@pytest.mark.parametrize("name", loop_models.RIGHT)
def test_one_loop_for_every_number_of_rows(name: str, exporter: str) -> None:
    model = loop_models.RIGHT[name]()
    eager = copy.deepcopy(model)
    with onnxpatch.patched(model, branches=True, exporter=exporter):
        file = export(model, (torch.rand(4, 4),), exporter, ROWS)
    for length in LENGTHS:
        rows = torch.rand(length, 4)
        assert wrong(run(file, (rows,)), eager(rows), 1e-4) is None, length


@pytest.mark.parametrize("name", loop_models.REFUSED)
def test_a_loop_that_its_rounds_do_not_prove_is_refused(name: str) -> None:
    # The rounds are compared before either exporter writes anything: one of them shows it.
    build, says, exporter = loop_models.REFUSED[name]
    model = build()
    with (
        pytest.raises(Exception) as caught,
        onnxpatch.patched(model, branches=True, exporter=exporter),
    ):  # torch wraps it
        export(model, (torch.rand(4, 4),), exporter, ROWS)
    refusal = caught.value if isinstance(caught.value, onnxpatch.OnnxpatchError) else caught.value.__cause__
    assert isinstance(refusal, onnxpatch.BranchError)
    text = str(refusal)
    assert says in text and "loop_models.py:" in text and ("@onnxpatch.scan" in text or "table[i]" in text)


def test_hashes_of_tensors_are_torchs_own_again() -> None:
    before = torch.Tensor.__hash__
    model = loop_models.RIGHT["backwards"]()
    with onnxpatch.patched(model, branches=True, exporter="trace"):
        export(model, (torch.rand(4, 4),), "trace", ROWS)
    assert torch.Tensor.__hash__ is before

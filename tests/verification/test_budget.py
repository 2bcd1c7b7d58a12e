"""Verification bounded by time: what is left out when time is up, and what never is."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

import onnxpatch
from onnxpatch.inputs import dynamic_shapes as shapes
from onnxpatch.inputs.dims import dynamic_dims
from onnxpatch.inputs.leaves import Inputs
from onnxpatch.verification.eager import Eager
from onnxpatch.verification.probe import Limits, Probe
from onnxpatch.verification.probe_search import ProbeSearch
from onnxpatch.verification.stopwatch import Stopwatch
from tests.verified_models import BatchBranch, DataBranch, FrozenScale, NativeSize, Right

IMAGE = ({0: "b", 2: "h", 3: "w"},)


class Call(nn.Module):
    def __init__(self, function: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: torch.Tensor) -> torch.Tensor:
        return self.function(*args)


def late(model: nn.Module, args: tuple[Any, ...], dynamic: Any) -> tuple[list[Probe], ProbeSearch]:
    """A search whose time was up before it began."""
    inputs = Inputs(model, args)
    eager = Eager(model.eval(), inputs)
    example = replace(eager.ask(inputs.values()), seconds=1.0)
    eager.seconds = 10.0
    search = ProbeSearch(eager, inputs, dynamic_dims(inputs, shapes.read(inputs, dynamic)), Limits(seconds=1.0))
    return search.find(example), search


def test_waiting_is_no_work() -> None:
    watch = Stopwatch()
    time.sleep(0.1)
    assert watch.seconds < 0.08
    sum(range(1_000_000))
    assert watch.seconds > 0.001


def test_every_dimension_moves_though_time_is_up() -> None:
    probes, search = late(Right(), (torch.randn(2, 3, 16, 24),), IMAGE)
    assert probes[0].kind == "example" and all(p.kind == "size" for p in probes[1:])
    for dim, size in (("b", 2), ("h", 16), ("w", 24)):
        assert any(p.sizes[dim] < size for p in probes)
    assert len(probes) <= 5 and search.asking.left_out


def test_sizes_that_go_together_move_though_time_is_up() -> None:
    probes, _ = late(Call(lambda x, y: x + y), (torch.randn(8), torch.randn(8)), ({0: "n"}, {0: "m"}))
    assert any(p.sizes["n"] == p.sizes["m"] != 8 for p in probes)


def test_a_size_of_one_moves_up_though_time_is_up() -> None:
    probes, _ = late(Call(torch.relu), (torch.randn(1, 3),), ({0: "b"},))
    assert any(p.sizes["b"] > 1 for p in probes)


def test_static_models_get_other_data_and_branches_are_flipped_though_time_is_up() -> None:
    probes, _ = late(Call(torch.relu), (torch.randn(1, 3),), None)
    assert [p.kind for p in probes] == ["example", "data"]
    probes, _ = late(DataBranch(), (torch.rand(2, 3) + 0.1,), ({0: "b"},))
    assert any(p.kind == "branch" for p in probes)
    probes, _ = late(Call(lambda x: x * 2), (torch.tensor([3, 4]),), ({0: "b"},))
    assert any(p.label == "whole numbers + 1" for p in probes)


def test_what_lack_of_time_left_out_may_be_asked_for_later() -> None:
    _, search = late(Call(torch.relu), (torch.randn(4, 3),), ({0: "b"},))
    assert search.at({"b": 9}) is None
    search.limits.seconds = 100.0
    probe = search.at({"b": 9})
    assert probe is not None and probe.sizes == {"b": 9} and not any(9 in key for key in search.asking.left_out)


def test_export_without_any_time_for_its_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    module = sys.modules["onnxpatch.verification.exported"]
    monkeypatch.setattr(module, "_SHARE", 0.0)
    monkeypatch.setattr(module, "_LEAST", 0.0)
    report = onnxpatch.export(Right().eval(), (torch.randn(2, 3, 16, 24),), dynamic_shapes=IMAGE, dynamo=False)
    assert report.ok and {c.sizes[d] for d in "bhw" for c in report.checks} > {1, 8, 12}
    assert any("left out, to take no longer than the export" in note for note in report.notes)
    for model, args, sizes in (
        (DataBranch(), (torch.rand(2, 3) + 0.1,), None),
        (NativeSize(), (torch.randn(2, 3, 32, 32),), IMAGE),
        (FrozenScale(), (torch.randn(1, 3, 16, 16),), ({2: "h", 3: "w"},)),
        (BatchBranch(), (torch.randn(6, 3),), ({0: "b"},)),
    ):
        with pytest.raises(onnxpatch.VerificationError):
            onnxpatch.export(model.eval(), args, dynamic_shapes=sizes, dynamo=False, only=())

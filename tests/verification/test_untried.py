"""What a report says of conditions that no compared input took."""

from __future__ import annotations

import functools
import json
import os
import random
import re
import time
from pathlib import Path

import onnx
import pytest
import torch
from torch import nn

import onnxpatch
from onnxpatch.html.planned import around
from onnxpatch.inputs import dynamic_shapes as shapes
from onnxpatch.inputs.dims import dynamic_dims
from onnxpatch.inputs.leaves import Inputs
from onnxpatch.onnxfile.metadata import UNTRIED
from onnxpatch.results.checks import Checked, Untried
from onnxpatch.results.report import Report
from onnxpatch.results.report_text import headline, text
from onnxpatch.testing import assert_exports
from onnxpatch.verification.beyond_inputs import beyond_inputs, changes_of_a_call
from onnxpatch.verification.eager import Eager
from onnxpatch.verification.probe import Budget
from onnxpatch.verification.reference import Reference
from onnxpatch.verification.untried import untried


class Far(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        if x.shape[0] > 123_456_789:
            y = y + 1
        return y


ARGS, FREE = (torch.ones(2, 3),), ({0: "n"},)


@pytest.mark.exports
def test_a_side_that_never_ran_is_said_first(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = "m.onnx"
    report = onnxpatch.export(Far().eval(), ARGS, file, dynamic_shapes=FREE, exporter="trace")
    assert report.ok and report.sides_recorded and not report.covered
    (one,) = report.untried
    assert one.side == "x.shape[0] > 123456789" and one.place.endswith(" in forward")
    assert around(one.place.rpartition(" in ")[0])
    assert "where tried" in headline(report) and "never ran: " in headline(report) and one.side in headline(report)
    assert "pass data= that reaches that side, or branches=True" in text(report)
    assert report.to_dict()["covered"] is False and report.to_dict()["untried"][0]["side"] == one.side
    said = {entry.key: entry.value for entry in onnx.load(file).metadata_props}[UNTRIED]
    assert one.side in json.loads(said)[0]
    with pytest.raises(AssertionError, match=r"(?s)never ran: .*123456789"):
        assert_exports(Far().eval(), ARGS, dynamic_shapes=FREE, exporters="trace", require="covered")


@pytest.mark.exports
def test_a_covered_model_passes():
    reports = assert_exports(nn.ReLU().eval(), ARGS, dynamic_shapes=FREE, exporters="trace", require="covered")
    assert reports["trace"].covered and "right at" in headline(reports["trace"])


def test_the_first_line_keeps_its_width():
    side = Untried("to/" + "model" * 9 + ".py:344 in forward", "q", "w.abs().max() > 1.5", "example")
    report = Report("m.onnx", "M", checks=[Checked("onnxruntime", "example", "example", {})], untried=[side, side])
    assert headline(report).endswith("w.abs().max() > 1.5, and 1 more")
    assert text(report).splitlines()[-1] == "next: pass data= that reaches that side, or branches=True"


def test_what_is_required_is_checked_first():
    with pytest.raises(ValueError, match="covered"):
        assert_exports(nn.ReLU().eval(), ARGS, require="all")


class Remembers(nn.Module):
    """The second identical call starts from what the first one kept."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.way, self.hidden = way, None
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.way == "attribute":
            self.hidden = x if self.hidden is None else self.hidden + x
            return self.hidden * 1
        if self.way == "buffer":
            self.count += 1
            return x * self.count
        self.hidden = x.sum()  # kept, and never read
        return x * 2


def _kept_by_a_call(way: str) -> list[str]:
    model = Remembers(way).eval()
    eager = Eager(model, Inputs(model, ARGS))
    return changes_of_a_call(eager, list(ARGS), eager.ask(list(ARGS), restored=False))[0]


@pytest.mark.parametrize("way, name, line", [("attribute", "hidden", 92), ("buffer", "count", 95)])
def test_what_the_second_call_reads_is_named_with_its_line(way, name, line):
    (found,) = _kept_by_a_call(way)
    assert found.startswith(f"{name} (") and found.endswith(f":{line})"), found


def test_what_is_kept_and_not_read_is_not_said():
    assert _kept_by_a_call("nothing") == []


@pytest.mark.exports
def test_a_second_call_that_answers_otherwise_is_said_first():
    report = onnxpatch.export(Remembers("attribute").eval(), ARGS, None, exporter="trace")
    assert report.ok and report.first_call and "right for the first call" in headline(report)


class Passing(nn.Module):
    """Hands everything on by place, as wrappers of layers do."""

    def attend(self, x: torch.Tensor, mask: torch.Tensor | None, cache: torch.Tensor | None) -> torch.Tensor:
        if mask is not None:
            x = x + mask
        if cache is not None:
            x = x + cache
        return x

    def wrapped(self, *args: object) -> torch.Tensor:
        return self.attend(*args)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mask = x if bool((x > 100).any()) else None
        return self.wrapped(x, mask, None)


class AnyOf(nn.Module):
    """Asks a function of its own about each number."""

    def is_end(self, number: int) -> bool:
        return number in (431, 951)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2 if any(self.is_end(one) for one in x[:, 0].tolist()) else x


class Silence(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor | None:
        return None if x.abs().max() == 0 else x * 2


@pytest.mark.exports
def test_zeros_that_come_out_as_none_are_a_side_that_ran():
    report = onnxpatch.export(Silence().eval(), ARGS, None, dynamic_shapes=FREE, exporter="trace", branches=True)
    assert report.covered, str(report)


class Causal(nn.Module):
    """Causal where more than one token is asked for, if it is at all."""

    def __init__(self, causal: bool | None) -> None:
        super().__init__()
        self.causal = causal

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        may = self.causal if self.causal is not None else x.sum() > 100
        causal = x.shape[0] > 1 and may
        return x.cumsum(0) if causal else x * 2


def exists(value: object) -> bool:
    return value is not None


class Helped(nn.Module):
    """Asks by a helper: of one value that a size decides about, and of two that none does."""

    rotary = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        _, *rest = x.shape
        places = [torch.ones(n) for n in rest]
        if exists(self.rotary):
            x = x + 1
        if exists({5: x}.get(x.shape[0])):
            x = x * 2
        return x * places[0] if exists(places) else x


class Rounds(nn.Module):
    """Two loops that do not begin, of which an input decides one."""

    def __init__(self) -> None:
        super().__init__()
        self.none = range(0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(x.shape[0] // 1000):
            x = x + 1
        for _ in self.none:
            x = x + 1
        return x


@pytest.mark.parametrize(
    ("model", "named"),
    [
        (Passing(), ["bool((x > 100).any())"]),  # a mask is behind it
        (AnyOf(), ["any((self.is_end(one) for one in x[:, 0].tolist()))"]),
        (Helped(), ["exists({5: x}.get(x.shape[0]))"]),
        (Rounds(), ["range(x.shape[0] // 1000) has anything"]),
        (Causal(False), []),  # false for one token, too
        (Causal(None), ["x.shape[0] <= 1", "causal"]),  # true for a larger sum
    ],
)
def test_only_what_an_input_can_turn_is_named(model, named):
    inputs = Inputs(model, ARGS)
    eager = Eager(model, inputs)
    answer = eager.ask(inputs.values())
    found = [one.side for one in untried(eager.sides, [answer.probe("example", "example", {}, [])]) or []]
    assert found == named


class Counted(nn.Module):
    """The comprehension, which runs in a frame of its own, does not know self and x."""

    first = 100_000_000

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + sum(1 for _ in range(self.first, x.shape[0]))


def test_what_a_comprehension_counts_is_looked_at_from_outside():
    model = Counted().eval()
    inputs = Inputs(model, ARGS)
    dims = dynamic_dims(inputs, shapes.read_shapes(inputs, FREE, None, None, "trace"))
    reference = Reference(model, inputs, dims, Budget())
    (one,) = untried(reference.eager.sides, reference.probes) or ()
    assert one.side.startswith("sum(") and one.side.endswith(" is not 0")


class Named(nn.Module):
    """A comprehension that calls its values as what it goes over."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        sizes = [x for x in x.shape]
        sizes = [x for sizes in [sizes] for x in sizes if x > 123_456_789]
        return x + len(sizes)


@pytest.mark.exports
def test_a_comprehension_may_name_its_values_as_what_it_goes_over():
    report = onnxpatch.export(Named().eval(), ARGS, dynamic_shapes=FREE, exporter="trace", attempts="asked")
    assert [one.side for one in report.untried] == ["x > 123456789"]


@pytest.mark.exports
def test_code_that_is_nested_too_deeply_to_be_read_is_exported(tmp_path, monkeypatch):
    condition = " + ".join(["x.shape[0]"] * 400)
    (tmp_path / "generated.py").write_text(
        "from torch import nn\nclass Deep(nn.Module):\n    def forward(self, x):\n"
        f"        return x * 2 if {condition} > 0 else -x\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    model = __import__("generated").Deep().eval()
    report = onnxpatch.export(model, ARGS, dynamic_shapes=FREE, exporter="trace", attempts="asked")
    assert report.ok and not report.sides_recorded and not report.covered


class TwoLengths(nn.Module):
    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        if mask.shape[1] > x.shape[1]:
            mask = mask[:, : x.shape[1]]
        if x.shape[1] // 300_000_000 != mask.shape[1] // 400_000_000:
            x = x + 1
        return x * mask


@pytest.mark.parametrize("other", ["n", "m"])
def test_what_no_declared_size_turns_is_not_named(other):
    model = TwoLengths().eval()
    inputs = Inputs(model, (torch.ones(2, 3), torch.ones(2, 3 if other == "n" else 1)))
    dims = dynamic_dims(inputs, shapes.read_shapes(inputs, ({1: "n"}, {1: other}), None, None, "trace"))
    reference = Reference(model, inputs, dims, Budget())
    sides = [one.side for one in untried(reference.eager.sides, reference.probes) or ()]
    # The sides of the second are equal at every size that was tried, and rounded: more would turn it.
    assert sides[-1].startswith("x.shape[1] // 300000000 != ") and len(sides) == 1, sides


@pytest.mark.exports
def test_an_empty_cache_is_compared_and_a_file_that_is_wrong_there_says_so() -> None:
    class Rows(nn.Module):
        def forward(self, x: torch.Tensor, past: torch.Tensor) -> torch.Tensor:
            return x.sum(1) + past.reshape(past.shape[1], past.shape[0], 4).sum(0)

    args, free = (torch.randn(2, 3, 4), torch.randn(2, 5, 4)), ({}, {1: "p"})
    report = onnxpatch.export(Rows(), args, None, dynamic_shapes=free, exporter="trace")
    assert report.ok and report.wrong_at_zero == ["p"] and "right for p >= 1 (wrong at 0) only, at " in headline(report)
    bounded = ({}, {1: torch.export.Dim("p", min=1, max=99)})
    assert onnxpatch.export(Rows(), args, None, dynamic_shapes=bounded, exporter="trace").wrong_at_zero == []


@pytest.mark.exports
def test_a_side_that_an_empty_cache_alone_takes_is_tried() -> None:
    class Joined(nn.Module):
        def forward(self, x: torch.Tensor, past: torch.Tensor) -> torch.Tensor:
            return x.sum(1) if past.shape[1] == 0 else x.sum(1) + past.sum(1)

    args, free = (torch.randn(2, 3, 4), torch.randn(2, 5, 4)), ({}, {1: "p"})
    assert onnxpatch.export(Joined(), args, None, dynamic_shapes=free, exporter="trace").covered


MADE: dict[int, int] = {}


class Beside(nn.Module):
    """Reads what no input tells, in each of the ways that are known; each line ends with what is said of it."""

    calls = 0

    def __init__(self) -> None:
        super().__init__()
        self.table, self.last = None, None

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        if self.table is None or len(self.table) < len(x):
            self.table = torch.ones(len(x))  # keeps for the next call: table
        self.last = x
        MADE[len(x)] = 1  # keeps for the next call: MADE
        type(self).calls += 1  # keeps for the next call: calls
        if time.time() < 3:  # reads the clock
            x = x + 1
        if os.environ.get("SUCH"):  # reads the environment
            x = x + 1
        if random.random() > 1:  # draws Python's random numbers
            x = x + 1
        if not x.is_contiguous():  # asks how an input lies in memory
            x = x + 1
        if x is y:  # asks whether two inputs are one tensor
            x = x + 1
        z = x + y
        if z.is_contiguous():
            z = z + self.last
        z = z + _is_installed()
        return z * _ramp(len(x))[:, None] * self.table[: len(x), None]


@functools.lru_cache
def _is_installed() -> bool:
    return bool(os.environ.get("SUCH"))  # read once in a process: not said


@functools.lru_cache  # keeps for the next call: what functools.cache has
def _ramp(n: int) -> torch.Tensor:
    return torch.arange(n).float()


def test_what_is_read_beside_the_inputs_is_named_by_line() -> None:
    model = Beside().eval()
    inputs = Inputs(model, (torch.randn(4, 3), torch.randn(4, 3)))
    dims = dynamic_dims(inputs, shapes.read_shapes(inputs, ({0: "n"}, {0: "n"}), None, None, "trace"))
    reference = Reference(model, inputs, dims, Budget())
    assert reference.decisions is not None and reference.changes == []
    said = beyond_inputs(reference.eager.sides, reference.probes, reference.kept, reference.decisions.strides, most=9)
    found = {int(line) for one in said for line in re.findall(r"test_untried.py:(\d+)", one)}
    lines = enumerate(Path(__file__).read_text().splitlines(), 1)
    wanted = {n: kind[1] for n, line in lines if (kind := re.search("  # ((keeps|reads|draws|asks) [^:]*)", line))}
    assert found == set(wanted), said
    assert {one.partition(": ")[0] for one in said} == {f"the forward {kind}" for kind in wanted.values()}

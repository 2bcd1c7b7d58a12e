"""Sizes far from the example at which a forward decides otherwise: found, and held against the graph."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import onnxpatch
from onnxpatch.arguments import shapes
from onnxpatch.arguments.dims import dynamic_dims
from onnxpatch.arguments.inputs import Inputs
from onnxpatch.checking.hints import size_hints
from onnxpatch.checking.probe import Limits, Probe
from onnxpatch.checking.probes import ProbeSearch
from onnxpatch.checking.reference import Eager
from onnxpatch.diagnosing.decisions import Decisions

IMAGE = ({0: "b", 2: "h", 3: "w"},)
TEXT = ({0: "b", 1: "t"},)


class TallIsHalved(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[2] > 512:
            x = F.avg_pool2d(x, 2)
        return x.amax((2, 3))


class CutAtLimit(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.limit, self.table = 512, nn.Embedding(512, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n = min(x.shape[1], self.limit)
        return x[:, -n:] + self.table(torch.arange(n))


class MultiplesOfFourteen(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h, w = x.shape[-2:]
        if h % 14 != 0 or w % 14 != 0:
            x = x * 0.5
        return x


class Square(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.relu() if x.shape[-2] == x.shape[-1] else x


class LargeArea(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h, w = x.shape[-2:]
        return x.relu() if h * w > 20_000 else x


class DeepInside(nn.Module):
    """The compared size is of a feature map, and eager takes multiples of 8 alone."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, c, h, w = x.shape
        tokens = x.view(b, c, h // 8, 8, w // 8, 8).amax((3, 5)).flatten(2)
        return tokens * 2 if tokens.shape[-1] >= 100 else tokens


class MaskGrows(nn.Module):
    mask: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mask", torch.ones(64, 64).tril(), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n = x.shape[1]
        if n > self.mask.shape[0]:
            self.mask = torch.ones(n, n).tril()
        return self.mask[:n, :n] @ x


CASES = [
    (TallIsHalved, (1, 3, 64, 48), IMAGE, lambda s: s["h"] > 512),
    (CutAtLimit, (2, 16, 4), TEXT, lambda s: s["t"] > 512),
    (MultiplesOfFourteen, (1, 3, 30, 30), IMAGE, lambda s: s["h"] % 14 == 0 == s["w"] % 14),
    (Square, (1, 3, 24, 32), IMAGE, lambda s: s["h"] == s["w"]),
    (LargeArea, (1, 3, 40, 30), IMAGE, lambda s: s["h"] * s["w"] > 20_000),
    (DeepInside, (1, 3, 48, 32), IMAGE, lambda s: s["h"] * s["w"] >= 6400),
    (MaskGrows, (1, 16, 8), TEXT, lambda s: s["t"] > 64),
]
BY_NAME = pytest.mark.parametrize(("model", "shape", "dynamic", "other"), CASES, ids=[c[0].__name__ for c in CASES])


def found(model: nn.Module, args: tuple[Any, ...], dynamic: Any) -> list[Probe]:
    inputs = Inputs(model, args)
    dims = dynamic_dims(inputs, shapes.read(inputs, dynamic))
    eager = Eager(model.eval(), inputs)
    # What the code compares with is not read off it here: calls and attributes hide it in many models.
    search = ProbeSearch(eager, inputs, dims, Limits(), hints=size_hints(nn.Identity()))
    return search.find(eager.ask(inputs.values()))


@BY_NAME
def test_the_other_side_is_found(model: Any, shape: Any, dynamic: Any, other: Any) -> None:
    assert any(other(probe.sizes) for probe in found(model(), (torch.rand(shape),), dynamic))


@BY_NAME
def test_a_graph_of_one_side_is_no_success(model: Any, shape: Any, dynamic: Any, other: Any) -> None:
    with pytest.raises(onnxpatch.VerificationError) as caught:
        args = (torch.randn(shape),)
        onnxpatch.export(model().eval(), args, dynamic_shapes=dynamic, dynamo=False, only=())
    assert any(other(check.sizes) for check in caught.value.report.checks if not check.ok)


def test_watched_sizes_are_what_sizes_are() -> None:
    seen: dict[str, Any] = {}

    class Uses(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            n, c = x.shape
            seen.update(names={n: "n"}, text=f"{n}x{c}", rest=7 % n, quotient=divmod(n, 2), half=n / 2)
            assert isinstance(n, int) and n in {6, 7} and n < 6.5 and n != "6"
            return x.view(n // 2, 2, -1)[: len(range(n))].expand(n // 2, 2, c) * n

    with Decisions(watch_sizes=True) as watch:
        Uses()(torch.ones(6, 3))
    assert seen["names"][6] == "n" and seen["text"] == "6x3" and seen["rest"] == 1
    assert tuple(seen["quotient"]) == (3, 0) and seen["half"] == 3.0
    assert any(one.size == 6 and one.other == 6.5 and one.answer for one in watch.sizes.comparisons)


def test_code_that_takes_no_int_but_int_itself_is_watched_without_its_sizes() -> None:
    class Strict(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if type(x.shape[0]) is not int:
                raise TypeError("no int")
            return x * 2 if x.mean() > 0 else x

    probes = found(Strict(), (torch.rand(2, 3),), ({0: "b"},))
    assert any(probe.kind == "branch" for probe in probes)

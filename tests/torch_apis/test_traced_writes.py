"""Writes through views, which share memory in eager, are in the graph that torch.jit.trace records."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import onnx
import pytest
import torch
from torch import Tensor, nn

import onnxpatch
from onnxpatch._torch import traced_writes
from onnxpatch.errors import VerificationError

pytestmark = pytest.mark.exports


class Writes(nn.Module):
    """What `write` returns, or `y` where that is None."""

    def __init__(self, write: Callable[[Tensor, Tensor], Any]) -> None:
        super().__init__()
        self.write = write

    def forward(self, x: Tensor) -> Any:
        y = x.clone()
        found = self.write(y, x)
        return y if found is None else found


def exported(model: nn.Module, *size: int, dynamic: tuple[int, ...] = (0, 1)) -> onnx.ModelProto:
    file = io.BytesIO()
    onnxpatch.export(
        model.eval(), (torch.randn(size),), file, exporter="trace", attempts="asked",
        dynamic_shapes=({axis: f"n{axis}" for axis in dynamic},),
    )  # fmt: skip
    return onnx.load_from_string(file.getvalue())


def pair(y: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    first, second = y.chunk(2, 2)
    first.mul_(2)
    second.add_(first)
    return y, first


def earlier_view(y: Tensor, x: Tensor) -> tuple[Tensor, ...]:
    rows, turned = y[1:], y.transpose(0, 1)
    y[:, 0] = 7.0
    y.mul_(2)
    return rows, turned, y


def view_of_view(y: Tensor, x: Tensor) -> tuple[Tensor, ...]:
    flat = y.view(-1)
    flat[::2] = 0
    part = y.transpose(0, 1)[0, :, 1:]
    part.copy_(x[:, 0, :1])
    return y, flat, part


def next_line(y: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    part = y[:, 1:]
    part += 1
    y[..., 0].clamp_(min=0)
    return y, y.sum(0)


def cast(y: Tensor, x: Tensor) -> Tensor:
    y.transpose(0, 1)[0].copy_((x[:, 0] > 0).long())
    return y.to(torch.float32)


def part_of_nothing(y: Tensor, x: Tensor) -> Tensor:
    rows = y[:, :-2]  # none of one or two
    columns = rows[..., 1:]
    columns += 1
    return y


def two_memories(y: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    other = x * 1
    other[:, 0] += 3  # the exporter follows it
    y.mT.add_(1)
    return y, other


WRITES: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "transpose": lambda y, x: (y.transpose(0, 1)[0].fill_(7.0), y),
    "mT": lambda y, x: (y.mT.add_(x.mT), y),
    "permute": lambda y, x: (y.permute(2, 0, 1)[0].zero_(), y),
    "movedim": lambda y, x: (y.movedim(2, 0)[1:].mul_(3), y),
    "narrow": lambda y, x: (y.narrow(2, 1, 2).copy_(x[..., :2] * 3), y),
    "view": lambda y, x: (y.view(-1)[1:].mul_(2), y),
    "flatten": lambda y, x: (y.flatten(1)[:, 0].fill_(2), y),
    "unsqueeze": lambda y, x: (y.unsqueeze(1)[:, 0, 0].neg_(), y),
    "split": lambda y, x: (y.split([1, 3], 2)[1].clamp_(min=0), y),
    "unbind": lambda y, x: (y.unbind(2)[3].exp_(), y),
    "chunk": pair,
    "detach": lambda y, x: (y.detach()[0].fill_(1), y),
    "expanded mask": lambda y, x: (y.transpose(1, 2).masked_fill_(x.mT > 0, 0.5), y),
    "an earlier view": earlier_view,
    "a view of a view": view_of_view,
    "a slice of another line": next_line,
    "a part that may be empty": part_of_nothing,
    "beside one that is followed": two_memories,
    "another dtype": cast,
    "all of a tensor": lambda y, x: (y.copy_(x * 2), y + 1),
    "one number": lambda y, x: (y.sum().unsqueeze(0).mul_(2), y),
}


@pytest.mark.parametrize("name", WRITES)
def test_written_through_a_view(name: str) -> None:
    exported(Writes(WRITES[name]), 3, 2, 4)


def test_without_it_the_write_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traced_writes, "write_out", lambda outputs, every=False: None)
    with pytest.raises(VerificationError, match="relative error"):
        exported(Writes(WRITES["view"]), 3, 2, 4)


class Cached(nn.Module):
    """A buffer that an inner module writes into."""

    class Store(nn.Module):
        def forward(self, table: Tensor, x: Tensor) -> Tensor:
            table.transpose(0, 1)[: x.shape[1]].add_(x.sum(0)[:, None])
            return table * 2

    table: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", torch.zeros(4, 30))
        self.store = self.Store()

    def forward(self, x: Tensor) -> Tensor:
        table = self.table.clone()
        twice = self.store(table, x)
        return twice.sum(1) + table.sum(1)


def test_written_in_an_inner_module() -> None:
    exported(Cached(), 3, 4)


class Frequencies(nn.Module):
    """A buffer that is set from the input, as tables of rotary positions are, and changed through the result."""

    long: Tensor
    now: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("long", torch.rand(4))
        self.register_buffer("now", torch.rand(4))

    def forward(self, x: Tensor) -> Tensor:
        set_now = self.now.copy_(torch.where(x.shape[0] > x.amax() + 3, self.long, x[0].double()))
        set_now.mul_(2)
        return x * self.now + set_now


def test_a_buffer_is_copied_into_and_changed_through_the_result() -> None:
    exported(Frequencies(), 3, 4, dynamic=(0,))


@pytest.mark.parametrize(
    "write",
    [
        lambda y, x: y[:, 1:].add_(1.0) * 0 + 1,
        lambda y, x: y.__setitem__((slice(None), 0), 5.0),
        lambda y, x: y.select(1, 0).mul_(2) * 0 + 1,
        lambda y, x: y.mul_(2),
    ],
)
def test_what_the_exporter_follows_is_left_alone(write: Callable[[Tensor, Tensor], Any]) -> None:
    def then(y: Tensor, x: Tensor) -> Tensor:
        write(y, x)
        return y * 2

    model = Writes(then).eval()
    plain = io.BytesIO()
    torch.onnx.export(model, (torch.randn(3, 2, 4),), plain, dynamo=False, opset_version=18,
                      input_names=["x"], dynamic_axes={"x": {0: "n0", 1: "n1"}})  # fmt: skip
    kinds = [node.op_type for node in onnx.load_from_string(plain.getvalue()).graph.node]
    assert [node.op_type for node in exported(model, 3, 2, 4).graph.node] == kinds

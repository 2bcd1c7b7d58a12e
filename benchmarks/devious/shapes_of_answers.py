"""Answers of other shapes: dicts, dataclasses with None, an input given back, the same tensor twice, a constant."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from benchmarks.devious.kinds import devious, floats, sizes

ROWS = ({0: "n"},)
SOME = sizes(4, 1, 7, 2)


@devious(SOME, ROWS)
def input_given_back(x: Tensor) -> dict[str, Any]:
    return {"x": x, "again": x, "none": None, "rows": [x[:1], {"deep": x * 2}]}


@dataclass
class Answer:
    logits: Tensor
    loss: Tensor | None = None
    hidden: tuple[Tensor, ...] | None = None


torch.export.register_dataclass(Answer, serialized_type_name="devious.Answer")


@devious(SOME, ROWS)
def dataclass_with_none(x: Tensor) -> Answer:
    return Answer(x.softmax(1), None, (x, x + x.shape[0]))


class Pair(NamedTuple):
    first: Tensor
    second: Any


@devious(SOME, ROWS)
def pair_in_an_ordered_dict(x: Tensor) -> OrderedDict[str, Any]:
    return OrderedDict(b=Pair(x.sum(0), None), a=Pair(x * 2, (x[-1],)))


@devious(SOME, ROWS)
def same_tensor_twice(x: Tensor) -> tuple[Tensor, ...]:
    y = x * 2
    return y, y, y.T.T, y[:], x


class WithConstant(nn.Module):
    """Gives back a weight and a constant beside its answer."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(floats(3))

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        return self.weight, x * self.weight, torch.arange(3), self.weight


devious(SOME, ROWS)(WithConstant)


@devious(SOME, ROWS)
def size_as_an_output(x: Tensor) -> tuple[Tensor, Tensor]:
    return torch.tensor(x.shape[0]), torch.tensor([x.shape[0] * 2, 3]) + 0 * x.sum().long()


@devious(lambda: [(floats(n, 3), {"scale": floats(1) + k, "bias": [floats(3), floats(3, seed=k)]}) for n, k in ((4,
                  2), (1, 3), (7, 5))],
         ({0: "n"}, None))  # fmt: skip
def options_in_a_dict(x: Tensor, options: dict[str, Any]) -> Tensor:
    return x * options["scale"] + sum(options["bias"])


@devious(lambda: [(floats(4, 3) > 0,), (floats(1, 3) > 0,), (floats(6, 3) > 5,)], ROWS)
def flags_out(m: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return m, ~m, m.any(0)


@devious(SOME, ROWS)
def nothing_in_front(x: Tensor) -> Any:
    return None, [x * 2, None], (), {"last": x.mean(0)}


@devious(sizes(0, 1, 5), ROWS)
def example_without_rows(x: Tensor) -> Tensor:
    return torch.cat([x * 2, x.sum(0, keepdim=True)])


@devious(lambda: [(floats(n, 4, seed=n),) for n in (3, 0, 1, 8)], ({0: torch.export.Dim("n", min=0)},))
def rows_may_be_none(x: Tensor) -> tuple[Tensor, ...]:
    return x.softmax(1), x.sum(0), x.cumsum(0), x.sort(0).values, x @ torch.ones(4, 2), x.reshape(-1, 2)


@devious(lambda: [(floats(n, 4, seed=n),) for n in (3, 0, 1, 8)], ({0: torch.export.Dim("n", min=0)},))
def layers_without_rows(x: Tensor) -> tuple[Tensor, ...]:
    y = torch.nn.functional.layer_norm(x, (4,))
    z = torch.nn.functional.conv1d(x[:, None], torch.ones(2, 1, 3), padding=1)
    return y, z, x[:, None].expand(-1, 3, -1).flatten(1), x.amax(1), torch.nn.functional.pad(x, (0, 0, 1, 0))

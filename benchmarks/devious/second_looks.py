"""Neighbours of the kinds that were cured before: other statements of Python on data, other ways to name a number."""

from __future__ import annotations

import enum
import itertools
import math
import operator
from collections import Counter
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.devious.kinds import devious, floats, planted, sizes

ROWS = ({0: "n"},)
IDS = torch.tensor([[5, 9, 12, 3], [7, 30, 2, 11]])
STARTS = lambda number: [(IDS,), (planted(IDS, number, 0),), (planted(IDS, number, 6),)]  # noqa: E731


class Special(enum.IntEnum):
    END = 1234
    PAD = 0


@devious(lambda: STARTS(1234))
def member_of_an_enum(ids: Tensor) -> Tensor:
    return ids * 2 if int(ids[0, 0]) == Special.END else ids


class Tokens:
    BEGIN = 871
    END: ClassVar[dict[str, int]] = {"text": 872}


@devious(lambda: STARTS(871))
def attribute_of_a_class(ids: Tensor) -> Tensor:
    return ids * 2 if ids[0, 0].item() == Tokens.BEGIN else ids


@devious(lambda: STARTS(872))
def table_of_a_class(ids: Tensor) -> Tensor:
    return ids * 2 if operator.eq(int(ids[0, 0]), Tokens.END["text"]) else ids


class Parent(nn.Module):
    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.options = options

    def is_end(self, token: int) -> bool:
        return token in self.options["ends"]


class Child(Parent):
    """Asks a method of its base about a list in a dict."""

    def __init__(self) -> None:
        super().__init__(ends=[431, 951])

    def forward(self, ids: Tensor) -> Tensor:
        return ids * 2 if any(self.is_end(one) for one in ids[:, 0].tolist()) else ids


devious(lambda: STARTS(951))(Child)


class Property(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.shown = MappingProxyType({"end": 519})

    @property
    def end(self) -> int:
        return self.shown["end"] + 2

    def forward(self, ids: Tensor) -> Tensor:
        return ids * 2 if int(ids[0, 0]) == self.end else ids


devious(lambda: STARTS(521))(Property)


@devious(lambda: STARTS(640))
def number_in_a_local(ids: Tensor) -> Tensor:
    end = 640
    first = int(ids[0, 0])
    is_end = first == end
    return ids * 2 if is_end else ids


@devious(lambda: STARTS(1000))
def sum_of_constants(ids: Tensor) -> Tensor:
    base = 900
    return ids * 2 if int(ids[0, 0]) == base + 100 else ids


@devious(lambda: [(IDS[0],), (torch.tensor([77, 77, 5, 9]),), (torch.tensor([77, 5, 77, 9]),)])
def commonest_of_a_counter(ids: Tensor) -> Tensor:
    return ids * 0 if Counter(ids.tolist()).most_common(1)[0] == (77, 2) else ids


@devious(lambda: [(IDS[0],), (torch.tensor([4, 4, 4, 9]),), (torch.tensor([4, 4, 9, 4]),)])
def run_by_groupby(ids: Tensor) -> Tensor:
    longest = max(len(list(group)) for _, group in itertools.groupby(ids.tolist()))
    return ids * 2 if longest >= 3 else ids


@devious(lambda: [(IDS[0],), (torch.tensor([41, 42, 1, 1]),), (torch.tensor([1, 41, 42, 1]),)])
def text_of_ids(ids: Tensor) -> Tensor:
    return ids * 2 if "41,42" in ",".join(map(str, ids.tolist())) else ids


@devious(lambda: [(floats(5),), (torch.tensor([0.0, 10.0, 0.5, 0.25, 0.25]),), (torch.full((5,), 2.2),)])
def rounded_to_tens(x: Tensor) -> Tensor:
    return x.flip(0) * 2 if round(x.sum().item(), -1) == 10 else x


@devious(lambda: [(floats(5),), (planted(floats(5), 6.5, 0),), (planted(floats(5), 6.4, 3),)])
def ceiling_of_the_largest(x: Tensor) -> Tensor:
    return x * 2 if math.ceil(float(x.max())) == 7 else x


@devious(lambda: [(floats(5),), (torch.full((5,), 0.3),), (torch.tensor([0.2, 0.4, 0.3, 0.25, 0.35]),)])
def within_a_band_by_python(x: Tensor) -> Tensor:
    return x * 2 if 0.29 < x.mean().item() < 0.31 else x


@devious(lambda: [(floats(5).abs(),), (torch.full((5,), 1e3),), (torch.full((5,), 1e-3),)])
def logarithm_of_the_sum(x: Tensor) -> Tensor:
    return x * 2 if math.log10(x.sum().item()) > 3 else x


@devious(lambda: [(floats(5),), (planted(floats(5), 88.0, 1),), (planted(floats(5), 88.0, 4),)])
def place_by_numpy_where(x: Tensor) -> Tensor:
    return x * 2 if np.where(x.numpy() > 80)[0].size else x


@devious(lambda: [(floats(3, 4), torch.tensor([0, 1, 2])), (floats(3, 4), torch.tensor([2, 2, 2])),
                  (floats(3, 4), torch.tensor([1, 1, 0]))])  # fmt: skip
def groups_in_a_dict(x: Tensor, group: Tensor) -> Tensor:
    found: dict[int, Tensor] = {}
    for row, key in zip(x, group.tolist(), strict=True):
        found[key] = found[key] + row if key in found else row
    return torch.stack([found[key] for key in sorted(found)]).sum(0) * len(found)


@devious(lambda: [(torch.tensor([3, 1, 2]), floats(6, 2)), (torch.tensor([6, 0, 0]), floats(6, 2)),
                  (torch.tensor([2, 2, 2]), floats(6, 2))])  # fmt: skip
def lengths_without_empty_ones(lengths: Tensor, x: Tensor) -> Tensor:
    parts = [part.mean(0) for part in x.split(lengths.tolist()) if len(part)]
    return torch.stack(parts).sum(0)


@devious(lambda: [(floats(6),), (torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]),), (torch.tensor([6.0, 5, 4, 3, 2, 1]),)])
def argmax_before_argmin(x: Tensor) -> Tensor:
    return x * 2 if int(x.argmax()) - int(x.argmin()) == 5 else x


@devious(sizes(10, 250, 249, 600), ROWS)
def attempts_in_blocks(x: Tensor) -> Tensor:
    done, found = 0, []
    while done < x.shape[0]:
        found.append(x[done : done + 249].softmax(0))
        done += 249
    return torch.cat(found)


class Windowed(nn.Module):
    """Pieces that overlap, made by unfolding beyond a length of a table's."""

    def __init__(self) -> None:
        super().__init__()
        self.limits = {"window": 120, "overlap": 20}

    def forward(self, x: Tensor) -> Tensor:
        window, step = self.limits["window"], self.limits["window"] - self.limits["overlap"]
        return torch.stack([x[i : i + window].mean(0) for i in range(0, max(1, len(x) - self.limits["overlap"]), step)])


devious(sizes(10, 121, 120, 230), ROWS)(Windowed)


@devious(sizes(10, 160, 161, 400), ROWS)
def batched_by_itertools(x: Tensor) -> Tensor:
    rows = iter(x)
    found = []
    while block := list(itertools.islice(rows, 160)):
        found.append(torch.stack(block).mean(0))
    return torch.stack(found)


@devious(sizes(10, 101, 100, 300), ROWS)
def by_a_dict_of_limits(x: Tensor) -> Tensor:
    scale = next(value for limit, value in {100: 1.0, 250: 2.0, 10**9: 3.0}.items() if len(x) <= limit)
    return x * scale


@devious(sizes(10, 129, 128, 300), ROWS)
def by_formatted_size(x: Tensor) -> Tensor:
    return x * 2 if int(f"{x.shape[0]}") > 128 else x


@devious(sizes(10, 145, 144, 300), ROWS)
def beyond_by_subtraction(x: Tensor) -> Tensor:
    extra = max(0, len(x) - 144)
    return x[extra:] * 2 if extra else x


@devious(sizes(10, 64, 65, 256), ROWS)
def table_that_wraps(x: Tensor) -> Tensor:
    table = torch.arange(64.0)[:, None]
    return x + table[torch.arange(x.shape[0]) % 64]


@devious(lambda: [(floats(1, 2, h, w, seed=h + w),) for h, w in ((8, 8), (40, 40), (41, 40), (20, 81), (7, 300))],
         ({2: "h", 3: "w"},))  # fmt: skip
def too_many_pixels(x: Tensor) -> Tensor:
    limit = 1600
    return nn.functional.avg_pool2d(x, 2) if math.prod(tuple(x.shape[-2:])) > limit else x[..., ::2, ::2]


@devious(sizes(10, 8, 9, 4, 1, 27), ROWS)
def powers_of_three(x: Tensor) -> Tensor:
    n = int(x.shape[0])
    while n % 3 == 0:
        n //= 3
    return x * 2 if n == 1 else x


@devious(lambda: [(floats(n, 3, seed=n), floats(m, 3, seed=m)) for n, m in ((4, 6), (9, 6), (6, 6), (12, 4), (13, 4))],
         ({0: "n"}, {0: "m"}))  # fmt: skip
def three_times_the_other(x: Tensor, y: Tensor) -> Tensor:
    return x.mean(0) if len(x) % len(y) == 0 and len(x) // len(y) == 3 else x.sum(0) + y.sum(0)

"""Single functions and ways of writing that exporters get wrong or do not know, in models of one line each.

Every case is judged at sizes that the export never saw, with other data. docs/causes.md says what came of each.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.case import Case
from benchmarks.one_function import BOTH, cases_of

LIBRARIES = ("torch",)
ROWS = ((4, 6), (7, 6), (1, 6))
IMAGES = ((2, 3, 8, 10), (1, 3, 12, 9), (3, 3, 5, 7))
case = cases_of(__name__)


def ints(*size: int) -> Tensor:
    return torch.randint(-9, 10, size)


def positive(*size: int) -> Tensor:
    return torch.rand(size) * 4 + 0.3


def spd(b: int, n: int) -> Tensor:
    x = torch.randn(b, n, n)
    return x @ x.mT + n * torch.eye(n)


def square(b: int, n: int) -> Tensor:
    return torch.randn(b, n, n) + n * torch.eye(n)


def shifted_columns(x: Tensor) -> Tensor:
    places = torch.tensor([[0, 1], [-1, 0]])
    places += torch.tensor([[0], [1]])
    return x[:, places]


def pair(*size: int) -> tuple[Tensor, Tensor]:
    return torch.randn(size), torch.randn(size)


# ------------------------------------------------------------------ writes through views
def write_transposed(x: Tensor) -> Tensor:
    y = x.clone()
    y.t()[0] = 7.0
    return y


def write_data(x: Tensor) -> Tensor:
    y = x.clone()
    y.data[:, 0] = 5.0
    return y * 2


def write_narrow(x: Tensor) -> Tensor:
    y = x.clone()
    y.narrow(1, 0, 2).mul_(3)
    return y


def write_select(x: Tensor) -> Tensor:
    y = x.clone()
    y.select(1, 1).fill_(2.0)
    return y


def write_chunk(x: Tensor) -> Tensor:
    y = x.clone()
    y.chunk(2, 1)[1].add_(1)
    return y


def write_by_mask(x: Tensor, mask: Tensor, v: Tensor) -> Tensor:
    y = x.clone()
    y[mask] = v
    return y


def write_by_mask_number(x: Tensor, mask: Tensor) -> Tensor:
    y = x.clone()
    y[mask] = 0.5
    return y


class Packed(nn.Module):
    def __init__(self, total: bool) -> None:
        super().__init__()
        self.rnn, self.total = nn.GRU(6, 5, batch_first=True), total

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        more = {"total_length": x.shape[1]} if self.total else {}
        return nn.utils.rnn.pad_packed_sequence(self.rnn(packed)[0], batch_first=True, **more)[0]


def sequences(b: int, n: int) -> tuple[Tensor, Tensor]:
    lengths = torch.randint(1, n + 1, (b,))
    lengths[0] = n
    return torch.randn(b, n, 6), lengths


class Computed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.make = nn.Linear(3, 4 * 3 * 3 * 3)

    def forward(self, x: Tensor) -> Tensor:
        weight = self.make(x.mean((0, 2, 3))).reshape(4, 3, 3, 3)
        return F.conv2d(x, weight, padding=1)


def strided_windows(x: Tensor) -> Tensor:
    y = x.transpose(0, 1).contiguous()
    return y.as_strided((y.shape[0] - 2, 3, y.shape[1]), (y.shape[1], y.shape[1], 1)) * 2


def strided_transposed(x: Tensor) -> Tensor:
    y = x.transpose(1, 2)
    return y.as_strided((y.shape[0], 2, 3), (y.stride(0), y.stride(1), y.stride(2)))


def if_integer(x: Tensor) -> Tensor:
    return x * 1.0 if torch.is_floating_point(x) else x / 2


SMALL = {
    f"{name}_{n}": case(call, make, tuple((b, n) for b in (2, 5, 1)), tolerance=1e-3)
    for n in (2, 3, 4)
    for name, call, make in (
        ("solve", lambda x: torch.linalg.solve(x, x[..., :1] + 1), square),
        ("inverse", torch.linalg.inv, square),
        ("cholesky", torch.linalg.cholesky, spd),
        ("qr", lambda x: [p.abs() for p in torch.linalg.qr(x)], square),
        ("svdvals", torch.linalg.svdvals, square),
        ("eigvalsh", torch.linalg.eigvalsh, spd),
        ("det", torch.linalg.det, square),
    )
}

CASES: dict[str, Callable[[], Case]] = {
    "as_strided_windows": case(strided_windows, sizes=((6, 9), (6, 12), (6, 4))),
    "as_strided_not_contiguous": case(strided_transposed, sizes=((2, 5, 4), (3, 5, 4), (1, 5, 4))),
    "write_transposed_view": case(write_transposed),
    "write_data": case(write_data),
    "write_narrow": case(write_narrow),
    "write_select": case(write_select),
    "write_chunk": case(write_chunk, sizes=((4, 6), (7, 6), (1, 6))),
    "write_by_mask_of_lower_rank": case(
        write_by_mask_number, lambda *s: (torch.randn(*s, 3), torch.rand(s) > 0.5)),
    "write_by_mask_values": case(
        write_by_mask, lambda b, n: (torch.randn(b, n, 3), torch.arange(b * n).reshape(b, n) % 2 == 0,
                                     torch.randn((b * n + 1) // 2, 3))),
    "permute_negative": case(lambda x: x.permute(0, -1, 1) * 2, sizes=((2, 3, 4), (3, 5, 4), (1, 2, 4))),
    "movedim_negative": case(lambda x: x.movedim(-1, -3) * 2, sizes=((2, 3, 4), (3, 5, 4), (1, 2, 4))),
    "transpose_negative": case(lambda x: x.transpose(-1, -3) * 2, sizes=((2, 3, 4), (3, 5, 4), (1, 2, 4))),
    "squeeze_dynamic": case(lambda x: x.squeeze(1) * 2, sizes=((4, 3, 6), (4, 5, 6), (2, 2, 6))),
    "floor_divide_negative": case(lambda x: (x // 4, torch.floor_divide(x, -3), x % 4), ints),
    "rsub_integers": case(lambda x: (1.0 - x, 1 - x, torch.rsub(x, 2.5)), ints),
    "interpolate_area": case(lambda x: F.interpolate(x, size=(4, 5), mode="area"), sizes=IMAGES),
    "interpolate_area_scale": case(lambda x: F.interpolate(x, scale_factor=0.5, mode="area"),
                                   sizes=((2, 3, 8, 10), (1, 3, 12, 8), (3, 3, 6, 4))),
    "interpolate_nearest_exact_scale": case(
        lambda x: F.interpolate(x, scale_factor=1.5, mode="nearest-exact"), sizes=IMAGES),
    "cat_list_of_batch": case(lambda x: torch.cat(list(x), 0), sizes=((4, 3, 6), (5, 3, 6), (2, 3, 6))),
    "iterate_batch": case(lambda x: torch.stack([row.softmax(-1) + row.mean() for row in x]), sizes=BOTH),
    "grid_sample_5d": case(
        lambda x, g: F.grid_sample(x, g.tanh(), align_corners=False),
        lambda *s: (torch.randn(s), torch.randn(s[0], 3, 4, 5, 3)), ((2, 3, 4, 5, 6), (1, 3, 6, 4, 5))),
    "numbers_written_to": case(shifted_columns, sizes=BOTH),
    "conv_weights_computed": case(Computed(), sizes=IMAGES),
    "einsum_mixed_dtypes": case(lambda x: torch.einsum("bi,bj->bij", x, x.round().long().to(x.dtype)), sizes=BOTH),
    "is_floating_point": case(if_integer, ints),
    "adaptive_max_pool_not_dividing": case(lambda x: F.adaptive_max_pool2d(x, (3, 4)), sizes=IMAGES),
    "adaptive_avg_pool_not_dividing": case(lambda x: F.adaptive_avg_pool2d(x, (3, 4)), sizes=IMAGES),
    "instance_norm_dynamic_batch": case(lambda x: F.instance_norm(x), sizes=IMAGES),
    "batch_norm_statistics_of_the_batch": case(
        lambda x: F.batch_norm(x, None, None, training=True), sizes=IMAGES),
    "split_to_sequence": case(lambda x: [p * 2 for p in x.split([2, 4], 1)], sizes=ROWS),
    "cummax": case(lambda x: x.cummax(1), sizes=BOTH),
    "cummin": case(lambda x: x.cummin(1), sizes=BOTH),
    "bincount": case(lambda x: torch.bincount(x, minlength=12), lambda n: torch.randint(0, 12, (n,)),
                     ((8,), (30,), (3,))),
    "histc": case(lambda x: torch.histc(x, bins=8, min=-2.0, max=2.0), sizes=((20,), (50,), (3,))),
    "lgamma": case(torch.lgamma, positive),
    "quantile": case(lambda x: torch.quantile(x, 0.3, dim=1), sizes=BOTH),
    "quantiles": case(lambda x: torch.quantile(x, torch.tensor([0.1, 0.5, 0.9]), dim=1), sizes=BOTH),
    "solve_triangular": case(lambda x: torch.linalg.solve_triangular(x.tril(), x + 1, upper=False), square,
                             ((2, 4), (5, 4), (1, 4))),
    **SMALL,
    "fold_dynamic": case(lambda x: F.fold(F.unfold(x, 2, stride=2), x.shape[-2:], 2, stride=2),
                         sizes=((2, 3, 8, 10), (1, 3, 12, 6), (3, 3, 4, 4))),
    "packed": case(Packed(False), sequences, ((3, 7), (2, 9), (1, 4)), axes=({0: "b", 1: "n"}, {0: "b"})),
    "packed_total_length": case(Packed(True), sequences, ((3, 7), (2, 9), (1, 4)), axes=({0: "b", 1: "n"}, {0: "b"})),
    "masked_select": case(lambda x: torch.masked_select(x, x > 0.3).sum() + torch.masked_select(x, x > 0.3)),
    "nansum": case(lambda x: torch.nansum(torch.where(x > 1, torch.nan, x), 1)),
    "round_decimals": case(lambda x: torch.round(x * 10, decimals=2)),
    "amax_of_all": case(lambda x: (x.amax(), x.amin(), x.max())),
    "chunk_variable": case(
        lambda x: sum(p.sum(1) for p in x.chunk(x.shape[1] // 2, 1)), sizes=((4, 6), (7, 8), (2, 4))),
    "clamp_integers_by_floats": case(lambda x: (x.clamp(-2.5, 3.5), x.clamp(min=0.5)), ints),
}  # fmt: skip

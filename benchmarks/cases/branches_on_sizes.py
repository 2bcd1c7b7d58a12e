"""An `if` on a size, and what it skips: padding, cropping, resizing, masking.

Every case is judged at sizes that the export never saw, with other data; docs/causes.md says what came of each cause.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.case import Case
from benchmarks.one_function import both_examples, cases_of

LIBRARIES = ("torch",)
IMAGES = ((2, 3, 8, 12), (1, 3, 9, 11), (3, 3, 5, 7), (2, 3, 20, 16))
case = cases_of(__name__)


def pad_where_needed(x: Tensor) -> Tensor:
    h, w = x.shape[-2:]
    ph, pw = (4 - h % 4) % 4, (4 - w % 4) % 4
    if ph or pw:
        x = F.pad(x, (0, pw, 0, ph))
    return F.avg_pool2d(x, 4)


def pad_and_crop(x: Tensor) -> Tensor:
    h, w = x.shape[2], x.shape[3]
    pad_h = (4 - h % 4) % 4
    pad_w = (4 - w % 4) % 4
    if pad_h > 0 or pad_w > 0:
        x = F.pad(x, (0, pad_w, 0, pad_h))
    b, c, hp, wp = x.shape
    windows = x.view(b, c, hp // 4, 4, wp // 4, 4).permute(0, 2, 4, 3, 5, 1).reshape(-1, 16, c)
    windows = (windows @ windows.transpose(1, 2)).softmax(-1) @ windows
    x = windows.view(b, hp // 4, wp // 4, 4, 4, c).permute(0, 5, 1, 3, 2, 4).reshape(b, c, hp, wp)
    if pad_h > 0 or pad_w > 0:
        x = x[:, :, :h, :w]
    return x


def crop_where_longer(x: Tensor) -> Tensor:
    if x.shape[1] > 8:
        x = x[:, :8]
    return x * 2


def crop_the_other(x: Tensor, y: Tensor) -> Tensor:
    """What a decoder's upsampled map and its skip have in common."""
    y = y.repeat_interleave(2, dim=1)
    if y.shape[1] > x.shape[1]:
        y = y[:, : x.shape[1]]
    return x + y


def resize_where_different(x: Tensor, y: Tensor) -> Tensor:
    if y.shape[-2:] != x.shape[-2:]:
        y = F.interpolate(y, size=x.shape[-2:], mode="nearest")
    return x + y


class Unet(nn.Module):
    """Halved twice, doubled twice, to the sizes on the way down."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.ModuleList(nn.Conv2d(3, 3, 3, 2, 1) for _ in range(2))
        self.up = nn.ModuleList(nn.Conv2d(6, 3, 3, 1, 1) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        kept = [x]
        hand_on = any(size % 4 != 0 for size in x.shape[-2:])
        for down in self.down:
            kept.append(down(kept[-1]).relu())
        x = kept.pop()
        for up in self.up:
            skip = kept.pop()
            size = skip.shape[-2:] if hand_on else None
            x = F.interpolate(x, size=size) if size is not None else F.interpolate(x, scale_factor=2.0)
            x = up(torch.cat([x, skip], 1))
        return x


class UnetPads(Unet):
    """Doubled, and padded by what the skip is larger (the classical UNet)."""

    def forward(self, x: Tensor) -> Tensor:
        kept = [x]
        for down in self.down:
            kept.append(F.max_pool2d(down(F.interpolate(kept[-1], scale_factor=2)), 2))
        x = kept.pop()
        for up in self.up:
            skip = kept.pop()
            x = F.interpolate(x, scale_factor=2.0, mode="bilinear", align_corners=True)
            dy, dx = skip.size(2) - x.size(2), skip.size(3) - x.size(3)
            x = F.pad(x, [dx // 2, dx - dx // 2, dy // 2, dy - dy // 2])
            x = up(torch.cat([skip, x], 1))
        return x


def mask_where_it_matters(x: Tensor, mask: Tensor) -> Tensor:
    """mamba's and its relatives'."""
    if mask is not None and mask.shape[1] > 1 and mask.shape[0] > 1:
        x = x * mask[:, :, None]
    return x.cumsum(1)


def slice_by_slice(x: Tensor) -> Tensor:
    """A decoder run over one image after the other, to save memory."""
    if x.shape[0] > 1:
        return torch.cat([F.avg_pool2d(part, 2) for part in x.split(1)])
    return F.avg_pool2d(x, 2)


def skip(b: int, h: int, w: int, halves: int = 0) -> tuple[Tensor, Tensor]:
    return torch.randn(b, 3, h, w), torch.randn(b, 3, (h + halves) // (1 + halves), (w + halves) // (1 + halves))


MAPS = ((2, 8, 12, 0), (1, 9, 11, 1), (3, 5, 7, 1), (2, 20, 16, 0))
SKIP = ({0: "b", 2: "h", 3: "w"}, {0: "b", 2: "y", 3: "x"})

CASES: dict[str, Callable[[], Case]] = {
    **both_examples(case, "pad_where_needed", pad_where_needed, torch.randn, sizes=IMAGES[:2]),
    **both_examples(case, "pad_and_crop", pad_and_crop, torch.randn, sizes=IMAGES[:2]),
    **both_examples(case, "crop_where_longer", crop_where_longer, torch.randn,
                    sizes=((2, 6, 4), (3, 9, 4), (1, 17, 4))),
    "crop_the_other": case(
        crop_the_other, lambda b, n: (torch.randn(b, n, 4), torch.randn(b, (n + 1) // 2, 4)),
        ((2, 6), (3, 9), (1, 1), (2, 15)), axes=({0: "b", 1: "n"}, {0: "b", 1: "m"})),
    **both_examples(case, "resize_where_different", resize_where_different, skip, sizes=MAPS[:2], axes=SKIP),
    **both_examples(case, "unet", Unet(), torch.randn, sizes=((2, 3, 8, 12), (1, 3, 9, 11), (3, 3, 21, 16))),
    "unet_pads": case(UnetPads(), sizes=((2, 3, 8, 12), (1, 3, 9, 11), (3, 3, 21, 16))),
    **both_examples(case, "mask_where_it_matters", mask_where_it_matters,
                    lambda b, n: (torch.randn(b, n, 4), (torch.rand(b, n) > 0.4).float()),
                    axes=({0: "b", 1: "n"},) * 2, sizes=((2, 6), (3, 9), (1, 1), (1, 14))),
    **both_examples(case, "slice_by_slice", slice_by_slice, torch.randn,
                    sizes=((1, 3, 8, 12), (2, 3, 8, 12), (3, 3, 8, 12))),
}  # fmt: skip

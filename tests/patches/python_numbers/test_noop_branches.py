"""`if`s on sizes whose body changes nothing where the test is false: done always, without branches=True."""

import math
import warnings

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import onnxpatch

pytestmark = pytest.mark.exports


class Windows(nn.Module):
    """Padded only where needed, and cropped only where padded. The example needs neither."""

    def forward(self, x: Tensor) -> Tensor:
        batch, channels, height, width = x.shape
        bottom, right = (4 - height % 4) % 4, (4 - width % 4) % 4
        if bottom > 0 or right > 0:
            x = F.pad(x, (0, right, 0, bottom))
        rows, columns = x.shape[2:]
        x = x.view(batch, channels, rows // 4, 4, columns // 4, 4).softmax(3).reshape(batch, channels, rows, columns)
        if bottom > 0 or right > 0:
            x = x[:, :, :height, :width]
        return x * 2


class Tokens(nn.Module):
    """Padded as a map, and cropped as one: (batch, tokens, channels) in between."""

    def forward(self, x: Tensor) -> Tensor:
        batch, channels, height, width = x.shape
        bottom, right = (4 - height % 4) % 4, (4 - width % 4) % 4
        x = x.flatten(2).transpose(1, 2)
        if right > 0 or bottom > 0:
            x = F.pad(x.view(batch, height, width, channels), (0, 0, 0, right, 0, bottom)).view(batch, -1, channels)
        rows, columns = height + bottom, width + right
        x = x.view(batch, rows // 4, 4, columns // 4, 4, channels).softmax(2).view(batch, rows, columns, channels)
        if right > 0 or bottom > 0:
            x = x[:, :height, :width, :].contiguous()
        return x * 2


class Cropped(nn.Module):
    """Padded always, in a method, and cropped where there was something to pad, as Swin V2 and MaskFormer have it."""

    def padded(self, x: Tensor, height: int, width: int) -> tuple[Tensor, tuple[int, ...]]:
        amounts = (0, (4 - width % 4) % 4, 0, (4 - height % 4) % 4)
        return F.pad(x, amounts), amounts

    def forward(self, x: Tensor) -> Tensor:
        batch, channels, height, width = x.shape
        x, amounts = self.padded(x, height, width)
        rows, columns = x.shape[2:]
        x = x.view(batch, channels, rows // 4, 4, columns // 4, 4).softmax(3).reshape(batch, channels, rows, columns)
        was_padded = amounts[1] > 0 or amounts[3] > 0
        if was_padded:
            x = x[:, :, :height, :width].contiguous()
        return x * 2


class Enlarged(nn.Module):
    """Padded to whole blocks, enlarged, and cropped to twice the size, where it was padded."""

    def forward(self, x: Tensor) -> Tensor:
        height, width = x.shape[2:]
        rows, columns = ((height - 1) // 4 + 1) * 4, ((width - 1) // 4 + 1) * 4
        x = F.pad(x, (1, 1 + columns - width, 1, 1 + rows - height), "replicate")
        x = F.conv_transpose2d(x[:, :, 1:-1, 1:-1], torch.ones(3, 3, 2, 2), stride=2)
        if columns != width or rows != height:
            x = x[:, :, 0 : height * 2, : width * 2].contiguous()
        return x * 2


class Skipped(nn.Module):
    """Two resolutions brought together at odd sizes."""

    def forward(self, x: Tensor) -> Tensor:
        half = F.max_pool2d(x, 2).repeat_interleave(2, 2).repeat_interleave(2, 3)
        rows, columns = x.shape[2] - half.shape[2], x.shape[3] - half.shape[3]
        if rows or columns:
            half = F.pad(half, (columns // 2, columns - columns // 2, rows // 2, rows - rows // 2))
        return torch.cat([x, half], 1)


class Last(nn.Module):
    """The last twelve rows, or fewer."""

    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.randn(12, 4))

    def forward(self, x: Tensor) -> Tensor:
        if x.size(2) > 12:
            x = x[:, :, -12:]
        return x + self.table[: x.size(2)]


class Local(nn.Module):
    """Windows of four rows, padded by a function that returns early where they divide, as local-attention has it."""

    def padded(self, x: Tensor) -> tuple[bool, Tensor]:
        rows = x.shape[2]
        windows = rows / 4
        if windows.is_integer():
            return False, x
        missing = math.ceil(windows) * 4 - rows
        return True, F.pad(x, (0, 0, 0, missing), value=1.0)

    def forward(self, x: Tensor) -> Tensor:
        rows = x.shape[2]
        _, x = self.padded(x)
        return x.unflatten(2, (-1, 4)).softmax(3).flatten(2, 3)[:, :, :rows]


class Projected(nn.Module):
    """Two tables cut to the rows that there are, at most as many as the example has, as Linformer has it."""

    def __init__(self):
        super().__init__()
        self.rows = 8
        self.tables = nn.ParameterList([nn.Parameter(torch.randn(8, 4)) for _ in range(2)])

    def forward(self, x: Tensor) -> Tensor:
        rows = x.shape[2]
        tables = (self.tables[0], self.tables[1])
        if rows < self.rows:
            tables = map(lambda table: table[:rows], tables)
        first, second = tables
        return x[:, :, :8] * first + second.sum(0)


class Merged(nn.Module):
    """Cells two by two, padded where a side is odd, which has a name, as Swin V2's PatchMerging has it."""

    def forward(self, x: Tensor) -> Tensor:
        height, width = x.shape[2:]
        should_pad = (height % 2 == 1) or (width % 2 == 1)
        if should_pad:
            pad_values = (0, width % 2, 0, height % 2)
            x = F.pad(x, pad_values)
        return torch.cat([x[:, :, 0::2, 0::2], x[:, :, 1::2, 0::2], x[:, :, 0::2, 1::2], x[:, :, 1::2, 1::2]], 1)


class Blocks(nn.Module):
    """Padded with a warning, and an embedding of padding where another input is given: BigBird, Longformer, LED."""

    def padded(self, x: Tensor, missing: int, other: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        if missing > 0:
            warnings.warn("padded", stacklevel=1)
            if x is not None:
                x = F.pad(x, (0, 0, 0, missing), value=1.0)
            if other is not None:
                other = torch.cat([other, other.new_ones(missing)])
        return x, other

    def forward(self, x: Tensor, every: bool = False) -> Tensor:
        missing = (4 - x.shape[2] % 4) % 4
        x, _ = self.padded(x, missing)
        x = x.unflatten(2, (-1, 4)).softmax(3).flatten(2, 3)
        if missing > 0:
            x = x[:, :, :-missing]
            if every:
                x = x.cumsum(2)
        return x


MODELS = (Windows, Tokens, Cropped, Enlarged, Skipped, Last, Local, Projected, Merged, Blocks)
ONE_AXIS = (Last, Local, Projected, Blocks)


@pytest.mark.parametrize(
    ("model", "exporter"),
    [(m, "trace") for m in MODELS] + [pytest.param(m, "dynamo", marks=pytest.mark.slow) for m in MODELS],
)
def test_what_is_done_where_needed_is_done_always(model, exporter):
    data = [(torch.randn(2, 3, height, width),) for height, width in ((8, 4), (9, 4), (14, 4), (4, 4), (5, 4))]
    if model is Projected:
        data = [args for args in data if args[0].shape[2] <= 8]
    if model not in ONE_AXIS:
        data += [(torch.randn(1, 3, 6, 7),), (torch.randn(1, 3, 21, 8),)]
    shapes = ({0: "batch", 2: "height"} | ({} if model in ONE_AXIS else {3: "width"}),)
    report = onnxpatch.export(
        model().eval(), data[0], exporter=exporter, dynamic_shapes=shapes, data=data, attempts="asked"
    )
    assert report.ok


class Shorter(nn.Module):
    """Padded up to eight rows: what is longer stays, so the padding may not be done always."""

    def forward(self, x: Tensor) -> Tensor:
        missing = 8 - x.shape[1]
        if missing > 0:
            x = F.pad(x, (0, 0, 0, missing))
        return x * 2


class ShorterKept(nn.Module):
    """The first rows, where a number of them was asked for: 0 leaves all."""

    def forward(self, x: Tensor) -> Tensor:
        wanted = x.shape[1] // 4
        if wanted > 0:
            x = x[:, :wanted]
        return x * 2


class ShorterReturned(nn.Module):
    """The same, returned from a function of its own."""

    def forward(self, x: Tensor) -> Tensor:
        return self.padded(x, 8 - x.shape[1]) * 2

    def padded(self, x: Tensor, missing: int) -> Tensor:
        if missing > 0:
            return F.pad(x, (0, 0, 0, missing))
        return x


@pytest.mark.parametrize(("model", "rows"), [(Shorter, 8), (Shorter, 5), (ShorterReturned, 8), (ShorterKept, 8)])
def test_an_amount_that_may_be_negative_stays_a_branch(model, rows):
    shapes, data = ({1: "rows"},), [(torch.randn(1, n, 3),) for n in (rows, 3, 8, 11)]
    assert onnxpatch.export(model().eval(), data[0], exporter="trace", dynamic_shapes=shapes, data=data).ok


# ------------------------------------------------------------------ tables that are made anew
class Grows(nn.Module):
    """ALiBi as x-transformers has it: the table of the longest text so far, made anew for a longer one."""

    def __init__(self, trained=False):
        super().__init__()
        self.bias = self.made(6)
        if trained:
            self.bias = torch.randn(6, 6)

    def made(self, n):
        places = torch.arange(n)
        return -(places[None] - places[:, None]).abs() * 0.5

    def table(self, n):
        if self.bias is not None and self.bias.shape[-1] >= n:
            return self.bias[..., :n, :n]
        bias = self.made(n)
        self.bias = bias
        return bias

    def forward(self, x):
        return x @ self.table(x.shape[-1])


@pytest.mark.parametrize("exporter", ["trace", "dynamo"])
def test_a_table_that_is_made_anew_is_made_at_every_size(exporter):
    shapes = ({0: "b", 1: "n"},)
    report = onnxpatch.export(
        Grows().eval(), (torch.randn(2, 4),), dynamic_shapes=shapes, sizes={"n": [3, 6, 7, 19]}, exporter=exporter
    )
    assert report.ok and len(report.attempts) == 1


def test_a_trained_table_is_not_made_anew_where_that_is_wrong():
    model = Grows(trained=True).eval()
    shapes = ({0: "b", 1: "n"},)
    report = onnxpatch.export(
        model, (torch.randn(2, 4),), None, dynamic_shapes=shapes, bounds="narrow", exporter="trace"
    )
    assert "n" in report.bounds

"""Parts whose fault stands beside lines that look alike and do no harm, or is told by words that name no line."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.diagnosis.failing_models.helping import whole
from tests.diagnosis.failing_models.parts import WIDTH, Sound


class SharePicked(Sound):
    """Two checks of sizes that hold at every size, then a number that does not."""

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[-1] != WIDTH:
            raise ValueError("another width")
        x = x if x.shape[1] > 0 else x + 1
        kept = int(x.shape[1] * 0.5)
        return self.proj(x) + x[:, :kept].sum(1, keepdim=True)


class Cropped(Sound):
    """Padding by arithmetic is sound, so is the `if` around a crop that crops nothing; the last `if` is not."""

    def forward(self, x: Tensor) -> Tensor:
        length = x.shape[1]
        x = F.pad(x, (0, 0, 0, -length % 4))
        if length % 4 == 0:
            x = x[:, : x.shape[1]]
        y = self.proj(x)[:, :length]
        if length > 9:
            y = y * 0.5
        return y


class Ternary(Sound):
    def forward(self, x: Tensor) -> Tensor:
        y = self.proj(x)
        scale = 2.0 if y.shape[0] > 0 else 0.0
        return y * scale if x.sum() > 0 else y


class ByNumpy(Sound):
    def forward(self, x: Tensor) -> Tensor:
        if x.ndim == 3 and x.shape[0] >= 1:
            x = x + 0
        count = np.prod(x.shape[:-1])
        return self.proj(x.reshape(count, WIDTH)).reshape(x.shape)


class Attempted(Sound):
    """Asks by an exception which of two ways fits."""

    def __init__(self) -> None:
        super().__init__()
        self.wide = nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        try:
            y = self.wide(x)
        except RuntimeError:
            y = self.wide(torch.cat([x, x], -1))
        return torch.tanh(y)


class Ragged(Sound):
    """A nested tensor: what the exporter says of it names no line."""

    def forward(self, x: Tensor) -> Tensor:
        y = self.proj(x)
        rows = torch.nested.nested_tensor([y[0], y[1, :2]], layout=torch.jagged)
        first = rows.unbind()[0]
        return y + first.mean(0)


class Folded(Sound):
    def forward(self, x: Tensor) -> Tensor:
        y = self.proj(x).transpose(1, 2)
        image = F.fold(y.repeat(1, 4, 1), (2, x.shape[1] * 2), (2, 2), stride=2)
        return image.flatten(2).transpose(1, 2)


class Unfolded(Sound):
    """The exporter's words name the line of the value that goes in, not of the call."""

    def forward(self, x: Tensor) -> Tensor:
        padded = F.pad(self.proj(x), (0, 0, 1, 1))
        windows = padded.unfold(1, 3, 1)
        return windows.mean(-1)


class Stacked(Sound):
    """The loop goes its two rounds at every size; what it goes over is cut at one."""

    def forward(self, x: Tensor) -> Tensor:
        both = self.proj(torch.cat([x, x * 2]))
        total = 0.0
        for part in both.split(x.shape[0]):
            total = total + part
        return total


class Assisted(Sound):
    """A helper in another file makes a Python number of a size."""

    def forward(self, x: Tensor) -> Tensor:
        y = self.proj(x)
        table = torch.linspace(0, 1, steps=whole(x.shape[1] / 2))
        return y + table.sum()


class RefusedTwice(Sound):
    """Refused for its own line; the part inside would be refused for another operator."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Hopeless()

    def forward(self, x: Tensor) -> Tensor:
        y = torch.linalg.svdvals(x)[..., :1, None] * x
        return self.inner(y)


class Hopeless(Sound):
    def forward(self, x: Tensor) -> Tensor:
        return self.proj(x) + torch.kthvalue(x, 2, dim=-1, keepdim=True).values

"""GRU and LSTM cells in plain steps, for the Loop of a traced graph: torch's own split their gates by `chunk`.

No tensor in that Loop has known sizes, and the TorchScript exporter refuses a `chunk` of unknown sizes.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F

Tensor = torch.Tensor
Bias = Tensor | None


def gru_cell(x: Tensor, h: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Bias = None, b_hh: Bias = None) -> Tensor:
    """[batch, hidden] from x [batch, in] and h [batch, hidden]; weights as torch.gru_cell takes them."""
    (r, z, n), (hr, hz, hn) = _gates(F.linear(x, w_ih, b_ih), w_ih, 3), _gates(F.linear(h, w_hh, b_hh), w_hh, 3)
    keep = torch.sigmoid(z + hz)
    new = torch.tanh(n + torch.sigmoid(r + hr) * hn)
    return new + keep * (h - new)


def lstm_cell(
    x: Tensor, state: tuple[Tensor, Tensor], w_ih: Tensor, w_hh: Tensor, b_ih: Bias = None, b_hh: Bias = None
) -> tuple[Tensor, Tensor]:
    """(h, c), each [batch, hidden]; weights as torch.lstm_cell takes them."""
    h, c = state
    i, f, g, o = _gates(F.linear(x, w_ih, b_ih) + F.linear(h, w_hh, b_hh), w_ih, 4)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(c), c


def _gates(joined: Tensor, weight: Tensor, count: int) -> list[Tensor]:
    """joined [batch, count * hidden], cut into gates of [batch, hidden]; weight [count * hidden, in] has the size."""
    size = int(weight.shape[0]) // count
    return [joined[:, size * number : size * (number + 1)] for number in range(count)]


PLAIN: dict[Callable[..., object], Callable[..., Tensor | tuple[Tensor, Tensor]]] = {
    torch.gru_cell: gru_cell,
    torch.lstm_cell: lstm_cell,
}

"""Models with branches on sizes that data decides: as many frames as the durations of a text sum to."""

import torch
from torch import nn

from tests.control_flow.branch_cases import right


def text(*durations: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(1, len(durations), 4), torch.tensor([durations])


LENGTH = {1: "length"}, {1: "length"}
TEXTS = (text(2, 1, 4), text(0, 0, 0), text(3, 1, 1, 2, 6), text(1, 0))


def regulated(x, durations):
    if durations.sum() == 0:
        durations = durations.clone()
        durations[durations.sum(dim=1).eq(0)] = 1
    grown = torch.zeros(x.size(0), durations.sum(1).max(), x.size(2))
    for index, (row, duration) in enumerate(zip(x, durations, strict=True)):
        repeated = torch.repeat_interleave(row, duration, dim=0)
        grown[index, : repeated.size(0)] = repeated
    return grown


@right(*TEXTS, dynamic=LENGTH)
class length_regulator(nn.Module):
    def forward(self, x, durations):
        return regulated(x, durations)


@right(*TEXTS, dynamic=LENGTH)
class positions_beyond_a_table(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Buffer(self.extended(torch.zeros(1, 3, 4)))

    def extended(self, x, table=None):
        if table is not None and table.size(1) >= x.size(1) * 2 - 1:
            return table
        frequencies = torch.exp(torch.arange(0, 4, 2).float() * -0.3)
        angles = torch.arange(-x.size(1) + 1, x.size(1)).float().unsqueeze(1) * frequencies
        return torch.cat([angles.sin(), angles.cos()], -1).unsqueeze(0)

    def forward(self, x, durations):
        x = regulated(x, durations)
        table = self.extended(x, self.table)
        middle, length = table.size(1) // 2, x.size(1)
        return x + table[:, middle - length + 1 : middle + length].mean(1, keepdim=True)


@right(*TEXTS, text(3), dynamic=LENGTH)
class aligned_by_squeezed_durations(nn.Module):
    def forward(self, x, durations):
        places = torch.repeat_interleave(torch.arange(x.shape[1]), (durations + 1).squeeze())
        aligned = torch.zeros((x.shape[1], places.shape[0]))
        aligned[places, torch.arange(places.shape[0])] = 1
        return x.transpose(1, 2) @ aligned


class Spectrogram(nn.Module):
    """The spectrogram of a model that speaks."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, ids):
        return self.model(input_ids=ids).spectrogram

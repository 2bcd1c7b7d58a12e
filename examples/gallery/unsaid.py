"""Five models that choose by a number from their input, each in a way that no probe of an exporter takes otherwise."""

import torch
from torch import nn

NUMBERS = torch.tensor([1.0, 2.0, 3.0, 4.0])


class AtLeast(nn.Module):
    def forward(self, steps, x):
        return x * max(int(steps), 100)


class Sorted(nn.Module):
    def forward(self, steps, x):
        return x * sorted([int(steps), 4321, 77])[1]


class PickedByABool(nn.Module):
    def forward(self, x):
        same = torch.equal(x.sort().values, NUMBERS)
        return [x, x * 7][same]


class DigitOfTheSize(nn.Module):
    def forward(self, x):
        return x * (1 + int(f"{x.shape[0]:04d}"[1]))


class Probabilities(nn.Module):
    def forward(self, x):
        if not torch.allclose(x.sum(-1), torch.ones(3)):
            x = x.softmax(-1)
        return x.log()


at_least, in_order, picked, digit, rows = AtLeast(), Sorted(), PickedByABool(), DigitOfTheSize(), Probabilities()

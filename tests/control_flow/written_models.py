"""Models that write in place on one side of a branch: through views, by masks, into `.data`, by `out=` and copies."""

import torch
from torch import nn

from tests.control_flow.branch_cases import down, right, up

STEPS = ({0: "rows", 1: "steps"},)
INPUTS = (up(2, 5, 4), down(2, 5, 4), up(3, 2, 4), down(1, 7, 4))


@right(*INPUTS, dynamic=STEPS)
class view_from_before(nn.Module):
    def forward(self, x):
        y = x.clone()
        first = y[:, :2]
        if x.sum() > 0:
            first += 10
        return y * 1


@right(*INPUTS, dynamic=STEPS)
class filled_column(nn.Module):
    def forward(self, x):
        y = x.clone()
        if x.sum() > 0:
            y[..., 0].fill_(1)
        z = y * 2
        y[..., 1].zero_()
        return z + y


@right(*INPUTS, dynamic=STEPS)
class copied_steps(nn.Module):
    def forward(self, x):
        y = x.flip(1)
        if x.sum() > 0:
            y[:, ::2].copy_(x[:, ::2])
        return y


@right(*INPUTS, dynamic=STEPS)
class by_mask(nn.Module):
    def forward(self, x):
        y = x * 2
        if x.sum() > 0:
            y[x > 0.5] = -1.0
        else:
            y[:, :1] += x[:, :1].cumsum(2)
        return y + 1


@right(*INPUTS, dynamic=STEPS)
class into_data(nn.Module):
    def forward(self, x):
        y = x * 3
        if x.sum() > 0:
            y.data.mul_(2)
        return y


@right(*INPUTS, dynamic=STEPS)
class views_of_views(nn.Module):
    def forward(self, x):
        y = x.clone()
        turned = y[:, 1:].transpose(0, 1)
        if x.sum() > 0:
            turned[0] = 7
            if x.max() > 1:
                turned.mul_(2)
        return y.cumsum(1)


@right(*INPUTS, dynamic=STEPS)
class view_and_owner(nn.Module):
    """Both are returned, after a write to the owner."""

    def forward(self, x):
        y = x.clone()
        first = y[:, :2]
        if x.sum() > 0:
            y[:, 0] = 9
        return torch.cat([first.relu().sum(1, keepdim=True), y], dim=1)

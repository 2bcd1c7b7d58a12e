"""Models that branch, with layers for which the kit writes the nodes itself: each is one call to a fork."""

from __future__ import annotations

import einops
from einops.layers.torch import Rearrange
from torch import nn
from torch.nn import functional

from tests.control_flow.branch_cases import down, right, up

IMAGES = ({0: "b", 2: "h", 3: "w"},)


@right(up(1, 2, 4, 8), down(1, 2, 4, 8), up(2, 2, 6, 2), down(3, 2, 2, 6), dynamic=IMAGES)
class rearranged_before_and_after(nn.Module):
    def __init__(self):
        super().__init__()
        self.patches = Rearrange("b c (h p) (w q) -> b (h w) (p q c)", p=2, q=2)

    def forward(self, x):
        y = self.patches(x)
        if y.mean() < 0:
            return einops.rearrange(y, "b n c -> b c n").flip(1)
        return einops.rearrange(y * 2, "b n c -> b c n")


@right(up(2, 4, 6), up(2, 4, 8), up(3, 4, 3), dynamic=({0: "b", 2: "n"},))
class normalised_behind_a_size(nn.Module):
    """A condition on sizes becomes an If, and the nodes of the group norm behind it are inside of that."""

    def __init__(self):
        super().__init__()
        self.norm = nn.GroupNorm(2, 4)
        nn.init.normal_(self.norm.weight)

    def forward(self, x):
        missing = x.shape[2] % 2
        if missing == 0:
            return self.norm(x)
        return self.norm(functional.pad(x, (0, 2 - missing)))

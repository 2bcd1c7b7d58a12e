"""What the losses of torch.nn.functional have in common."""

from __future__ import annotations

from torch import Tensor


def reduced(loss: Tensor, reduction: str) -> Tensor:
    """The loss of each element or row as it is ("none"), their sum, or their mean."""
    return loss if reduction == "none" else loss.sum() if reduction == "sum" else loss.mean()

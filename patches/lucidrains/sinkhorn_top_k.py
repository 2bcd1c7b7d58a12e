"""sinkhorn-transformer's differentiable_topk: a Python loop over at most k of the example's buckets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from onnxpatch import op
from onnxpatch.formulas.symbolic import symbolic


def _sorted(x: Tensor) -> Tensor:
    from sinkhorn_transformer.sinkhorn_transformer import differentiable_topk

    buckets = x.shape[1]
    return differentiable_topk(x @ x.transpose(1, 2), min(2, buckets), temperature=0.7)


@op(
    "sinkhorn_transformer.sinkhorn_transformer.differentiable_topk",
    name="sinkhorn-top-k",
    why="for i in range(min(k, buckets)): at fewer buckets than k there are too many rounds, or too few",
    reason="Reshape|relative error|shape|specialized",
    link="https://github.com/lucidrains/sinkhorn-transformer",
    requires=("sinkhorn-transformer",),
    tries=lambda n: torch.randn(2, n, 3),
    sizes=(4, 1, 7, 2),
    case=_sorted,
    beside=("symbolic-max", "logsumexp"),
)
def sinkhorn_top_k(original: Callable[..., object], x: Tensor, k: Any, temperature: float = 1.0) -> Tensor:
    """Computes all rounds at once: (..., n, dim) to (..., k * n, dim), one entry in each row, the largest first.

    Round i takes the largest of what the rounds before have left, and its share of that.
    """
    if not symbolic(k):
        return NotImplemented
    n, dim = x.shape[-2:]
    ordered, places = (x / temperature).topk(dim, dim=-1)
    columns = torch.arange(dim, device=x.device)
    left = columns >= torch.arange(k, device=x.device).unsqueeze(-1)
    total = ordered.unsqueeze(-2).masked_fill(~left, -torch.inf).logsumexp(-1)
    shares = (ordered[..., :k] - total).exp()
    one = places[..., :k, None] == columns
    return (one * shares.unsqueeze(-1)).reshape([*x.shape[:-2], k * n, dim])

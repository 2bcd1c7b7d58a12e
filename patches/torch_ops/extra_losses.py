"""Losses by margins, by alignments, and of a linear layer."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from onnxpatch import missing, op
from onnxpatch.formulas.losses import reduced


def _classes(b: int, n: int) -> tuple[Tensor, Tensor]:
    return torch.randn(b, n), torch.arange(b) % n


def _margins(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    loss = functional.multi_margin_loss
    return loss(x, y), loss(x, y, 2, 0.5, reduction="none"), loss(x[0], y[0])


@op(
    "nn.functional.multi_margin_loss",
    why=missing("aten::multi_margin_loss", exporters=("trace",)),
    tries=_classes,
    case=_margins,
)
def multi_margin_loss(
    input: Tensor, target: Tensor, p: int = 1, margin: float = 1.0, weight: Tensor | None = None,
    size_average: object = None, reduce: object = None, reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """How far each other class comes above the target's less the margin, divided by the number of classes."""
    if size_average is not None or reduce is not None:
        return NotImplemented
    rows = input if input.dim() == 2 else input.unsqueeze(0)
    places = target.reshape(-1, 1)
    over = torch.relu(margin - rows.gather(1, places) + rows)
    over = over if p == 1 else over * over
    over = over if weight is None else over * weight[places]
    over = torch.where(torch.arange(rows.shape[1], device=rows.device) == places, torch.zeros_like(over), over)
    return reduced(over.mean(1) if target.dim() else over.mean(), reduction)


def _label_lists(b: int, n: int) -> tuple[Tensor, Tensor]:
    """Scores, and lists of classes that end at -1."""
    labels = torch.stack([torch.randperm(n) for _ in range(b)])
    return torch.randn(b, n), torch.where(torch.arange(n) == torch.arange(b)[:, None] % n, -1, labels)


def _labelled(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    loss = functional.multilabel_margin_loss
    return loss(x, y), loss(x, y, reduction="none"), loss(x[0], y[0], reduction="sum")


@op(
    "nn.functional.multilabel_margin_loss",
    why=missing("aten::multilabel_margin_loss"),
    reason="multilabel_margin_loss|relative error",
    tries=_label_lists,
    case=_labelled,
)
def multilabel_margin_loss(
    input: Tensor, target: Tensor, size_average: object = None, reduce: object = None, reduction: str = "mean"
) -> Tensor:
    """How far each class that is not listed comes above each listed one less 1, divided by the number of classes."""
    if size_average is not None or reduce is not None:
        return NotImplemented
    rows, labels = (x if x.dim() == 2 else x.reshape(1, -1) for x in (input, target))
    # What is behind the first -1 is not listed.
    listed = torch.cumsum((labels < 0).to(torch.int64), 1) == 0
    places = torch.where(listed, labels, torch.zeros_like(labels))
    hits = torch.zeros_like(rows).scatter_add(1, places, listed.to(rows.dtype))
    over = torch.relu(1 - rows.gather(1, places).unsqueeze(2) + rows.unsqueeze(1))
    counted = listed.to(rows.dtype).unsqueeze(2) * (hits == 0).to(rows.dtype).unsqueeze(1)
    found = (over * counted).sum(2).sum(1) / torch.ones_like(rows).sum(1)
    return reduced(found if target.dim() == 2 else found.sum(), reduction)

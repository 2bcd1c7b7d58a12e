"""Losses that the exporters lack or compute inexactly, as torch defines them."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any, get_type_hints

import torch
from torch import Tensor
from torch.nn import functional

from onnxpatch import missing, op
from onnxpatch.formulas.elementary import log1p, reduced, softplus
from onnxpatch.patching.proof import LOST_DIGITS, at_magnitudes, fraction_pairs, pairs, shares

_SIGMOID = "non-finite values differ: it is exported as log(sigmoid(x)); sigmoid is 0 below -18 in onnxruntime"


def _losses(x: Tensor, y: Tensor) -> Tensor:
    loss = torch.nn.functional.binary_cross_entropy_with_logits
    likely, more = y.sigmoid(), y[0].abs() + 1
    return torch.stack((loss(x, likely), loss(-x, likely, y.abs(), pos_weight=more, reduction="sum")))


Elements = Callable[..., Tensor]


def _loss(
    tries: Callable[..., Any], case: Callable[..., Any] | None = None, both: bool = False, **row: Any
) -> Callable[[Elements], Elements]:
    """A row for the loss of the function's name: it computes that of each element or row, and gets no `reduction`.

    both: under dynamo, too, where a NaN is counted. row: of `op`, in place of what is said of an operator that lacks.
    """

    def declare(elements: Elements) -> Elements:
        function = getattr(functional, elements.__name__)
        parameters = inspect.signature(function)

        def loss(*args: Any, **kwargs: Any) -> Tensor:
            given = parameters.bind(*args, **kwargs).arguments
            reduction = given.pop("reduction", "mean")
            if given.pop("size_average", None) is not None or given.pop("reduce", None) is not None:
                return NotImplemented
            found = elements(**given)
            return found if found is NotImplemented else reduced(found, reduction)

        loss.__signature__ = parameters  # type: ignore[attr-defined]
        name = elements.__name__
        why = missing(f"aten::{name}", exporters=("dynamo", "trace") if both else ("trace",))
        options: dict[str, Any] = {"why": why, "reason": f"aten::{name}|non-finite", **row}
        op(f"nn.functional.{name}", tries=tries, case=case or function, to=loss, **options)
        return elements

    return declare


@_loss(fraction_pairs, at_magnitudes(_losses), name="bce-with-logits", why=_SIGMOID, reason=LOST_DIGITS)
def binary_cross_entropy_with_logits(
    input: Tensor, target: Tensor, weight: Tensor | None = None, pos_weight: Tensor | None = None
) -> Tensor:
    """The loss as torch computes it, with softplus in place of the logarithm of sigmoid."""
    below = softplus(-input)
    below = below if pos_weight is None else below * ((pos_weight - 1) * target + 1)
    loss = (1 - target) * input + below
    return loss if weight is None else loss * weight


@_loss(
    fraction_pairs,
    at_magnitudes(lambda x, y: torch.nn.functional.multilabel_soft_margin_loss(x, (y > 0).float())),
    why=_SIGMOID,
    reason=LOST_DIGITS,
)
def multilabel_soft_margin_loss(input: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
    """The mean over the classes, which are on the last axis, with softplus in place of the logarithm of sigmoid."""
    # softplus(x) is x + softplus(-x).
    loss = (1 - target) * input + softplus(-input)
    return (loss if weight is None else loss * weight).mean(-1)


def _labels(b: int, n: int) -> tuple[Tensor, Tensor]:
    """Numbers, and for each 1 or -1."""
    return torch.randn(b, n), torch.randint(0, 2, (b, n)) * 2.0 - 1


def _entropies(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    loss, weight = functional.cross_entropy, x[0, :, 0].abs()
    some = loss(x, y, weight, ignore_index=0, label_smoothing=0.2), loss(x, y, reduction="none", label_smoothing=0.1)
    none = loss(x[:0], y[:0], ignore_index=0, reduction="sum")
    return (
        *some,
        none,
        loss(x, x.softmax(1), weight, label_smoothing=0.1),
        loss(x[0, :, 0], x[0, :, 1], reduction="sum"),
    )


@op(
    "nn.functional.cross_entropy",
    why="ONNX does not support label_smoothing; SoftmaxCrossEntropyLoss takes neither probabilities nor an empty batch",
    reason="label_smoothing|SoftmaxCrossEntropyLoss|static shape",
    tries=lambda b, n: (torch.randn(b, n, 3), torch.randint(0, n, (b, 3))),
    case=_entropies,
)
def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: object = None,
    ignore_index: int = -100,
    reduce: object = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """The mean or the sum of -log_softmax at the classes, or weighted by probabilities; the sum over no rows is 0."""
    likely = target.is_floating_point()
    if size_average is not None or reduce is not None:
        return NotImplemented
    axis = min(1, input.dim() - 1)
    logs = functional.log_softmax(input, axis)
    weighted = logs if weight is None else logs * weight.view([-1, *[1] * (input.dim() - axis - 1)])
    even = -weighted.mean(axis)
    if likely:
        return reduced((1 - label_smoothing) * -(weighted * target).sum(axis) + label_smoothing * even, reduction)
    known = target != ignore_index
    place = torch.where(known, target, torch.zeros_like(target))
    share = known.to(logs.dtype) if weight is None else torch.where(known, weight[place], torch.zeros_like(even))
    right = weighted.gather(axis, place.unsqueeze(axis)).squeeze(axis)
    found = label_smoothing * even - (1 - label_smoothing) * right if label_smoothing else -right
    loss = torch.where(known, found, torch.zeros_like(found))
    return loss.sum() / share.sum() if reduction == "mean" else reduced(loss, reduction)


def _rows(b: int, n: int) -> tuple[Tensor, Tensor, Tensor]:
    """Twice rows of numbers, and for each row 1 or -1."""
    return torch.randn(b, n), torch.randn(b, n), torch.randint(0, 2, (b,)) * 2.0 - 1


def _classes(b: int, n: int) -> tuple[Tensor, Tensor]:
    """Scores of n classes, and a class for each row."""
    return torch.randn(b, n), torch.randint(0, n, (b,))


def _first_unknown(x: Tensor) -> Tensor:
    """The number in the corner is NaN."""
    return torch.where(torch.arange(x.numel()).reshape(x.shape) == 0, torch.nan, x)


def _bent(apart: Tensor, end: float) -> Tensor:
    """A parabola up to `end`, a line beyond."""
    near = apart.clamp(max=end)
    return near * (apart - near * 0.5)


@_loss(
    pairs, lambda x, y: (functional.smooth_l1_loss(x, y), functional.smooth_l1_loss(x, y, reduction="sum", beta=0.3))
)
def smooth_l1_loss(input: Tensor, target: Tensor, beta: float = 1.0) -> Tensor:
    """A parabola within `beta`, a line beyond."""
    apart = (input - target).abs()
    return _bent(apart, beta) / beta if beta else apart


@_loss(pairs, lambda x, y: functional.huber_loss(x, y, "none", 0.4))
def huber_loss(input: Tensor, target: Tensor, delta: float = 1.0, weight: Tensor | None = None) -> Tensor:
    """A parabola within `delta`, a line beyond."""
    if weight is not None:
        return NotImplemented
    return _bent((input - target).abs(), delta)


@_loss(lambda b, n: (shares(b, n).round(decimals=1), shares(b, n)))
def binary_cross_entropy(input: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
    """As eager, no logarithm is below -100."""
    loss = -target * torch.log(input).clamp(min=-100) - (1 - target) * log1p(-input).clamp(min=-100)
    return loss if weight is None else loss * weight


@_loss(_labels)
def hinge_embedding_loss(input: Tensor, target: Tensor, margin: float = 1.0) -> Tensor:
    """x where the label is 1, how far it is below the margin where it is -1."""
    zeros = torch.zeros_like(input)
    far = torch.where(target == 1, zeros, (margin - input).clamp(min=0))
    return far + torch.where(target == -1, zeros, input)


@_loss(lambda n: (torch.randn(n), torch.randn(n), torch.randint(0, 2, (n,)) * 2.0 - 1))
def margin_ranking_loss(input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0) -> Tensor:
    """How far the first is from being larger by the margin, or smaller where the label is -1."""
    return (-target * (input1 - input2) + margin).clamp(min=0)


@op(
    "nn.functional.gaussian_nll_loss",
    why="Could not guard on data-dependent expression: torch asks whether a variance is negative",
    reason="data-dependent",
    link="https://github.com/pytorch/pytorch/blob/main/torch/nn/functional.py",
    exporters=("dynamo",),
    tries=lambda b, n: (torch.randn(b, n), torch.randn(b, n), torch.rand(b, n)),
    case=lambda x, y, v: (
        functional.gaussian_nll_loss(x, y, v - 0.3 * v.round()),
        functional.gaussian_nll_loss(x, y, v[:, 0], full=True, reduction="none"),
    ),
)
def gaussian_nll_loss(
    input: Tensor, target: Tensor, var: Any, full: bool = False, eps: float = 1e-6, reduction: str = "mean"
) -> Tensor:
    """The negative logarithm of a normal number's density; no variance is below `eps`."""
    var = var if isinstance(var, Tensor) else torch.full_like(input, var)
    var = (var if var.dim() == input.dim() else var.unsqueeze(-1)).clamp(min=eps)
    loss = (torch.log(var) + (input - target) ** 2 / var + (math.log(2 * math.pi) if full else 0)) / 2
    return reduced(loss, reduction)


@_loss(_labels)
def soft_margin_loss(input: Tensor, target: Tensor) -> Tensor:
    """log(1 + exp(-yx))."""
    return softplus(-target * input)


@_loss(
    lambda b, n: (torch.randn(b, n), torch.rand(b, n) * 3),
    lambda x, y: (functional.poisson_nll_loss(x, y, full=True), functional.poisson_nll_loss(x.exp(), y, False)),
)
def poisson_nll_loss(
    input: Tensor, target: Tensor, log_input: bool = True, full: bool = False, eps: float = 1e-8
) -> Tensor:
    """The rate less the target times its logarithm; Stirling's approximation for targets above 1 with `full`."""
    loss = torch.exp(input) - target * input if log_input else input - target * torch.log(input + eps)
    if full:
        above = torch.where(target > 1, target, torch.ones_like(target))
        rest = above * torch.log(above) - above + torch.log(2 * math.pi * above) / 2
        loss = loss + torch.where(target > 1, rest, torch.zeros_like(rest))
    return loss


@_loss(_rows, lambda x, y, labels: functional.cosine_embedding_loss(x, y, labels, 0.1))
def cosine_embedding_loss(input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0) -> Tensor:
    """1 less the cosine of two rows where the label is 1, the cosine above the margin where it is -1."""
    # Not `cosine_similarity`: here eps is added to the squares.
    one, two = ((x * x).sum(-1) + 1e-12 for x in (input1, input2))
    cosine = (input1 * input2).sum(-1) / torch.sqrt(one * two)
    zeros = torch.zeros_like(cosine)
    alike = torch.where(target == 1, 1 - cosine, zeros)
    return alike + torch.where(target == -1, (cosine - margin).clamp(min=0), zeros)


def _above(x: Tensor) -> Tensor:
    """x where it is above 0. Not `clamp`: eager leaves a NaN out."""
    return torch.where(x > 0, x, torch.zeros_like(x))


@_loss(lambda b, n: (_first_unknown(_classes(b, n)[0]), _classes(b, n)[1]), both=True)
def multi_margin_loss(
    input: Tensor, target: Tensor, p: int = 1, margin: float = 1.0, weight: Tensor | None = None
) -> Tensor:
    """By how much other classes come near the one that is right, on average over all."""
    if input.dim() == 1:
        return multi_margin_loss(input[None], target.reshape(1), p, margin, weight)[0]
    right = input.gather(1, target[:, None])
    excess = _above(margin - right + input)
    excess = excess if p == 1 else excess * excess
    excess = excess if weight is None else excess * weight[target][:, None]
    other = torch.arange(input.shape[1]) != target[:, None]
    return torch.where(other, excess, torch.zeros_like(excess)).mean(1)


def _several(b: int, n: int) -> tuple[Tensor, Tensor]:
    """Scores of n classes, and the classes of each row, which a -1 ends."""
    return torch.randn(b, n), torch.stack([torch.randperm(n) - (torch.arange(n) == n // 2) * (n + 5) for _ in range(b)])


@_loss(lambda b, n: (_first_unknown(_several(b, n)[0]), _several(b, n)[1].clamp(min=-1)), both=True)
def multilabel_margin_loss(input: Tensor, target: Tensor) -> Tensor:
    """By how much the classes that a row does not have come near those that it has: n * n differences a row."""
    if input.dim() == 1:
        return multilabel_margin_loss(input[None], target.reshape(1, -1))[0]
    listed = torch.cumsum((target < 0).to(torch.int64), 1) == 0  # before the first -1
    index = torch.where(listed, target, torch.zeros_like(target))
    places = torch.arange(input.shape[1])
    has = ((index[:, :, None] == places) & listed[:, :, None]).to(input.dtype).sum(1) > 0
    excess = _above(1 - input.gather(1, index)[:, :, None] + input[:, None, :])
    counted = listed[:, :, None] & ~has[:, None, :]
    return torch.where(counted, excess, torch.zeros_like(excess)).sum((1, 2)) / torch.ones_like(input[0]).sum()


@_loss(lambda b, n: (torch.randn(b, n), torch.randn(b, n), torch.randn(b, n)))
def triplet_margin_loss(
    anchor: Tensor, positive: Tensor, negative: Tensor, margin: float = 1.0, p: float = 2, eps: float = 1e-6,
    swap: bool = False,
) -> Tensor:  # fmt: skip
    """How far the distance to the negative is from exceeding that to the positive by the margin."""

    def distance(one: Tensor, two: Tensor) -> Tensor:
        return torch.linalg.vector_norm(one - two + eps, p, dim=-1)

    other = distance(anchor, negative)
    other = torch.minimum(other, distance(positive, negative)) if swap else other
    return (margin + distance(anchor, positive) - other).clamp(min=0)


# ------------------------------------------------------------------ a layer with its loss
def _scored(x: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
    loss, target = functional.linear_cross_entropy, torch.arange(x.shape[0]) % 4
    return loss(x, weight, target), loss(x[0], weight, target[0]), loss(x, weight, target, reduction="sum")


if hasattr(functional, "linear_cross_entropy"):  # torch 2.13 and later

    @op(
        "nn.functional.linear_cross_entropy",
        why="Reshape: Invalid position of 0: the cross entropy of a linear layer",
        reason="Reshape|linear_cross_entropy|shape",
        fails=("trace",),
        case=_scored,
        tries=lambda b, n: (torch.randn(b, 6), torch.randn(4, 6)),
    )
    def linear_cross_entropy(input: Tensor, linear_weight: Tensor, target: Tensor, **options: Any) -> Tensor:
        """The layer, then the loss, not in chunks."""
        bias = options.pop("linear_bias", None)
        options.pop("options", None)  # how many rows at once
        known = {name: value for name, value in options.items() if value is not None}
        scores = functional.linear(input, linear_weight, bias)
        if target.dim() == 0:
            scores, target = scores.unsqueeze(0), target.unsqueeze(0)
            found = functional.cross_entropy(scores, target, **known)
            return found.reshape(())
        return functional.cross_entropy(scores, target, **known)


class _Words(torch.nn.Module):
    """Words that are in the head, and in each cluster of rare ones."""

    def __init__(self) -> None:
        super().__init__()
        self.words = torch.nn.AdaptiveLogSoftmaxWithLoss(8, 30, [5, 12])

    def forward(self, x: Tensor, word: Tensor) -> tuple[Tensor, ...]:
        return *self.words(x, word), self.words.predict(x), self.words(x[0], word[0]).output


@op(
    "nn.AdaptiveLogSoftmaxWithLoss.forward",
    "nn.AdaptiveLogSoftmaxWithLoss.predict",
    name="adaptive-softmax",
    why="the rows of each cluster are those of the example, or: Could not guard on data-dependent expression Eq(u0, 0)",
    reason="data-dependent|dimensions differ|shape|Target values",
    link="https://arxiv.org/abs/1609.04309",
    tries=lambda *words: (torch.randn(len(words), 8), torch.tensor(words)),
    sizes=((1, 29, 7, 0), (20, 14), (11,)),
    case=_Words,
)
def adaptive_softmax(original: Callable[..., Any], self: Any, input_: Tensor, target_: Tensor | None = None) -> Any:
    """Of all words of a row, (batch, words), the given ones, or the likeliest."""
    logs = self.log_prob(torch.atleast_2d(input_))
    if target_ is None:
        return logs.argmax(1)
    found = logs.gather(1, torch.atleast_1d(target_)[:, None]).squeeze(1)
    return get_type_hints(original)["return"](found if input_.dim() > 1 else found[0], -found.mean())

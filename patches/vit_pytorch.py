"""vit_pytorch's adaptive token sampling (ATS): unique tokens of each sample without a loop over the batch."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

import torch

from onnxpatch import Proof, Settings, When, exporting, patch

TARGET = "vit_pytorch.ats_vit.AdaptiveTokenSampling"


def kept_numbers(keep: torch.Tensor) -> torch.Tensor:
    """(batch, n) of bools to (batch, m): the numbers, from 1, of each row's kept ones, zeros behind; m is the most."""
    count = keep.to(torch.int64).cumsum(-1)
    numbers = torch.ones_like(count).cumsum(-1)
    # What is not kept goes to a column of its own, the first, which is cut off.
    place = torch.where(keep, count, torch.zeros_like(count))
    table = torch.zeros_like(torch.nn.functional.pad(numbers, (1, 0))).scatter(1, place, numbers * keep)
    used = torch.nonzero(table[:, 1:].amax(0) > 0).squeeze(-1)
    if exporting() == "dynamo":
        torch._check(used.shape[0] > 0)  # there is always a token; torch.export cannot know
    return table[:, 1:].index_select(1, used)


def _noise(module: torch.nn.Module, settings: Settings) -> str | None:
    return None if hasattr(sys.modules.get(type(module).__module__), "sample_gumbel") else "has no sample_gumbel"


@contextlib.contextmanager
def _without_noise() -> Iterator[None]:
    """Sampling draws no noise inside the block, so that eager agrees with itself."""
    from vit_pytorch import ats_vit

    drawn = ats_vit.sample_gumbel
    ats_vit.sample_gumbel = lambda shape, device, dtype, eps=1e-6: torch.zeros(shape, device=device, dtype=dtype)
    try:
        yield
    finally:
        ats_vit.sample_gumbel = drawn


class _Sampling(torch.nn.Module):
    """One layer that samples."""

    def __init__(self) -> None:
        super().__init__()
        from vit_pytorch import ats_vit

        self.sampling = ats_vit.AdaptiveTokenSampling(4)

    def forward(self, attention: torch.Tensor, value: torch.Tensor) -> Any:
        mask = torch.ones_like(value[:, 0, :, 0]) > 0
        with _without_noise():
            return self.sampling(attention.softmax(-1), value, mask)


@patch(
    TARGET,
    name="adaptive-token-sampling",
    why="Could not guard on data-dependent expression, or a batch frozen by the loop over samples, in ATS models",
    link="https://github.com/lucidrains/vit-pytorch",
    when=When(exporters=("trace", "dynamo"), accepts=_noise),
    proof=Proof(
        build=_Sampling,
        inputs=lambda: [(torch.randn(b, 2, n, n), torch.randn(b, 2, n, 8)) for b, n in ((2, 7), (3, 9), (1, 6))],
        fails=("trace", "dynamo"),
        reason="static shape|aten::pad_sequence",
    ),
)
class _AdaptiveTokenSampling:
    """Attention to the tokens sampled by the class token's attention, (batch, heads, 1 + n, tokens)."""

    output_num_tokens: int
    eps: float

    def forward(self, attn: torch.Tensor, value: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, ...]:
        # Looked up at each call, as the model does: who replaces it (a test without noise) means this one too.
        noise = sys.modules[type(self).__module__].sample_gumbel
        weights = (attn[:, :, 0, 1:] * value[:, :, 1:].pow(2).sum(-1).sqrt()).sum(1)
        weights = weights / (weights.sum(-1, keepdim=True) + self.eps)
        logits = torch.log(weights + 1e-6).masked_fill(~mask[:, 1:], -torch.finfo(attn.dtype).max / 2)
        logits = logits.unsqueeze(1).expand(-1, self.output_num_tokens, -1)
        drawn = (logits + noise(logits.shape, device=attn.device, dtype=attn.dtype)).argmax(-1)
        sampled = torch.zeros_like(weights).scatter(1, drawn, torch.ones_like(weights[:, :1]).expand_as(drawn)) > 0
        # The module is called where there are more tokens than it draws; the graph, at every size: then all stay.
        many = torch.ones_like(weights[0]).sum() > self.output_num_tokens
        ids = torch.nn.functional.pad(kept_numbers(sampled | ~many), (1, 0))  # the class token in front, as number 0
        there = torch.cat((torch.ones_like(ids[:, :1]) > 0, ids[:, 1:] != 0), 1)
        kept = there & (many | mask.gather(1, ids))
        rows = ids[:, None, :, None].expand(-1, attn.shape[1], -1, attn.shape[-1])
        return attn.gather(2, rows), kept, ids


class _AtAnySize(torch.nn.Module):
    """Two layers, of which the first or the second samples, by the size of the image."""

    def __init__(self) -> None:
        super().__init__()
        from vit_pytorch.ats_vit import Transformer

        self.transformer = Transformer(16, 2, (8, 4), 2, 8, 32)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        with _without_noise():
            return self.transformer(tokens)[0][:, 0]


@patch(
    "vit_pytorch.ats_vit.Attention",
    name="adaptive-token-sampling-sizes",
    why="whether a layer samples at all is frozen at the example's size, silently",
    link="https://github.com/lucidrains/vit-pytorch",
    when=When(exporters=("trace", "dynamo")),
    proof=Proof(
        build=_AtAnySize,
        # Layers sample from more than 8 and more than 4 tokens: none, the second, or both do.
        inputs=lambda: [(torch.randn(b, n, 16),) for b, n in ((2, 7), (3, 16), (1, 4))],
        fails=("trace",),
        reason="shape|relative error|broadcast|cannot be reshaped",
        beside=("adaptive-token-sampling",),
    ),
)
class _SamplesAlways:
    """Calls its sampling at every size. `_AdaptiveTokenSampling` above keeps all tokens where there are few."""

    @property
    def output_num_tokens(self) -> int | None:
        # The layer samples `if tokens - 1 > output_num_tokens`: with 0 that is so at every size.
        return None if vars(self)["output_num_tokens"] is None else 0

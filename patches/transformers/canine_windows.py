"""Windows and blocks of a text, whose number is the example's: Canine's local attention, LongT5's global tokens."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from onnxpatch import KnownBody, Proof, When, op, patch
from onnxpatch.formulas.proof_cases import randomised
from onnxpatch.formulas.symbolic import symbolic

WRITTEN_FOR = "transformers 5.23.0"


class _Local(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        from transformers import CanineConfig
        from transformers.models.canine.modeling_canine import CanineAttention

        config = CanineConfig(hidden_size=8, num_attention_heads=2)
        # Neither token sees all, nor is seen by all; then the four widths and strides.
        self.attention = randomised(CanineAttention(config, True, False, False, 4, 4, 4, 4))

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return self.attention(x, mask[:, None, :] * torch.ones_like(mask)[:, :, None])[0]


def _texts() -> list[tuple[Tensor, Tensor]]:
    # For windows of 4: lengths that are multiples and that are not, and a text shorter than a window.
    sizes = ((2, 7), (3, 12), (1, 1), (2, 17))
    return [(torch.randn(b, n, 8), (torch.arange(n) < torch.tensor([[n]] + [[n // 2]] * (b - 1))).float())
            for b, n in sizes]  # fmt: skip


@patch(
    "transformers.models.canine.modeling_canine.CanineAttention",
    name="canine-windows",
    why="for chunk_start in range(0, length, stride): as many windows as the example has",
    link="https://github.com/huggingface/transformers/blob/main/src/transformers/models/canine/modeling_canine.py",
    when=When(bodies={"forward": {KnownBody("dd312ca4e446", WRITTEN_FOR)}}),
    proof=Proof(
        build=_Local,
        inputs=_texts,
        fails=("dynamo", "trace"),
        reason="relative error|inferred a static shape",
    ),
)
class CanineAttention:
    """Attends within windows that do not overlap, if the configuration has no token that sees all of them."""

    def forward(
        self: Any, hidden_states: Tensor, attention_mask: Tensor | None = None, output_attentions: bool | None = False
    ) -> tuple[Tensor, ...]:
        """hidden_states: (batch, length, hidden); attention_mask: (batch, length, length), 1 if a query sees a key."""
        batch, length, hidden = hidden_states.shape
        widths = {self.attend_from_chunk_width, self.attend_from_chunk_stride, self.attend_to_chunk_width,
                  self.attend_to_chunk_stride}  # fmt: skip
        special = self.always_attend_to_first_position or self.first_position_attends_to_all or output_attentions
        if not self.local or special or len(widths) > 1 or attention_mask is None or not symbolic(length):
            # Windows that overlap, or a token that sees all, make another sum: the model's own loop writes it.
            return super().forward(hidden_states, attention_mask, output_attentions)  # type: ignore[misc]
        width = widths.pop()
        count = (length + width - 1) // width
        windows = functional.pad(hidden_states, (0, 0, 0, count * width - length)).reshape([-1, width, hidden])
        bias = _bias(attention_mask, length, count, width, hidden_states.dtype)
        seen = self.self(windows, windows, bias)[0].reshape([batch, -1, hidden])[:, :length]
        return (self.output(seen, hidden_states),)


def _bias(mask: Tensor, length: Any, count: Any, width: int, dtype: torch.dtype) -> Tensor:
    """(batch * count, 1, width, width): what is added to the scores, of a mask (batch, length, length)."""
    tokens = torch.arange(count * width, device=mask.device)
    # trunc: the trace exporter writes it as Div, and floor of ints as 15 nodes; no number here is below 0.
    seen = torch.div(tokens, width, rounding_mode="trunc")[:, None] * width + torch.arange(width, device=mask.device)
    # One that is no token takes the last one's place; its window sees it not at all, and what it sees is cut off.
    rows = mask.index_select(1, tokens.clamp(max=length - 1)).float()
    index = seen.clamp(max=length - 1)[None].expand(mask.shape[0], -1, -1)
    hidden = (1.0 - rows.gather(2, index)) * torch.finfo(dtype).min
    return hidden.masked_fill((seen >= length)[None], float("-inf")).reshape([-1, 1, width, width])


class _Global(torch.nn.Module):
    """Attention to a window, and to the sum of every four tokens."""

    def __init__(self) -> None:
        super().__init__()
        from transformers import LongT5Config
        from transformers.models.longt5.modeling_longt5 import LongT5TransientGlobalAttention

        config = LongT5Config(d_model=8, d_kv=4, num_heads=2, local_radius=3, global_block_size=4)
        self.attention: Any = randomised(LongT5TransientGlobalAttention(config, has_relative_attention_bias=True))

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return self.attention(x, mask)[0]


def _block_texts() -> list[tuple[Tensor, Tensor]]:
    made = []
    for batch, length in ((2, 9), (3, 12), (1, 2)):
        mask = torch.ones(batch, length)
        mask[0, -1] = 0
        made.append((torch.randn(batch, length, 8), mask))
    return made


@op(
    "transformers.models.longt5.modeling_longt5._split_into_blocks",
    name="longt5-blocks",
    why="Reshape: i < input_shape.NumDimensions() was false. The dimension with value zero exceeds the dimension size",
    reason="dimension with value zero",
    link="https://github.com/huggingface/transformers/blob/main/src/transformers/models/longt5/modeling_longt5.py",
    exporters=("trace",),
    tries=_block_texts,
    case=_Global,
)
def split_into_blocks(original: object, x: Tensor, block_len: int, dim: int) -> Tensor:
    """x: (..., length, global tokens), dim -2. ONNX's Reshape takes a size of 0 for "as it was": none is 0 here."""
    if dim != -2 or not symbolic(x.shape[-1]):
        return NotImplemented
    length, wide = x.shape[-2], x.shape[-1]
    count = (length + block_len - 1) // block_len
    # One more column, which is cut off again: with it no size is 0.
    padded = functional.pad(x, (0, 1, 0, count * block_len - length))
    return padded.reshape([*x.shape[:-2], count, block_len, wide + 1])[..., :wide]

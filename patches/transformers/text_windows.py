"""Attention within windows of a text, whose number an export freezes: Longformer, LED, Canine, LongT5.

Longformer and LED have a window of tokens, and global tokens that see all and are seen by all. Eager counts the global
tokens of each text and cuts the windows out of a strided view; neither is possible in a graph. Here queries are cut
into blocks of one window; each sees the keys of its own block and of the blocks on both sides. Time and memory grow
with the length times the window, as in eager. A text need not be padded to whole windows.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from onnxpatch import KnownBody, Proof, When, exporting, op, patch
from onnxpatch.formulas.scans import blocks
from onnxpatch.formulas.symbolic import symbolic
from onnxpatch.patching.proof import computing, randomised

WRITTEN_FOR = "transformers 5.23.0"
LINK = "https://github.com/huggingface/transformers/blob/main/src/transformers/models/longformer/modeling_longformer.py"
TINY: dict[str, Any] = dict(hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2,
                            vocab_size=9, max_position_embeddings=32, attention_window=[4])  # fmt: skip


class _Windows(torch.nn.Module):
    """One layer; the first token of every second text is global."""

    def __init__(self) -> None:
        super().__init__()
        from transformers import LongformerConfig
        from transformers.models.longformer.modeling_longformer import LongformerSelfAttention

        self.attention = randomised(LongformerSelfAttention(LongformerConfig(**TINY), 0))

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """x: (batch, length, 8), whole windows; mask: (batch, length), below 0 for masked, above 0 for global."""
        return self.attention(x, mask, mask < 0, mask > 0, (mask > 0).any().item())[0]


def _masked(batch: int, length: int) -> Tensor:
    mask = torch.zeros(batch, length)
    mask[0, -2:] = -10000.0
    if batch > 1:  # a text alone has no global token
        mask[::2, 0] = 10000.0
    return mask


@patch(
    "transformers.models.longformer.modeling_longformer.LongformerSelfAttention",
    "transformers.models.led.modeling_led.LEDEncoderSelfAttention",
    name="longformer-attention",
    why="num_global_attn_indices.max(), as_strided: Could not guard on data-dependent expression; under trace, the "
    "example's number of global tokens and its windows",
    link=LINK,
    when=When(bodies={"forward": {KnownBody("f0689691950a", WRITTEN_FOR)}}),
    proof=Proof(
        build=_Windows,
        inputs=lambda: [(torch.randn(b, n, 8), _masked(b, n)) for b, n in ((2, 8), (3, 12), (1, 4))],
        fails=("dynamo", "trace"),
        reason="data-dependent expression|relative error|reshape|shape|onnxruntime fails",
    ),
)
class _LongformerSelfAttention:
    """Each token attends to those within the window on each side, and to the global tokens."""

    def forward(
        self: Any,
        hidden_states: Tensor,
        attention_mask: Tensor | None = None,
        is_index_masked: Tensor | None = None,
        is_index_global_attn: Tensor | None = None,
        is_global_attn: object = None,
        output_attentions: bool = False,
    ) -> tuple[Tensor, ...]:
        """hidden_states: (batch, length, hidden); the masks: (batch, length), attention_mask 0 for what is neither
        masked nor global."""
        if output_attentions or attention_mask is None or is_index_masked is None or is_index_global_attn is None:
            return NotImplemented
        query, key, value = (self._split(layer(hidden_states)) for layer in (self.query, self.key, self.value))
        chosen = _first(is_index_global_attn)
        valid = is_index_global_attn.gather(1, chosen)
        # == 0 leaves out global tokens as well, which `far` has: they would count twice.
        near = self._near(query / math.sqrt(self.head_dim), key, attention_mask == 0)
        far = (query.transpose(2, 3) / math.sqrt(self.head_dim)) @ _columns(key, chosen)
        far = far.masked_fill(~valid[:, None, None, :], torch.finfo(far.dtype).min)
        width = int(self.one_sided_attn_window_size)
        seen = torch.cat([near, blocks(far.transpose(2, 3), width, 0.0).permute(0, 1, 3, 4, 2)], dim=-1)
        # One softmax over both: the window and the global tokens share a query's weight.
        seen = seen.softmax(dim=-1)
        local = seen[..., : 3 * width] @ _with_neighbours(blocks(value, width, 0.0)).permute(0, 1, 3, 4, 2)
        local = local.flatten(2, 3)
        local = local + seen[..., 3 * width :].flatten(2, 3) @ _columns(value, chosen).transpose(2, 3)
        local = local[:, :, : hidden_states.shape[1]].transpose(1, 2).flatten(2)
        # Eager sets the weights of masked queries to 0.
        local = local.masked_fill(is_index_masked[:, :, None], 0.0)
        return (self._with_global(local, hidden_states, is_index_masked, chosen, valid),)

    def _split(self: Any, x: Tensor) -> Tensor:
        """(batch, length, hidden size) to (batch, heads, head_dim, length)."""
        return x.unflatten(2, (self.num_heads, self.head_dim)).permute(0, 2, 3, 1)

    def _near(self: Any, query: Tensor, key: Tensor, visible: Tensor) -> Tensor:
        """Scores within the window: (batch, heads, blocks, width, 3 * width)."""
        width = int(self.one_sided_attn_window_size)
        queries = blocks(query, width, 0.0).permute(0, 1, 3, 4, 2)
        keys = _with_neighbours(blocks(key, width, 0.0)).permute(0, 1, 3, 2, 4)
        # blocks() fills with 0: what is outside of the text is not visible.
        inside = _with_neighbours(blocks(visible.to(query.dtype), width, 0.0)) > 0
        places = torch.arange(3 * width, device=query.device) - width
        band = (places - torch.arange(width, device=query.device)[:, None]).abs() <= width
        scores = queries @ keys
        return scores.masked_fill(~(band & inside[:, None, :, None, :]), torch.finfo(scores.dtype).min)

    def _with_global(self: Any, local: Tensor, x: Tensor, masked: Tensor, chosen: Tensor, valid: Tensor) -> Tensor:
        """(batch, length, hidden size): the rows of global tokens, which see the whole text, in place of their own."""
        rows = chosen[:, :, None].expand(-1, -1, x.shape[2])
        query = self._split(self.query_global(x.gather(1, rows))).transpose(2, 3) / math.sqrt(self.head_dim)
        scores = query @ self._split(self.key_global(x))
        scores = scores.masked_fill(masked[:, None, None, :], torch.finfo(scores.dtype).min).softmax(dim=-1)
        whole = scores @ self._split(self.value_global(x)).transpose(2, 3)
        whole = torch.where(valid[:, :, None], whole.transpose(1, 2).reshape(rows.shape), local.gather(1, rows))
        return local.scatter(1, rows, whole)


def _first(chosen: Tensor) -> Tensor:
    """(batch, most global tokens of a text): their places; a text with fewer has places of other tokens behind them."""
    length = chosen.shape[1]
    places = torch.arange(length, device=chosen.device)
    order = torch.where(chosen, places, places + length).sort(dim=1).indices
    # At least one: onnxruntime leaves the product of two matrices of inner size 0 uninitialized.
    most = chosen.sum(1).amax(0).clamp(min=1)
    if exporting() == "trace":
        # item() would be the example's number here; a slice up to a tensor is recorded.
        return order[:, :most]
    count = most.item()
    # torch.export knows no bounds of a number from item(), and would ask for some at the slice.
    torch._check(count >= 1)
    torch._check(count <= length)
    return order[:, :count]


def _columns(x: Tensor, places: Tensor) -> Tensor:
    """x: (batch, heads, head_dim, length); (batch, heads, head_dim, places)."""
    return x.gather(3, places[:, None, None, :].expand(-1, x.shape[1], x.shape[2], -1))


def _with_neighbours(x: Tensor) -> Tensor:
    """(..., blocks, width) to (..., blocks, 3 * width): the block before, the block, and the one after it."""
    padded = functional.pad(x, (0, 0, 1, 1))
    return torch.cat([padded[..., :-2, :], x, padded[..., 2:, :]], dim=-1)


def _local() -> torch.nn.Module:
    from transformers import CanineConfig
    from transformers.models.canine.modeling_canine import CanineAttention

    config = CanineConfig(hidden_size=8, num_attention_heads=2)
    # Neither token sees all, nor is seen by all; then the four widths and strides.
    return computing(
        lambda attention, x, mask: attention(x, mask[:, None, :] * torch.ones_like(mask)[:, :, None])[0],
        randomised(CanineAttention(config, True, False, False, 4, 4, 4, 4)),
    )


def _short_texts() -> list[tuple[Tensor, Tensor]]:
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
        build=_local, inputs=_short_texts, fails=("dynamo", "trace"), reason="relative error|inferred a static shape"
    ),
)
class _CanineAttention:
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
            return NotImplemented
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


def _global() -> torch.nn.Module:
    """Attention to a window, and to the sum of every four tokens."""
    from transformers import LongT5Config
    from transformers.models.longt5.modeling_longt5 import LongT5TransientGlobalAttention

    config = LongT5Config(d_model=8, d_kv=4, num_heads=2, local_radius=3, global_block_size=4)
    return computing(
        lambda attention, x, mask: attention(x, mask)[0],
        randomised(LongT5TransientGlobalAttention(config, has_relative_attention_bias=True)),
    )


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
    case=_global,
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

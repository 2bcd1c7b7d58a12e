"""Longformer's and LED's attention: a window of tokens, and global tokens that see all and are seen by all.

Eager counts the global tokens of each text and cuts the windows out of a strided view; neither is possible in a graph.
Here it is attention with a mask of queries by keys: it computes the same, in time and memory that grow with the square
of the length. A text need not be padded to whole windows for it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from onnxpatch import KnownBody, Proof, patch
from onnxpatch.formulas.proof_models import randomised

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
        return self.attention(x, mask, mask < 0, mask > 0, True)[0]


def _masked(batch: int, length: int) -> Tensor:
    mask = torch.zeros(batch, length)
    mask[0, -2:] = -10000.0
    mask[::2, 0] = 10000.0
    return mask


@patch(
    "transformers.models.longformer.modeling_longformer.LongformerSelfAttention",
    "transformers.models.led.modeling_led.LEDEncoderSelfAttention",
    name="longformer-attention",
    why="num_global_attn_indices.max(), as_strided: Could not guard on data-dependent expression; under trace, the "
    "example's number of global tokens and its windows",
    link=LINK,
    bodies={"forward": {KnownBody("f0689691950a", WRITTEN_FOR)}},
    proof=Proof(
        build=_Windows,
        inputs=lambda: [(torch.randn(b, n, 8), _masked(b, n)) for b, n in ((2, 8), (3, 12), (1, 4))],
        dynamic_shapes=({0: "batch", 1: "length"},) * 2,
        fails=("dynamo", "trace"),
        reason="data-dependent expression|relative error|reshape|shape|onnxruntime fails",
    ),
)
class LongformerSelfAttention:
    """Each token attends to those within the window on each side, and to the global tokens."""

    def forward(
        self: Any,
        hidden_states: Tensor,
        attention_mask: Tensor | None = None,
        is_index_masked: Tensor | None = None,
        is_index_global_attn: Tensor | None = None,
        is_global_attn: Any = None,
        output_attentions: bool = False,
    ) -> tuple[Tensor, ...]:
        """hidden_states: (batch, length, hidden); the masks: (batch, length), attention_mask 0 for what is neither
        masked nor global."""
        if output_attentions or attention_mask is None or is_index_masked is None or is_index_global_attn is None:
            return super().forward(  # type: ignore[misc]
                hidden_states, attention_mask, is_index_masked, is_index_global_attn, is_global_attn, output_attentions
            )
        places = torch.arange(hidden_states.shape[1], device=hidden_states.device)
        near = (places[:, None] - places).abs() <= self.one_sided_attn_window_size
        seen = (near & (attention_mask == 0)[:, None, :]) | is_index_global_attn[:, None, :]
        local = self._attended(hidden_states, (self.query, self.key, self.value), ~seen[:, None])
        layers = self.query_global, self.key_global, self.value_global
        whole = self._attended(hidden_states, layers, is_index_masked[:, None, None, :])
        local = local.masked_fill(is_index_masked[:, :, None], 0.0)
        return (torch.where(is_index_global_attn[:, :, None], whole, local),)

    def _attended(self: Any, x: Tensor, layers: tuple[Any, Any, Any], hidden: Tensor) -> Tensor:
        """(batch, length, hidden size). hidden: keys that are not seen; where all are hidden, all count alike."""
        query, key, value = (layer(x).unflatten(2, (self.num_heads, self.head_dim)).transpose(1, 2) for layer in layers)
        bias = hidden.to(x.dtype) * torch.finfo(x.dtype).min
        return functional.scaled_dot_product_attention(query, key, value, attn_mask=bias).transpose(1, 2).flatten(2)


class _Text(torch.nn.Module):
    """A text of any length through LED's whole encoder, which cuts off again what it padded."""

    def __init__(self) -> None:
        super().__init__()
        from transformers import LEDConfig
        from transformers.models.led.modeling_led import LEDEncoder

        config = LEDConfig(d_model=8, encoder_layers=1, encoder_attention_heads=2, encoder_ffn_dim=8, vocab_size=9,
                           max_encoder_position_embeddings=32, attention_window=[4])  # fmt: skip
        self.encoder = randomised(LEDEncoder(config))

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        return self.encoder(ids, attention_mask=mask, global_attention_mask=(ids == 3).long()).last_hidden_state


def _texts() -> list[tuple[Tensor, Tensor]]:
    made = []
    for batch, length in ((2, 7), (3, 12), (1, 3)):
        mask = torch.ones(batch, length, dtype=torch.long)
        mask[0, -1] = 0
        made.append((torch.randint(2, 9, (batch, length)), mask))
    return made


@patch(
    "transformers.models.led.modeling_led.LEDEncoder",
    name="led-padding",
    why="if padding_len > 0: hidden_states[:, :-padding_len]: nothing is left of a text that needs no padding",
    link=LINK,
    bodies={"_pad_to_window_size": {KnownBody("ba913713e878", WRITTEN_FOR)}},
    proof=Proof(
        build=_Text,
        inputs=_texts,
        dynamic_shapes=({0: "batch", 1: "length"},) * 2,
        fails=("dynamo", "trace"),
        reason="relative error|data-dependent expression|inferred|shape|onnxruntime fails|inconsistencies|at \\[",
        beside=("longformer-attention",),
    ),
)
class LEDEncoder:
    """Its layers take any length, so that nothing is padded."""

    def _pad_to_window_size(
        self: Any, input_ids: Tensor | None, attention_mask: Tensor, inputs_embeds: Tensor | None, pad_token_id: int
    ) -> tuple[Any, ...]:
        """How much was padded, and the inputs."""
        return 0, input_ids, attention_mask, inputs_embeds

"""The cache of a layer with a sliding window: how many keys the mask spans, before and after the window is full."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from onnxpatch import Proof, When, patch
from onnxpatch.formulas.proof_cases import randomised
from onnxpatch.formulas.symbolic import as_tensor, symbolic


class _Decoder(torch.nn.Module):
    """One layer of a decoder with a window of four tokens, of which its cache keeps three."""

    def __init__(self) -> None:
        super().__init__()
        from transformers import MistralConfig, MistralModel

        self.config = MistralConfig(hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2,
                                    num_key_value_heads=2, head_dim=4, vocab_size=9, sliding_window=4)  # fmt: skip
        self.decoder = randomised(MistralModel(self.config))

    def forward(self, x: Tensor, mask: Tensor, key: Tensor, value: Tensor) -> Tensor:
        from transformers import DynamicCache

        cache = DynamicCache([(key, value)], config=self.config)
        return self.decoder(inputs_embeds=x, attention_mask=mask, past_key_values=cache).last_hidden_state


def _texts() -> list[tuple[Tensor, ...]]:
    made = []
    # In the example the window of 4 is not full; 7 past tokens overfill it.
    for batch, tokens, past in ((2, 3, 2), (2, 2, 7), (1, 5, 4), (3, 2, 1)):
        mask = torch.ones(batch, past + tokens, dtype=torch.int64)
        mask[0, 0] = 0
        made.append((torch.randn(batch, tokens, 8), mask, *(torch.randn(batch, 2, past, 4) for _ in range(2))))
    return made


@patch(
    "transformers.cache_utils.DynamicSlidingWindowLayer.get_mask_sizes",
    name="sliding-cache",
    why="if cumulative_length >= sliding_window: exported with a window that is not full, the mask outgrows the keys",
    link="https://github.com/huggingface/transformers/issues/37574",
    when=When(requires=("transformers>=5",), exporters=("dynamo", "trace")),
    proof=Proof(
        build=_Decoder,
        inputs=_texts,
        dynamic_shapes=({0: "b", 1: "t"}, {0: "b", 1: "past+t"}, {0: "b", 2: "past"}, {0: "b", 2: "past"}),
        fails=("dynamo", "trace"),
        reason="broadcast an axis|invalid index|relative error",
    ),
)
def sliding_mask_sizes(original: object, layer: Any, query_length: Any) -> tuple[Any, Any]:
    """(length, offset) of the keys that the mask spans: at most `sliding_window - 1` old ones, and the new."""
    seen = layer.cumulative_length
    if not symbolic(seen):
        return NotImplemented
    # A new token is itself one of its window.
    kept = layer.sliding_window - 1
    # min and max in place of the `if`, so that both cases are in the graph.
    if isinstance(seen, torch.SymInt):
        return torch.sym_min(seen, kept) + query_length, torch.sym_max(seen - kept, 0)
    seen = as_tensor(seen, torch.int64)
    return seen.clamp(max=kept) + query_length, (seen - kept).clamp(min=0)

"""An encoder without a mask: eager uses none, but during an export transformers makes one."""

from __future__ import annotations

import torch
from torch import Tensor

from onnxpatch import op
from onnxpatch.formulas.proof_models import randomised
from onnxpatch.formulas.tracing import all_ones


class _Encoder(torch.nn.Module):
    """Nyström attention over landmarks: it refuses a mask of queries by keys."""

    def __init__(self) -> None:
        super().__init__()
        from transformers import NystromformerConfig, NystromformerModel

        config = NystromformerConfig(hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2,
                                     vocab_size=9, num_landmarks=2, segment_means_seq_len=6)  # fmt: skip
        self.encoder = randomised(NystromformerModel(config))

    def forward(self, ids: Tensor) -> Tensor:
        return self.encoder(ids).last_hidden_state


class _Masked(torch.nn.Module):
    """An encoder that is given a mask: it is data."""

    def __init__(self) -> None:
        super().__init__()
        from transformers import BertConfig, BertModel

        config = BertConfig(
            hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2, vocab_size=9
        )
        self.encoder = randomised(BertModel(config))

    def forward(self, ids: Tensor) -> Tensor:
        return self.encoder(ids, attention_mask=ids.ne(0).long()).last_hidden_state


@op(
    "transformers.masking_utils._ignore_bidirectional_mask_sdpa",
    name="bidirectional-mask",
    why="not is_torchdynamo_exporting(): an encoder without a mask gets one of ones while it is exported; The size of "
    "tensor a must match the size of tensor b, and attention with a mask takes longer",
    reason="must match the size",
    link="https://github.com/huggingface/transformers/blob/main/src/transformers/masking_utils.py",
    tries=lambda batch: torch.randint(0, 9, (batch, 6)),
    sizes=(2, 3, 1),
    case=_Encoder,
    unchanged=_Masked,
)
def ignored_mask(
    original: object, padding_mask: Tensor | None, kv_length: object, local_attention_size: int | None = None
) -> object:
    """Whether there is no mask of padding, or one of ones, as in eager. padding_mask: (batch, length)."""
    if local_attention_size is not None or not (padding_mask is None or all_ones(padding_mask)):
        return NotImplemented
    return True

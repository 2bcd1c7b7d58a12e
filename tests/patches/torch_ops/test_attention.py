"""Attention with a causal flag that is made of sizes, beside a mask, as decoders with a cache call it."""

from __future__ import annotations

import pytest
import torch

import onnxpatch

pytestmark = pytest.mark.exports


class Step(torch.nn.Module):
    """As transformers writes it: traced with one query, `is_causal` is the tensor `queries > 1`."""

    def forward(self, q: torch.Tensor, k: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        is_causal = q.shape[2] > 1 and mask is None
        if torch.jit.is_tracing() and isinstance(is_causal, torch.Tensor):
            is_causal = is_causal.item()
        return torch.nn.functional.scaled_dot_product_attention(q, k, k, attn_mask=mask, is_causal=is_causal)


def test_a_mask_is_kept_where_the_flag_depends_on_a_size():
    def inputs(queries: int, keys: int) -> tuple[torch.Tensor, ...]:
        mask = torch.ones(2, 1, queries, keys, dtype=torch.bool)
        mask[1, :, :, :3] = False  # padding on the left
        return torch.randn(2, 2, queries, 8), torch.randn(2, 2, keys, 8), mask

    axes = ({2: "queries"}, {2: "keys"}, {2: "queries", 3: "keys"})
    given = [inputs(4, 6), inputs(1, 9), inputs(3, 5)]
    report = onnxpatch.export(Step().eval(), inputs(1, 7), exporter="trace", dynamic_shapes=axes, data=given)
    assert report.ok


def test_a_row_of_padding_alone_is_nan_beside_its_weights() -> None:
    x, padding = torch.randn(2, 3, 4), torch.tensor([[False, True, True], [True, True, True]])
    attention = torch.nn.MultiheadAttention(4, 2, batch_first=True).eval()
    assert attention(x, x, x, key_padding_mask=padding)[0][1].isnan().all()
    report = onnxpatch.export(
        attention, (x, x, x), None, kwargs={"key_padding_mask": padding}, exporter="trace", attempts="asked"
    )
    assert report.ok

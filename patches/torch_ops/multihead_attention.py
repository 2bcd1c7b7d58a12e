"""nn.MultiheadAttention, whose sizes the TorchScript exporter freezes; nn.TransformerEncoder with padding."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from onnxpatch import Proof, Settings, When, op, patch
from onnxpatch.formulas.attention import attend, upto

Tensor = torch.Tensor


class _Encoder(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layer = torch.nn.TransformerEncoderLayer(6, 2, 12, batch_first=True)
        self.encoder = torch.nn.TransformerEncoder(layer, 1)
        self.attention = torch.nn.MultiheadAttention(6, 2, kdim=4, vdim=4, add_bias_kv=True)

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return self.attention(self.encoder(x).transpose(0, 1), y, y)


@op(
    "multi_head_attention_forward",
    name="multihead-attention",
    why="aten::_native_multi_head_attention / aten::_transformer_encoder_layer_fwd is not supported; other sizes fail",
    reason="cannot be reshaped",
    link="https://github.com/pytorch/pytorch/issues/110255",
    exporters=("trace",),
    tries=lambda b, n, m: (torch.randn(b, n, 6), torch.randn(m, b, 4)),
    sizes=((2, 5, 7), (3, 8, 2), (1, 4, 4)),
    case=_Encoder,
)
def multi_head_attention_forward(
    original: Callable[..., torch.Tensor],
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    training: bool = True,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None,
    static_k: Tensor | None = None,
    static_v: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: object = False,
) -> tuple[Tensor, Tensor | None]:
    """(length, batch, features), or without the batch. Only views with -1, so that no size is read."""
    if training or static_k is not None or static_v is not None:
        return NotImplemented
    single = query.dim() == 2
    weights: Any = (q_proj_weight, k_proj_weight, v_proj_weight)
    if not use_separate_proj_weight and in_proj_weight is not None:
        weights = in_proj_weight.chunk(3)
    q, k, v = _projected((query, key, value), weights, in_proj_bias, single)
    if is_causal and attn_mask is None:
        # torch's layer masks where True; `upto` is True where a query may attend.
        attn_mask = ~upto(q.transpose(0, 1), k.transpose(0, 1))
    mask = _mask(attn_mask, key_padding_mask, q.dtype, num_heads, single)
    for more_k, more_v in _added_rows(k, v, bias_k, bias_v, add_zero_attn):
        k, v = torch.cat((k, more_k)), torch.cat((v, more_v))
        # 0 is added to the scores of the new key: every query sees it.
        mask = None if mask is None else torch.nn.functional.pad(mask, (0, 1))
    q, k, v = (t.unflatten(-1, (num_heads, -1)).permute(1, 2, 0, 3) for t in (q, k, v))
    divisor = math.sqrt(embed_dim_to_check // num_heads) if need_weights else None
    heads, found = _attended(q, k, v, mask, divisor, average_attn_weights)
    output = torch.nn.functional.linear(heads.permute(2, 0, 1, 3).flatten(2), out_proj_weight, out_proj_bias)
    return (output.squeeze(1), None if found is None else found.squeeze(0)) if single else (output, found)


def _attended(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, divisor: float | None, average: bool
) -> tuple[Tensor, Tensor | None]:
    """The values attended to, and how much of each key: of all heads or of each; None where `divisor` is.

    With its weights torch gives NaN for a query that may attend to no key, without them zeros.
    """
    if divisor is None:
        return attend(query, key, value, mask, None), None
    scores = torch.matmul(query, key.transpose(-1, -2)) / divisor
    weights = torch.softmax(scores if mask is None else scores + mask, -1)
    return torch.matmul(weights, value), weights.mean(1) if average else weights


def _projected(inputs: Iterable[Tensor], weights: Any, biases: Tensor | None, single: bool) -> Iterator[Tensor]:
    """Queries, keys and values. single: the inputs lack the batch, which is put in as axis 1."""
    each = (None,) * 3 if biases is None else biases.chunk(3)
    batches = [t.unsqueeze(1) if single else t for t in inputs]
    return (torch.nn.functional.linear(t, w, b) for t, w, b in zip(batches, weights, each, strict=True))


def _added_rows(
    k: Tensor, v: Tensor, bias_k: Tensor | None, bias_v: Tensor | None, zero: bool
) -> list[tuple[Tensor, Tensor]]:
    """What is attended to beside the keys and values: learned ones, and zeros."""
    extra = []
    if bias_k is not None and bias_v is not None:
        # The sum expands the bias to the batch without reading its size.
        extra.append((bias_k + torch.zeros_like(k[:1]), bias_v + torch.zeros_like(v[:1])))
    if zero:
        extra.append((torch.zeros_like(k[:1]), torch.zeros_like(v[:1])))
    return extra


def _mask(attn_mask: Any, padding: Any, dtype: torch.dtype, heads: int, single: bool) -> Tensor | None:
    """The sum of both masks, for scores (batch, heads, queries, keys)."""
    parts = []
    if attn_mask is not None:
        added = _added(attn_mask, dtype)
        # A mask of three dimensions has batch and heads in one.
        parts.append(added.unflatten(0, (-1, heads)) if added.dim() == 3 else added)
    if padding is not None:
        added = _added(padding.unsqueeze(0) if single else padding, dtype)
        parts.append(added.unsqueeze(1).unsqueeze(1))
    return parts[0] + parts[1] if len(parts) == 2 else (parts or [None])[0]


def _added(mask: Tensor, dtype: torch.dtype) -> Tensor:
    if mask.dtype != torch.bool:
        return mask.to(dtype)
    return torch.zeros_like(mask, dtype=dtype).masked_fill(mask, -math.inf)


class _PaddedEncoder(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(6, 2, 12, batch_first=True), 1)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        return self.encoder(x, src_key_padding_mask=torch.arange(x.shape[1]) >= lengths[:, None])


def _exporter_named(module: torch.nn.Module, settings: Settings) -> str | None:
    return None if settings.exporter else "acts only where the exporter is named: patched(model, exporter='dynamo')"


@patch(
    "torch.nn.TransformerEncoder",
    name="encoder-padding",
    why="Exporting the operator 'aten::_nested_tensor_from_mask'; other numbers than eager at padded places",
    link="https://github.com/pytorch/pytorch/issues/97111",
    when=When(exporters=("trace", "dynamo"), accepts=_exporter_named),
    proof=Proof(
        build=_PaddedEncoder,
        inputs=lambda: [
            (torch.randn(2, 5, 6), torch.tensor([3, 5])),
            (torch.randn(3, 8, 6), torch.tensor([8, 2, 6])),
            (torch.randn(1, 4, 6), torch.tensor([4])),
        ],
        fails=("trace", "dynamo"),
        reason="relative error",
        beside=("multihead-attention",),
    ),
)
class _EncoderStandIn:
    """Sets padded positions to zero, as eager does by running the sequences as a nested tensor."""

    def forward(self, src: Any, mask: Any = None, src_key_padding_mask: Any = None, is_causal: Any = None) -> Any:
        nested = getattr(self, "use_nested_tensor", False) and mask is None
        # eager makes nested tensors, whose padding is zeros, only in evaluation and without gradients.
        if src_key_padding_mask is None or not nested or torch.is_grad_enabled() or self.training:  # type: ignore[attr-defined]
            return NotImplemented
        output = super().forward(src, mask, src_key_padding_mask, is_causal)  # type: ignore[misc]
        padding = src_key_padding_mask
        # A float mask has -inf at padding.
        padding = padding if padding.dtype == torch.bool else padding < 0
        return output.masked_fill(padding.unsqueeze(-1), 0.0)

"""Gated delta rules (Qwen3-Next, Kimi): chunks of tokens, each with a triangular system, become one Scan over tokens.

The chunked form and the recurrent one are the same sum. The rounds are as many as there are tokens.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import onnxpatch
from onnxpatch import Proof, When, patch
from onnxpatch.formulas.symbolic import fixed_size

_MODELS = "transformers.models"
_GATED = ("qwen3_next", "qwen3_5", "qwen3_5_moe", "olmo_hybrid", "qwen4_exp")
_BY_CHANNEL = ("kimi_linear", "bailing_hybrid", "glm5_next")
_QWEN, _KIMI = f"{_MODELS}.qwen3_next.modeling_qwen3_next", f"{_MODELS}.kimi_linear.modeling_kimi_linear"
Function = Callable[..., tuple[Tensor, "Tensor | None"]]


class _Gated(torch.nn.Module):
    """Half as many heads of keys as of values."""

    def __init__(self) -> None:
        super().__init__()
        # Loaded before the model is patched, as it is where a model's own module imports it.
        importlib.import_module(_QWEN)

    def forward(self, query: Tensor, key: Tensor, value: Tensor, gates: Tensor) -> tuple[Tensor, Tensor | None]:
        qwen = importlib.import_module(_QWEN)
        decay, beta = -torch.exp(gates), torch.sigmoid(gates)
        rule = qwen.torch_chunk_gated_delta_rule
        return rule(query, key, value, decay, beta, output_final_state=True, use_qk_l2norm_in_kernel=True)


class _ByChannel(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        importlib.import_module(_KIMI)

    def forward(self, query: Tensor, key: Tensor, value: Tensor, gates: Tensor) -> Tensor:
        kimi = importlib.import_module(_KIMI)
        decay, beta = -torch.exp(key), torch.sigmoid(gates)
        output, _ = kimi.chunk_kimi_delta_attention(query, key, value, decay, beta, use_qk_l2norm_in_kernel=True)
        return output


def _sequences(heads: int, channels: int) -> list[tuple[Tensor, ...]]:
    """Queries, keys, values and gates; the last sequence is longer than a chunk."""
    sizes = ((2, 5), (3, 9), (1, 1), (1, 70))
    queries = [[torch.randn(batch, length, heads, channels) for _ in range(2)] for batch, length in sizes]
    rest = [(torch.randn(batch, length, 4, 6), torch.randn(batch, length, 4)) for batch, length in sizes]
    return [(*first, *second) for first, second in zip(queries, rest, strict=True)]


def _proof(build: Callable[[], torch.nn.Module], heads: int, reason: str) -> Proof:
    return Proof(
        build=build, inputs=lambda: _sequences(heads, 3), fails=("trace",), exporters=("dynamo", "trace"), reason=reason
    )


@patch(
    *(f"{_MODELS}.{name}.modeling_{name}.torch_chunk_gated_delta_rule" for name in _GATED),
    *(f"{_MODELS}.{name}.modeling_{name}.torch_recurrent_gated_delta_rule" for name in _GATED),
    name="gated-delta-rule",
    why="linalg_solve_triangular of 64 rows has no ONNX form; the loops over tokens or chunks are unrolled",
    link="https://github.com/huggingface/transformers/issues/41108",
    when=When(exporters=("dynamo", "trace")),
    proof=_proof(_Gated, 2, "linalg_solve_triangular"),
)
def gated_delta_rule(
    original: Function, query: Tensor, key: Tensor, value: Tensor, g: Tensor, beta: Tensor, **options: Any
) -> tuple[Tensor, Tensor | None]:
    """query, key: (batch, length, key heads, keys); value: (batch, length, heads, values); g, beta: (batch, length,
    heads). Returns what the original does: the output like value, and the last state where it is asked for."""
    groups = _heads(value) // _heads(key)
    if groups > 1:
        # Several heads of values share one of the keys.
        query, key = query.repeat_interleave(groups, dim=2), key.repeat_interleave(groups, dim=2)
    return kimi_delta_rule(original, query, key, value, g[..., None], beta, **options)


@patch(
    *(f"{_MODELS}.{name}.modeling_{name}.chunk_kimi_delta_attention" for name in _BY_CHANNEL),
    *(f"{_MODELS}.{name}.modeling_{name}.recurrent_kimi_delta_attention" for name in _BY_CHANNEL),
    name="kimi-delta-rule",
    why="the loops over tokens, or over chunks of 64, are unrolled for the example's length",
    link="https://github.com/huggingface/transformers/issues/41108",
    when=When(exporters=("dynamo", "trace")),
    proof=_proof(_ByChannel, 4, "relative error|onnxruntime fails|shape"),
)
def kimi_delta_rule(
    original: Function,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    g: Tensor,
    beta: Tensor,
    *,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    **others: object,
) -> tuple[Tensor, Tensor | None]:
    """The same with g: (batch, length, heads, keys), a decay for each channel of the keys."""
    dtype, channels = query.dtype, fixed_size(query, 3)
    # float32, and the length in front: as the original computes it, and as a Scan takes its rows.
    query, key, value, decay, beta = (part.float().transpose(0, 1) for part in (query, key, value, g, beta))
    if use_qk_l2norm_in_kernel:
        query, key = _normalised(query), _normalised(key)
    if channels is not None:
        query = query * channels**-0.5

    def step(state: Tensor, row: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        q, k, v, log_decay, rate = row
        state = state * torch.exp(log_decay)[..., None]
        known = (state * k[..., None]).sum(-2)
        # The delta rule: only what the state does not know of the value yet is written.
        state = state + k[..., None] * ((v - known) * rate[..., None])[:, :, None, :]
        return state, (state * q[..., None]).sum(-2)

    shape = [value.shape[1], value.shape[2], key.shape[-1], value.shape[-1]]
    first = torch.zeros(shape, device=value.device) if initial_state is None else initial_state.to(value)
    last, outs = onnxpatch.scan(step)(first, (query, key, value, decay, beta))
    return outs.transpose(0, 1).to(dtype), last if output_final_state else None


def _normalised(x: Tensor) -> Tensor:
    return x * torch.rsqrt((x * x).sum(-1, keepdim=True) + 1e-6)


def _heads(x: Tensor) -> int:
    return fixed_size(x, 2) or 1

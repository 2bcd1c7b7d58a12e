"""Selective scans of state space models (Mamba), and MiniMax's lightning attention: a loop over tokens is one Scan.

It keeps one state. Measured in onnxruntime on 128 channels with a state of 16 and 512 tokens: 18 to 47 ms, the same by
doubling steps (`formulas.scans`) 240 to 280 ms. The rounds are as many as there are tokens; each of them is one state's
work. mambapy's own scan has steps of doubling lengths, written in place through views.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

import onnxpatch
from onnxpatch import KnownBody, Proof, When, op, patch
from onnxpatch.formulas.symbolic import symbolic
from onnxpatch.patching.proof import computing, randomised

WRITTEN_FOR = "transformers 5.23.0"
_MODELS = "transformers.models"
_WITH_IT = ("mamba", "falcon_mamba", "jamba", "zamba")


def _mixer() -> torch.nn.Module:
    from transformers import MambaConfig
    from transformers.models.mamba.modeling_mamba import MambaMixer

    config = MambaConfig(hidden_size=8, state_size=4, num_hidden_layers=1)
    return computing(lambda mixer, x: mixer(x), randomised(MambaMixer(config, 0)))


@op(
    *(f"{_MODELS}.{name}.modeling_{name}.mamba_selective_scan" for name in _WITH_IT),
    name="selective-scan",
    why="for index in range(seq_len): the loop over the tokens is unrolled for the example's length",
    reason="onnxruntime fails|specializ|broadcast|inferred a static shape",
    link="https://github.com/huggingface/transformers/issues/29631",
    requires=("transformers>=5",),
    tries=lambda batch, length: torch.randn(batch, length, 8),
    sizes=((2, 5), (3, 9), (1, 1)),
    case=_mixer,
    unchanged="fixed sizes",
    # transformers pads by the width of the weight, of which torch 2.8 makes a traced size.
    beside=("constant-arguments",),
)
def selective_scan(
    original: Callable[..., Tensor],
    hidden_states: Tensor,
    dt: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor | None = None,
    z: Tensor | None = None,
    delta_bias: Tensor | None = None,
    delta_softplus: bool = False,
    return_last_state: bool = False,
    **others: object,
) -> Tensor | tuple[Tensor, Tensor]:
    """(batch, channels, length) to the same, and the last state where it is asked for.

    dt, z: as hidden_states. A: (channels, states); B, C: (batch, states, length); D, delta_bias: (channels,).
    """
    batch, channels, length = hidden_states.shape
    if not symbolic(length):
        return NotImplemented
    if delta_bias is not None:
        dt = dt + delta_bias.to(dt.dtype)[..., None]
    if delta_softplus:
        dt = functional.softplus(dt)

    def step(state: Tensor, row: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        delta, scaled, into, out_of = row
        state = torch.exp(delta[:, :, None] * A) * state + scaled[:, :, None] * into[:, None, :]
        return state, (state * out_of[:, None, :]).sum(-1)

    # The length in front, since a Scan takes its rows from the first axis.
    rows = tuple(part.float().permute(2, 0, 1) for part in (dt, dt * hidden_states, B, C))
    first = torch.zeros([batch, channels, A.shape[-1]], dtype=torch.float32, device=dt.device)
    last, outs = onnxpatch.scan(step)(first, rows)
    output = outs.permute(1, 2, 0).to(hidden_states.dtype)
    if D is not None:
        output = output + hidden_states * D[None, :, None]
    if z is not None:
        output = output * functional.silu(z)
    return (output, last.to(hidden_states.dtype)) if return_last_state else output


def _lightning() -> torch.nn.Module:
    from transformers import MiniMaxConfig
    from transformers.models.minimax.modeling_minimax import MiniMaxLightningAttention

    config = MiniMaxConfig(hidden_size=8, num_attention_heads=2, head_dim=4, block_size=4, num_hidden_layers=2,
                           layer_types=["linear_attention"] * 2)  # fmt: skip
    return computing(
        lambda attention, x, mask: attention(x, None, mask)[0], randomised(MiniMaxLightningAttention(config, 0))
    )


def _texts() -> list[tuple[Tensor, Tensor]]:
    # For blocks of 4: lengths that end inside a block, and one that is shorter.
    return [(torch.randn(b, n, 8), (torch.rand(b, n) > 0.2).long()) for b, n in ((2, 6), (3, 9), (1, 1))]


@patch(
    "transformers.models.minimax.modeling_minimax.MiniMaxLightningAttention",
    name="lightning-attention",
    why="for i in range(num_blocks): as many blocks as the example's length has, and the last one as long as its rest",
    link="https://github.com/huggingface/transformers/pull/35831",
    when=When(
        bodies={"forward": {KnownBody("74222c6b7bf0", WRITTEN_FOR), KnownBody("cd4125e20756", "transformers 5.24.0")}}
    ),
    proof=Proof(
        build=_lightning, inputs=_texts, fails=("dynamo", "trace"), reason="cannot be reshaped|broadcast|relative error"
    ),
)
class _MiniMaxLightningAttention:
    """Linear attention, in which earlier steps decay by a factor for each head."""

    def forward(
        self: Any,
        hidden_states: Tensor,
        position_embeddings: tuple[Tensor, Tensor],
        attention_mask: Tensor | None,
        *cached: Any,
        **others: Any,
    ) -> tuple[Tensor, Tensor]:
        """hidden_states: (batch, length, hidden); attention_mask: (batch, length). Returns the same, and the sum of
        keys times values, (batch, heads, features, features). The cache is called past_key_values, and cache from
        transformers 5.24 on."""
        batch, length, _ = hidden_states.shape
        if not symbolic(length):
            return NotImplemented
        named = (others.get(name) for name in ("cache", "past_key_values"))
        cache = next((one for one in (*cached[:1], *named) if one is not None), None)
        operands = self.act_fn(self.qkv_proj(hidden_states))
        if attention_mask is not None:
            operands = (operands * attention_mask[:, :, None]).to(operands.dtype)
        operands = operands.reshape(batch, length, self.num_attention_heads, 3 * self.head_dim)
        query, key, value = (part.transpose(0, 1) for part in operands.split(self.head_dim, dim=3))

        known = None if cache is None else cache.get_linear_cache(self.layer_idx)
        if known is None:
            shape = [batch, self.num_attention_heads, self.head_dim, self.head_dim]
            known = torch.zeros(shape, device=value.device, dtype=value.dtype)
        decay = torch.exp(-self.slope_rate)

        def step(known: Tensor, row: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
            q, k, v = row
            known = decay * known + k[..., None] * v[:, :, None, :]
            return known, (q[..., None] * known).sum(2)

        last, outs = onnxpatch.scan(step)(known, (query, key, value))
        output = self.norm(outs.transpose(0, 1).reshape(batch, length, self.num_attention_heads * self.head_dim))
        output = self.out_proj(functional.sigmoid(self.output_gate(hidden_states)) * output)
        if cache is not None:
            cache.set_linear_cache(self.layer_idx, last)
        return output, last


# ------------------------------------------------------------------ mambapy
class _Scan(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        import mambapy.pscan  # noqa: F401  loaded before the patches look for it

    def forward(self, factors: Tensor, x: Tensor) -> Tensor:
        from mambapy.pscan import pscan

        return pscan(torch.sigmoid(factors), x)


@op(
    "mambapy.pscan.pscan",
    name="mambapy-scan",
    why="PScan writes in place through views of a transposed tensor, and loops over halves of the example's length",
    reason="relative error|shape|onnxruntime fails",
    link="https://github.com/alxndrTL/mamba.py/blob/main/mambapy/pscan.py",
    requires=("mambapy",),
    tries=lambda b, n: tuple(torch.randn(b, n, 2, 3) for _ in range(2)),
    sizes=((2, 6), (3, 11), (1, 1)),
    case=_Scan,
    unchanged="fixed sizes",
)
def pscan(original: Callable[[Tensor, Tensor], Tensor], A_in: Tensor, X_in: Tensor) -> Tensor:
    """Computes h[t] = A[t] * h[t - 1] + X[t] along axis 1 of (batch, length, channels, states)."""
    # A static length needs no loop in the graph: mambapy's own steps are unrolled.
    if not symbolic(X_in.shape[1]):
        return NotImplemented

    def step(state: Tensor, row: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        state = row[0] * state + row[1]
        return state, state * 1  # a result must not be the state itself

    _, outs = onnxpatch.scan(step)(torch.zeros_like(X_in[:, 0]), (A_in.transpose(0, 1), X_in.transpose(0, 1)))
    return outs.transpose(0, 1)

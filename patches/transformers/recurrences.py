"""Recurrent layers that are no state spaces: RWKV's attention, the linear unit of Griffin, xLSTM's memory, as one Scan.

The rounds are as many as there are tokens.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

import onnxpatch
from onnxpatch import KnownBody, Proof, When, op, patch
from onnxpatch.formulas.symbolic import fixed_size, symbolic
from onnxpatch.patching.proof import computing, randomised

WRITTEN_FOR = "transformers 5.23.0"
WHY = "for t in range(length): the loop over the tokens is unrolled for the example's length"
LINK = "https://github.com/pytorch/pytorch/issues/94280"
FAILURE = "onnxruntime fails|inferred a static shape|broadcast|relative error"
_MODELS = "transformers.models"
_RWKV = f"{_MODELS}.rwkv.modeling_rwkv"
_SIZES = ((2, 5), (3, 9), (1, 1))


class _Attention(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        # Loaded before the model is patched, as it is where a model's own module imports it.
        importlib.import_module(_RWKV)
        self.decay, self.first = torch.nn.Parameter(torch.randn(4)), torch.nn.Parameter(torch.randn(4))

    def forward(self, key: Tensor, value: Tensor) -> tuple[Tensor, ...]:
        output, state = importlib.import_module(_RWKV).rwkv_linear_attention(
            self.decay, self.first, key, value, return_state=True
        )
        return (output, *state)


@op(
    f"{_RWKV}.rwkv_linear_attention",
    f"{_RWKV}.rwkv_linear_attention_cpu",
    name="rwkv-attention",
    why=WHY,
    reason=FAILURE,
    link=LINK,
    tries=lambda: [(torch.randn(b, n, 4), torch.randn(b, n, 4)) for b, n in _SIZES],
    case=_Attention,
    unchanged="fixed sizes",
)
def rwkv_attention(
    original: Callable[..., object],
    time_decay: Tensor,
    time_first: Tensor,
    key: Tensor,
    value: Tensor,
    state: Sequence[Tensor] | None = None,
    return_state: bool = False,
) -> tuple[Tensor, Sequence[Tensor] | None]:
    """key, value: (batch, length, channels); time_decay, time_first: (channels,). state: sums of weighted values and
    of weights, both relative to exp of the third, (batch, channels) each."""
    if not symbolic(key.shape[1]):
        return NotImplemented
    # Learned as the logarithm of a rate, as in the original.
    decay = -torch.exp(time_decay)

    def step(state: tuple[Tensor, ...], row: tuple[Tensor, ...]) -> tuple[tuple[Tensor, ...], Tensor]:
        values, weights, largest = state
        new_key, new_value = row
        # Sums of exponentials are kept relative to the largest exponent so far, which neither overflows nor vanishes.
        at = torch.maximum(largest, new_key + time_first)
        old, new = torch.exp(largest - at), torch.exp(new_key + time_first - at)
        output = (old * values + new * new_value) / (old * weights + new)
        at = torch.maximum(largest + decay, new_key)
        old, new = torch.exp(largest + decay - at), torch.exp(new_key - at)
        return (old * values + new * new_value, old * weights + new, at), output

    given = state is not None
    if state is None:
        nothing = torch.zeros([key.shape[0], key.shape[2]], dtype=torch.float32, device=key.device)
        # As transformers starts it. A clone, since in torch's scan no operand may be another one.
        state = (nothing, nothing.clone(), nothing - 1e38)
    rows = (key.float().transpose(0, 1), value.float().transpose(0, 1))
    last, outs = onnxpatch.scan(step)(tuple(state), rows)
    # Who hands in a state gets one back, as in the original.
    return outs.transpose(0, 1).to(key.dtype), list(last) if given or return_state else None


class _Unit(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        from transformers import RecurrentGemmaConfig
        from transformers.models.recurrent_gemma.modeling_recurrent_gemma import RecurrentGemmaRglru

        config = RecurrentGemmaConfig(hidden_size=8, lru_width=8, num_attention_heads=2)
        self.unit = randomised(RecurrentGemmaRglru(config))

    def forward(self, x: Tensor) -> Tensor:
        # The unit keeps its last state between calls; each text of the proof begins without one.
        setattr(self.unit, "recurrent_states", None)  # noqa: B010  nn.Module's annotation knows tensors only
        return self.unit(x, torch.arange(x.shape[1])[None])


@patch(
    f"{_MODELS}.recurrent_gemma.modeling_recurrent_gemma.RecurrentGemmaRglru",
    name="linear-recurrent-unit",
    why=WHY,
    link=LINK,
    when=When(requires=("transformers>=5",), bodies={"_rnn_scan": {KnownBody("3144279b81fb", WRITTEN_FOR)}}),
    proof=Proof(
        build=_Unit,
        inputs=lambda: [(torch.randn(b, n, 8),) for b, n in _SIZES],
        fails=("dynamo", "trace"),
        reason=FAILURE,
    ),
)
class _RecurrentGemmaRglru:
    """Griffin's linear recurrent unit."""

    def _rnn_scan(
        self,
        hidden_states: Tensor,
        recurrent_gate: Tensor,
        reset: Tensor,
        recurrent_states: Tensor | None,
        acc_dtype: torch.dtype = torch.float32,
    ) -> tuple[Tensor, Tensor]:
        """hidden_states, recurrent_gate: (batch, length, width); reset: (batch, length, 1), where a text begins."""
        if not symbolic(hidden_states.shape[1]):
            return NotImplemented
        # Where a text begins, nothing is kept of the one before it.
        gate = recurrent_gate * ~reset
        first = torch.zeros_like(hidden_states[:, 0], dtype=acc_dtype) if recurrent_states is None else recurrent_states

        def step(state: Tensor, row: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
            state = row[0] * state + row[1]
            return state, state * 1  # a result must not be the state itself

        rows = tuple(part.to(acc_dtype).transpose(0, 1) for part in (gate, hidden_states))
        last, outs = onnxpatch.scan(step)(first, rows)
        return outs.transpose(0, 1).to(hidden_states.dtype), last


def _memory() -> torch.nn.Module:
    from transformers import xLSTMConfig
    from transformers.models.xlstm.modeling_xlstm import xLSTMBackend

    return computing(
        lambda memory, query, key, value, gates: memory(query, key, value, gates, gates + 1)[0],
        xLSTMBackend(xLSTMConfig(hidden_size=8, num_heads=2, chunk_size=4)),
    )


def _memories() -> list[tuple[Tensor, ...]]:
    return [(*(torch.randn(b, 2, n, 3) for _ in range(3)), torch.randn(b, 2, n)) for b, n in _SIZES]


@patch(
    f"{_MODELS}.xlstm.modeling_xlstm.xLSTMBackend",
    name="xlstm-memory",
    why="chunks of the length, then a loop over the tokens that are left: both are frozen at the example's length",
    link=LINK,
    when=When(bodies={"forward": {KnownBody("b36fa25c389f", WRITTEN_FOR)}}),
    proof=Proof(
        build=_memory,
        inputs=_memories,
        fails=("dynamo", "trace"),
        reason=f"{FAILURE}|Shape mismatch",
        beside=("logsigmoid",),
    ),
)
class _xLSTMBackend:
    """xLSTM's matrix memory."""

    def forward(
        self: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        igate: Tensor,
        fgate: Tensor,
        c_initial: Tensor | None = None,
        n_initial: Tensor | None = None,
        m_initial: Tensor | None = None,
        return_last_states: bool | None = None,
        mode: str | None = None,
    ) -> Any:
        """query, key: (batch, heads, length, keys); value: (batch, heads, length, values); the gates: (batch, heads,
        length). Returns the output like value, and where the mode has them the last memory, normalizer and maximum."""
        if not symbolic(query.shape[2]):
            return NotImplemented
        inference = "inference" in (mode or self.config.mode)
        wanted = self.config.return_last_states if return_last_states is None else return_last_states
        if c_initial is None or n_initial is None or m_initial is None:
            batch, heads, _, keys = query.shape
            c_initial = torch.zeros([batch, heads, keys, value.shape[3]], dtype=torch.float32, device=query.device)
            # Times 1: in torch's scan no operand may be a view of another one.
            n_initial, m_initial = c_initial[..., 0] * 1, c_initial[..., 0, :1] * 1
        outs, last = _remembered(self.config.eps, (query, key, value, igate, fgate), (c_initial, n_initial, m_initial))
        return (outs.to(query.dtype), last) if inference or wanted else outs.to(query.dtype)


def _remembered(
    eps: float, operands: tuple[Tensor, ...], state: tuple[Tensor, ...]
) -> tuple[Tensor, tuple[Tensor, ...]]:
    query, key, value, igate, fgate = operands
    scale = (fixed_size(query, 3) or 1) ** -0.5

    def step(state: tuple[Tensor, ...], row: tuple[Tensor, ...]) -> tuple[tuple[Tensor, ...], Tensor]:
        memory, normalizer, largest = state
        q, k, v, let_in, kept = row
        kept, let_in = kept[..., None] + largest, let_in[..., None]
        largest = torch.maximum(kept, let_in)
        kept, let_in = torch.exp(kept - largest), torch.exp(let_in - largest)
        memory = kept[..., None] * memory + let_in[..., None] * (k[..., None] * v[:, :, None, :])
        normalizer = kept * normalizer + let_in * k
        total = (q * normalizer).sum(-1, keepdim=True).abs()
        read = (q[..., None] * memory).sum(2)
        # xLSTM divides by at least 1, which is exp(-largest) in the scale that the sums are kept in.
        return (memory, normalizer, largest), read / (torch.maximum(total, torch.exp(-largest)) + eps)

    rows = (query * scale, key, value, igate, functional.logsigmoid(fgate))
    turned = tuple(part.float().transpose(0, 2).transpose(1, 2) for part in rows)  # (length, batch, heads, ...)
    last, outs = onnxpatch.scan(step)(tuple(part.float() for part in state), turned)
    return outs.permute(1, 2, 0, 3), last

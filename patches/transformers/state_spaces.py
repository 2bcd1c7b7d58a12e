"""Mamba's selective scan: a loop over the tokens becomes one Scan, which keeps one state and not all of them.

Measured in onnxruntime on 128 channels with a state of 16 and 512 tokens: 18 to 47 ms, the same by doubling steps
(`formulas.scans`) 240 to 280 ms. The rounds are as many as there are tokens; each of them is one state's work.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

import onnxpatch
from onnxpatch import op
from onnxpatch.formulas.proof_models import randomised
from onnxpatch.formulas.symbolic import symbolic

_MODELS = "transformers.models"
_WITH_IT = ("mamba", "falcon_mamba", "jamba", "zamba")


class _Mixer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        from transformers import MambaConfig
        from transformers.models.mamba.modeling_mamba import MambaMixer

        config = MambaConfig(hidden_size=8, state_size=4, num_hidden_layers=1)
        self.mixer = randomised(MambaMixer(config, 0))

    def forward(self, x: Tensor) -> Tensor:
        return self.mixer(x)


@op(
    *(f"{_MODELS}.{name}.modeling_{name}.mamba_selective_scan" for name in _WITH_IT),
    name="selective-scan",
    why="for index in range(seq_len): the loop over the tokens is unrolled for the example's length",
    reason="onnxruntime fails|specializ|broadcast|inferred a static shape",
    link="https://github.com/huggingface/transformers/issues/29631",
    requires=("transformers>=5",),
    tries=lambda batch, length: torch.randn(batch, length, 8),
    sizes=((2, 5), (3, 9), (1, 1)),
    case=_Mixer,
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

"""torch.nn.functional.scaled_dot_product_attention: what the exporters get wrong or refuse, in the form that is fast.

Grouped heads, other ranks than four, a causal flag that depends on a size, and masks that leave a query without any
key come out right. Without the patch the exporters copy the keys, scale queries and keys, and pass over all scores
again for NaN.
"""

from __future__ import annotations

import torch

from onnxpatch import Proof, patch
from onnxpatch.formulas.attention import attend, upto


class _Attention(torch.nn.Module):
    """A mask of padding in which a row may be all padding, then attention over (batch, length, features)."""

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        keep = torch.arange(x.shape[1]) < lengths[:, None]
        q = x.unflatten(-1, (2, -1)).transpose(1, 2)
        attention = torch.nn.functional.scaled_dot_product_attention
        masked = attention(q, q[:, :1], q[:, :1], keep[:, None, None], enable_gqa=True)
        return masked, attention(x, x, x, is_causal=x.shape[1] > 1)


@patch(
    "torch.nn.functional.scaled_dot_product_attention",
    name="attention",
    why="only 4D query, key, and value are supported; conversion of scaled_dot_product_attention not implemented if "
    "enable_gqa is True; argument 'is_causal' must be bool, not Tensor; wrong numbers where a row is masked entirely",
    link="https://github.com/pytorch/pytorch/issues/149662",
    by_name=True,  # torch refuses a causal flag that is a tensor before it dispatches the call
    proof=Proof(
        build=_Attention,
        inputs=lambda: [
            (torch.randn(2, 5, 8), torch.tensor([3, 5])),
            (torch.randn(3, 7, 8), torch.tensor([0, 7, 4])),
            (torch.randn(1, 4, 8), torch.tensor([0])),
        ],
        dynamic_shapes=({0: "batch", 1: "length"}, {0: "batch"}),
        fails=("dynamo", "trace"),
        reason="is_causal",
    ),
)
def scaled_dot_product_attention(
    original: object,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: object = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """As torch's; `is_causal` may depend on a size."""
    if dropout_p:  # an export of a model in training
        return NotImplemented
    depends = isinstance(is_causal, torch.Tensor | torch.SymBool)
    if depends and attn_mask is not None:
        # torch takes a mask or the flag. `q > 1 and mask is None` gives back its first operand where that is false: in
        # a trace of one query, a flag that says "more than one query" beside a mask.
        depends, is_causal = False, False
    if depends:  # with one query and one key a causal mask changes nothing; with more, the flag is what it says
        attn_mask, is_causal = upto(query, key) | ~_as_tensor(is_causal, query), False
    return attend(query, key, value, attn_mask, scale, bool(is_causal), empty_rows=not depends)


def _as_tensor(flag: object, like: torch.Tensor) -> torch.Tensor:
    if isinstance(flag, torch.Tensor):
        return flag.to(torch.bool)
    return torch.ones((), dtype=torch.bool, device=like.device) & (torch.scalar_tensor(torch.sym_ite(flag, 1, 0)) > 0)

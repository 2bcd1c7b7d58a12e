"""F.scaled_dot_product_attention, in calls that the exporters refuse or get wrong, and in a faster form.

Without the patch they refuse grouped heads, ranks other than four and a causal flag that depends on a size; they give
NaN or wrong numbers for queries that may attend to no key; and they copy keys, scale queries and keys, and pass over
all scores once more to remove NaN.
"""

from __future__ import annotations

import torch

from onnxpatch import Proof, When, patch
from onnxpatch.formulas.attention import attend, upto


class _Attention(torch.nn.Module):
    """Attention over (batch, length, features) with a padding mask in which a row may be all padding."""

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
    when=When(
        by_name=True,  # torch refuses a tensor for is_causal before it dispatches the call
    ),
    proof=Proof(
        build=_Attention,
        inputs=lambda: [
            (torch.randn(2, 5, 8), torch.tensor([3, 5])),
            # A length of 0: all keys of that row are padding.
            (torch.randn(3, 7, 8), torch.tensor([0, 7, 4])),
            (torch.randn(1, 4, 8), torch.tensor([0])),
        ],
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
    """As in torch. `is_causal` may depend on a size. Source: torch.nn.functional.scaled_dot_product_attention."""
    if dropout_p:  # the model is in training mode
        return NotImplemented
    depends = isinstance(is_causal, torch.Tensor | torch.SymBool)
    if depends and attn_mask is not None:
        # torch takes a mask or the flag, not both. `is_causal = q > 1 and mask is None` is `q > 1` if that is false: a
        # trace of one query has a mask and a flag that is a traced `q > 1`.
        depends, is_causal = False, False
    if depends:  # the flag is True for more than one query; for one, a causal mask changes nothing
        attn_mask, is_causal = upto(query, key) | ~_as_tensor(is_causal, query), False
    return attend(query, key, value, attn_mask, scale, bool(is_causal), empty_rows=not depends)


def _as_tensor(flag: object, like: torch.Tensor) -> torch.Tensor:
    if isinstance(flag, torch.Tensor):
        return flag.to(torch.bool)
    return torch.ones((), dtype=torch.bool, device=like.device) & (torch.scalar_tensor(torch.sym_ite(flag, 1, 0)) > 0)

"""F.scaled_dot_product_attention, in calls that the exporters refuse or get wrong, and in a faster form.

Without the patch they refuse grouped heads, ranks other than four and a causal flag that depends on a size; they give
NaN or wrong numbers for queries that may attend to no key; and they copy keys, scale queries and keys, and pass over
all scores once more to remove NaN.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from onnxpatch import Proof, RefusedError, When, op, patch, untraced
from onnxpatch.formulas.attention import attend, repeat_heads, upto
from onnxpatch.patching.proof import matrices, pairs

_ATEN = torch.ops.aten


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


Mod = Callable[..., torch.Tensor]
MODULE = "torch.nn.attention.flex_attention"


@dataclass(frozen=True)
class _MaskFunction:
    """Replaces a BlockMask during export: only the mask function. Blocks matter for kernels only."""

    mask_mod: Mod

    @property  # type: ignore[misc]  # isinstance() asks it, as mock's objects do
    def __class__(self) -> type:
        """transformers asks whether a mask is a BlockMask, and takes it for a tensor of scores otherwise."""
        from torch.nn.attention.flex_attention import BlockMask

        return BlockMask

    # As BlockMask has it: models move their masks to a device.
    def to(self, device: object) -> _MaskFunction:
        return self


def index_pairs(scores: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Indices of batch, head, query and key that broadcast to (batch, heads, queries, keys)."""
    shape = lambda axis: [-1 if i == axis else 1 for i in range(4)]  # noqa: E731
    return tuple(torch.arange(scores.shape[i], device=scores.device).view(shape(i)) for i in range(4))


class _Windowed(torch.nn.Module):
    """Causal attention within a window, with a bias by distance for each head."""

    def __init__(self) -> None:
        super().__init__()
        self.slopes = torch.nn.Parameter(torch.tensor([0.5, 0.1]))

    def forward(self, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention

        # `i != 1`: query 1 may attend to nothing.
        near = lambda b, h, i, j: (i >= j) & (i - j < 4) & (i != 1)  # noqa: E731
        mask = create_block_mask(near, None, None, q.shape[2], q.shape[2], device="cpu")
        bias = lambda score, b, h, i, j: score - self.slopes[h] * (i - j)  # noqa: E731
        return flex_attention(q, k, k, score_mod=bias, block_mask=mask, enable_gqa=True)


@op(
    f"{MODULE}.flex_attention",
    # Which calls what torch.compile made of it.
    "transformers.integrations.flex_attention.compile_friendly_flex_attention",
    name="flex-attention",
    why="No ONNX function found for <torch.ops.higher_order.flex_attention>; Unsupported value kind: Tensor",
    reason="flex_attention|aten.sort|Unsupported value kind|BLOCK_SIZE",
    link="https://github.com/pytorch/pytorch/issues/147371",
    tries=lambda b, n: (torch.randn(b, 2, n, 16), torch.randn(b, 1, n, 16)),
    sizes=((2, 9), (1, 17), (3, 4)),
    case=_Windowed,
    beside=("flex-attention-mask", "stable-sort"),
)
def flex_attention(
    original: Callable[..., torch.Tensor],
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    score_mod: Mod | None = None,
    block_mask: Any = None,
    scale: float | None = None,
    enable_gqa: bool = False,
    return_lse: bool = False,
    kernel_options: object = None,
    *,
    return_aux: object = None,
    training: bool = False,
) -> object:
    """As in torch, but return_aux is refused. (batch, heads, length, features)."""
    if return_aux is not None:
        raise RefusedError("flex_attention with return_aux has no ONNX form here: ask for the output alone")
    if enable_gqa:
        # score_mod is called with the number of the query's head, so heads cannot be grouped into rows.
        key, value = repeat_heads(key, query.shape[1], 1), repeat_heads(value, query.shape[1], 1)
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = torch.matmul(query, key.transpose(-1, -2)) * scale
    where = index_pairs(scores)
    if score_mod is not None:
        scores = score_mod(scores, *where)
    if block_mask is not None:
        # Asked once with all pairs: a mask function is elementwise, since flex_attention calls it under vmap.
        allowed = block_mask.mask_mod(*where)
        scores = torch.where(allowed, scores, torch.full_like(scores, -math.inf))
    # A query that may attend to no key gives zeros. Its largest score is -inf, and -inf - -inf would be NaN.
    largest = scores.amax(-1, keepdim=True)
    largest = torch.where(largest == -math.inf, torch.zeros_like(largest), largest)
    weights = torch.exp(scores - largest)
    total = weights.sum(-1, keepdim=True)
    output = torch.matmul(weights / torch.where(total == 0, torch.ones_like(total), total), value)
    return (output, (torch.log(total) + largest).squeeze(-1)) if return_lse else output


def _mask_only(x: torch.Tensor) -> torch.Tensor:
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, x.shape[2], x.shape[2], device="cpu")
    return flex_attention(x, x, x, block_mask=mask)


@op(
    f"{MODULE}.create_block_mask",
    name="flex-attention-mask",
    why="Exporting the operator 'aten::sort' with stable=True, or vmap, of create_block_mask is not supported",
    reason="Unsupported value kind|BLOCK_SIZE",
    link="https://github.com/pytorch/pytorch/issues/147371",
    fails=("trace",),  # dynamo is right without it, and must stay so
    tries=lambda b, n: torch.randn(b, 1, n, 16),
    sizes=((2, 9), (1, 17), (3, 4)),
    case=_mask_only,
    beside=("flex-attention", "stable-sort"),
)
def create_block_mask(original: object, mask_mod: Mod, *args: object, **kwargs: object) -> _MaskFunction:
    """Returns a `_MaskFunction`, which `flex_attention` above calls with all pairs of tokens."""
    return _MaskFunction(mask_mod)


# ------------------------------------------------------------------ backward passes
@op(
    "ops.aten._softmax_backward_data",
    "ops.aten._softmax_backward_data.default",
    why=untraced("aten::_softmax_backward_data"),
    tries=pairs,
    name="softmax-backward",
    case=lambda x, y: _ATEN._softmax_backward_data(x, y, 1, torch.float32),
)
def softmax_backward(grad_output: Tensor, output: Tensor, dim: int = -1, input_dtype: Any = None) -> Tensor:
    """The slope of a softmax, from its result. The CPU does not look at input_dtype."""
    part = grad_output * output
    return part - output * part.sum(dim, keepdim=True)


@op(
    "ops.aten.native_dropout_backward",
    "ops.aten.native_dropout_backward.default",
    why=untraced("aten::native_dropout_backward"),
    tries=pairs,
    name="dropout-backward",
    case=lambda x, y: _ATEN.native_dropout_backward(x, y > 0, 2.0),
)
def dropout_backward(grad_output: Tensor, mask: Tensor, scale: float) -> Tensor:
    """What came through, scaled."""
    return grad_output * mask.to(grad_output.dtype) * scale


@op(
    "ops.aten._safe_softmax",
    "ops.aten._safe_softmax.default",
    why=untraced("aten::_safe_softmax"),
    tries=matrices,
    name="safe-softmax",
    case=lambda x: _ATEN._safe_softmax(torch.where(x[:, :1] > 0, -torch.inf, x), 1),
)
def safe_softmax(self: Tensor, dim: int, dtype: torch.dtype | None = None) -> Tensor:
    """A softmax, 0 where all is -inf."""
    x = self if dtype is None else self.to(dtype)
    nothing = x.amax(dim, keepdim=True) == -torch.inf
    return torch.where(nothing, torch.zeros_like(x), torch.softmax(torch.where(nothing, torch.zeros_like(x), x), dim))

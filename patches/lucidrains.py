"""Patches for packages of lucidrains beside vit_pytorch.

gateloop-transformer and assoc-scan: an associative scan over halves of halves of the example's length.
memory-efficient-attention: a Python loop over as many chunks of queries and keys as the example has.
sinkhorn-transformer: differentiable_topk, a Python loop over at most k of the example's buckets.
colt5-attention: a router that passes all tokens on, where they are no more than it would choose.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from onnxpatch import KnownBody, Proof, When, op, patch
from onnxpatch.formulas import scans
from onnxpatch.formulas.complex_pairs import Pair
from onnxpatch.formulas.symbolic import as_tensor, chosen, symbolic
from onnxpatch.patching.proof import randomised


def _gated(gates: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """A gated sum along the rows, as SimpleGateLoopLayer has it, and one whose gates turn a phase."""
    from gateloop_transformer.associative_scan import associative_scan
    from gateloop_transformer.gateloop_transformer import gate_loop_operator
    from gateloop_transformer.simplified_gate_loop import binary_operator

    products, sums = associative_scan(binary_operator, (gates.sigmoid(), x))
    turning = torch.polar(gates[..., :1].sigmoid(), gates[..., 1:2])
    return products * sums, gate_loop_operator(x, gates, x, turning.unsqueeze(-1))


@op(
    "gateloop_transformer.associative_scan.associative_scan",
    "assoc_scan.assoc_scan.associative_scan",
    why="num_elems = int(elems[0].shape[1]): the recursion over halves has the depth and lengths of the example",
    reason="complex|shape|broadcast|onnxruntime fails|specialized",
    link="https://github.com/lucidrains/gateloop-transformer",
    requires=("gateloop-transformer",),
    tries=lambda b, n: tuple(torch.randn(b, n, 3) for _ in range(2)),
    sizes=((2, 6), (3, 11), (1, 1), (2, 200)),
    case=_gated,
    beside=("complex-numbers",),
)
def associative_scan(original: Callable[..., Any], operator: Any, elems: Sequence[Any]) -> object:
    """Computes the running products of the gates and h[t] = gates[t] * h[t - 1] + inputs[t], along axis 1.

    The operators of these packages, all named binary_operator, are those of this recurrence.
    """
    # A compiled function has a `name`, and the `__name__` of its class.
    name = getattr(operator, "name", getattr(operator, "__name__", ""))
    if len(elems) != 2 or name != "binary_operator" or not symbolic(elems[0].shape[1]):
        return NotImplemented
    gates, inputs = elems
    if not any(isinstance(part, Pair) or part.is_complex() for part in elems):
        return list(scans.linear_recurrence(gates, inputs, 1))
    gates, inputs = Pair.of(gates), Pair.of(inputs)
    found = scans.complex_recurrence((gates.real, gates.imag), (inputs.real, inputs.imag), 1)
    return [Pair(*found[:2]), Pair(*found[2:])]


def _attention(x: Tensor, mask: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """Attention with a mask and a bias, as it looks ahead and as it does not."""
    from memory_efficient_attention_pytorch.memory_efficient_attention import memory_efficient_attention

    sizes = dict(q_bucket_size=3, k_bucket_size=4)
    q, k, v = x.unsqueeze(1).tile(1, 3, 1, 1).unsqueeze(0).cumsum(2).unbind(2)
    q, k, v = (part.transpose(0, 1) for part in (q, k, v))
    masked = memory_efficient_attention(q, k, v, mask=mask, attn_bias=bias, **sizes)
    return masked, memory_efficient_attention(q, k, v, mask=mask, causal=True, **sizes)


def _inputs() -> list[tuple[Tensor, ...]]:
    made: list[tuple[Tensor, ...]] = []
    for batch, length in ((2, 7), (3, 8), (1, 1), (2, 15)):
        mask = torch.rand(batch, length) > 0.3
        mask[0, 0] = length < 8  # a row that sees nothing, where it does not look ahead
        made.append((torch.randn(batch, length, 4), mask, torch.randn(1, length, length)))
    return made


@op(
    "memory_efficient_attention_pytorch.memory_efficient_attention.memory_efficient_attention",
    name="chunked-attention",
    why="q.split(q_bucket_size, dim=-2) of a dynamic length: as many chunks as the example has",
    reason="Split|split|specialized|shape",
    link="https://github.com/lucidrains/memory-efficient-attention-pytorch",
    requires=("memory-efficient-attention-pytorch",),
    tries=_inputs,
    case=_attention,
    unchanged="fixed sizes",
)
def chunked_attention(
    original: Callable[..., Tensor],
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    causal: bool = False,
    attn_bias: Tensor | None = None,
    q_bucket_size: int = 512,
    k_bucket_size: int = 1024,
    eps: float = 1e-8,
    dropout: float = 0.0,
    training: bool = False,
) -> Tensor:
    """Computes all chunks at once: (batch, heads, queries, keys) weights are in memory.

    A row that sees nothing has the mean of the chunks that the loop does not skip, as in eager.
    """
    if (training and dropout) or not (symbolic(q.shape[-2]) or symbolic(k.shape[-2])):
        return NotImplemented
    weights = torch.matmul(q * q.shape[-1] ** -0.5, k.transpose(-1, -2))
    if attn_bias is not None:
        weights = weights + attn_bias
    lowest = -torch.finfo(weights.dtype).max
    if mask is not None:
        weights = weights.masked_fill(~mask[:, None, None], lowest)
    skipped: Any = None
    if causal:
        rows = torch.arange(q.shape[-2], device=q.device).unsqueeze(-1)
        columns = torch.arange(k.shape[-2], device=q.device)
        weights = weights.masked_fill(columns > rows, lowest)
        last_row = torch.div(rows, q_bucket_size, rounding_mode="floor") * q_bucket_size + q_bucket_size - 1
        first_column = torch.div(columns, k_bucket_size, rounding_mode="floor") * k_bucket_size
        skipped = first_column > last_row.clamp(max=q.shape[-2] - 1)
    exponentials = (weights - weights.amax(-1, keepdim=True)).exp()
    if skipped is not None:
        exponentials = exponentials.masked_fill(skipped, 0.0)
    return torch.matmul(exponentials, v) / (exponentials.sum(-1, keepdim=True) + eps)


def _sorted(x: Tensor) -> Tensor:
    from sinkhorn_transformer.sinkhorn_transformer import differentiable_topk

    buckets = x.shape[1]
    return differentiable_topk(x @ x.transpose(1, 2), min(2, buckets), temperature=0.7)


@op(
    "sinkhorn_transformer.sinkhorn_transformer.differentiable_topk",
    name="sinkhorn-top-k",
    why="for i in range(min(k, buckets)): at fewer buckets than k there are too many rounds, or too few",
    reason="Reshape|relative error|shape|specialized",
    link="https://github.com/lucidrains/sinkhorn-transformer",
    requires=("sinkhorn-transformer",),
    tries=lambda n: torch.randn(2, n, 3),
    sizes=(4, 1, 7, 2),
    case=_sorted,
    beside=("symbolic-max", "logsumexp"),
)
def sinkhorn_top_k(original: Callable[..., object], x: Tensor, k: Any, temperature: float = 1.0) -> Tensor:
    """Computes all rounds at once: (..., n, dim) to (..., k * n, dim), one entry in each row, the largest first.

    Round i takes the largest of what the rounds before have left, and its share of that.
    """
    if not symbolic(k):
        return NotImplemented
    n, dim = x.shape[-2:]
    ordered, places = (x / temperature).topk(dim, dim=-1)
    columns = torch.arange(dim, device=x.device)
    left = columns >= torch.arange(k, device=x.device).unsqueeze(-1)
    total = ordered.unsqueeze(-2).masked_fill(~left, -torch.inf).logsumexp(-1)
    shares = (ordered[..., :k] - total).exp()
    one = places[..., :k, None] == columns
    return (one * shares.unsqueeze(-1)).reshape([*x.shape[:-2], k * n, dim])


class _Routed(torch.nn.Module):
    """A feedforward network for four tokens, and attention of four queries to five keys."""

    def __init__(self) -> None:
        super().__init__()
        import colt5_attention as library

        self.network: Any = randomised(library.ConditionalRoutedFeedForward(8, num_heavy_tokens=4))
        self.attention: Any = randomised(
            library.ConditionalRoutedAttention(
                8, num_heavy_tokens_q=4, num_heavy_tokens_kv=5, has_light_attn=False, heavy_dim_head=4, heavy_heads=2
            )
        )

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return self.network(x, mask=mask) + self.attention(x, mask=mask)


@patch(
    "colt5_attention.transformer_block.CoordinateDescentRouter",
    name="token-routing",
    why="if n <= num_tokens: return ...: TopK's k argument [4] should not be greater than the dim, in shorter texts",
    link="https://github.com/lucidrains/CoLT5-attention",
    when=When(exporters=("dynamo", "trace"), bodies={"forward": {KnownBody("14cdc9d2cee7", "colt5-attention 0.11.2")}}),
    proof=Proof(
        build=_Routed,
        # Where more are masked than the router leaves out, it chooses among equal scores.
        inputs=lambda: [(torch.randn(2, n, 8), torch.arange(2 * n).reshape(2, n) % 7 > 0) for n in (9, 3, 5, 1, 12)],
        fails=("dynamo", "trace"),
        reason="TopK|k argument|specialized|Constraints",
    ),
)
class _Router:
    """Chooses all tokens of a short text, in the order of their scores, with a score of 1. For one route."""

    def forward(
        self: Any,
        x: Tensor,
        *,
        num_tokens: Any,
        mask: Tensor | None = None,
        random_route: bool = False,
        routing_tokens: Tensor | None = None,
        keep_one_route_dim: bool = False,
    ) -> Any:
        """x: (batch, n, dim). What the router gives back is put in its place again, so the order does not matter."""
        from colt5_attention.transformer_block import RouterReturn, batched_gather, l2norm

        n, several = x.shape[-2], self.num_routing_tokens > 1
        if several or random_route or self.route_block_size is not None or not symbolic(n):
            return NotImplemented
        tokens = self.routing_token
        if routing_tokens is not None and tokens is None:
            tokens = routing_tokens.unsqueeze(1) if routing_tokens.dim() == 2 else routing_tokens
        unit = l2norm if self.cosine_sim_routing else (lambda t: t)
        similar = torch.matmul(unit(tokens), unit(x).transpose(1, 2))
        similar = similar * self.cosine_sim_scale if self.cosine_sim_routing else similar
        length = as_tensor(n, torch.float32)
        scores = self.coor_descent(similar.squeeze(1), n_iters=self.n_iters, mask=mask,
                                   k=length.clamp(max=num_tokens * self.fetch_k_ratio), eps=self.eps,
                                   eps_init=self.eps_init, eps_decay=self.eps_decay)  # fmt: skip
        kept, indices = scores.topk(chosen((n, "<=", num_tokens), n, num_tokens), dim=-1)
        if self.straight_through:
            kept = torch.ones_like(kept)
            if mask is not None:
                kept = kept.masked_fill(~batched_gather(mask, indices), 0.0)
        kept = torch.where(length <= num_tokens, torch.ones_like(kept), kept)
        if keep_one_route_dim:
            kept, indices = kept.unsqueeze(1), indices.unsqueeze(1)
        known = None if mask is None else batched_gather(mask, indices)
        return RouterReturn(indices, kept, batched_gather(x, indices), known)

"""colt5-attention's router: with no more tokens than it would choose, it passes all of them on."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from onnxpatch import KnownBody, Proof, When, patch
from onnxpatch.formulas.proof_cases import randomised
from onnxpatch.formulas.symbolic import as_tensor, chosen, symbolic


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
class Router:
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
            return super().forward(x, num_tokens=num_tokens, mask=mask, random_route=random_route,  # type: ignore[misc]
                                   routing_tokens=routing_tokens, keep_one_route_dim=keep_one_route_dim)  # fmt: skip
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

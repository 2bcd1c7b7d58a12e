"""Relative positions by formulas of the sizes: Funnel's, and the decomposed ones of SAM and VitDet."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from onnxpatch import KnownBody, Proof, When, patch
from onnxpatch.formulas.symbolic import as_tensor, symbolic

LINK = "https://github.com/huggingface/transformers/issues/33929"
WHY = "int(2 * max(q_size, k_size) - 1) and max(k_size / q_size, 1.0) freeze the size, or never end under torch.export"
_MODELS = "transformers.models"
WRITTEN_FOR = "transformers 5.23.0"


class _Row(NamedTuple):
    """Positions at even steps: the first one, how many there are, and the step."""

    first: int
    count: Any
    step: int

    @property
    def last(self) -> Any:
        return self.first + self.step * (self.count - 1)


class _Structure(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        from transformers import FunnelConfig
        from transformers.models.funnel.modeling_funnel import FunnelAttentionStructure, FunnelRelMultiheadAttention

        config = FunnelConfig(d_model=8, n_head=2, d_head=4, block_sizes=[1, 1])
        self.structure = FunnelAttentionStructure(config)
        self.attention = FunnelRelMultiheadAttention(config, 1)
        torch.nn.init.normal_(self.attention.r_r_bias)
        torch.nn.init.normal_(self.attention.r_kernel)

    def forward(self, x: Tensor) -> Tensor:
        """x: (batch, length, 8): the second block's bias of positions, before and after the queries are pooled."""
        positions, *_ = self.structure.init_attention_inputs(x)
        length = x.shape[1]
        queries = x.reshape(x.shape[0], length, 2, 4)[:, : 1 + (length - 1) // 2]
        pooled = self.attention.relative_positional_attention(positions, queries, length)
        return torch.cat([pooled.sum((2, 3)), positions[1][0].sum(0)[None, :2] * torch.ones_like(x[:, 0, :2])], dim=1)


@patch(
    "transformers.models.funnel.modeling_funnel.FunnelAttentionStructure",
    name="funnel-positions",
    why="pos = list(range(seq_len)): as many positions as the example has tokens",
    link="https://github.com/huggingface/transformers/blob/main/src/transformers/models/funnel/modeling_funnel.py",
    when=When(bodies={"get_position_embeds": {KnownBody("03372cac2409", WRITTEN_FOR)}}),
    proof=Proof(
        build=_Structure,
        # Pooled by two: odd and even lengths.
        inputs=lambda: [(torch.randn(b, n, 8),) for b, n in ((2, 9), (3, 12), (2, 6))],
        fails=("dynamo", "trace"),
        reason="onnxruntime fails|relative error|shape|reshape",
    ),
)
class _FunnelAttentionStructure:
    """Makes the position vectors and masks for Funnel's attention."""

    def get_position_embeds(self: Any, seq_len: object, dtype: torch.dtype, device: torch.device) -> object:
        """For each block [vectors of pooled queries and keys, vectors of pooled queries and the keys before]."""
        if self.config.attention_type == "factorized" or not symbolic(seq_len):
            return NotImplemented
        keys = _Row(0, seq_len, 1)
        found: list[Sequence[Tensor | None]] = []
        for block in range(self.config.num_blocks):
            queries, pooling = keys, None
            if block > 0:
                queries = self._pooled(keys, block)
                # Queries are pooled once more than the keys that they attend to in the first layer of a block.
                pooling = self._vectors(queries, keys, 2, dtype, device)
            found.append([self._vectors(queries, queries, 1, dtype, device), pooling])
            keys = queries
        return found

    def _pooled(self: Any, row: _Row, block: int) -> _Row:
        """Every other position; the one of <cls> stays, and is counted as the last of a block before."""
        step = 2**block
        if not self.config.separate_cls:
            return _Row(0, (row.count + 1) // 2, step)
        # transformers gives <cls> the position 1 - step, so that all steps are even.
        return _Row(1 - step, 1 + (row.count - (1 if self.config.truncate_seq else 0)) // 2, step)

    def _vectors(self: Any, queries: _Row, keys: _Row, shift: int, dtype: torch.dtype, device: torch.device) -> Tensor:
        """(shift * queries + keys, d_model): sines and cosines of the distances, the largest first."""
        half = self.config.d_model // 2
        frequencies = 1 / (10000 ** (torch.arange(half, dtype=torch.int64, device=device).to(dtype) / half))
        many, few = (as_tensor(row.count, torch.int64, device) for row in (keys, queries))
        # One token is not pooled: eager takes the vectors of unpooled keys then.
        offset = torch.where(many == few, 0, queries.first - keys.first)
        numbers = torch.arange(queries.count * shift + keys.count, dtype=torch.int64, device=device)
        distances = (offset + keys.step * (few * shift - numbers)).to(dtype)
        angles = distances[:, None] * frequencies
        return torch.cat([self.sin_dropout(angles.sin()), self.cos_dropout(angles.cos())], dim=-1)


def table_for(size: int, table: Tensor) -> Tensor:
    """(2 * n - 1, C) learned for n cells, to (size, size, C): the position of each cell as seen from each other one."""
    # A table of that length already is not changed by the resize, so the original's `if` is not needed.
    resized = functional.interpolate(table.t()[None], size=2 * size - 1, mode="linear")[0].t()
    cells = torch.arange(size, device=table.device)
    return resized[cells[:, None] - cells[None, :] + (size - 1)]


class _Positions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(9, 4))

    def forward(self, x: Tensor) -> Tensor:
        from transformers.models.vitdet.modeling_vitdet import get_rel_pos

        size = x.shape[1]
        return get_rel_pos(size, size, self.table) * x.mean()


@patch(
    f"{_MODELS}.vitdet.modeling_vitdet.get_rel_pos",
    name="relative-positions",
    why=WHY,
    link=LINK,
    proof=Proof(
        _Positions,
        # The table of 9 is that of 5 cells: only there it is not resized.
        lambda: [(torch.randn(*size),) for size in ((2, 7), (1, 5), (3, 3), (2, 8))],
        leaner=("trace",),
    ),
)
def get_rel_pos(original: Callable[..., Tensor], q_size: int, k_size: int, rel_pos: Tensor) -> Tensor:
    """(q_size, k_size, C) out of a table of (L, C); only attention of a map to itself is taken over."""
    # `is` and not `==`: a comparison of two symbolic sizes would be a guard, and freeze them.
    return table_for(q_size, rel_pos) if q_size is k_size else NotImplemented

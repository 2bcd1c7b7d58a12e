"""Decomposed relative positions of SAM and VitDet: one table for each axis, resized and indexed by the map's size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from onnxpatch import KnownBody, Proof, When, patch

WRITTEN_FOR = "transformers 5.23.0"

LINK = "https://github.com/huggingface/transformers/issues/33929"
WHY = "int(2 * max(q_size, k_size) - 1) and max(k_size / q_size, 1.0) freeze the size, or never end under torch.export"
_MODELS = "transformers.models"


def table_for(size: int, table: Tensor) -> Tensor:
    """(2 * n - 1, C) learned for n cells, to (size, size, C): the position of each cell as seen from each other one."""
    # A table of that length already is not changed by the resize, so the original's `if` is not needed.
    resized = functional.interpolate(table.t()[None], size=2 * size - 1, mode="linear")[0].t()
    cells = torch.arange(size, device=table.device)
    return resized[cells[:, None] - cells[None, :] + (size - 1)]


class _Positions(nn.Module):
    def __init__(self, owner: Any = None) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(9, 4))
        self.owner = owner

    def forward(self, x: Tensor) -> Tensor:
        from transformers.models.vitdet import modeling_vitdet

        size = x.shape[1]
        return (self.owner or modeling_vitdet).get_rel_pos(size, size, self.table) * x.mean()


def _sam_attention() -> nn.Module:
    from transformers import SamVisionConfig
    from transformers.models.sam.modeling_sam import SamVisionAttention

    config = SamVisionConfig(hidden_size=8, num_attention_heads=2, image_size=32, patch_size=4, mlp_dim=8)
    return _Positions(SamVisionAttention(config, window_size=4))


def _proof(build: Any, **gain: Any) -> Proof:
    return Proof(
        build,
        # The table of 9 is that of 5 cells: only there it is not resized.
        lambda: [(torch.randn(*size),) for size in ((2, 7), (1, 5), (3, 3), (2, 8))],
        **gain,
    )


@patch(
    f"{_MODELS}.vitdet.modeling_vitdet.get_rel_pos",
    name="relative-positions",
    why=WHY,
    link=LINK,
    proof=_proof(_Positions, leaner=("trace",)),
)
def get_rel_pos(original: Callable[..., Tensor], q_size: int, k_size: int, rel_pos: Tensor) -> Tensor:
    """(q_size, k_size, C) out of a table of (L, C); only attention of a map to itself is taken over."""
    # `is` and not `==`: a comparison of two symbolic sizes would be a guard, and freeze them.
    return table_for(q_size, rel_pos) if q_size is k_size else NotImplemented


@patch(
    f"{_MODELS}.sam.modeling_sam.SamVisionAttention",
    f"{_MODELS}.sam_hq.modeling_sam_hq.SamHQVisionAttention",
    name="sam-relative-positions",
    why=WHY,
    link=LINK,
    when=When(bodies={"get_rel_pos": {KnownBody("aea22bcf78e2", WRITTEN_FOR)}}),
    proof=_proof(_sam_attention, fails=("trace",), reason="relative error"),
)
class SamVisionAttention:
    """SAM's attention, which has get_rel_pos as a method."""

    def get_rel_pos(self, q_size: int, k_size: int, rel_pos: Tensor) -> Tensor:
        """(q_size, k_size, C) out of a table of (L, C); only attention of a map to itself is taken over."""
        return table_for(q_size, rel_pos) if q_size is k_size else NotImplemented

"""SigLIP 2: one position table, resized for each image of the batch to the size that `spatial_shapes` has for it."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from onnxpatch import KnownBody, Proof, When, patch

WRITTEN_FOR = "transformers 5.23.0"

_EMBEDDINGS = "transformers.models.siglip2.modeling_siglip2.Siglip2VisionEmbeddings"


class _Embedded(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        from transformers import Siglip2VisionConfig
        from transformers.models.siglip2.modeling_siglip2 import Siglip2VisionEmbeddings

        config = Siglip2VisionConfig(hidden_size=6, num_attention_heads=1, patch_size=2, num_patches=25)
        self.embeddings = Siglip2VisionEmbeddings(config)
        nn.init.normal_(self.embeddings.position_embedding.weight)

    def forward(self, patches: Tensor, shapes: Tensor) -> Tensor:
        return self.embeddings(patches, shapes)


def _batch(length: int, *shapes: tuple[int, int]) -> tuple[Tensor, Tensor]:
    return torch.randn(len(shapes), length, 12), torch.tensor(shapes)


@patch(
    _EMBEDDINGS,
    name="siglip2-positions",
    why="Siglip2: resize_positional_embeddings loops over spatial_shapes.tolist(), and keeps the sizes of the example",
    link="https://github.com/huggingface/transformers/issues/26790",
    when=When(
        exporters=("dynamo", "trace"), bodies={"resize_positional_embeddings": {KnownBody("a7fdf31b9ce3", WRITTEN_FOR)}}
    ),
    proof=Proof(
        _Embedded,
        lambda: [
            _batch(24, (4, 5), (3, 7)),
            _batch(30, (5, 5), (2, 15), (6, 4)),
            # One place less than there is room for: the last one is padding.
            _batch(8, (1, 7)),
            _batch(49, (7, 7), (5, 9)),
        ],
        fails=("dynamo", "trace"),
        reason="static shape|aten::_upsample_bilinear2d_aa",
    ),
)
class Siglip2Positions:
    """Computes the table at every place of every image, by a small set of weights for each of its two axes."""

    @staticmethod
    def resize_positional_embeddings(positional_embeddings: Tensor, spatial_shapes: Tensor, max_length: int) -> Tensor:
        """(H, W, C), (B, 2) heights and widths, L, to (B, L, C); padding gets an image's first position."""
        table = positional_embeddings.float()
        place = torch.arange(max_length, device=table.device)[None, :]
        heights, widths = spatial_shapes[:, :1], spatial_shapes[:, 1:]
        place = torch.where(place < heights * widths, place, 0)
        row = torch.div(place, widths, rounding_mode="floor")
        tall = _weights(row, heights, table.shape[0], table)
        wide = _weights(place - row * widths, widths, table.shape[1], table)
        both = (tall[..., :, None] * wide[..., None, :]).flatten(2)
        return torch.matmul(both, table.flatten(0, 1)).to(positional_embeddings.dtype)


def _weights(places: Tensor, lengths: Tensor, size: int, like: Tensor) -> Tensor:
    """Antialiased linear weights (B, L, size) of `size` cells, at `places` (B, L) out of `lengths` (B, 1)."""
    # F.interpolate's antialiased linear weights, for a length that differs from image to image.
    step = size / lengths.to(like.dtype)
    centres = (places.to(like.dtype) + 0.5) * step
    cells = torch.arange(size, device=like.device).to(like.dtype) + 0.5
    # Antialiasing widens the weights where cells become fewer, and never narrows them.
    distance = (cells - centres[..., None]).abs() / step.clamp(min=1)[..., None]
    weights = torch.relu(1 - distance)
    return weights / weights.sum(-1, keepdim=True)

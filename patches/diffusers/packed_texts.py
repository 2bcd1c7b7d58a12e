"""Loops over the batch in which each text keeps its own tokens, as one masked sequence: Lumina 2, Mochi's attention.

In Lumina 2 a text's tokens and its image's keep the places that they have in the packed sequence, as angles; so
attention sees the same whether padding stands between them or behind.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from onnxpatch import KnownBody, Proof, When, op, patch
from onnxpatch.patching.proof import computing, randomised

WRITTEN_FOR = "diffusers 0.42.1"

_SMALL: dict[str, Any] = dict(
    sample_size=4, in_channels=2, hidden_size=12, num_layers=1, num_refiner_layers=1, num_attention_heads=2,
    num_kv_heads=1, multiple_of=8, axes_dim_rope=(2, 2, 2), axes_lens=(16, 8, 8), cap_feat_dim=4,
)  # fmt: skip


def _denoiser() -> torch.nn.Module:
    from diffusers import Lumina2Transformer2DModel

    made: Any = Lumina2Transformer2DModel(**_SMALL)
    return computing(
        lambda denoiser, image, step, text, mask: denoiser(image, step, text, mask, return_dict=False)[0],
        randomised(made),
    )


def _texts() -> list[tuple[Tensor, ...]]:
    made: list[tuple[Tensor, ...]] = []
    # Texts of different length, of one length, a batch of one; the last mask has a gap.
    for lengths, words, height, width in (((5, 3), 5, 4, 6), ((4, 4, 4), 4, 2, 4), ((2,), 6, 6, 4), ((1, 7), 7, 4, 4)):
        mask = torch.arange(words) < torch.tensor(lengths)[:, None]
        mask[-1, 0] = words < 7
        batch = len(lengths)
        made.append((torch.randn(batch, 2, height, width), torch.rand(batch), torch.randn(batch, words, 4), mask))
    return made


@patch(
    "diffusers.models.transformers.transformer_lumina2.Lumina2Transformer2DModel",
    name="lumina-texts",
    why="l_effective_cap_len = attention_mask.sum(dim=1).tolist(): as many texts, and as long, as the example has",
    link="https://github.com/huggingface/diffusers/blob/main/src/diffusers/models/transformers/transformer_lumina2.py",
    when=When(exporters=("dynamo", "trace"), bodies={"forward": {KnownBody("d875461bb0a1", WRITTEN_FOR)}}),
    proof=Proof(
        build=_denoiser,
        inputs=_texts,
        fails=("dynamo", "trace"),
        reason="complex|NumPy|data-dependent|relative error|expand shape",
        beside=("complex-numbers",),
    ),
)  # fmt: skip
class _LuminaTransformer:
    """Keeps the padding of each text, and masks it in attention."""

    def forward(
        self: Any,
        hidden_states: Tensor,
        timestep: Tensor,
        encoder_hidden_states: Tensor,
        encoder_attention_mask: Tensor,
        attention_kwargs: dict[str, Any] | None = None,
        return_dict: bool = True,
    ) -> Any:
        """hidden_states: (batch, channels, height, width); encoder_attention_mask: (batch, words), its sum is how many
        of the first words count."""
        if attention_kwargs is not None:
            return NotImplemented
        from diffusers.models.modeling_outputs import Transformer2DModelOutput

        side = self.config.patch_size
        rows, columns = hidden_states.shape[2] // side, hidden_states.shape[3] // side
        words = encoder_hidden_states.shape[1]
        time, text = self.time_caption_embed(hidden_states, timestep, encoder_hidden_states)
        lengths = encoder_attention_mask.sum(dim=1)
        known = torch.arange(words, device=lengths.device) < lengths[:, None]
        text_angles, image_angles = _angles(self.rope_embedder, lengths, known, rows, columns)
        for layer in self.context_refiner:
            text = layer(text, encoder_attention_mask, torch.complex(*text_angles))
        image = self.x_embedder(_patches(hidden_states, side))
        for layer in self.noise_refiner:
            image = layer(image, None, torch.complex(*image_angles), time)
        both = torch.cat([text.masked_fill(~known[..., None], 0.0), image], dim=1)
        seen = torch.cat([known, torch.ones_like(image[..., 0], dtype=torch.bool)], dim=1)
        angles = [torch.cat(parts, dim=1) for parts in zip(text_angles, image_angles, strict=True)]
        for layer in self.layers:
            both = layer(both, seen, torch.complex(*angles), time)
        made = self.norm_out(both[:, words:], time).unflatten(2, (side, side, self.out_channels))
        image = made.unflatten(1, (rows, columns)).permute(0, 5, 1, 3, 2, 4).flatten(4, 5).flatten(2, 3)
        return Transformer2DModelOutput(sample=image) if return_dict else (image,)


def _patches(x: Tensor, side: int) -> Tensor:
    """(batch, channels, height, width) to (batch, patches, side * side * channels)."""
    split = x.unflatten(3, (-1, side)).unflatten(2, (-1, side))
    return split.permute(0, 2, 4, 3, 5, 1).flatten(3).flatten(1, 2)


def _angles(embedder: Any, lengths: Tensor, known: Tensor, rows: Any, columns: Any) -> Sequence[tuple[Tensor, Tensor]]:
    """Cosines and sines of the words, (batch, words, dim), and of the patches, (batch, rows * columns, dim).

    A word has its own place and zeros; a patch the number of words, its row and its column.
    """
    tables = [_table(*sizes, embedder.theta) for sizes in zip(embedder.axes_dim, embedder.axes_lens, strict=True)]
    words = torch.arange(known.shape[1], device=known.device).clamp(max=embedder.axes_lens[0] - 1)
    row = torch.arange(rows, device=known.device)[:, None].expand(rows, columns).flatten()
    column = torch.arange(columns, device=known.device)[None].expand(rows, columns).flatten()
    text, image = [], []
    for kind in (0, 1):  # cosine, sine
        places, down, across = (table[kind].to(known.device) for table in tables)
        still = torch.cat([down[0], across[0]]).expand(words.shape[0], -1)
        text.append(torch.cat([places[words], still], dim=-1) * known[..., None].to(places.dtype))
        grid = torch.cat([down[row], across[column]], dim=-1).expand(known.shape[0], -1, -1)
        behind = places[lengths][:, None].expand(-1, grid.shape[1], -1)
        image.append(torch.cat([behind, grid], dim=-1))
    return (text[0], text[1]), (image[0], image[1])


def _table(dim: int, length: int, theta: float) -> tuple[Tensor, Tensor]:
    """Cosine and sine, (length, dim / 2), computed in double precision as eager's table is."""
    import numpy as np

    angles = np.outer(np.arange(length), theta ** -(np.arange(0, dim, 2) / dim))
    cosines, sines = np.cos(angles).astype("float32"), np.sin(angles).astype("float32")
    return torch.from_numpy(cosines), torch.from_numpy(sines)


def _joint() -> torch.nn.Module:
    """Attention over pixels and a padded text."""
    from diffusers.models.attention_processor import MochiAttention, MochiAttnProcessor2_0

    return computing(
        lambda attention, x, text, mask: attention(x, text, attention_mask=mask),
        randomised(MochiAttention(8, 6, MochiAttnProcessor2_0(), heads=2, dim_head=4)),
    )


def _captions() -> list[tuple[Tensor, ...]]:
    made: list[tuple[Tensor, ...]] = []
    for batch, pixels, words in ((2, 5, 4), (3, 7, 6), (1, 2, 1)):
        mask = torch.rand(batch, words) > 0.4
        made.append((torch.randn(batch, pixels, 8), torch.randn(batch, words, 6), mask))
    return made


@op(
    "diffusers.models.attention_processor.MochiAttnProcessor2_0.__call__",
    name="mochi-attention",
    why="for idx in range(batch_size): torch.nonzero(mask): as many texts as the example has",
    reason="data-dependent|relative error|onnxruntime fails|broadcast|inferred|shape",
    link="https://github.com/huggingface/diffusers/blob/main/src/diffusers/models/attention_processor.py",
    tries=_captions,
    case=_joint,
)
def joint_attention(
    original: object,
    processor: object,
    attn: Any,
    hidden_states: Tensor,
    encoder_hidden_states: Tensor,
    attention_mask: Tensor,
    image_rotary_emb: tuple[Tensor, Tensor] | None = None,
) -> tuple[Tensor, Tensor]:
    """hidden_states: (batch, pixels, channels); encoder_hidden_states: (batch, words, channels); attention_mask:
    (batch, words). The words that are masked come last in the answer, as zeros."""
    pixels, words = hidden_states.shape[1], encoder_hidden_states.shape[1]
    query, key, value = _heads(attn, hidden_states, (attn.to_q, attn.to_k, attn.to_v), (attn.norm_q, attn.norm_k))
    if image_rotary_emb is not None:
        query, key = _rotated(query, *image_rotary_emb), _rotated(key, *image_rotary_emb)
    added = _heads(attn, encoder_hidden_states, (attn.add_q_proj, attn.add_k_proj, attn.add_v_proj),
                   (attn.norm_added_q, attn.norm_added_k))  # fmt: skip
    pairs = zip((query, key, value), added, strict=True)
    query, key, value = (torch.cat(pair, dim=1).transpose(1, 2) for pair in pairs)
    kept = attention_mask != 0
    seen = torch.cat([torch.ones_like(hidden_states[:, :, 0], dtype=torch.bool), kept], dim=1)
    out = functional.scaled_dot_product_attention(query, key, value, attn_mask=seen[:, None, None, :])
    image, text = out.transpose(1, 2).flatten(2, 3).split_with_sizes((pixels, words), dim=1)
    text = _kept_first(text, kept)
    image = attn.to_out[1](attn.to_out[0](image))
    # The model's last block makes no text, and lacks the layer.
    return image, attn.to_add_out(text) if hasattr(attn, "to_add_out") else text


def _heads(attn: Any, x: Tensor, layers: tuple[Any, Any, Any], norms: tuple[Any, Any]) -> tuple[Tensor, ...]:
    """Query, key and value: (batch, tokens, heads, dim); the first two normalized."""
    made = [layer(x).unflatten(2, (attn.heads, -1)) for layer in layers]
    return (*(norm(one) if norm is not None else one for norm, one in zip(norms, made, strict=False)), made[2])


def _rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """x: (batch, tokens, heads, dim). Pairs of neighbours are rotated, in float32."""
    even, odd = x[..., 0::2].float(), x[..., 1::2].float()
    pairs = (even * cos - odd * sin).to(x.dtype), (even * sin + odd * cos).to(x.dtype)
    return torch.stack(pairs, dim=-1).flatten(-2)


def _kept_first(x: Tensor, kept: Tensor) -> Tensor:
    """Rows of x (batch, words, channels) that are kept (batch, words), in their order; then zeros."""
    before = kept.long().cumsum(1)
    others = (~kept).long().cumsum(1) + before[:, -1:]
    place = torch.where(kept, before, others) - 1
    filled = x.masked_fill(~kept[..., None], 0.0)
    return torch.zeros_like(x).scatter(1, place[..., None].expand_as(x), filled)

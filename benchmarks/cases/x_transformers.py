"""x-transformers: its options one by one, tiny; any length, padded masks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.case import Args, Case, image, randomise
from benchmarks.transformers_models import LENGTHS, SEQUENCE, Keyword, ids, padded, sized

LIBRARIES = ("x-transformers",)
LEFT_OUT = {"training wrappers": "return a loss; what they wrap are the cases"}
SIZE = dict(dim=32, depth=2, heads=4, attn_dim_head=8)


def tokens(batch: int, length: int) -> Args:
    return ids(batch, length), padded(batch, length).bool()


def vectors(batch: int, length: int) -> Args:
    return torch.randn(batch, length, 12), padded(batch, length).bool()


def model(cls: str = "Decoder", wrap: dict[str, Any] | None = None, sizes: Sequence[tuple[int, ...]] = LENGTHS,
          **options: Any) -> Callable[[], Case]:  # fmt: skip
    """A language model over the layers ``cls`` with ``options``."""

    def build() -> Case:
        import x_transformers as library

        layers = getattr(library, cls)(**{**SIZE, **options})
        given: dict[str, Any] = dict(num_tokens=99, max_seq_len=64, attn_layers=layers) | (wrap or {})
        made = Keyword(randomise(library.TransformerWrapper(**given)), ("x", "mask"))
        return sized(made, tokens, sizes, (SEQUENCE, SEQUENCE))

    return build


def continuous(cls: str = "Encoder", **options: Any) -> Callable[[], Case]:
    def build() -> Case:
        import x_transformers as library

        layers = getattr(library, cls)(**SIZE, **options)
        made = library.ContinuousTransformerWrapper(dim_in=12, dim_out=6, max_seq_len=64, attn_layers=layers)
        return sized(Keyword(randomise(made), ("x", "mask")), vectors, LENGTHS, (SEQUENCE, SEQUENCE))

    return build


def vision(**options: Any) -> Callable[[], Case]:
    def build() -> Case:
        import x_transformers as library

        made = library.ViTransformerWrapper(image_size=32, patch_size=8, num_classes=5, **options,
                                            attn_layers=library.Encoder(**SIZE))  # fmt: skip
        return image(made)

    return build


def attending() -> Case:
    """A decoder over a context of another length."""
    import x_transformers as library

    layers = library.Decoder(**SIZE, cross_attend=True, rotary_pos_emb=True)
    made = randomise(library.TransformerWrapper(num_tokens=99, max_seq_len=64, attn_layers=layers))
    context = {0: "batch", 1: "context"}
    return sized(
        Keyword(made, ("x", "context", "context_mask")),
        lambda b, n, m: (ids(b, n), torch.randn(b, m, 32), padded(b, m).bool()),
        ((2, 7, 5), (3, 7, 5), (1, 1, 1), (3, 16, 12)),
        (SEQUENCE, context, context),
    )


class Pair(nn.Module):
    """XTransformer's encoder and decoder without the loss around them."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.encoder, self.decoder = model.encoder, model.decoder.net

    def forward(self, source: Tensor, mask: Tensor, target: Tensor) -> Tensor:
        encoded = self.encoder(source, mask=mask, return_embeddings=True)
        return self.decoder(target, context=encoded, context_mask=mask)


def pair() -> Case:
    import x_transformers as library

    made = library.XTransformer(dim=32, enc_num_tokens=99, enc_depth=1, enc_heads=4, enc_max_seq_len=64,
                                dec_num_tokens=99, dec_depth=1, dec_heads=4, dec_max_seq_len=64)  # fmt: skip
    source, target = {0: "batch", 1: "source"}, {0: "batch", 1: "target"}
    return sized(Pair(randomise(made)), lambda b, n, m: (*tokens(b, n), ids(b, m)),
                 ((2, 7, 5), (3, 7, 5), (1, 1, 1), (3, 16, 12)), (source, source, target))  # fmt: skip


CASES: dict[str, Callable[[], Case]] = {
    "decoder": model(),
    "encoder": model("Encoder"),
    "prefix_decoder": model("PrefixDecoder"),
    "no_positions": model(wrap=dict(use_abs_pos_emb=False)),
    "sinusoidal": model(wrap=dict(scaled_sinu_pos_emb=True)),
    "rotary": model(rotary_pos_emb=True),
    "rotary_xpos": model(rotary_xpos=True),
    "alibi": model(alibi_pos_bias=True),
    "alibi_encoder": model("Encoder", alibi_pos_bias=True),
    "relative_bias": model(rel_pos_bias=True),
    "dynamic_bias": model(dynamic_pos_bias=True),
    "polar": model(polar_pos_emb=True),
    "flash": model(attn_flash=True),
    "flash_encoder": model("Encoder", attn_flash=True, rotary_pos_emb=True),
    "qk_norm": model(attn_qk_norm=True),
    "multi_query": model(attn_one_kv_head=True),
    "grouped_query": model(attn_kv_heads=2),
    "talking_heads": model(attn_pre_talking_heads=True, attn_post_talking_heads=True),
    "sparse_topk": model(attn_sparse_topk=3, sizes=((2, 7), (3, 7), (1, 4), (3, 16))),
    "memory_kv": model(attn_num_mem_kv=2),
    "memory_tokens": model(wrap=dict(num_memory_tokens=3)),
    "data_dependent_alibi": model(attn_data_dependent_alibi=True),
    "swiglu_rmsnorm": model(ff_swish=True, ff_glu=True, use_rmsnorm=True),
    "macaron": model(macaron=True),
    "sandwich": model(sandwich_norm=True, residual_attn=True),
    "shift_tokens": model(shift_tokens=1),
    "unet_skips": model(unet_skips=True),
    "hyper_connections": model(num_residual_streams=2),
    "integrate_layers": model(integrate_layers=True),
    "value_residual": model(add_value_residual=True),
    "gated_residual": model(gate_residual=True),
    "laser_softclamp": model(attn_laser=True, attn_softclamp_logits=True),
    "continuous": continuous(),
    "continuous_decoder": continuous("Decoder", rotary_pos_emb=True),
    "vit": vision(),
    "vit_registers": vision(num_register_tokens=2),
    "cross_attention": attending,
    "encoder_decoder": pair,
}  # fmt: skip

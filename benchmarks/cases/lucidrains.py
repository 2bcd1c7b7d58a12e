"""The packages of lucidrains beside vit-pytorch and x-transformers, tiny: any length, images of any size."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any

import torch

from benchmarks.case import Args, Case, image, randomise, video
from benchmarks.stand_ins import stand_in
from benchmarks.transformers_models import LENGTHS, SEQUENCE, Keyword, ids, padded, sized

LIBRARIES = ("vector-quantize-pytorch", "local-attention", "perceiver-pytorch", "performer-pytorch")
LEFT_OUT = {
    "titans-pytorch": "its memory is trained inside forward (torch.func.grad)",
    "slot-attention, reformer-pytorch, routing-transformer": "draw at random inside forward",
    "invariant-point-attention": "needs pytorch3d",
    "transformer-in-transformer": "keeps a parameter whose elements share memory, which cannot be given weights",
    "mixture-of-attention, colt5-attention's causal routes": "their kernels are compiled for CUDA",
}
SIZE = dict(dim=32, depth=2, heads=4)
HEAD = dict(SIZE, dim_head=8)
BLOCKS = ((2, 16), (3, 16), (1, 8), (3, 48), (2, 24))


def words(batch: int, length: int) -> Args:
    return (ids(batch, length),)


def words_and_mask(batch: int, length: int) -> Args:
    return ids(batch, length), padded(batch, length).bool()


def vectors(batch: int, length: int) -> Args:
    return (torch.randn(batch, length, 32),)


def vectors_and_mask(batch: int, length: int) -> Args:
    return torch.randn(batch, length, 32), padded(batch, length).bool()


def model(
    path: str,
    make: Callable[..., Args] = vectors,
    sizes: Sequence[tuple[int, ...]] = LENGTHS,
    *,
    names: str = "",
    shapes: Any = None,
    **options: Any,
) -> Callable[[], Case]:
    """``package.Class`` on a sequence; called by keyword where ``names`` are given."""

    def build() -> Case:
        module, _, cls = path.rpartition(".")
        made = randomise(getattr(importlib.import_module(module), cls)(**options))
        called = Keyword(made, names.split()) if names else made
        return sized(called, make, sizes, shapes or (SEQUENCE,) * len(make(*sizes[0])))

    return build


def picture(path: str, shape: Callable[..., Case] = image, **options: Any) -> Callable[[], Case]:
    def build() -> Case:
        module, _, cls = path.rpartition(".")
        return shape(getattr(importlib.import_module(module), cls)(**options))

    return build


def denoiser(cls: str, make: Callable[..., Args], sizes: Any, shapes: Any, **options: Any) -> Callable[[], Case]:
    """A network of denoising-diffusion-pytorch, whose trainers ask for accelerate."""

    def build() -> Case:
        stand_in("accelerate", Accelerator=object)
        stand_in("pytorch_fid")
        stand_in("pytorch_fid.fid_score", calculate_frechet_distance=None)
        stand_in("pytorch_fid.inception", InceptionV3=None)
        made = getattr(importlib.import_module("denoising_diffusion_pytorch"), cls)(**options)
        return sized(randomise(made), make, sizes, shapes)

    return build


def roformer() -> Case:
    stand_in("librosa", filters=None)
    from bs_roformer import BSRoformer

    made = BSRoformer(dim=16, depth=1, time_transformer_depth=1, freq_transformer_depth=1, heads=2, dim_head=8,
                      freqs_per_bands=(5, 12), stft_n_fft=32, stft_win_length=32, stft_hop_length=8)  # fmt: skip
    return sized(randomise(made), lambda b, n: (torch.randn(b, n),), ((2, 256), (3, 256), (1, 128), (2, 600)),
                 ({0: "batch", 1: "samples"},))  # fmt: skip


def cloud(batch: int, points: int) -> Args:
    return torch.randn(batch, points, 32), torch.randn(batch, points, 3), padded(batch, points).bool()


CLOUDS = ((2, 16), (3, 16), (1, 8), (2, 40))
PICTURE = {0: "batch", 2: "height", 3: "width"}
GRID = dict(image_size=32, patch_size=8, num_classes=5)
MAPS: Callable[..., Args] = lambda b, h, w: (torch.randn(b, 32, h, w),)  # noqa: E731
NOISY: Callable[..., Args] = lambda b, h, w: (torch.randn(b, 3, h, w), torch.randint(0, 99, (b,)))  # noqa: E731

CASES: dict[str, Callable[[], Case]] = {
    "perceiver": model("perceiver_pytorch.Perceiver", lambda b, h, w: (torch.randn(b, h, w, 3),),
                       ((2, 8, 12), (3, 8, 12), (1, 4, 4), (2, 20, 16)),
                       shapes=({0: "batch", 1: "height", 2: "width"},), num_freq_bands=2, depth=1, max_freq=4.0,
                       num_latents=8, latent_dim=16, latent_heads=2, cross_dim_head=8, latent_dim_head=8,
                       num_classes=5),
    "perceiver_io": model("perceiver_pytorch.PerceiverIO", lambda b, n, m: (torch.randn(b, n, 32), padded(b, n).bool(),
                          torch.randn(b, m, 12)), ((2, 7, 5), (3, 7, 5), (1, 1, 1), (3, 16, 12)),
                          names="data mask queries", shapes=(SEQUENCE, SEQUENCE, {0: "batch", 1: "queries"}), depth=1,
                          dim=32, queries_dim=12, num_latents=8, latent_dim=16, latent_heads=2, cross_dim_head=8,
                          latent_dim_head=8, logits_dim=5),
    "perceiver_ar": model("perceiver_ar_pytorch.PerceiverAR", words, ((2, 12), (3, 12), (1, 9), (3, 30)),
                          num_tokens=99, max_seq_len=64, cross_attn_seq_len=8, **SIZE),
    "performer": model("performer_pytorch.PerformerLM", words, num_tokens=99, max_seq_len=64, **HEAD),
    "performer_local": model("performer_pytorch.PerformerLM", words, num_tokens=99, max_seq_len=64,
                             local_attn_heads=2, local_window_size=4, **HEAD),
    "performer_generalized": model("performer_pytorch.Performer", generalized_attention=True, **HEAD),
    "linear_attention": model("linear_attention_transformer.LinearAttentionTransformerLM", words, BLOCKS,
                              num_tokens=99, max_seq_len=64, use_axial_pos_emb=False, **SIZE),
    "linear_attention_causal": model("linear_attention_transformer.LinearAttentionTransformerLM", words, BLOCKS,
                                     num_tokens=99, max_seq_len=64, causal=True, blindspot_size=4, **SIZE),
    "linear_attention_local": model("linear_attention_transformer.LinearAttentionTransformerLM", words, BLOCKS,
                                    num_tokens=99, max_seq_len=64, n_local_attn_heads=2, local_attn_window_size=4,
                                    **SIZE),
    "linear_attention_image": model("linear_attention_transformer.images.ImageLinearAttention", MAPS,
                                    ((2, 6, 8), (3, 6, 8), (1, 1, 5), (2, 16, 20)), shapes=(PICTURE,), chan=32,
                                    heads=2, key_dim=8, value_dim=8),
    "linformer": model("linformer.LinformerLM", words, ((2, 16), (3, 16), (1, 8), (2, 5)), num_tokens=99, seq_len=16,
                       k=4, **SIZE),
    "gmlp": model("g_mlp_pytorch.gMLP", words, ((2, 16), (3, 16), (1, 16)), shapes=({0: "batch"},), num_tokens=99,
                  dim=32, depth=2, seq_len=16),
    "nystromformer": model("nystrom_attention.Nystromformer", vectors_and_mask, num_landmarks=4, pinv_iterations=3,
                           attn_values_residual_conv_kernel=3, **HEAD),
    "h_transformer": model("h_transformer_1d.HTransformer1D", words_and_mask, ((2, 16), (3, 16), (1, 9), (3, 48)),
                           num_tokens=99, max_seq_len=64, block_size=4, **HEAD),
    "conformer": model("conformer.Conformer", conv_kernel_size=7, **HEAD),
    "mega": model("mega_pytorch.Mega", words, num_tokens=99, dim=32, depth=1, ema_heads=4, attn_dim_qk=8,
                  attn_dim_value=16, laplacian_attn_fn=True),
    "gateloop": model("gateloop_transformer.SimpleGateLoopLayer", dim=32),
    "gateloop_transformer": model("gateloop_transformer.Transformer", words, num_tokens=99, use_gate_looped_attn=False,
                                  data_dependent_rel_pos=True, **HEAD),
    "min_gru": model("minGRU_pytorch.minGRU", dim=32),
    "agent_attention": model("agent_attention_pytorch.AgentTransformer", vectors_and_mask, num_agent_tokens=4, **HEAD),
    "rela": model("rela_transformer.rela_transformer.ReLATransformer", words, num_tokens=99, max_seq_len=64, **HEAD),
    "isab": model("isab_pytorch.ISAB", dim=32, heads=4, num_latents=6),
    "hierarchical": model("simple_hierarchical_transformer.HierarchicalTransformer", words, BLOCKS, num_tokens=99,
                          seq_len=64, hierarchies=(1, 2), window_sizes=(4, None), **HEAD),
    "sinkhorn": model("sinkhorn_transformer.SinkhornTransformerLM", words, (*BLOCKS, (2, 4)), num_tokens=99,
                      max_seq_len=64, bucket_size=4, **SIZE),
    "sparse_attention": model("native_sparse_attention_pytorch.SparseAttention", vectors, ((2, 16), (3, 16), (1, 9),
                              (2, 37)), dim=32, dim_head=8, heads=4, sliding_window_size=4, compress_block_size=4,
                              compress_block_sliding_stride=2, selection_block_size=4, num_selected_blocks=2,
                              causal=True),
    "omninet": model("omninet_pytorch.Omninet", **HEAD),
    "local_transformer": model("local_attention.LocalTransformer", words, num_tokens=99, max_seq_len=64,
                               local_attn_window_size=4, **HEAD),
    "local_transformer_bias": model("local_attention.LocalTransformer", words, num_tokens=99, max_seq_len=64,
                                    local_attn_window_size=4, use_dynamic_pos_bias=True, **HEAD),
    "conditional_routing": model("colt5_attention.ConditionalRoutedTransformerBlock", vectors_and_mask, BLOCKS, dim=32,
                                 num_heavy_attn_tokens_q=4, num_heavy_attn_tokens_kv=4, num_heavy_ff_tokens=4,
                                 light_dim_head=8, light_heads=2, light_window_size=4, heavy_dim_head=8,
                                 heavy_heads=2),
    "soft_moe": model("soft_moe_pytorch.SoftMoE", dim=32, num_slots=2, num_experts=2),
    "soft_moe_dynamic": model("soft_moe_pytorch.DynamicSlotsSoftMoE", dim=32, num_experts=2),
    "product_key_memory": model("product_key_memory.PKM", dim=32, heads=2, num_keys=8, topk=4, dim_head=16),
    "memory_efficient": model("memory_efficient_attention_pytorch.Attention", vectors_and_mask, names="x mask", dim=32,
                              heads=4, dim_head=8, memory_efficient=True, q_bucket_size=4, k_bucket_size=4),
    "vector_quantize": model("vector_quantize_pytorch.VectorQuantize", dim=32, codebook_size=16),
    "vector_quantize_cosine": model("vector_quantize_pytorch.VectorQuantize", dim=32, codebook_size=16, heads=2,
                                    codebook_dim=8, use_cosine_sim=True),
    "residual_vq": model("vector_quantize_pytorch.ResidualVQ", dim=32, codebook_size=16, num_quantizers=2),
    "fsq": model("vector_quantize_pytorch.FSQ", dim=32, levels=[5, 5, 3]),
    "lfq": model("vector_quantize_pytorch.LFQ", dim=32, codebook_size=16),
    "egnn": model("egnn_pytorch.EGNN_Network", cloud, CLOUDS, names="feats coors mask", depth=1, dim=32,
                  num_nearest_neighbors=4),
    "point_transformer": model("point_transformer_pytorch.PointTransformerLayer", cloud, (*CLOUDS, (1, 3)), dim=32,
                               pos_mlp_hidden_dim=16, num_neighbors=4),
    "axial_attention": model("axial_attention.AxialAttention", MAPS, ((2, 6, 8), (3, 6, 8), (1, 1, 5), (2, 16, 20)),
                             shapes=(PICTURE,), dim=32, dim_index=1, heads=4),
    "halonet": model("halonet_pytorch.HaloAttention", MAPS, ((2, 8, 12), (3, 8, 12), (1, 4, 4), (2, 16, 20)),
                     shapes=(PICTURE,), dim=32, block_size=4, halo_size=1, dim_head=8, heads=2),
    "mlp_mixer": picture("mlp_mixer_pytorch.MLPMixer", channels=3, dim=16, depth=1, **GRID),
    "timesformer": picture("timesformer_pytorch.TimeSformer", lambda m: video(Clip(m)), num_frames=4, **HEAD, **GRID),
    "bs_roformer": roformer,
    "denoising_unet": denoiser("Unet", NOISY, ((2, 16, 24), (3, 16, 24), (1, 16, 16), (2, 32, 8)),
                               (PICTURE, {0: "batch"}), dim=8, dim_mults=(1, 2), attn_dim_head=4, attn_heads=2,
                               flash_attn=False),
    "denoising_unet_1d": denoiser("Unet1D", lambda b, n: (torch.randn(b, 3, n), torch.randint(0, 99, (b,))),
                                  ((2, 16), (3, 16), (1, 8), (2, 40)), ({0: "batch", 2: "length"}, {0: "batch"}),
                                  dim=8, dim_mults=(1, 2), channels=3, attn_dim_head=4, attn_heads=2),
}  # fmt: skip


class Clip(torch.nn.Module):
    """A model that wants (batch, frames, 3, height, width)."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: torch.Tensor) -> Any:
        return self.model(x.transpose(1, 2))

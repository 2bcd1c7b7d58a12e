"""diffusers' denoisers and autoencoders, tiny: latents of any size, texts of any length, several time steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from benchmarks.case import Args, Case, randomise
from benchmarks.transformers_models import Keyword, padded, sized

LIBRARIES = ("diffusers", "transformers")
LEFT_OUT = {
    "Kandinsky3UNet": "not found small: eager refused the configurations tried",
    "pipelines, schedulers": "loops of Python around the models that are cases here",
}
# Batch, height, width: the example, then the native size as the third.
LATENTS = ((2, 8, 12), (3, 8, 12), (2, 8, 8), (1, 16, 12), (2, 12, 4))
ODD = ((2, 8, 12), (3, 8, 12), (2, 8, 8), (1, 16, 10), (2, 7, 13))
IMAGES = ((2, 32, 48), (3, 32, 48), (2, 32, 32), (1, 64, 40), (2, 16, 24))
# Batch, frames, height, width.
FILMS = ((1, 3, 8, 12), (2, 3, 8, 12), (1, 3, 8, 8), (1, 5, 12, 8), (1, 1, 4, 8))
PICTURE = {0: "batch", 2: "height", 3: "width"}
FILM = {0: "batch", 2: "frames", 3: "height", 4: "width"}
BATCH, TEXT = {0: "batch"}, {0: "batch", 1: "tokens"}


def network(
    name: str,
    names: str,
    make: Callable[..., Args],
    sizes: Sequence[tuple[int, ...]],
    shapes: Any,
    call: dict[str, Any] | None = None,
    field: str = "sample",
    **options: Any,
) -> Callable[[], Case]:
    """A model of diffusers, called by keyword; its answer is ``field``."""

    def build() -> Case:
        import diffusers

        with torch.no_grad():  # weight_norm keeps a weight that it computed, which cannot be copied with its gradient
            made = getattr(diffusers, name)(**options)
        model = Keyword(randomise(made), names.split(), (field,), **(call or {}))
        return sized(model, make, sizes, shapes, native=2)

    return build


def latent(channels: int, *extra: Callable[[int, int], Any]) -> Callable[..., Args]:
    """(batch, height, width) to latents and time steps, then what ``extra`` makes of the batch and a text's length."""
    return lambda b, h, w: (torch.randn(b, channels, h, w), torch.randint(0, 999, (b,)), *(e(b, w + 1) for e in extra))


def film(channels: int, *extra: Callable[[int, int], Any]) -> Callable[..., Args]:
    return lambda b, f, h, w: (
        torch.randn(b, channels, f, h, w), torch.randint(0, 999, (b,)), *(e(b, w + 1) for e in extra)
    )  # fmt: skip


def words(width: int) -> Callable[[int, int], Any]:
    return lambda batch, length: torch.randn(batch, length, width)


def pooled(width: int) -> Callable[[int, int], Any]:
    return lambda batch, _: torch.randn(batch, width)


def flat(batch: int, height: int, width: int) -> Args:
    """Flux: packed latents, a text, their position ids."""
    rows, columns = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    places = torch.stack([torch.zeros_like(rows), rows, columns], dim=-1).reshape(-1, 3).float()
    return (torch.randn(batch, height * width, 8), torch.rand(batch), torch.randn(batch, width, 16), places,
            torch.zeros(width, 3), torch.randn(batch, 16))  # fmt: skip


def autoencoder(name: str, **options: Any) -> Callable[[], Case]:
    return network(name, "sample", lambda b, h, w: (torch.randn(b, 3, h, w),), IMAGES, (PICTURE,), **options)


def adapter() -> torch.nn.Module:
    import diffusers

    return randomise(diffusers.T2IAdapter(channels=[8, 8, 16, 16], num_res_blocks=1))


UNET = dict(sample_size=8, in_channels=4, out_channels=4, block_out_channels=(8, 16), layers_per_block=1,
            norm_num_groups=4)  # fmt: skip
CROSS = dict(UNET, cross_attention_dim=16, attention_head_dim=4,
             down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
             up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"))  # fmt: skip
HEADS = dict(num_attention_heads=2, attention_head_dim=8, num_layers=1)
DIT = dict(HEADS, in_channels=4, sample_size=8)
STEP, TOLD = "sample timestep", "hidden_states timestep encoder_hidden_states"
SEQUENCE = (PICTURE, BATCH, TEXT)
FLUX = dict(HEADS, in_channels=8, num_single_layers=1, joint_attention_dim=16, axes_dims_rope=(2, 2, 4))
VAE = dict(block_out_channels=(8, 16), norm_num_groups=4, latent_channels=2, sample_size=32)
TWO = dict(down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2)

CASES: dict[str, Callable[[], Case]] = {
    "unet_2d": network("UNet2DModel", STEP, latent(4), LATENTS, (PICTURE, BATCH), attention_head_dim=4,
                       down_block_types=("DownBlock2D", "AttnDownBlock2D"),
                       up_block_types=("AttnUpBlock2D", "UpBlock2D"), **UNET),
    "unet_2d_condition": network("UNet2DConditionModel", f"{STEP} encoder_hidden_states", latent(4, words(16)), LATENTS,
                                 SEQUENCE, **CROSS),
    "unet_2d_condition_odd": network("UNet2DConditionModel", f"{STEP} encoder_hidden_states", latent(4, words(16)), ODD,
                                     SEQUENCE, **CROSS),
    "unet_2d_condition_linear": network("UNet2DConditionModel", f"{STEP} encoder_hidden_states", latent(4, words(16)),
                                        LATENTS, SEQUENCE, use_linear_projection=True, **CROSS),
    "unet_1d": network("UNet1DModel", STEP, lambda b, n: (torch.randn(b, 4, n), torch.randint(0, 999, (b,))),
                       ((2, 32), (3, 32), (2, 64), (1, 16)), ({0: "batch", 2: "length"}, BATCH), sample_size=64,
                       in_channels=4, out_channels=4, time_embedding_type="positional",
                       down_block_types=("DownResnetBlock1D", "DownResnetBlock1D"),
                       up_block_types=("UpResnetBlock1D",), mid_block_type="MidResTemporalBlock1D",
                       out_block_type="OutConv1DBlock", block_out_channels=(8, 16), act_fn="swish",
                       use_timestep_embedding=True, downsample_each_block=False, layers_per_block=1),
    "unet_3d_condition": network("UNet3DConditionModel", f"{STEP} encoder_hidden_states", film(4, words(16)), FILMS,
                                 (FILM, BATCH, TEXT), sample_size=8, block_out_channels=(8, 16), layers_per_block=1,
                                 norm_num_groups=4, cross_attention_dim=16, attention_head_dim=4,
                                 down_block_types=("CrossAttnDownBlock3D", "DownBlock3D"),
                                 up_block_types=("UpBlock3D", "CrossAttnUpBlock3D")),
    "dit": network("DiTTransformer2DModel", "hidden_states timestep class_labels",
                   latent(4, lambda b, _: torch.randint(0, 9, (b,))), ((2, 8, 8), (3, 8, 8), (1, 8, 8)),
                   (BATCH, BATCH, BATCH), num_embeds_ada_norm=10, norm_num_groups=4, **DIT),
    "pixart": network("PixArtTransformer2DModel", TOLD, latent(4, words(16)), LATENTS, SEQUENCE,
                      dict(added_cond_kwargs={"resolution": None, "aspect_ratio": None}), caption_channels=16,
                      cross_attention_dim=16, norm_num_groups=4, **DIT),
    "sd3": network("SD3Transformer2DModel", f"{TOLD} pooled_projections", latent(4, words(16), pooled(12)), LATENTS,
                   (*SEQUENCE, BATCH), joint_attention_dim=16, caption_projection_dim=16, pooled_projection_dim=12,
                   out_channels=4, pos_embed_max_size=16, **DIT),
    "flux": network("FluxTransformer2DModel",
                    "hidden_states timestep encoder_hidden_states img_ids txt_ids pooled_projections", flat, ODD,
                    ({0: "batch", 1: "pixels"}, BATCH, TEXT, {0: "pixels"}, {0: "tokens"}, BATCH),
                    pooled_projection_dim=16, **FLUX),
    "auraflow": network("AuraFlowTransformer2DModel", TOLD, latent(4, words(16)), LATENTS, SEQUENCE, sample_size=8,
                        in_channels=4, num_mmdit_layers=1, num_single_dit_layers=1, attention_head_dim=8,
                        num_attention_heads=2, joint_attention_dim=16, caption_projection_dim=16,
                        pos_embed_max_size=64),
    "sana": network("SanaTransformer2DModel", TOLD, latent(4, words(16)), ODD, SEQUENCE, in_channels=4, out_channels=4,
                    num_attention_heads=2, attention_head_dim=8, num_layers=1, num_cross_attention_heads=2,
                    cross_attention_head_dim=8, cross_attention_dim=16, caption_channels=16, sample_size=8),
    "lumina2": network("Lumina2Transformer2DModel", f"{TOLD} encoder_attention_mask",
                       latent(4, words(16), lambda b, n: padded(b, n).bool()), LATENTS, (*SEQUENCE, TEXT),
                       sample_size=8, in_channels=4, hidden_size=24, num_layers=1, num_refiner_layers=1,
                       num_attention_heads=2, num_kv_heads=1, multiple_of=8, axes_dim_rope=(4, 4, 4),
                       axes_lens=(32, 32, 32), cap_feat_dim=16),
    "prior": network("PriorTransformer", "hidden_states timestep proj_embedding encoder_hidden_states attention_mask",
                     lambda b: (torch.randn(b, 8), torch.randint(0, 999, (b,)), torch.randn(b, 8),
                                torch.randn(b, 5, 8), torch.arange(5)[None] < torch.arange(5, 5 - b, -1)[:, None]),
                     ((2,), (1,), (3,)), (BATCH,) * 5, field="predicted_image_embedding", embedding_dim=8,
                     num_embeddings=5, **HEADS),
    "stable_audio": network("StableAudioDiTModel", f"{TOLD} global_hidden_states rotary_embedding",
                            lambda b, n: (torch.randn(b, 4, n), torch.rand(b), torch.randn(b, n // 2, 12),
                                          torch.randn(b, 1, 12), tuple(torch.randn(n + 1, 4) for _ in range(2))),
                            ((2, 12), (3, 12), (2, 16), (1, 30)),
                            ({0: "batch", 2: "length"}, BATCH, TEXT, BATCH, ({0: "length+1"},) * 2), sample_size=16,
                            in_channels=4, out_channels=4, num_layers=1, attention_head_dim=8, num_attention_heads=2,
                            num_key_value_attention_heads=1, cross_attention_dim=8, cross_attention_input_dim=12,
                            global_states_input_dim=12, time_proj_dim=8),
    "cogvideox": network("CogVideoXTransformer3DModel", TOLD,
                         lambda b, f, h, w: (torch.randn(b, f, 4, h, w), torch.randint(0, 999, (b,)),
                                             torch.randn(b, 6, 16)),
                         ((1, 2, 8, 8), (2, 2, 8, 8), (3, 2, 8, 8)), (BATCH,) * 3, in_channels=4, out_channels=4,
                         time_embed_dim=8, text_embed_dim=16, sample_width=8, sample_height=8, sample_frames=5,
                         max_text_seq_length=6, **HEADS),
    "ltx_video": network("LTXVideoTransformer3DModel", f"{TOLD} encoder_attention_mask",
                         lambda b, f, h, w: (torch.randn(b, f * h * w, 4), torch.randint(0, 999, (b,)),
                                             torch.randn(b, 7, 16), padded(b, 7)),
                         ((1, 2, 4, 4), (2, 2, 4, 4), (3, 2, 4, 4)), (BATCH,) * 4,
                         dict(num_frames=2, height=4, width=4), in_channels=4, out_channels=4, caption_channels=16,
                         cross_attention_dim=16, **HEADS),
    "mochi": network("MochiTransformer3DModel", f"{TOLD} encoder_attention_mask",
                     film(4, words(16), padded), FILMS, (FILM, BATCH, TEXT, TEXT), in_channels=4,
                     pooled_projection_dim=16, text_embed_dim=16, time_embed_dim=8, num_attention_heads=2,
                     attention_head_dim=12, num_layers=2),
    "wan": network("WanTransformer3DModel", TOLD, film(4, words(16)), FILMS, (FILM, BATCH, TEXT), in_channels=4,
                   out_channels=4, text_dim=16, freq_dim=8, ffn_dim=16, num_attention_heads=2, attention_head_dim=12,
                   num_layers=1, rope_max_seq_len=32),
    "hunyuan_video": network("HunyuanVideoTransformer3DModel",
                             f"{TOLD} encoder_attention_mask pooled_projections guidance",
                             film(4, words(16), padded, pooled(8), lambda b, _: torch.rand(b)), FILMS,
                             (FILM, BATCH, TEXT, TEXT, BATCH, BATCH), in_channels=4, out_channels=4,
                             num_attention_heads=2, attention_head_dim=12, num_layers=1, num_single_layers=1,
                             num_refiner_layers=1, text_embed_dim=16, pooled_projection_dim=8,
                             rope_axes_dim=(4, 4, 4)),
    "t2i_adapter": lambda: sized(adapter(), lambda b, h, w: (torch.randn(b, 3, h, w),), IMAGES, (PICTURE,),
                                        native=2),
    "autoencoder_kl": autoencoder("AutoencoderKL", **VAE, **TWO),
    "autoencoder_tiny": autoencoder("AutoencoderTiny", encoder_block_out_channels=(8, 8),
                                    decoder_block_out_channels=(8, 8), num_encoder_blocks=(1, 1),
                                    num_decoder_blocks=(1, 1)),
    "autoencoder_dc": autoencoder("AutoencoderDC", latent_channels=4, attention_head_dim=4,
                                  encoder_block_types=("ResBlock", "EfficientViTBlock"),
                                  decoder_block_types=("ResBlock", "EfficientViTBlock"),
                                  encoder_block_out_channels=(8, 8), decoder_block_out_channels=(8, 8),
                                  encoder_layers_per_block=(1, 1), decoder_layers_per_block=(1, 1),
                                  encoder_qkv_multiscales=((), (5,)), decoder_qkv_multiscales=((), (5,))),
    "vq_model": autoencoder("VQModel", num_vq_embeddings=8, vq_embed_dim=2,
                            **VAE, **TWO),
    "autoencoder_oobleck": network("AutoencoderOobleck", "sample", lambda b, n: (torch.randn(b, 2, n),),
                                   ((2, 64), (3, 64), (1, 32), (2, 160)), ({0: "batch", 2: "length"},),
                                   encoder_hidden_size=8, downsampling_ratios=[2, 4], channel_multiples=[1, 2],
                                   decoder_channels=8, decoder_input_channels=4),
    "autoencoder_wan": network("AutoencoderKLWan", "sample", lambda b, f, h, w: (torch.randn(b, 3, f, h, w),),
                               ((1, 5, 16, 24), (2, 5, 16, 24), (1, 1, 16, 16), (1, 9, 24, 16)), (FILM,), base_dim=4,
                               z_dim=16, dim_mult=[1, 2], num_res_blocks=1, temperal_downsample=[True]),
}  # fmt: skip

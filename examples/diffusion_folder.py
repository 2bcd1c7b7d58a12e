"""A pipeline of diffusers as one folder of ONNX files, and its denoising loop in onnxruntime.

    folder/text_encoder/model.onnx    input_ids -> last_hidden_state, pooler_output
           unet/model.onnx            sample, timestep, encoder_hidden_states -> out_sample
      or   transformer/model.onnx     of a DiT, whose text encoder and transformer take an attention mask too
           vae_encoder/model.onnx     sample -> latent_parameters (mean and log of the variance)
           vae_decoder/model.onnx     latent_sample -> sample
           scheduler/, model_index.json, and each part's config.json

Names and layout are those that diffusers' and optimum's ONNX pipelines look for. Batch, length of the text, height and
width may change; height and width of latents are multiples of what the UNet halves.

    python examples/diffusion_folder.py sd-onnx          # a small Stable Diffusion with random weights
    python examples/diffusion_folder.py dit-onnx dit     # a small PixArt
"""

from __future__ import annotations

import copy
import sys
import tempfile
from pathlib import Path
from typing import Any

import diffusers
import numpy as np
import onnxruntime
import torch
import transformers
from torch import Tensor, nn

import onnxpatch

BATCH = "batch_size"


class TextEncoder(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor) -> dict[str, Tensor]:
        answer = self.model(input_ids)
        return {"last_hidden_state": answer.last_hidden_state, "pooler_output": answer.pooler_output}


class MaskedTextEncoder(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> dict[str, Tensor]:
        return {"last_hidden_state": self.model(input_ids, attention_mask).last_hidden_state}


class Denoiser(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, sample: Tensor, timestep: Tensor, encoder_hidden_states: Tensor) -> dict[str, Tensor]:
        return {"out_sample": self.model(sample, timestep, encoder_hidden_states).sample}


class DiT(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(
        self, hidden_states: Tensor, encoder_hidden_states: Tensor, encoder_attention_mask: Tensor, timestep: Tensor
    ) -> dict[str, Tensor]:
        answer = self.model(
            hidden_states, encoder_hidden_states, timestep, encoder_attention_mask=encoder_attention_mask,
            added_cond_kwargs={"resolution": None, "aspect_ratio": None},
        )  # fmt: skip
        return {"out_sample": answer.sample}


class VaeEncoder(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, sample: Tensor) -> dict[str, Tensor]:
        return {"latent_parameters": self.model.encode(sample).latent_dist.parameters}


class VaeDecoder(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, latent_sample: Tensor) -> dict[str, Tensor]:
        return {"sample": self.model.decode(latent_sample).sample}


def export_pipeline(pipe: Any, folder: str | Path, **options: Any) -> dict[str, onnxpatch.Report]:
    """Export the four parts of a Stable Diffusion or a PixArt, each proven. options: those of `onnxpatch.export`."""
    vae, folder = pipe.vae, Path(folder)
    shrunk = 2 ** (len(vae.config.block_out_channels) - 1)
    image: dict[int, str] = {0: BATCH, 2: f"{shrunk} * height", 3: f"{shrunk} * width"}
    parts = _parts_of_dit(pipe) if hasattr(pipe, "transformer") else _parts_of_unet(pipe)
    side = 8
    parts |= {
        "vae_encoder": (VaeEncoder(vae), (torch.randn(2, vae.config.in_channels, 2 * side, 2 * side),), (image,), vae),
        "vae_decoder": (VaeDecoder(vae), (torch.randn(2, vae.config.latent_channels, side, side),),
                        ({0: BATCH, 2: "height", 3: "width"},), vae),
    }  # fmt: skip
    reports = {}
    for name, (module, args, free, model) in parts.items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        file = folder / name / "model.onnx"
        reports[name] = onnxpatch.export(module.eval(), args, file, dynamic_shapes=free, **options)
        config = model.save_config if hasattr(model, "save_config") else model.config.save_pretrained
        config(folder / name)
    pipe.scheduler.save_pretrained(folder / "scheduler")
    pipe.save_config(folder)
    return reports


Parts = dict[str, tuple[nn.Module, tuple[Tensor, ...], Any, Any]]  # by folder: module, example, free sizes, model
_LENGTH = {0: BATCH, 1: "sequence_length"}


def _parts_of_unet(pipe: Any) -> Parts:
    unet = pipe.unet
    halved, side = 2 ** (len(unet.config.block_out_channels) - 1), unet.config.sample_size
    latent = {0: BATCH, 2: f"{halved} * height", 3: f"{halved} * width"}
    noise = torch.randn(2, unet.config.in_channels, side, side)
    text = torch.randn(2, 7, unet.config.cross_attention_dim)
    ids = torch.randint(3, pipe.text_encoder.config.vocab_size, (2, 7))
    return {
        "text_encoder": (TextEncoder(pipe.text_encoder), (ids,), (_LENGTH,), pipe.text_encoder),
        "unet": (Denoiser(unet), (noise, torch.tensor([10]), text), (latent, None, _LENGTH), unet),
    }


def _parts_of_dit(pipe: Any) -> Parts:
    dit = pipe.transformer
    patch, side = dit.config.patch_size, dit.config.sample_size
    latent = {0: BATCH, 2: f"{patch} * height", 3: f"{patch} * width"}
    noise = torch.randn(2, dit.config.in_channels, side, side)
    ids = torch.randint(3, pipe.text_encoder.config.vocab_size, (2, 7))
    mask = torch.ones(2, 7, dtype=torch.int64)
    mask[0, 5:] = 0
    args = (noise, torch.randn(2, 7, dit.config.caption_channels), mask, torch.tensor([10, 10]))
    return {
        "text_encoder": (MaskedTextEncoder(pipe.text_encoder), (ids, mask), (_LENGTH, _LENGTH), pipe.text_encoder),
        "transformer": (DiT(dit), args, (latent, _LENGTH, _LENGTH, {0: BATCH}), dit),
    }


def denoise(
    folder: str | Path, scheduler: Any, ids: Tensor, blank: Tensor, latents: Tensor, steps: int, guidance: float = 7.5
) -> Tensor:
    """Images (batch, 3, height, width) of texts, as diffusers' pipelines make them; its parts run in onnxruntime.

    scheduler: of diffusers. ids, blank: (batch, length), the tokens of the texts and of none; 0 pads a PixArt's.
    latents: the noise.
    """
    folder, both_ids = Path(folder), torch.cat([blank, ids])
    unet, mask = (folder / "unet").exists(), (both_ids != 0).long()
    parts = ("text_encoder", "unet" if unet else "transformer", "vae_decoder")
    encode, predict, decode = (_run(folder / name / "model.onnx") for name in parts)
    text = encode(input_ids=both_ids) if unet else encode(input_ids=both_ids, attention_mask=mask)
    scheduler.set_timesteps(steps)
    latents = latents * scheduler.init_noise_sigma
    for step in scheduler.timesteps:
        both = scheduler.scale_model_input(torch.cat([latents, latents]), step)
        if unet:
            noise = predict(sample=both, timestep=step.reshape(1), encoder_hidden_states=text)
        else:
            now = step.reshape(1).expand(len(both))
            noise = predict(hidden_states=both, encoder_hidden_states=text, encoder_attention_mask=mask, timestep=now)
            noise = noise[:, : latents.shape[1]]  # the others are variances, which the scheduler does not take
        without, with_text = noise.chunk(2)
        latents = scheduler.step(without + guidance * (with_text - without), step, latents, return_dict=False)[0]
    config = diffusers.AutoencoderKL.load_config(folder / "vae_decoder")
    return decode(latent_sample=latents / config["scaling_factor"])


def _run(file: Path) -> Any:
    """The first output of a file, for inputs by name."""
    session = onnxruntime.InferenceSession(file)
    return lambda **feed: torch.from_numpy(session.run(None, {name: np.asarray(one) for name, one in feed.items()})[0])


def small() -> Any:
    """Stable Diffusion's parts at reduced width, with random weights."""
    torch.manual_seed(0)
    text = transformers.CLIPTextConfig(
        vocab_size=99, hidden_size=32, intermediate_size=37, num_hidden_layers=2, num_attention_heads=4,
        max_position_embeddings=16, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    unet = diffusers.UNet2DConditionModel(
        sample_size=8, in_channels=4, out_channels=4, block_out_channels=(16, 32), layers_per_block=1,
        cross_attention_dim=32, attention_head_dim=4, norm_num_groups=8,
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"), up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
    )  # fmt: skip
    return diffusers.StableDiffusionPipeline(
        vae=_vae(), text_encoder=transformers.CLIPTextModel(text).eval(), tokenizer=None, unet=unet.eval(),
        scheduler=diffusers.DDIMScheduler(
            beta_start=0.00085, beta_end=0.012, beta_schedule="scaled_linear", clip_sample=False, steps_offset=1
        ),
        safety_checker=None, feature_extractor=None, requires_safety_checker=False,
    )  # fmt: skip


def small_dit() -> Any:
    """PixArt's parts at reduced width, with random weights."""
    torch.manual_seed(0)
    text = transformers.T5Config(
        vocab_size=99, d_model=32, d_kv=8, d_ff=37, num_layers=2, num_heads=4, feed_forward_proj="gated-gelu"
    )
    dit = diffusers.PixArtTransformer2DModel(
        num_attention_heads=2, attention_head_dim=16, in_channels=4, out_channels=8, num_layers=2,
        cross_attention_dim=32, caption_channels=32, sample_size=8, patch_size=2,
    )  # fmt: skip
    return diffusers.PixArtAlphaPipeline(
        tokenizer=None, text_encoder=transformers.T5EncoderModel(text).eval(), vae=_vae(), transformer=dit.eval(),
        scheduler=diffusers.DPMSolverMultistepScheduler(),
    )  # fmt: skip


def _vae() -> Any:
    return diffusers.AutoencoderKL(
        block_out_channels=(16, 32), latent_channels=4, norm_num_groups=8, sample_size=16,
        down_block_types=("DownEncoderBlock2D", "DownEncoderBlock2D"),
        up_block_types=("UpDecoderBlock2D", "UpDecoderBlock2D"),
    ).eval()  # fmt: skip


def compared(pipe: Any, folder: str | Path, batch: int, height: int, width: int, steps: int = 4) -> float:
    """The largest difference between onnxruntime's images and the pipeline's own, as a share of the largest value."""
    ids, blank = torch.randint(3, 90, (batch, 7)), torch.full((batch, 7), 2)
    latents = torch.randn(batch, 4, height, width)
    more: dict[str, Any] = {}
    if hasattr(pipe, "transformer"):
        ids[:, 5:] = blank[:, 1:] = 0
        masks = [(one != 0).long() for one in (ids, blank)]
        more = {"prompt_attention_mask": masks[0], "negative_prompt_attention_mask": masks[1],
                "use_resolution_binning": False, "negative_prompt": None}  # fmt: skip
    with torch.no_grad():
        given = masks if more else [None, None]
        texts, nothing = (
            pipe.text_encoder(one, mask).last_hidden_state for one, mask in zip((ids, blank), given, strict=True)
        )
        wanted = pipe(
            prompt_embeds=texts, negative_prompt_embeds=nothing, latents=latents, num_inference_steps=steps,
            guidance_scale=7.5, height=2 * height, width=2 * width, output_type="latent", **more,
        ).images  # fmt: skip
        wanted = pipe.vae.decode(wanted / pipe.vae.config.scaling_factor).sample
    scheduler = copy.deepcopy(pipe.scheduler)
    found = denoise(folder, scheduler, ids, blank, latents, steps)
    return float((found - wanted).abs().max() / wanted.abs().max())


def main() -> None:
    pipe = small_dit() if "dit" in sys.argv[2:] else small()
    pipe.set_progress_bar_config(disable=True)
    folder = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()
    for name, report in export_pipeline(pipe, folder, exporter="trace").items():
        print(f"{name}: {report.verdict}, {len(report.checks)} checks")
    for batch, height, width in ((2, 8, 8), (2, 12, 16)):
        error = compared(pipe, folder, batch, height, width)
        print(f"4 steps, {batch} images of {2 * height} x {2 * width}: error {error:.1e}")


if __name__ == "__main__":
    main()

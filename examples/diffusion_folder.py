"""A pipeline of diffusers as one folder of ONNX files, and its denoising loop in onnxruntime.

    folder/text_encoder/model.onnx    input_ids -> last_hidden_state, pooler_output
           unet/model.onnx            sample, timestep, encoder_hidden_states -> out_sample
           vae_encoder/model.onnx     sample -> latent_parameters (mean and log of the variance)
           vae_decoder/model.onnx     latent_sample -> sample
           scheduler/, model_index.json, and each part's config.json

Names and layout are those that diffusers' and optimum's ONNX pipelines look for. Batch, length of the text, height and
width may change; height and width of latents are multiples of what the UNet halves.

    python examples/diffusion_folder.py sd-onnx      # a small Stable Diffusion with random weights
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


class Denoiser(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, sample: Tensor, timestep: Tensor, encoder_hidden_states: Tensor) -> dict[str, Tensor]:
        return {"out_sample": self.model(sample, timestep, encoder_hidden_states).sample}


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
    """Export the four parts of a Stable Diffusion, each proven. options: those of `onnxpatch.export`."""
    unet, vae, folder = pipe.unet, pipe.vae, Path(folder)
    halved, shrunk = 2 ** (len(unet.config.block_out_channels) - 1), 2 ** (len(vae.config.block_out_channels) - 1)
    side = unet.config.sample_size
    image: dict[int, str] = {0: BATCH, 2: f"{shrunk} * height", 3: f"{shrunk} * width"}
    latent = {0: BATCH, 2: f"{halved} * height", 3: f"{halved} * width"}
    ids = torch.randint(3, pipe.text_encoder.config.vocab_size, (2, 7))
    noise = torch.randn(2, unet.config.in_channels, side, side)
    text = torch.randn(2, 7, unet.config.cross_attention_dim)
    length = {0: BATCH, 1: "sequence_length"}
    parts: dict[str, tuple[nn.Module, tuple[Tensor, ...], Any, Any]] = {
        "text_encoder": (TextEncoder(pipe.text_encoder), (ids,), (length,), pipe.text_encoder),
        "unet": (Denoiser(unet), (noise, torch.tensor([10]), text), (latent, None, length), unet),
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


def denoise(
    folder: str | Path, scheduler: Any, ids: Tensor, blank: Tensor, latents: Tensor, steps: int, guidance: float = 7.5
) -> Tensor:
    """Images (batch, 3, height, width) of texts, as `StableDiffusionPipeline` makes them; its parts run in onnxruntime.

    scheduler: of diffusers. ids, blank: (batch, length), the tokens of the texts and of none. latents: the noise.
    """
    runs = {name: _run(Path(folder, name, "model.onnx")) for name in ("text_encoder", "unet", "vae_decoder")}
    text = runs["text_encoder"](input_ids=torch.cat([blank, ids]))
    scheduler.set_timesteps(steps)
    latents = latents * scheduler.init_noise_sigma
    for step in scheduler.timesteps:
        both = scheduler.scale_model_input(torch.cat([latents, latents]), step)
        noise = runs["unet"](sample=both, timestep=step.reshape(1), encoder_hidden_states=text)
        without, with_text = noise.chunk(2)
        latents = scheduler.step(without + guidance * (with_text - without), step, latents, return_dict=False)[0]
    config = diffusers.AutoencoderKL.load_config(Path(folder, "vae_decoder"))
    return runs["vae_decoder"](latent_sample=latents / config["scaling_factor"])


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
    vae = diffusers.AutoencoderKL(
        block_out_channels=(16, 32), latent_channels=4, norm_num_groups=8, sample_size=16,
        down_block_types=("DownEncoderBlock2D", "DownEncoderBlock2D"),
        up_block_types=("UpDecoderBlock2D", "UpDecoderBlock2D"),
    )  # fmt: skip
    return diffusers.StableDiffusionPipeline(
        vae=vae.eval(), text_encoder=transformers.CLIPTextModel(text).eval(), tokenizer=None, unet=unet.eval(),
        scheduler=diffusers.DDIMScheduler(
            beta_start=0.00085, beta_end=0.012, beta_schedule="scaled_linear", clip_sample=False, steps_offset=1
        ),
        safety_checker=None, feature_extractor=None, requires_safety_checker=False,
    )  # fmt: skip


def compared(pipe: Any, folder: str | Path, batch: int, height: int, width: int, steps: int = 4) -> float:
    """The largest difference between onnxruntime's images and the pipeline's own, as a share of the largest value."""
    ids, blank = torch.randint(3, 90, (batch, 7)), torch.full((batch, 7), 2)
    latents = torch.randn(batch, 4, height, width)
    with torch.no_grad():
        texts, nothing = (pipe.text_encoder(one).last_hidden_state for one in (ids, blank))
        wanted = pipe(
            prompt_embeds=texts, negative_prompt_embeds=nothing, latents=latents, num_inference_steps=steps,
            guidance_scale=7.5, height=2 * height, width=2 * width, output_type="latent",
        ).images  # fmt: skip
        wanted = pipe.vae.decode(wanted / pipe.vae.config.scaling_factor).sample
    scheduler = copy.deepcopy(pipe.scheduler)
    found = denoise(folder, scheduler, ids, blank, latents, steps)
    return float((found - wanted).abs().max() / wanted.abs().max())


def main() -> None:
    pipe = small()
    pipe.set_progress_bar_config(disable=True)
    folder = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()
    for name, report in export_pipeline(pipe, folder, exporter="trace").items():
        print(f"{name}: {report.verdict}, {len(report.checks)} checks")
    for batch, height, width in ((2, 8, 8), (2, 12, 16)):
        error = compared(pipe, folder, batch, height, width)
        print(f"4 steps, {batch} images of {2 * height} x {2 * width}: error {error:.1e}")


if __name__ == "__main__":
    main()

"""A UNet of diffusers as Stable Diffusion has it: latents [B, 4, H, W], a time step and text [B, L, 32] to noise."""

import diffusers
import torch


class Denoiser(torch.nn.Module):
    """The predicted noise as a tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.unet = diffusers.UNet2DConditionModel(
            sample_size=16, block_out_channels=(16, 32), layers_per_block=1, cross_attention_dim=32,
            attention_head_dim=4, norm_num_groups=8, down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
            up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
        )  # fmt: skip

    def forward(self, latents: torch.Tensor, step: torch.Tensor, text: torch.Tensor) -> torch.Tensor:
        return self.unet(latents, step, text).sample


def model() -> torch.nn.Module:
    torch.manual_seed(0)
    return Denoiser().eval()

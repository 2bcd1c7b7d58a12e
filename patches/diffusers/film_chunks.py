"""The video autoencoders of Wan and Qwen-Image: one pass over all frames in place of a Python loop over chunks.

The loop gives each chunk the last frames of the one before it. The convolutions are causal in time, with zeros before
the first frame, so one pass over the whole video computes the same. It has the activations of all frames in memory at
once; the loop has those of one chunk.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from onnxpatch import KnownBody, Proof, When, patch
from onnxpatch.formulas.calls import temporary_variable
from onnxpatch.formulas.symbolic import symbolic
from onnxpatch.patching.proof import computing, randomised

WRITTEN_FOR = "diffusers 0.42.1"

_HOME = "diffusers.models.autoencoders"
_SMALL: dict[str, Any] = dict(base_dim=2, z_dim=2, dim_mult=[1, 1], num_res_blocks=1, temperal_downsample=[True])
# Whether frames come as a whole film: the resampling layers have no other way to know.
_whole_film: ContextVar[bool] = ContextVar("whole_film", default=False)


def _film() -> torch.nn.Module:
    from diffusers import AutoencoderKLWan

    made: Any = AutoencoderKLWan(**_SMALL)
    return computing(lambda autoencoder, film: autoencoder(film).sample, randomised(made))


def _films() -> list[tuple[Tensor]]:
    # Frames: two chunks, three, one frame alone, and some that fill no chunk.
    return [(torch.randn(batch, 3, frames, 8, 8),) for batch, frames in ((2, 5), (1, 9), (2, 1), (1, 7))]


@patch(
    f"{_HOME}.autoencoder_kl_wan.AutoencoderKLWan",
    f"{_HOME}.autoencoder_kl_qwenimage.AutoencoderKLQwenImage",
    name="film-chunks",
    why="for i in range(1 + (num_frame - 1) // 4): as many chunks of frames as the example has",
    link="https://github.com/huggingface/diffusers/blob/main/src/diffusers/models/autoencoders/autoencoder_kl_wan.py",
    when=When(
        exporters=("dynamo", "trace"),
        bodies={
            "_encode": {KnownBody("c5f9a95b501c", WRITTEN_FOR), KnownBody("695c9963277e", WRITTEN_FOR)},
            "_decode": {KnownBody("32c10cfaa09e", WRITTEN_FOR), KnownBody("dbfd1feab0ca", WRITTEN_FOR)},
        },
    ),
    proof=Proof(
        build=_film,
        inputs=_films,
        fails=("dynamo", "trace"),
        reason="shape|Invalid input shape",
        beside=("film-resampling", "interpolate"),
        unchanged="fixed sizes",
    ),
)
class _FilmAutoencoder:
    """Encodes and decodes all frames in one pass, if their number is dynamic; tiles are left to the model."""

    def _encode(self: Any, x: Tensor) -> Tensor:
        frames, patch_size = x.shape[2], getattr(self.config, "patch_size", None)
        if not symbolic(frames) or self.use_tiling:
            return NotImplemented
        if patch_size is not None:
            from diffusers.models.autoencoders.autoencoder_kl_wan import patchify

            x = patchify(x, patch_size=patch_size)
        # One frame, then whole chunks of four: frames that fill no chunk are left out.
        with temporary_variable(_whole_film, True):
            return self.quant_conv(self.encoder(x[:, :, : 1 + (frames - 1) // 4 * 4]))

    def _decode(self: Any, z: Tensor, return_dict: bool = True) -> object:
        from diffusers.models.autoencoders.vae import DecoderOutput

        if not symbolic(z.shape[2]) or self.use_tiling:
            return NotImplemented
        # The residual decoder drops the frames that doubling adds to the first; a decoder of all frames starts with it.
        first = {"first_chunk": True} if getattr(self.config, "is_residual", False) else {}
        with temporary_variable(_whole_film, True):
            out = self.decoder(self.post_quant_conv(z), **first)
        if getattr(self.config, "patch_size", None) is not None:
            from diffusers.models.autoencoders.autoencoder_kl_wan import unpatchify

            out = unpatchify(out, patch_size=self.config.patch_size)
        out = torch.clamp(out, min=-1.0, max=1.0)
        return DecoderOutput(sample=out) if return_dict else (out,)


@patch(
    f"{_HOME}.autoencoder_kl_wan.WanResample",
    f"{_HOME}.autoencoder_kl_qwenimage.QwenImageResample",
    name="film-resampling",
    why="for i in range(1 + (num_frame - 1) // 4): as many chunks of frames as the example has",
    link="https://github.com/huggingface/diffusers/blob/main/src/diffusers/models/autoencoders/autoencoder_kl_wan.py",
    when=When(
        exporters=("dynamo", "trace"),
        bodies={"forward": {KnownBody("d1f15c272c20", WRITTEN_FOR), KnownBody("057237921802", WRITTEN_FOR)}},
    ),
    proof=Proof(
        build=_film,
        inputs=_films,
        fails=("dynamo", "trace"),
        reason="shape|Invalid input shape|relative error",
        beside=("film-chunks", "interpolate"),
        unchanged="fixed sizes",
    ),
)
class _FilmResampling:
    """Doubles or halves the number of frames after the first, which is a chunk of its own and stays one frame."""

    def forward(self: Any, x: Tensor, feat_cache: object = None, feat_idx: object = (0,)) -> Tensor:
        if not _whole_film.get():
            return NotImplemented
        if self.mode == "upsample3d":
            x = _doubled(x, self.time_conv)
        batch, channels, _, height, width = x.shape
        x = self.resample(x.transpose(1, 2).reshape(-1, channels, height, width))
        x = x.reshape(batch, -1, *x.shape[1:]).transpose(1, 2)
        return _halved(x, self.time_conv) if self.mode == "downsample3d" else x


def _doubled(x: Tensor, time_conv: Any) -> Tensor:
    """Makes two frames of each one after the first. For these the first one is zeros, like the padding before it."""
    batch, channels, _, height, width = x.shape
    first = x[:, :, :1]
    made = time_conv(torch.cat([torch.zeros_like(first), x[:, :, 1:]], dim=2))
    pairs = made.reshape(batch, 2, channels, -1, height, width).permute(0, 2, 3, 1, 4, 5)
    return torch.cat([first, pairs.reshape(batch, channels, -1, height, width)[:, :, 2:]], dim=2)


def _halved(x: Tensor, time_conv: Any) -> Tensor:
    """Makes one frame of every two after the first, from these two and the one before them.

    Two frames of zeros in front, so that a video of one frame has a window, too; the frame made of it is dropped.
    """
    made = time_conv(functional.pad(x, (0, 0, 0, 0, 2, 0)))
    return torch.cat([x[:, :, :1], made[:, :, 1:]], dim=2)

"""Convolutions of codecs (EnCodec, Mimi) that pad what they take to whole strides, by amounts held in buffers."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from onnxpatch import KnownBody, Proof, When, patch
from onnxpatch.formulas.symbolic import symbolic
from onnxpatch.patching.proof import randomised

WRITTEN_FOR = "transformers 5.23.0"


class _Codec(torch.nn.Module):
    """A causal convolution that pads by reflection, and one of Mimi's that pads by zeros on both sides."""

    def __init__(self) -> None:
        super().__init__()
        from transformers import EncodecConfig, MimiConfig
        from transformers.models.encodec.modeling_encodec import EncodecConv1d
        from transformers.models.mimi.modeling_mimi import MimiConv1d

        self.down = randomised(EncodecConv1d(EncodecConfig(), 1, 2, 6, stride=3))
        self.wide = randomised(MimiConv1d(MimiConfig(use_causal_conv=False), 2, 2, 5, stride=2))

    def forward(self, x: Tensor) -> Tensor:
        return self.wide(self.down(x))


@patch(
    "transformers.models.encodec.modeling_encodec.EncodecConv1d",
    "transformers.models.mimi.modeling_mimi.MimiConv1d",
    "transformers.models.pocket_tts_audio_tokenizer.modeling_pocket_tts_audio_tokenizer.PocketTTSAudioTokenizerConv1d",
    name="padded-convolution",
    why="length - self.kernel_size + self.padding_total, of buffers: Could not guard on data-dependent expression",
    link="https://github.com/huggingface/transformers/blob/main/src/transformers/models/encodec/modeling_encodec.py",
    when=When(
        bodies={
            "forward": {KnownBody("44156c6b1954", WRITTEN_FOR), KnownBody("dc67497f1f26", WRITTEN_FOR)},
            "_get_extra_padding_for_conv1d": {KnownBody("35a85d25a3aa", WRITTEN_FOR)},
            "_pad1d": {KnownBody("2f7c4c2907d4", WRITTEN_FOR)},
        }
    ),
    proof=Proof(
        build=_Codec,
        # 1 and 3 samples are too few for the reflection that is asked for.
        inputs=lambda: [(torch.randn(b, 1, n),) for b, n in ((2, 17), (3, 24), (1, 1), (2, 3), (1, 40))],
        fails=("dynamo",),
        reason="data-dependent expression",
        beside=("size-shortcut", "size-shortcut-trace", "symbolic-max"),
    ),
)
class _PaddedConv1d:
    """A convolution over audio (batch, channels, samples), padded so that the last stride is whole."""

    def forward(self: Any, hidden_states: Tensor, padding_cache: object = None) -> Tensor:
        """As many outputs as the samples have strides, the last of them begun or whole."""
        length = hidden_states.shape[-1]
        if padding_cache is not None or not symbolic(length):
            return NotImplemented
        stride = self.conv.stride[0]
        total = (self.conv.kernel_size[0] - 1) * self.conv.dilation[0] + 1 - stride
        right = 0 if self.causal else total // 2
        extra = (length + stride - 1) // stride * stride - length
        out = self.conv(self._pad1d(hidden_states, (total - right, right + extra), mode=self.pad_mode))
        # The other kind, weight_norm, is in the weights of the convolution.
        return self.norm(out) if getattr(self, "norm_type", "") == "time_group_norm" else out

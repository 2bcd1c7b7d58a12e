"""Windows of transformers' Swin, DonutSwin and CLAP at dynamic sizes: cyclic shift and mask.

These layers drop the shift if the map is no larger than the window; those of Swin V2 and MaskFormer need no patch.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor, nn

from onnxpatch import KnownBody, Proof, Settings, When, patch
from onnxpatch.formulas import windows
from onnxpatch.formulas.windows import is_static, merge, pad_to, partition, shift_mask, windows_over
from onnxpatch.patching.proof import of_map

WRITTEN_FOR = "transformers 5.23.0"
LINK = "https://github.com/microsoft/Swin-Transformer/issues/301"
FROZEN = "exported with dynamic height and width, the graph keeps the padding, windows and shift mask of its example"
_row = functools.partial(patch, why=FROZEN, link=LINK)
_SWIN = "transformers.models.swin.modeling_swin"
_DONUT = "transformers.models.donut.modeling_donut_swin"
_CLAP = "transformers.models.clap.modeling_clap"


def _known(**methods: str) -> When:
    """Where methods have the code of this version; each by its fingerprints, with a space between them."""
    prints = {name: {KnownBody(one, WRITTEN_FOR) for one in found.split()} for name, found in methods.items()}
    return When(bodies=prints)


def _maps() -> list[tuple[Tensor]]:
    # For windows of 4: whole, padded, a map as high as one window (some layers do not shift it), and odd sizes.
    return [(torch.randn(*size, 8),) for size in ((2, 8, 12), (1, 9, 6), (3, 4, 8), (2, 11, 5))]


def _swin_layer() -> nn.Module:
    from transformers import SwinConfig
    from transformers.models.swin.modeling_swin import SwinLayer

    config = SwinConfig(image_size=32, embed_dim=8, window_size=4)
    config._attn_implementation = "eager"
    return of_map(SwinLayer(config, 8, (8, 8), 2, shift_size=2))


def _donut_layer() -> nn.Module:
    from transformers import DonutSwinConfig
    from transformers.models.donut.modeling_donut_swin import DonutSwinLayer

    return of_map(DonutSwinLayer(DonutSwinConfig(image_size=32, embed_dim=8, window_size=4), 8, (8, 8), 2, 0.0, 2))


class _Clamping:
    """Layers that do without the shift where the map is no larger than the window.

    transformers' own method writes the answer for the size at hand into the layer, for every call to come; here it is
    worked out anew at each call, as in a fresh copy of the model.
    """

    window_size: int
    shift_size: int
    _map_size: Any

    @staticmethod
    def onnxpatch_prepare(module: nn.Module, settings: Settings) -> dict[str, object]:
        # None until set_shift_and_window_size is called: `always_partition` skips that call.
        return {"_map_size": None}

    def set_shift_and_window_size(self, input_resolution: tuple[int, int]) -> None:
        """Remember the size: whether it is too small is decided in the graph."""
        self._map_size = input_resolution

    def _shifted(self) -> Tensor | None:
        """() of bool: whether there is a shift; None where it is certain."""
        if self._map_size is None or (is_static(*self._map_size) and min(self._map_size) > self.window_size):
            return None
        return windows.larger_than(self.window_size, self._map_size)

    def cyclic_shift(self, hidden_states: Tensor, reverse: bool = False) -> Tensor:
        """(B, H, W, C) shifted up and left, or back."""
        if not self.shift_size:
            return hidden_states
        shift = self.shift_size if reverse else -self.shift_size
        shifted = self._shifted()
        if shifted is None:
            return torch.roll(hidden_states, (shift, shift), (1, 2))
        # By 0 where the map is too small: an `if` would keep the example's answer.
        return windows.rolled(hidden_states, (shift * shifted, shift * shifted))

    def get_attn_mask(self, height: int, width: int, dtype: torch.dtype, device: torch.device) -> Tensor | None:
        """(windows, window cells, window cells) for a padded map, or None without a shift."""
        if not self.shift_size:
            return None
        # Only for its dtype and device, as `shift_mask` takes them.
        like = torch.empty(0, dtype=dtype, device=device)
        window, shift = (self.window_size, self.window_size), (self.shift_size, self.shift_size)
        shifted = self._shifted()
        active = None if shifted is None else (shifted, shifted)
        return shift_mask(window, shift, (height // window[0], width // window[1]), like, active)


@_row(
    f"{_SWIN}.SwinLayer",
    name="swin-layer",
    when=_known(set_shift_and_window_size="aa7a6ee2d609", get_attn_mask="ab01d82feec2", cyclic_shift="605e6496a5e3"),
    proof=Proof(
        _swin_layer,
        _maps,
        fails=("dynamo", "trace"),
        reason="relative error",
        beside=("size-shortcut", "size-shortcut-trace", "padded-sizes"),
    ),
)
class _SwinLayer(_Clamping):
    """Shifted-window attention of transformers' Swin."""


@_row(
    f"{_DONUT}.DonutSwinLayer",
    f"{_CLAP}.ClapAudioLayer",
    name="donut-swin-layer",
    when=_known(set_shift_and_window_size="aa7a6ee2d609", get_attn_mask="ab01d82feec2", forward="be6544e6d606"),
    proof=Proof(_donut_layer, _maps, fails=("dynamo", "trace"), reason="cannot be reshaped"),
)
class _DonutSwinLayer(_Clamping):
    """An older version of the same layer, with the shift in `forward`."""

    layernorm_before: nn.Module
    layernorm_after: nn.Module
    attention: nn.Module
    drop_path: nn.Module
    intermediate: nn.Module
    output: nn.Module

    def forward(
        self,
        hidden_states: Tensor,
        input_dimensions: tuple[int, int],
        output_attentions: bool | None = False,
        always_partition: bool | None = False,
    ) -> tuple[Tensor, ...]:
        """(B, H * W, C) to the same, and the attention weights if asked for."""
        if not always_partition:
            self.set_shift_and_window_size(input_dimensions)
        (height, width), window = input_dimensions, (self.window_size, self.window_size)
        batch, _, channels = hidden_states.shape
        grid = windows_over(height, window[0]), windows_over(width, window[1])
        x = pad_to(self.layernorm_before(hidden_states).view(batch, height, width, channels), window)
        mask = self.get_attn_mask(x.shape[1], x.shape[2], x.dtype, x.device)
        windows = partition(self.cyclic_shift(x), window, grid[1])
        attended, *weights = self.attention(windows, mask, output_attentions=output_attentions)
        x = self.cyclic_shift(merge(attended, window, grid), reverse=True)
        x = x[:, :height, :width].reshape(batch, height * width, channels)
        hidden_states = hidden_states + self.drop_path(x)
        hidden_states = hidden_states + self.output(self.intermediate(self.layernorm_after(hidden_states)))
        return hidden_states, *weights

"""Sound in codebooks (MusicGen): the steps of its loop, and the codes' way back to sound.

A codec writes a moment of sound as several codes, one for each of its codebooks. The decoder has a row of tokens for
each: (batch * codebooks, n). The rows are delayed: row k begins and ends k steps after row 0, and the token that starts
a text fills the places before and after (section 2.2 of https://arxiv.org/abs/2306.05284).
"""

from __future__ import annotations

import torch

from onnxpatch.errors import InputError
from onnxpatch.generation.choice import TokenChoice
from onnxpatch.generation.turns import EncoderDecoderTurns, Tensors

_FREE = -1  # a place of the pattern at which the decoder chooses


class SoundTurns(EncoderDecoderTurns):
    """The files of an encoder-decoder and `encodec_decode.onnx`, which makes sound of the codes."""

    guided = True

    def start(self, inputs: Tensors, choice: TokenChoice) -> tuple[torch.Tensor, torch.Tensor]:
        if choice.num_beams > 1:
            raise InputError("beams of codebooks are not done here: give num_beams=1")
        decoder, batch = self.config["decoder"], self.encode(inputs, choice)
        self.codebooks, self.padding, self.length = decoder["num_codebooks"], choice.filling, 0
        ids = self.prompt(inputs, choice, batch * self.codebooks)
        self.pattern = delayed(ids, self.codebooks, decoder.get("audio_channels", 1), choice.longest(ids.shape[1]))
        self.scale = choice.guidance_scale or 1.0
        if self.scale > 1:  # each text has a second row, which reads nothing of it
            self.read = {name: torch.cat([one, torch.zeros_like(one)]) for name, one in self.read.items()}
        return ids, self.step("decoder_model", ids)

    def step(self, graph: str, tokens: torch.Tensor) -> torch.Tensor:
        tokens = self._placed(tokens, self.length)
        self.length += tokens.shape[1]
        if self.scale <= 1:
            return super().step(graph, tokens)
        guided, free = super().step(graph, tokens.repeat(2, 1)).chunk(2)
        return free + (guided - free) * self.scale

    def _placed(self, tokens: torch.Tensor, start: int) -> torch.Tensor:
        pattern = self.pattern[:, start : start + tokens.shape[1]]
        return torch.where(pattern == _FREE, tokens, pattern)

    def finished(self, tokens: torch.Tensor) -> torch.Tensor:
        """The sound, (batch, channels, samples)."""
        tokens = self._placed(tokens, 0)
        codes = tokens[tokens != self.padding].reshape(1, len(tokens) // self.codebooks, self.codebooks, -1)
        return self.graphs["encodec_decode"]({"audio_codes": codes}, {})[0]["audio_values"]


def delayed(ids: torch.Tensor, codebooks: int, channels: int, length: int) -> torch.Tensor:
    """What stands at each place of the tokens (batch * codebooks, length), -1 where the decoder chooses.

    ids: (batch * codebooks, n), what it begins with. channels: of stereo sound the two sides take turns in the rows.
    A length in which the last codebook has no place has no pattern, as in transformers.
    """
    rows, delays = codebooks // channels, torch.arange(codebooks) // channels
    pattern = torch.full((len(ids) // codebooks, codebooks, length), _FREE)
    if length < 2 * rows - 1:
        return pattern.flatten(0, 1)
    for row, delay in enumerate(delays.tolist()):
        given = ids[row::codebooks, : length - delay]
        pattern[:, row, delay : delay + given.shape[1]] = given
    after = torch.arange(length) - delays[:, None]  # how far a place is behind its row's begin
    pattern = pattern.where((after > 0) & (after <= length - rows), ids[0, 0])
    return pattern.flatten(0, 1)

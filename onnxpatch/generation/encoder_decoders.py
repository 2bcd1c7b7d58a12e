"""The graphs of an encoder-decoder: the encoder, the first step, which computes keys and values of its answer, and the
step that reads these. Of a model that writes sound, the codes' way back to it too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from onnxpatch.errors import InputError
from onnxpatch.generation.parts import BATCH, SOURCE, STATES, TOKENS, Around, Inputs, Part, some_tokens


class _Encoder(Around):
    """The encoder by itself, with the names of its own inputs."""

    def forward(self, **inputs: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"last_hidden_state": self.model(**inputs).last_hidden_state}


class _FirstStep(Around):
    """The decoder of an encoder-decoder on the first tokens: fills both caches from the encoder's answer."""

    def forward(
        self,
        input_ids: torch.Tensor,
        encoder_hidden_states: torch.Tensor,
        encoder_attention_mask: torch.Tensor | None = None,
    ) -> dict[str, Any]:
        answer = _decoded(self.model, input_ids, encoder_hidden_states, encoder_attention_mask, None)
        return {"logits": answer.logits, "past_key_values": answer.past_key_values}


class _NextStep(Around):
    """The same for every token after them: its own cache grows, that of the encoder's answer is only read."""

    def __init__(self, model: nn.Module, width: int) -> None:
        """width: of the encoder's answer."""
        super().__init__(model)
        self.width = width

    def forward(
        self, input_ids: torch.Tensor, past_key_values: Any, encoder_attention_mask: torch.Tensor | None = None
    ) -> dict[str, Any]:
        keys = past_key_values.cross_attention_cache.layers[0].keys
        # The encoder's answer is in the cache; models ask for its shape.
        unread = keys.new_zeros(keys.shape[0], keys.shape[2], self.width)
        answer = _decoded(self.model, input_ids, unread, encoder_attention_mask, past_key_values)
        return {"logits": answer.logits, "past_key_values": answer.past_key_values.self_attention_cache}


class _Sound(Around):
    """The sound of the codes that a decoder wrote, for a model that has its own codec (MusicGen)."""

    def forward(self, audio_codes: torch.Tensor) -> dict[str, torch.Tensor]:
        """audio_codes: (1, batch, codebooks, n); of stereo sound the two sides take turns in the codebooks."""
        model: Any = self.model
        channels = model.decoder.config.audio_channels
        sides = [audio_codes[:, :, side::channels] for side in range(channels)]
        sides = [model.audio_encoder.decode(codes, [None]).audio_values for codes in sides]
        return {"audio_values": torch.cat(sides, dim=1)}


def _decoded(
    model: nn.Module, ids: torch.Tensor, encoded: torch.Tensor, mask: torch.Tensor | None, past: object
) -> Any:
    from transformers import DynamicCache, EncoderDecoderCache
    from transformers.modeling_outputs import BaseModelOutput

    # All layers of full length, as of a decoder: the model's own cache may keep a window in some.
    past = EncoderDecoderCache(DynamicCache(), DynamicCache()) if past is None else past
    mask_of = {} if mask is None else {"attention_mask": mask}
    outputs = BaseModelOutput(last_hidden_state=encoded)
    outputs.attention_mask = mask  # an encoder that shortens a sound gives the mask of its answer in it
    outputs.router_logits = None  # experts' models ask for them, for their loss
    return model(decoder_input_ids=ids, encoder_outputs=outputs, past_key_values=past, use_cache=True, **mask_of)


# ------------------------------------------------------------------ encoder-decoders
def encoder_decoder(model: Any, inputs: Inputs | None, shapes: Mapping[str, Any] | None) -> list[Part]:
    main = model.main_input_name
    if inputs is None:
        inputs, shapes = own_inputs(model, main), shapes or _own_shapes(main)
    shapes = dict(shapes or {name: {0: BATCH} for name in inputs})
    encoder = Part("encoder_model.onnx", _Encoder(model.get_encoder()), dict(inputs), shapes, (), ["last_hidden_state"])
    encoded = encoder.module(**inputs)["last_hidden_state"]
    # An encoder that shortens its input, such as Whisper's, has no mask of the new length.
    masked = "attention_mask" in inputs and inputs["attention_mask"].shape[1] == encoded.shape[1]
    # Text has its length on axis 1, a spectrogram on axis 2.
    length = {0: BATCH, **({1: SOURCE} if 1 in shapes.get(main, {}) or 2 in shapes.get(main, {}) else {})}
    mask = {"encoder_attention_mask": inputs["attention_mask"]} if masked else {}
    return [encoder, *_decoder_steps(model, encoded, mask, length)]


def _decoder_steps(model: Any, encoded: torch.Tensor, mask: Inputs, length: dict[int, str]) -> list[Part]:
    """The decoder's graphs. encoded: the encoder's answer; mask: of it, if there is one; length: its dynamic axes."""
    first, codebooks = _FirstStep(model), getattr(getattr(model, "decoder", None), "num_codebooks", 1)
    rows, batch = codebooks * encoded.shape[0], BATCH if codebooks == 1 else f"{codebooks}*{BATCH}"
    start = {"input_ids": some_tokens(model, rows, 3), "encoder_hidden_states": encoded, **mask}
    past = first(**start)["past_key_values"]
    step = {"input_ids": some_tokens(model, rows, 1), "past_key_values": past, **mask}
    states = {"decoder": STATES, "encoder": {0: BATCH, 2: length[1]} if 1 in length else {0: BATCH}}
    names = [f"present.{n}.decoder.{part}" for n in range(len(past.self_attention_cache)) for part in ("key", "value")]
    mask_shapes = dict.fromkeys(mask, length)
    parts = [
        Part("decoder_model.onnx", first, start,
             {"input_ids": {**TOKENS, 0: batch}, "encoder_hidden_states": length, **mask_shapes}),
        Part("decoder_with_past_model.onnx", _NextStep(model, encoded.shape[-1]), step,
             {"input_ids": {0: batch}, "past_key_values": states, **mask_shapes}, (), ["logits", *names]),
    ]  # fmt: skip
    if codebooks > 1:
        codes = {"audio_codes": some_tokens(model, rows, 9).view(1, -1, codebooks, 9)}
        parts.append(Part("encodec_decode.onnx", _Sound(model), codes, {"audio_codes": {1: BATCH, 3: "length"}}))
    return parts


def _own_shapes(main: str) -> dict[str, object]:
    """Text and a waveform may have any length; a spectrogram that is cut to one length has it always."""
    if main == "input_values":
        return {main: {0: BATCH, 1: "num_samples"}}
    if main != "input_ids":
        return {main: {0: BATCH}}
    return {main: {0: BATCH, 1: SOURCE}, "attention_mask": {0: BATCH, 1: SOURCE}}


def own_inputs(model: Any, main: str) -> dict[str, torch.Tensor]:
    """An example for the encoder, from the config: text, a quarter of a second of sound, or Whisper's spectrogram."""
    config = model.config
    if main == "input_ids":
        mask = torch.ones(2, 6, dtype=torch.int64)
        mask[1, 4:] = 0
        return {main: some_tokens(model, 2, 6), "attention_mask": mask}
    bands, frames = getattr(config, "num_mel_bins", None), getattr(config, "max_source_positions", None)
    sound = None
    if main == "input_features" and getattr(config, "input_feat_per_channel", None):
        sound = torch.randn(2, 24, config.input_feat_per_channel)  # fairseq's models have the bands last
    elif main == "input_features" and bands and frames:
        # Whisper's encoder halves the frames by a convolution of stride 2.
        sound = torch.randn(2, bands, 2 * frames)
    elif main == "input_values":
        sound = torch.randn(2, 4000)
    if sound is not None:
        try:
            model.get_encoder()(**{main: sound})
            return {main: sound}
        except (RuntimeError, ValueError, TypeError):
            pass
    raise InputError(
        f"{type(model).__name__}'s encoder takes {main}, of which no example can be made: give one, "
        f"inputs={{{main!r}: tensor}}, and its dynamic_shapes"
    )

"""The steps of a loop over the files of a folder: the prompt, then a token for each text, then another.

Each class runs one kind of folder and holds the states in between.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import torch

from onnxpatch.errors import InputError
from onnxpatch.generation.choice import TokenChoice
from onnxpatch.generation.vision import axial_places, places_taken, with_images
from onnxpatch.onnxfile.repeated_calls import CachedGraph, States, rows_of

Tensors = Mapping[str, torch.Tensor]


class Turns(ABC):
    """The states of the texts that are being written.

    graphs: by the file's name without its ending. config: what config.json says.
    guided: whether it follows `guidance_scale`.
    """

    guided = False

    def __init__(self, graphs: Mapping[str, CachedGraph], config: Mapping[str, Any]) -> None:
        self.graphs, self.config, self.states = graphs, config, States()

    def takes(self) -> set[str]:
        """The names of what `start` may be given."""
        return {name for graph in self.graphs.values() for name in graph.inputs if name not in graph.states}

    @abstractmethod
    def start(self, inputs: Tensors, choice: TokenChoice) -> tuple[torch.Tensor, torch.Tensor]:
        """(the texts so far (batch, n), the logits (batch, vocabulary) after them)."""

    def finished(self, tokens: torch.Tensor) -> torch.Tensor:
        """What `generate` returns for all tokens, those of the prompt first."""
        return tokens

    @abstractmethod
    def next(self, tokens: torch.Tensor) -> torch.Tensor:
        """The logits after one more token for each text, (batch, 1)."""

    def select(self, rows: torch.Tensor) -> None:
        """Go on with these texts, in this order."""
        self.states = rows_of(self.states, rows)


class _DecoderTurns(Turns):
    """A decoder: `model.onnx`."""

    def start(self, inputs: Tensors, choice: TokenChoice) -> tuple[torch.Tensor, torch.Tensor]:
        graph, ids = self.graphs["model"], needed(inputs, "input_ids")
        mask = inputs.get("attention_mask", _default_mask(ids, choice))
        self.states, self.mask = graph.empty(len(ids)), mask[:, :0]
        # One that keeps states of a fixed size reads a prompt token by token.
        step = 1 if graph.inputs["input_ids"][1] == 1 else ids.shape[1]
        for first in range(0, ids.shape[1], step):
            logits = self._step(ids[:, first : first + step], mask[:, first : first + step], inputs)
        return ids, logits

    def next(self, tokens: torch.Tensor) -> torch.Tensor:
        return self._step(tokens, torch.ones_like(tokens), {})

    def _step(self, ids: torch.Tensor, mask: torch.Tensor, inputs: Tensors) -> torch.Tensor:
        self.mask = torch.cat([self.mask, mask], dim=1)
        feed = {"input_ids": ids, "attention_mask": self.mask, "position_ids": places(self.mask, ids.shape[1])}
        answer, self.states = self.graphs["model"]({**inputs, **feed}, self.states)
        return answer["logits"][:, -1].float()

    def select(self, rows: torch.Tensor) -> None:
        super().select(rows)
        self.mask = self.mask[rows]


def places(mask: torch.Tensor, count: int) -> torch.Tensor:
    """The positions of the last `count` tokens, counted from the first that is no padding."""
    return (mask.cumsum(1) - 1).clamp(min=0)[:, -count:]


class _EncoderDecoderTurns(Turns):
    """An encoder-decoder: `encoder_model.onnx`, `decoder_model.onnx` and `decoder_with_past_model.onnx`."""

    def takes(self) -> set[str]:
        return {*self.graphs["encoder_model"].inputs, "decoder_input_ids"}

    def start(self, inputs: Tensors, choice: TokenChoice) -> tuple[torch.Tensor, torch.Tensor]:
        ids = self.prompt(inputs, choice, self.encode(inputs, choice))
        return ids, self.step("decoder_model", ids)

    def next(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.step("decoder_with_past_model", tokens)

    def encode(self, inputs: Tensors, choice: TokenChoice) -> int:
        """Keep what every step reads of the encoder; returns the size of the batch."""
        encoder = self.graphs["encoder_model"]
        if "input_ids" in encoder.inputs:
            inputs = {"attention_mask": _default_mask(needed(inputs, "input_ids"), choice), **inputs}
        encoded = encoder(inputs, {})[0]["last_hidden_state"]
        self.read = {"encoder_hidden_states": encoded}
        if "attention_mask" in inputs:
            self.read["encoder_attention_mask"] = inputs["attention_mask"]
        return len(encoded)

    def prompt(self, inputs: Tensors, choice: TokenChoice, rows: int) -> torch.Tensor:
        """The tokens that the decoder begins with, (rows, n)."""
        ids = inputs.get("decoder_input_ids")
        if ids is None:
            first = choice.bos_token_id if choice.decoder_start_token_id is None else choice.decoder_start_token_id
            if first is None:
                raise InputError("decoder_start_token_id is missing: generation_config.json has none, give it here")
            ids = torch.full((rows, 1), first)
        return ids

    def step(self, graph: str, tokens: torch.Tensor) -> torch.Tensor:
        """The logits after these tokens."""
        answer, after = self.graphs[graph]({**self.read, "input_ids": tokens}, self.states)
        self.states = {**self.states, **after}  # the keys of the encoder's answer stay
        return answer["logits"][:, -1].float()

    def select(self, rows: torch.Tensor) -> None:
        super().select(rows)
        self.read = {name: value[rows] for name, value in self.read.items()}


def needed(inputs: Tensors, name: str) -> torch.Tensor:
    if name not in inputs:
        raise InputError(f"{name} is missing: give it by that name")
    return inputs[name]


def _default_mask(ids: torch.Tensor, choice: TokenChoice) -> torch.Tensor:
    """As transformers makes it: 0 at padding, where that token is none of the ends."""
    if choice.pad_token_id is None or choice.pad_token_id in choice.ends:
        return torch.ones_like(ids)
    return (ids != choice.pad_token_id).to(torch.int64)


_FREE = -1  # a place of the pattern at which the decoder chooses


class _SoundTurns(_EncoderDecoderTurns):
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


class _VisionTurns(Turns):
    """`vision_encoder.onnx`, `embed_tokens.onnx` and `decoder_model_merged.onnx`; images go into the prompt."""

    # Of a decoder whose positions are those in an image: the prompt's, and how far later ones are from their count.
    axial: torch.Tensor | None = None
    ahead: torch.Tensor = torch.zeros(0)
    types: torch.Tensor | None = None

    def start(self, inputs: Tensors, choice: TokenChoice) -> tuple[torch.Tensor, torch.Tensor]:
        ids, decoder = needed(inputs, "input_ids"), self.graphs["decoder_model_merged"]
        self.states, self.mask = decoder.empty(len(ids)), torch.zeros_like(ids[:, :0])
        embeds = None
        if "pixel_values" in inputs:
            token = places_taken(self.config)
            features, _ = self.graphs["vision_encoder"](inputs, {})
            # An image's token need not be one of the vocabulary.
            embeds = with_images(self._embeds(ids.masked_fill(ids == token, 0)), ids, features["image_features"], token)
        mask = inputs.get("attention_mask", _default_mask(ids, choice))
        self.types = inputs.get("token_type_ids")
        if len(decoder.inputs.get("position_ids", ())) == 3:  # in time, down and across
            grid = inputs.get("image_grid_thw", torch.zeros(0, 3, dtype=torch.int64))
            self.axial, self.ahead = axial_places(ids, mask, grid, self.config)
        return ids, self._step(self._embeds(ids) if embeds is None else embeds, mask)

    def next(self, tokens: torch.Tensor) -> torch.Tensor:
        return self._step(self._embeds(tokens), torch.ones_like(tokens))

    def _embeds(self, ids: torch.Tensor) -> torch.Tensor:
        return self.graphs["embed_tokens"]({"input_ids": ids}, {})[0]["inputs_embeds"]

    def _step(self, embeds: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        self.mask = torch.cat([self.mask, mask], dim=1)
        count = embeds.shape[1]
        at = places(self.mask, count)
        if self.axial is not None:
            at = self.axial if self.mask.shape[1] == count else (at + self.ahead).expand(3, -1, -1)
        feed = {"inputs_embeds": embeds, "attention_mask": self.mask, "position_ids": at}
        if self.types is not None:
            missing = self.mask.shape[1] - self.types.shape[1]
            self.types = torch.nn.functional.pad(self.types, (0, missing), value=1)
            feed["token_type_ids"] = self.types
        answer, self.states = self.graphs["decoder_model_merged"](feed, self.states)
        return answer["logits"][:, -1].float()

    def select(self, rows: torch.Tensor) -> None:
        super().select(rows)
        self.mask = self.mask[rows]
        self.types = self.types[rows] if self.types is not None else None
        self.ahead = self.ahead[rows] if self.axial is not None else self.ahead


_KINDS: dict[tuple[str, ...], type[Turns]] = {
    ("model",): _DecoderTurns,
    ("encoder_model", "decoder_model", "decoder_with_past_model", "encodec_decode"): _SoundTurns,
    ("encoder_model", "decoder_model", "decoder_with_past_model"): _EncoderDecoderTurns,
    ("vision_encoder", "embed_tokens", "decoder_model_merged"): _VisionTurns,
}


def kind_of(files: set[str]) -> tuple[tuple[str, ...], type[Turns]]:
    """(the files that a loop runs, its class). files: those of a folder, without their endings."""
    for names, kind in _KINDS.items():
        if files.issuperset(names):
            return names, kind
    wanted = "; or ".join(", ".join(f"{name}.onnx" for name in names) for names in _KINDS)
    raise InputError(f"the folder has no files of a loop ({wanted}): make them with onnxpatch.export_generation")

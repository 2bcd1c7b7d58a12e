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


class DecoderTurns(Turns):
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


class EncoderDecoderTurns(Turns):
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


class VisionTurns(Turns):
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


def places_taken(config: Mapping[str, Any]) -> int:
    """The token whose places the features of images take."""
    for name in ("image_token_id", "image_token_index"):
        if isinstance(config.get(name), int):
            return int(config[name])
    raise InputError("config.json names no image_token_id: which token stands for an image is not known")


def with_images(embeds: torch.Tensor, ids: torch.Tensor, features: torch.Tensor, token: int) -> torch.Tensor:
    """The embeddings (batch, n, width) with the features (places, width) in the places of the token.

    Raises InputError where there are more or fewer of them than features.
    """
    there = ids == token
    if int(there.sum()) != len(features):
        raise InputError(f"the prompt has {int(there.sum())} tokens {token} of images, the images {len(features)} rows")
    return embeds.masked_scatter(there[..., None], features.to(embeds.dtype))


def axial_places(
    ids: torch.Tensor, mask: torch.Tensor, grid: torch.Tensor, config: Mapping[str, Any]
) -> tuple[torch.Tensor, torch.Tensor]:
    """(positions in time, down and across (3, batch, n); how far the next one is from its count, (batch, 1)).

    A token of text has one number three times. An image of `grid` (times, rows, columns of patches) begins where the
    text before it ends, and the text after it beyond its longer side: Qwen2-VL's rotary positions.
    """
    token, merge = places_taken(config), config["vision_config"]["spatial_merge_size"]
    found, ahead, images = torch.zeros(3, *ids.shape, dtype=torch.int64), [], iter(grid.tolist())
    for row, (tokens, real) in enumerate(zip(ids.tolist(), mask.tolist(), strict=True)):
        start, at = 0, 0
        while at < len(tokens):
            if not real[at]:
                at += 1
            elif tokens[at] != token:
                found[:, row, at] = start
                start, at = start + 1, at + 1
            else:
                times, down, across = (size // by for size, by in zip(next(images), (1, merge, merge), strict=True))
                axes = torch.meshgrid(torch.arange(times), torch.arange(down), torch.arange(across), indexing="ij")
                found[:, row, at : at + times * down * across] = torch.stack(axes).flatten(1) + start
                start, at = start + max(down, across), at + times * down * across
        # transformers counts from the largest position, which is that of an image where one ends the text.
        ahead.append([int(found[:, row].max()) + 1 - sum(real)])
    return found, torch.tensor(ahead)

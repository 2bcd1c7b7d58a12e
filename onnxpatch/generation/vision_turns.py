"""The steps of a loop over a vision encoder, an embedding and a decoder of embeddings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from onnxpatch.errors import InputError
from onnxpatch.generation.choice import Choice
from onnxpatch.generation.turns import Tensors, Turns, default_mask, needed, places


class VisionTurns(Turns):
    """`vision_encoder.onnx`, `embed_tokens.onnx` and `decoder_model_merged.onnx`; images go into the prompt."""

    # Of a decoder whose positions are those in an image: the prompt's, and how far later ones are from their count.
    axial: torch.Tensor | None = None
    ahead: torch.Tensor = torch.zeros(0)
    types: torch.Tensor | None = None

    def start(self, inputs: Tensors, choice: Choice) -> tuple[torch.Tensor, torch.Tensor]:
        ids, decoder = needed(inputs, "input_ids"), self.graphs["decoder_model_merged"]
        self.states, self.mask = decoder.empty(len(ids)), torch.zeros_like(ids[:, :0])
        embeds = None
        if "pixel_values" in inputs:
            token = places_taken(self.config)
            features, _ = self.graphs["vision_encoder"](inputs, {})
            # An image's token need not be one of the vocabulary.
            embeds = with_images(self._embeds(ids.masked_fill(ids == token, 0)), ids, features["image_features"], token)
        mask = inputs.get("attention_mask", default_mask(ids, choice))
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

"""The graphs of a model that reads images and text: its vision encoder, its embedding, a decoder of embeddings.

    pixel_values -> image_features      input_ids -> inputs_embeds      inputs_embeds, past -> logits, present

What the model does with them is the same for all: the rows of `image_features` take the places of the image's tokens
in `inputs_embeds`. Whether a model does just that is compared in eager before anything is exported.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from inspect import signature
from typing import Any

import torch
from torch import nn

from onnxpatch.errors import InputError
from onnxpatch.generation.parts import BATCH, NEW, Around, Inputs, Part

_SAME = 1e-3  # of the largest logit


class _Embeddings(Around):
    """What a decoder reads in place of tokens."""

    def forward(self, input_ids: torch.Tensor) -> dict[str, torch.Tensor]:
        """input_ids: (batch, n)."""
        return {"inputs_embeds": self.model.get_input_embeddings()(input_ids)}  # type: ignore[operator]


class _ImageFeatures(Around):
    """What a decoder reads in place of the tokens of images: (tokens of all images, width).

    tower: the part that reads images of several sizes in one row of patches, which `image_grid_thw` tells apart. It is
    called by itself: get_image_features would take its answer to pieces, and they are joined here again.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model)
        self.tower = next((one for one in model.modules() if "grid_thw" in signature(one.forward).parameters), None)

    def forward(self, **inputs: torch.Tensor) -> dict[str, torch.Tensor]:
        """inputs: as the model's get_image_features takes them."""
        if self.tower is not None:
            found = self.tower(inputs["pixel_values"], grid_thw=inputs["image_grid_thw"], return_dict=True)
        else:
            if inputs["pixel_values"].dim() == 5:  # several for each text: as those of one, which no count divides
                inputs = {name: one.flatten(0, 1)[None] for name, one in inputs.items()}
            found = self.model.get_image_features(**inputs, return_dict=True)  # type: ignore[operator]
        rows = found.pooler_output
        rows = torch.cat(list(rows)) if isinstance(rows, list | tuple) else rows
        return {"image_features": rows.reshape(-1, rows.shape[-1])}


def reads_images(model: Any) -> bool:
    """Whether a model takes images beside text, by the method that transformers' models have for it."""
    takes = getattr(model, "input_modalities", "text")
    return "image" in takes and not isinstance(takes, str) and hasattr(_eyes(model), "get_image_features")


def _eyes(model: Any) -> Any:
    """What has the method: the model, or what is below its head."""
    return model if hasattr(model, "get_image_features") else getattr(model, "base_model", None)


def writer(model: Any) -> Any:
    """The part that writes text: the model itself, or its language model where that alone keeps what it has read."""
    inner = getattr(model, "language_model", None)
    keeps = "past_key_values" in signature(model.forward).parameters
    return model if keeps or not hasattr(inner, "generate") else inner


def vision_parts(model: Any, decoder: Part, inputs: Inputs | None, shapes: Mapping[str, Any] | None) -> list[Part]:
    """The three graphs. decoder: that of tokens; inputs: an example for get_image_features; shapes: dynamic, of it."""
    others: list[dict[str, torch.Tensor]] = []
    if inputs is None:
        (inputs, *others), own = _example(model)
        shapes = shapes or own
    encoder, embedding = _ImageFeatures(_eyes(model)), _Embeddings(model)
    features = encoder(**inputs)["image_features"]

    decoder = _of_embeddings(model, decoder)
    _check(model, decoder, inputs, features)
    ids = torch.randint(3, 9, (2, 3))
    return [
        Part("vision_encoder.onnx", encoder, dict(inputs), dict(shapes or {}), others, ["image_features"]),
        Part("embed_tokens.onnx", embedding, {"input_ids": ids}, {"input_ids": {0: BATCH, 1: NEW}}),
        decoder,
    ]


def _of_embeddings(model: Any, decoder: Part) -> Part:
    """The decoder with `inputs_embeds` in place of tokens, and what else it takes at images."""
    embedding, shapes = _Embeddings(model), dict(decoder.shapes)
    shapes = {"inputs_embeds": shapes.pop("input_ids"), **shapes}
    axial, typed = hasattr(model.base_model, "get_rope_index"), _typed(model)
    if axial:  # positions in time, down and across
        shapes["position_ids"] = {axis + 1: name for axis, name in shapes["position_ids"].items()}
    if typed:
        shapes["token_type_ids"] = shapes["attention_mask"]

    def embedded(kwargs: dict[str, Any]) -> dict[str, Any]:
        given = dict(kwargs)
        given = {**embedding(given.pop("input_ids")), **given}
        if axial:
            given["position_ids"] = torch.stack([given["position_ids"] * factor for factor in (1, 2, 3)])
        if typed:
            given["token_type_ids"] = (given["attention_mask"].cumsum(1) > 3).to(torch.int64)
        return given

    return replace(
        decoder, file="decoder_model_merged.onnx", kwargs=embedded(decoder.kwargs), shapes=shapes,
        data=[embedded(one) for one in decoder.data],
    )  # fmt: skip


def _typed(model: Any) -> bool:
    return "token_type_ids" in signature(model.forward).parameters


def _example(model: Any) -> tuple[list[dict[str, torch.Tensor]], dict[str, Any]]:
    """(two images in the form that the model takes, and others to compare at; the axes that may change)."""
    config = getattr(model.config, "vision_config", None)
    size, channels = getattr(config, "image_size", None), getattr(config, "num_channels", None) or 3
    if "image_grid_thw" in signature(_eyes(model).get_image_features).parameters and config is not None:
        (first, *others), dynamic = _patches(config, channels)
        return [first, *(one for one in others if _taken(model, **one))], dynamic
    down, across = (size, size) if isinstance(size, int) else size if isinstance(size, list | tuple) else (0, 0)
    if down:
        # Images one after another, or several for each text.
        for batch, axes in (((2,), {0: "num_images"}), ((1, 2), {0: BATCH, 1: "num_images"})):
            images = torch.randn(*batch, channels, down, across)
            if not _taken(model, pixel_values=images):
                continue
            other = torch.randn(*batch, channels, 2 * down, across)
            free = {len(batch) + 1: "height", len(batch) + 2: "width"} if _taken(model, pixel_values=other) else {}
            return [{"pixel_values": images}], {"pixel_values": {**axes, **free}}
    raise InputError(
        f"{type(model).__name__}.get_image_features takes images in a form of its own: give an example of its "
        "arguments, inputs={'pixel_values': tensor, ...}, and their dynamic_shapes"
    )


def _patches(config: Any, channels: int) -> tuple[list[dict[str, torch.Tensor]], dict[str, Any]]:
    """Images of different sizes in one row of patches, as Qwen2-VL reads them. No size can be changed by itself."""
    merge, width = config.spatial_merge_size, channels * config.temporal_patch_size * config.patch_size**2
    grids = ([(1, 2, 1), (1, 2, 3)], [(1, 1, 1)], [(1, 3, 2), (1, 1, 4), (1, 2, 2)], [(2, 2, 1), (1, 1, 2)])
    found = []
    for one in grids:
        grid = torch.tensor(one) * torch.tensor([1, merge, merge])
        found.append({"pixel_values": torch.randn(int(grid.prod(1).sum()), width), "image_grid_thw": grid})
    return found, {"pixel_values": {0: "num_patches"}, "image_grid_thw": {0: "num_images"}}


def _taken(model: Any, **images: torch.Tensor) -> bool:
    try:
        _ImageFeatures(_eyes(model))(**images)
    except (ValueError, RuntimeError, TypeError, IndexError):
        return False
    return True


def _check(model: Any, decoder: Part, inputs: Inputs, features: torch.Tensor) -> None:
    """Raise InputError unless the model does what a loop over these graphs does, at a prompt with images."""
    token = places_taken(model.config.to_dict())
    counts, text = [len(features)], torch.randint(3, 9, (1, 2))
    if "image_grid_thw" in inputs:  # transformers takes images side by side for one
        counts = (inputs["image_grid_thw"].prod(1) // model.config.vision_config.spatial_merge_size**2).tolist()
    ids = torch.cat([text, *(torch.cat([torch.full((1, one), token), text], dim=1) for one in counts)], dim=1)
    mask = torch.ones_like(ids)
    kinds = (ids == token).to(torch.int64)
    more = {"token_type_ids": kinds} if _typed(model) else {}
    hidden = {"mm_token_type_ids": kinds} if "mm_token_type_ids" in signature(model.forward).parameters else {}
    wanted = model(input_ids=ids, attention_mask=mask, use_cache=False, **more, **hidden, **inputs).logits
    if "position_ids" in decoder.kwargs:
        more["position_ids"] = mask.cumsum(1) - 1
    if "image_grid_thw" in inputs:
        more["position_ids"], _ = axial_places(ids, mask, inputs["image_grid_thw"], model.config.to_dict())
    embeds = with_images(_Embeddings(model)(ids.masked_fill(ids == token, 0))["inputs_embeds"], ids, features, token)
    found = decoder.module(inputs_embeds=embeds, attention_mask=mask, past_key_values=None, **more)["logits"]
    if not (found - wanted).abs().max() <= _SAME * wanted.abs().max():
        raise InputError(
            f"{type(model).__name__} does more with its images than to put their features in the places of their "
            "tokens, which a loop over a vision encoder, an embedding and a decoder cannot follow: export its parts "
            "one by one with onnxpatch.export"
        )


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

"""The graphs of a generation loop: `Part`, one with its example, and the modules around a model of transformers.

Tensors and caches go in, tensors and caches come out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from inspect import signature
from typing import Any

import torch
from torch import nn

# The names of axes that tools for language models know.
BATCH, NEW, PAST, SOURCE = "batch_size", "sequence_length", "past_sequence_length", "encoder_sequence_length"
TOTAL = f"{PAST} + {NEW}"
TOKENS = {0: BATCH, 1: NEW}
STATES = {0: BATCH, 2: PAST}

Inputs = Mapping[str, torch.Tensor]


@dataclass(frozen=True)
class Part:
    """One graph: its file, its module, what to export it with, and inputs to compare it at beside the kit's own.

    note: for its report, what of the model is not in it.
    """

    file: str
    module: nn.Module
    kwargs: dict[str, Any]
    shapes: dict[str, Any]
    data: Sequence[dict[str, Any]] = ()
    output_names: list[str] = field(default_factory=list)
    note: str = ""


class _Around(nn.Module):
    """A module around a model, in eval mode if the model is."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model, self.training = model, model.training


class Decoder(_Around):
    """A decoder: logits and the longer cache, from new tokens and the cache of the tokens before.

    It is called as the model is: `input_ids` (batch, n) or `inputs_embeds` (batch, n, width), `attention_mask`
    (batch, past + n) with 0 at padding, `position_ids` where the model takes them, `past_key_values`. `token_type_ids`
    (batch, past + n), where an image is in the text, for a model whose prompt sees ahead.
    """

    def forward(self, **inputs: Any) -> dict[str, Any]:
        past = inputs.get("past_key_values")
        if "token_type_ids" in inputs and past is not None:
            # Models read it while the cache has an empty layer: at the prompt, as they are called.
            past.layers.append(type(past.layers[0])())
        answer = self.model(**inputs, use_cache=True)
        if "token_type_ids" in inputs and past is not None:
            answer.past_key_values.layers.pop()
        return {"logits": answer.logits, "past_key_values": answer.past_key_values}


class Embeddings(_Around):
    """What a decoder reads in place of tokens."""

    def forward(self, input_ids: torch.Tensor) -> dict[str, torch.Tensor]:
        """input_ids: (batch, n)."""
        return {"inputs_embeds": self.model.get_input_embeddings()(input_ids)}  # type: ignore[operator]


class ImageFeatures(_Around):
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


class OneToken(_Around):
    """One step of a decoder that keeps states of a fixed size (convolutions, state spaces, linear attention).

    It serves the first token, from states of zeros, and each one after it: models compute a prompt and a step by other
    formulas, and only that of a step goes on from given states. A token of padding leaves the states as they are.
    """

    def __init__(self, model: nn.Module, cache: str, attends: bool, placed: bool) -> None:
        """cache: what the model calls its cache; attends: whether it keeps keys and values too, to which the mask
        belongs; placed: whether it takes position_ids."""
        super().__init__(model)
        self.cache, self.attends, self.placed = cache, attends, placed

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor, past_key_values: Any) -> dict[str, Any]:
        """input_ids: (batch, 1); attention_mask: (batch, past + 1), 0 at padding."""
        before = [dict(_fixed(layer)) for layer in past_key_values.layers]
        for layer in past_key_values.layers:  # models write into their states
            _set(layer, {key: value.clone() for key, value in _fixed(layer)})
        places = {"position_ids": (attention_mask.cumsum(1) - 1).clamp(min=0)[:, -1:]} if self.placed else {}
        given = {self.cache: past_key_values, **places, **({"attention_mask": attention_mask} if self.attends else {})}
        answer = self.model(input_ids, use_cache=True, **given)
        now = getattr(answer, self.cache)
        real = attention_mask[:, -1] != 0
        for layer, old in zip(now.layers, before, strict=True):
            _set(layer, {key: _chosen(real, value, old[key]) for key, value in _fixed(layer)})
        return {"logits": answer.logits, "past_key_values": now}


State = tuple[str, Any]


def _fixed(layer: object) -> Iterator[tuple[State, torch.Tensor]]:
    """((attribute, key), state) of the states of fixed size, which layers keep in dicts."""
    for name, held in vars(layer).items():
        if isinstance(held, dict):
            yield from (((name, key), one) for key, one in held.items() if isinstance(one, torch.Tensor))


def _set(layer: object, states: Mapping[State, torch.Tensor]) -> None:
    for name in {name for name, _ in states}:
        new = {key: one for (held, key), one in states.items() if held == name}
        setattr(layer, name, {**vars(layer)[name], **new})


def _chosen(real: torch.Tensor, new: torch.Tensor, old: torch.Tensor) -> torch.Tensor:
    return torch.where(real.reshape(-1, *(1,) * (new.dim() - 1)), new, old)


class Encoder(_Around):
    """The encoder by itself, with the names of its own inputs."""

    def forward(self, **inputs: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"last_hidden_state": self.model(**inputs).last_hidden_state}


class FirstStep(_Around):
    """The decoder of an encoder-decoder on the first tokens: fills both caches from the encoder's answer."""

    def forward(
        self,
        input_ids: torch.Tensor,
        encoder_hidden_states: torch.Tensor,
        encoder_attention_mask: torch.Tensor | None = None,
    ) -> dict[str, Any]:
        answer = _decoded(self.model, input_ids, encoder_hidden_states, encoder_attention_mask, None)
        return {"logits": answer.logits, "past_key_values": answer.past_key_values}


class NextStep(_Around):
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


class Sound(_Around):
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
    return model(
        decoder_input_ids=ids,
        encoder_outputs=outputs,
        past_key_values=past,
        use_cache=True,
        **mask_of,
    )

"""`Part`: one graph of a generation loop with its example. Here those of a decoder; `encoder_decoders.py` and
`vision.py` have the others. Tensors and caches go into each, tensors and caches come out.

A decoder is one graph: without a past (length 0) it reads the prompt, with one it takes the next token; one with states
of a fixed size (state spaces, linear attention) takes one token at a time, those of the prompt too.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from onnxpatch.errors import InputError
from onnxpatch.inputs.opened_objects import closed, is_cache, opened

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


class Around(nn.Module):
    """A module around a model, in eval mode if the model is."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model, self.training = model, model.training


def some_tokens(model: Any, batch: int, count: int) -> torch.Tensor:
    # Ids 0 to 2 are padding, begin and end in many vocabularies, which models treat in a way of their own.
    return torch.randint(3, model.config.get_text_config(decoder=True).vocab_size, (batch, count))


# ------------------------------------------------------------------ decoders
class _Decoder(Around):
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


class _OneToken(Around):
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


def decoder_part(model: Any) -> Part:
    """The graph of a decoder."""
    if (cache := _states(model)) is not None:
        return _one_token(model, *cache)
    placed = "position_ids" in inspect.signature(model.forward).parameters
    # The ways in which a loop calls the graph: the prompt without a past, one token after others, texts with padding.
    prompt, one_more = _step(model, 3, 4, 0, placed), _step(model, 1, 1, 6, placed)
    example, padded = _step(model, 2, 3, 5, placed), _step(model, 2, 3, 5, placed, padding=2)
    one_padded = _step(model, 2, 1, 6, placed, padding=2)
    shapes = {"input_ids": TOKENS, "attention_mask": {0: BATCH, 1: TOTAL}, "past_key_values": STATES}
    if placed:
        shapes["position_ids"] = TOKENS
    return Part("model.onnx", _Decoder(model), example, shapes, [prompt, one_more, padded, one_padded])


def _states(model: Any) -> tuple[str, torch.Tensor, Any] | None:
    """(what the model calls its cache, some tokens, the cache after these) where layers keep states of a fixed size."""
    tokens = some_tokens(model, 2, 5)
    answer = model(tokens, use_cache=True)
    taken = inspect.signature(model.forward).parameters
    # From transformers 5.24 on it is `cache`, and outputs have it by the old names too, which forward may ignore.
    for name in sorted(("past_key_values", "cache_params", "cache"), key=lambda one: one not in taken):
        cache = getattr(answer, name, None)
        if is_cache(cache) and any(isinstance(state, dict) for layer in opened(cache) for state in layer.values()):
            return name, tokens, cache
    return None


def _refuse_states_unread(model: Any, step: _OneToken, tokens: torch.Tensor, cache: Any) -> None:
    """A model that takes no notice of the states it is given would be exported, and right, as one without a past."""
    new, mask = some_tokens(model, 2, 1), torch.ones(2, tokens.shape[1] + 1, dtype=torch.int64)
    found, alone = step(new, mask, copy.deepcopy(cache))["logits"][:, -1], model(new).logits[:, -1]
    wanted = model(torch.cat([tokens, new], 1)).logits[:, -1]
    off = _distance(found, wanted)
    if off > max(0.1 * _distance(alone, wanted), 0.01 * wanted.abs().max().item()):
        raise InputError(
            f"{type(model).__name__}.forward does not go on from the cache that it returned ({step.cache}=): after "
            f"{tokens.shape[1]} tokens the next logits differ from those of one call by {off:.2g}; a loop "
            "with such a cache is not written yet; export one step by itself with onnxpatch.export"
        )


def _distance(one: torch.Tensor, other: torch.Tensor) -> float:
    return (one.float() - other.float()).abs().max().item()


def _one_token(model: Any, name: str, tokens: torch.Tensor, cache: Any) -> Part:
    """A decoder with states of a fixed size: one graph for every token, that of the prompt too."""
    layers = opened(cache)
    grows = any(isinstance(state, torch.Tensor) for layer in layers for state in layer.values())
    placed = grows and "position_ids" in inspect.signature(model.forward).parameters
    mask = torch.ones(2, 6, dtype=torch.int64)
    mask[0, :2] = 0
    example = {"input_ids": some_tokens(model, 2, 1), "attention_mask": mask, "past_key_values": cache}
    # Before the first token: states of zeros, keys and values of length 0.
    none = [{one: _before(state) for one, state in layer.items()} for layer in layers]
    first = {**example, "attention_mask": mask[:, 5:], "past_key_values": closed(cache, none)}
    padding = {**first, "attention_mask": torch.tensor([[0], [1]])}
    shapes = {
        "input_ids": {0: BATCH},
        "attention_mask": {0: BATCH, 1: f"{PAST} + 1" if grows else "total_sequence_length"},
        "past_key_values": [
            {one: {0: BATCH} if isinstance(state, dict) else STATES for one, state in layer.items()} for layer in layers
        ],
    }
    step = _OneToken(model, name, grows, placed)
    _refuse_states_unread(model, step, tokens, cache)
    return Part("model.onnx", step, example, shapes, [first, padding])


def _before(state: Any) -> Any:
    if isinstance(state, dict):
        return {key: torch.zeros_like(one) for key, one in state.items()}
    return state[:, :, :0]


def _step(model: torch.nn.Module, batch: int, new: int, past: int, placed: bool, padding: int = 0) -> dict[str, object]:
    """The arguments of one step after `past` tokens. The first `padding` tokens of row 0 are padding."""
    mask = torch.ones(batch, past + new, dtype=torch.int64)
    mask[0, :padding] = 0
    places = (mask.cumsum(1) - 1).clamp(min=0)[:, past:]
    kwargs = {"input_ids": some_tokens(model, batch, new), "attention_mask": mask}
    return {**kwargs, **({"position_ids": places} if placed else {}), "past_key_values": _past(model, batch, past)}


def _past(model: Any, batch: int, length: int) -> object:
    """A cache after some tokens, all its layers of full length, as a loop feeds it."""
    from transformers import DynamicCache

    # No model runs on zero tokens: an empty past is cut from one of length 1.
    answer = model(some_tokens(model, batch, max(1, length)), past_key_values=DynamicCache(), use_cache=True)
    cache: Any = getattr(answer, "past_key_values", None)
    if not is_cache(cache) or not all(hasattr(layer, "keys") for layer in cache.layers):
        raise InputError(
            f"{type(model).__name__} keeps no keys and values of earlier tokens but {type(cache).__name__}: a loop "
            "with such a cache is not written yet; export one step by itself with onnxpatch.export"
        )
    return DynamicCache([(one.keys[:, :, :length], one.values[:, :, :length]) for one in cache.layers])

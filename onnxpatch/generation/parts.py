"""Which graphs a model of transformers needs to generate, each with an example made by the model itself.

A decoder is one graph: without a past (length 0) it reads the prompt, with one it takes the next token; one with states
of a fixed size (state spaces, linear attention) takes one token at a time, those of the prompt too. An
encoder-decoder is three, since its first step computes keys and values of the encoder's answer that later steps read.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from onnxpatch.errors import InputError
from onnxpatch.generation.graphs import (
    BATCH,
    PAST,
    SOURCE,
    STATES,
    TOKENS,
    TOTAL,
    Decoder,
    Encoder,
    FirstStep,
    Inputs,
    NextStep,
    OneToken,
    Part,
    Sound,
)
from onnxpatch.generation.vision import reads_images, vision_parts, writer
from onnxpatch.inputs.caches import closed, is_cache, opened
from onnxpatch.messages.text import said_by
from onnxpatch.patching.forward_state import Snapshot
from onnxpatch.process import undone


def generation_parts(
    model: torch.nn.Module, inputs: Inputs | None = None, shapes: Mapping[str, object] | None = None
) -> list[Part]:
    """The graphs of a model. inputs: an example for its encoder, where that takes no text; shapes: dynamic, of these.

    Raises InputError for a model without a cache of transformers', for an encoder whose input cannot be made up, and
    for a model that is not called as others of its kind are.
    """
    config = getattr(model, "config", None)
    if config is None or not hasattr(model, "generate"):
        raise InputError(
            f"{type(model).__name__} has no config and generate(): export_generation takes transformers' models that "
            "generate, such as AutoModelForCausalLM's"
        )
    # The caller's random state is left as it was. devices=[] forks the CPU's alone: the example is made there.
    state = Snapshot(model)  # what calls leave on the model is taken off
    with undone(state.restore), torch.no_grad(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        try:
            if getattr(config, "is_encoder_decoder", False):
                return _encoder_decoder(model, inputs, shapes)
            if reads_images(model):
                parts = vision_parts(model, _decoder(writer(model)), inputs, shapes)
                return [*parts[:-1], replace(parts[-1], note=_left_out(model, {"image", "text"}))]
            if (main := model.main_input_name) not in ("input_ids", "inputs_embeds"):
                raise InputError(
                    f"{type(model).__name__} reads {main} and has no decoder to call again and again: export "
                    f"it whole, onnxpatch.export(model, (), file, kwargs={{{main!r}: tensor}})"
                )
            if inputs is not None:
                raise InputError("inputs= are an encoder's; a decoder's example is made from its config")
            return [replace(_decoder(model), note=_left_out(model, {"text"}))]
        except InputError:
            raise
        except Exception as error:
            raise InputError(
                f"{type(model).__name__} cannot be called as export_generation calls models of its kind "
                f"({type(error).__name__}: {said_by(error)}): export its parts one by one with onnxpatch.export"
            ) from error


def _left_out(model: Any, read: set[str]) -> str:
    """What a decoder takes beside what the files read, for the report: there is no input for it."""
    takes = getattr(model, "input_modalities", "text")
    others = [] if isinstance(takes, str) else [one for one in takes if one not in read]
    if not others:
        return ""
    return (
        f"the files take {' and '.join(sorted(read))}: {type(model).__name__} also takes {' and '.join(others)}, which "
        "is left out; export the part that reads it by itself, with onnxpatch.export"
    )


def _tokens(model: Any, batch: int, count: int) -> torch.Tensor:
    # Ids 0 to 2 are padding, begin and end in many vocabularies, which models treat in a way of their own.
    return torch.randint(3, model.config.get_text_config(decoder=True).vocab_size, (batch, count))


# ------------------------------------------------------------------ decoders
def _decoder(model: Any) -> Part:
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
    return Part("model.onnx", Decoder(model), example, shapes, [prompt, one_more, padded, one_padded])


def _states(model: Any) -> tuple[str, torch.Tensor, Any] | None:
    """(what the model calls its cache, some tokens, the cache after these) where layers keep states of a fixed size."""
    tokens = _tokens(model, 2, 5)
    answer = model(tokens, use_cache=True)
    taken = inspect.signature(model.forward).parameters
    # From transformers 5.24 on it is `cache`, and outputs have it by the old names too, which forward may ignore.
    for name in sorted(("past_key_values", "cache_params", "cache"), key=lambda one: one not in taken):
        cache = getattr(answer, name, None)
        if is_cache(cache) and any(isinstance(state, dict) for layer in opened(cache) for state in layer.values()):
            return name, tokens, cache
    return None


def _refuse_states_unread(model: Any, step: OneToken, tokens: torch.Tensor, cache: Any) -> None:
    """A model that takes no notice of the states it is given would be exported, and right, as one without a past."""
    new, mask = _tokens(model, 2, 1), torch.ones(2, tokens.shape[1] + 1, dtype=torch.int64)
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
    example = {"input_ids": _tokens(model, 2, 1), "attention_mask": mask, "past_key_values": cache}
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
    step = OneToken(model, name, grows, placed)
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
    kwargs = {"input_ids": _tokens(model, batch, new), "attention_mask": mask}
    return {**kwargs, **({"position_ids": places} if placed else {}), "past_key_values": _past(model, batch, past)}


def _past(model: Any, batch: int, length: int) -> object:
    """A cache after some tokens, all its layers of full length, as a loop feeds it."""
    from transformers import DynamicCache

    # No model runs on zero tokens: an empty past is cut from one of length 1.
    answer = model(_tokens(model, batch, max(1, length)), past_key_values=DynamicCache(), use_cache=True)
    cache: Any = getattr(answer, "past_key_values", None)
    if not is_cache(cache) or not all(hasattr(layer, "keys") for layer in cache.layers):
        raise InputError(
            f"{type(model).__name__} keeps no keys and values of earlier tokens but {type(cache).__name__}: a loop "
            "with such a cache is not written yet; export one step by itself with onnxpatch.export"
        )
    return DynamicCache([(one.keys[:, :, :length], one.values[:, :, :length]) for one in cache.layers])


# ------------------------------------------------------------------ encoder-decoders
def _encoder_decoder(model: Any, inputs: Inputs | None, shapes: Mapping[str, Any] | None) -> list[Part]:
    main = model.main_input_name
    if inputs is None:
        inputs, shapes = own_inputs(model, main), shapes or _own_shapes(main)
    shapes = dict(shapes or {name: {0: BATCH} for name in inputs})
    encoder = Part("encoder_model.onnx", Encoder(model.get_encoder()), dict(inputs), shapes, (), ["last_hidden_state"])
    encoded = encoder.module(**inputs)["last_hidden_state"]
    # An encoder that shortens its input, such as Whisper's, has no mask of the new length.
    masked = "attention_mask" in inputs and inputs["attention_mask"].shape[1] == encoded.shape[1]
    # Text has its length on axis 1, a spectrogram on axis 2.
    length = {0: BATCH, **({1: SOURCE} if 1 in shapes.get(main, {}) or 2 in shapes.get(main, {}) else {})}
    mask = {"encoder_attention_mask": inputs["attention_mask"]} if masked else {}
    return [encoder, *_steps(model, encoded, mask, length)]


def _steps(model: Any, encoded: torch.Tensor, mask: Inputs, length: dict[int, str]) -> list[Part]:
    """The decoder's graphs. encoded: the encoder's answer; mask: of it, if there is one; length: its dynamic axes."""
    first, codebooks = FirstStep(model), getattr(getattr(model, "decoder", None), "num_codebooks", 1)
    rows, batch = codebooks * encoded.shape[0], BATCH if codebooks == 1 else f"{codebooks}*{BATCH}"
    start = {"input_ids": _tokens(model, rows, 3), "encoder_hidden_states": encoded, **mask}
    past = first(**start)["past_key_values"]
    step = {"input_ids": _tokens(model, rows, 1), "past_key_values": past, **mask}
    states = {"decoder": STATES, "encoder": {0: BATCH, 2: length[1]} if 1 in length else {0: BATCH}}
    names = [f"present.{n}.decoder.{part}" for n in range(len(past.self_attention_cache)) for part in ("key", "value")]
    mask_shapes = dict.fromkeys(mask, length)
    parts = [
        Part("decoder_model.onnx", first, start,
             {"input_ids": {**TOKENS, 0: batch}, "encoder_hidden_states": length, **mask_shapes}),
        Part("decoder_with_past_model.onnx", NextStep(model, encoded.shape[-1]), step,
             {"input_ids": {0: batch}, "past_key_values": states, **mask_shapes}, (), ["logits", *names]),
    ]  # fmt: skip
    if codebooks > 1:
        codes = {"audio_codes": _tokens(model, rows, 9).view(1, -1, codebooks, 9)}
        parts.append(Part("encodec_decode.onnx", Sound(model), codes, {"audio_codes": {1: BATCH, 3: "length"}}))
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
        return {main: _tokens(model, 2, 6), "attention_mask": mask}
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

"""`export_generation`: the files that a loop needs to generate text or speech, each proven as `export` proves it.

For onnxruntime-genai there is `genai_config.json` beside a decoder's file. Its loop calls a file by the names in it,
`past_key_values.%d.key` for each layer's keys. That its tokens are those of `model.generate` is measured in
`benchmarks/results/elsewhere.md`.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from onnxpatch.errors import InputError
from onnxpatch.export import export
from onnxpatch.generation.encoder_decoders import encoder_decoder
from onnxpatch.generation.parts import Inputs, Part, decoder_part
from onnxpatch.generation.vision import reads_images, vision_parts, writer
from onnxpatch.messages.user_code import said_by
from onnxpatch.patching.forward_state import Snapshot, process_state_kept
from onnxpatch.process import undone
from onnxpatch.results.report import Report


@process_state_kept()
def export_generation(
    model: torch.nn.Module,
    folder: str | os.PathLike[str],
    *,
    inputs: Mapping[str, torch.Tensor] | None = None,
    dynamic_shapes: Mapping[str, Any] | None = None,
    genai: bool = False,
    **options: Any,
) -> dict[str, Report]:
    """Export a model of transformers that generates, as the ONNX files that a generation loop runs.

    - A decoder (Llama, GPT-2): `model.onnx`. It takes `input_ids` (batch, n), `attention_mask` (batch, past + n),
      `position_ids` (batch, n) where the model has them, and `past_key_values.<layer>.key`, `.value` (batch, heads,
      past, width); it gives `logits` (batch, n, vocabulary) and `present.<layer>.key`, `.value`. A past of length 0 is
      the prompt's turn.
    - A decoder that keeps states of a fixed size, alone or beside keys and values (Mamba, Jamba, Qwen3-Next, LFM2):
      `model.onnx` for one token at a time, those of the prompt too. `input_ids` is (batch, 1); states are called
      `past_key_values.<layer>.conv_states.0`, `.recurrent_states.0`, and `present.…`; before the first token they are
      zeros. A token of padding leaves them as they are.
    - An encoder-decoder (BART, T5, Whisper): `encoder_model.onnx`, `decoder_model.onnx` for the first step, which takes
      `encoder_hidden_states` and gives all of `present.<layer>.decoder.key`, `.encoder.key` (and `.value`), and
      `decoder_with_past_model.onnx` for each token after it, which takes them as `past_key_values.…` and gives those of
      the decoder. A model that writes sound in codebooks (MusicGen) has `encodec_decode.onnx` too: `audio_codes`
      (1, batch, codebooks, n) to `audio_values` (batch, channels, samples).
    - Images and text (LLaVA, Qwen2-VL): `vision_encoder.onnx` gives `image_features` (tokens of all images, width),
      `embed_tokens.onnx` gives `inputs_embeds` (batch, n, width), in which they take the places of the image's tokens,
      and `decoder_model_merged.onnx` is a decoder that takes these.

    folder: where the files go, beside the model's `config.json` and `generation_config.json`; it is made if missing.
    inputs: an example of the encoder's input, by its name, or of what get_image_features takes. Left out, one is made
        from the config: text, a waveform, a spectrogram as in Whisper, or images.
    genai: also write genai_config.json, for a decoder with keys and values: then onnxruntime-genai runs the folder.
    dynamic_shapes: of `inputs`; left out, their batch may change. options: those of `export`, for every file.

    Returns one Report for each file, by the file's name. The files are put in place once all of them are right. Raises
    what `export` raises, and InputError for a model that does not use transformers' caches, or whose forward takes
    other arguments. Inputs of the model that no file reads (video) are named in the first note of the last report.
    """
    parts = generation_parts(model, inputs, dynamic_shapes)
    if genai:
        _check_genai(parts)
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    reports: dict[str, Report] = {}
    # Beside the target, since os.replace works within one file system only.
    with tempfile.TemporaryDirectory(prefix=".onnxpatch-", dir=place) as name:
        made = Path(name)
        for part in parts:
            report = export(
                part.module, (), made / part.file, kwargs=part.kwargs, dynamic_shapes=part.shapes,
                data=[((), one) for one in part.data], output_names=part.output_names or None, **options,
            )  # fmt: skip
            notes = [*([part.note] if part.note else []), *report.notes]
            reports[part.file] = replace(report, file=str(place / part.file), notes=notes)
        model.config.save_pretrained(made)  # type: ignore[union-attr, operator]
        model.generation_config.save_pretrained(made)  # type: ignore[union-attr, operator]
        if genai:
            _write_genai(model, parts[0], made)
        for file in made.iterdir():
            os.replace(file, place / file.name)
    return reports


def generation_parts(
    model: torch.nn.Module, inputs: Inputs | None = None, shapes: Mapping[str, object] | None = None
) -> list[Part]:
    """The graphs that a model needs to generate, each with an example made by the model itself.

    inputs: an example for its encoder, where that takes no text; shapes: dynamic, of these. An encoder-decoder has
    three, since its first step computes keys and values of the encoder's answer that later steps read.

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
                return encoder_decoder(model, inputs, shapes)
            if reads_images(model):
                parts = vision_parts(model, decoder_part(writer(model)), inputs, shapes)
                return [*parts[:-1], replace(parts[-1], note=_left_out(model, {"image", "text"}))]
            if (main := model.main_input_name) not in ("input_ids", "inputs_embeds"):
                raise InputError(
                    f"{type(model).__name__} reads {main} and has no decoder to call again and again: export "
                    f"it whole, onnxpatch.export(model, (), file, kwargs={{{main!r}: tensor}})"
                )
            if inputs is not None:
                raise InputError("inputs= are an encoder's; a decoder's example is made from its config")
            return [replace(decoder_part(model), note=_left_out(model, {"text"}))]
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


_PAST, _PRESENT = "past_key_values.%d.{}", "present.%d.{}"


def _check_genai(parts: list[Part]) -> None:
    """Raise InputError for anything but a decoder of one file whose every layer keeps keys and values."""
    (part, *more) = parts
    layers = getattr(part.kwargs.get("past_key_values"), "layers", ())
    if more or "input_ids" not in part.kwargs or not layers or not all(hasattr(layer, "keys") for layer in layers):
        raise InputError(
            "genai=True writes genai_config.json for a decoder of one file that keeps keys and values, and this model "
            "is exported otherwise: leave genai out, and run the folder with GenerationSession"
        )


def _write_genai(model: Any, part: Part, folder: Path) -> None:
    """Write genai_config.json. part: the decoder, whose example has the sizes of its heads."""
    config, settings = model.config.get_text_config(decoder=True), model.generation_config
    layers = part.kwargs["past_key_values"].layers
    _, kept_heads, _, width = layers[0].keys.shape
    length = getattr(config, "max_position_embeddings", None) or 2048
    ends = settings.eos_token_id if settings.eos_token_id is not None else config.eos_token_id
    padding = next((one for one in (settings.pad_token_id, config.pad_token_id, ends, 0) if one is not None), 0)
    inputs = {name: name for name in part.kwargs if name != "past_key_values"}
    states = {"past_key_names": _PAST.format("key"), "past_value_names": _PAST.format("value")}
    written = {
        "model": {
            "type": config.model_type,
            "bos_token_id": settings.bos_token_id if settings.bos_token_id is not None else 0,
            "eos_token_id": ends
            if ends is not None
            else config.vocab_size,  # genai asks for one: a token that never comes
            "pad_token_id": padding[0] if isinstance(padding, list) else padding,
            "vocab_size": config.vocab_size,
            "context_length": length,
            "decoder": {
                "filename": part.file,
                "session_options": {"provider_options": []},
                "hidden_size": config.hidden_size,
                "head_size": width,
                "num_attention_heads": config.num_attention_heads,
                "num_key_value_heads": kept_heads,
                "num_hidden_layers": len(layers),
                "inputs": {**inputs, **states},
                "outputs": {
                    "logits": "logits",
                    "present_key_names": _PRESENT.format("key"),
                    "present_value_names": _PRESENT.format("value"),
                },
            },
        },
        # The file gives longer keys and values back, in memory of their own.
        "search": {"max_length": length, "past_present_share_buffer": False, "do_sample": bool(settings.do_sample)},
    }
    (folder / "genai_config.json").write_text(json.dumps(written, indent=2), encoding="utf-8")

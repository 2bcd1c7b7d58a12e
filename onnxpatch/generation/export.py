"""`export_generation`: the files that a loop needs to generate text or speech, each proven as `export` proves it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from onnxpatch.export import export
from onnxpatch.generation.genai import check_genai, write_genai
from onnxpatch.generation.parts import generation_parts
from onnxpatch.patching.process_state import process_state_kept
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
      the decoder.
    - Images and text (LLaVA, Qwen2-VL): `vision_encoder.onnx` gives `image_features` (tokens of all images, width),
      `embed_tokens.onnx` gives `inputs_embeds` (batch, n, width), in which they take the places of the image's tokens,
      and `decoder_model_merged.onnx` is a decoder that takes these.

    folder: where the files go, beside the model's `config.json` and `generation_config.json`; it is made if missing.
    inputs: an example of the encoder's input by its name, for a model that takes neither text nor sound as Whisper
        and Moonshine do, or of what get_image_features takes, where no images can be made up.
    genai: also write genai_config.json, for a decoder of keys and values: onnxruntime-genai runs the folder then.
    dynamic_shapes: of `inputs`; without it their batch may change. options: those of `export`, for every file.

    Returns one Report for each file, by the file's name. Files are put in place once all of them are proven.
    Raises what `export` raises, and InputError for a model whose cache is none of transformers' or that
    is called in another way. What of a model is in no file (video) is the first note of the last report.
    """
    parts = generation_parts(model, inputs, dynamic_shapes)
    if genai:
        check_genai(parts)
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
            write_genai(model, parts[0], made)
        for file in made.iterdir():
            os.replace(file, place / file.name)
    return reports

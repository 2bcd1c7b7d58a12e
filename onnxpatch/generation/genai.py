"""`genai_config.json`: what onnxruntime-genai reads beside a decoder's file.

Its loop calls a file by the names that stand here: `past_key_values.%d.key` for each layer's keys. That its tokens are
those of `model.generate` is measured in `benchmarks/results/elsewhere.md`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from onnxpatch.errors import InputError
from onnxpatch.generation.part import Part

_PAST, _PRESENT = "past_key_values.%d.{}", "present.%d.{}"


def check_genai(parts: list[Part]) -> None:
    """Raise InputError for anything but a decoder of one file whose every layer keeps keys and values."""
    (part, *more) = parts
    layers = getattr(part.kwargs.get("past_key_values"), "layers", ())
    if more or "input_ids" not in part.kwargs or not layers or not all(hasattr(layer, "keys") for layer in layers):
        raise InputError(
            "genai=True writes genai_config.json for a decoder of one file that keeps keys and values, and this model "
            "is exported otherwise: leave genai out, and run the folder with GenerationSession"
        )


def write_genai(model: Any, part: Part, folder: Path) -> None:
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

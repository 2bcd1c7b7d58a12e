"""Which loop the files of a folder are for."""

from __future__ import annotations

from onnxpatch.errors import InputError
from onnxpatch.generation.turns import DecoderTurns, EncoderDecoderTurns, Turns
from onnxpatch.generation.vision_turns import VisionTurns

_KINDS: dict[tuple[str, ...], type[Turns]] = {
    ("model",): DecoderTurns,
    ("encoder_model", "decoder_model", "decoder_with_past_model"): EncoderDecoderTurns,
    ("vision_encoder", "embed_tokens", "decoder_model_merged"): VisionTurns,
}


def kind_of(files: set[str]) -> tuple[tuple[str, ...], type[Turns]]:
    """(the files that a loop runs, its class). files: those of a folder, without their endings."""
    for names, kind in _KINDS.items():
        if files.issuperset(names):
            return names, kind
    wanted = "; or ".join(", ".join(f"{name}.onnx" for name in names) for names in _KINDS)
    raise InputError(f"the folder has no files of a loop ({wanted}): make them with onnxpatch.export_generation")

"""Llama and Whisper, exported with their caches, generate in onnxruntime what eager's `generate` does, token by token.

usage: python examples/generation.py [--tokens 64] [--exporter dynamo|trace] [--models llama,whisper]

Weights are random and large, so that every token depends on all those before it. The last column is a control: with
keys of the past that do not belong to their tokens the same loop goes wrong.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch

import onnxpatch

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks import torchvision_ops

torchvision_ops.declare()  # transformers imports torchvision, whose wheel may not fit a CPU-only torch
import transformers  # noqa: E402

VOCABULARY = 500
SPECIAL = dict(vocab_size=VOCABULARY, pad_token_id=0, bos_token_id=1, eos_token_id=None, decoder_start_token_id=1)
Feed = dict[str, np.ndarray]
Break = Callable[[np.ndarray], np.ndarray]


# ------------------------------------------------------------------ tiny models
def llama() -> Any:
    config = transformers.LlamaConfig(
        hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        max_position_embeddings=128, **SPECIAL,
    )  # fmt: skip
    return restless(transformers.LlamaForCausalLM(config))


def whisper() -> Any:
    config = transformers.WhisperConfig(
        d_model=64, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4,
        encoder_ffn_dim=128, decoder_ffn_dim=128, num_mel_bins=16, max_source_positions=40, max_target_positions=128,
        begin_suppress_tokens=None, suppress_tokens=None, tie_word_embeddings=False, **SPECIAL,
    )  # fmt: skip
    return restless(transformers.WhisperForConditionalGeneration(config))


def restless(model: torch.nn.Module) -> torch.nn.Module:
    """Larger weights than a fresh model has: those of a fresh one hardly look at the tokens before."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() == 2:
                scale = 1.0 if "embed" in name else 2.5 / parameter.shape[1] ** 0.5
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * scale)
    return model.eval()


# ------------------------------------------------------------------ the loop, with NumPy and onnxruntime alone
class Files:
    """The sessions of a folder, by the file's name without its ending."""

    def __init__(self, folder: Path) -> None:
        self.sessions = {file.stem: onnxruntime.InferenceSession(file) for file in folder.glob("*.onnx")}

    def run(self, name: str, feed: Feed) -> Feed:
        session = self.sessions[name]
        wanted = {value.name for value in session.get_inputs()}
        outputs = session.run(None, {key: value for key, value in feed.items() if key in wanted})
        return dict(zip((value.name for value in session.get_outputs()), outputs, strict=True))

    def empty_past(self, name: str, batch: int) -> Feed:
        inputs = [one for one in self.sessions[name].get_inputs() if one.name.startswith("past")]
        return {one.name: np.zeros((batch, one.shape[1], 0, one.shape[3]), np.float32) for one in inputs}


def past_of(answer: Feed, broken: Break | None) -> Feed:
    """What a step gave as `present` is the past of the next."""
    states = {key.replace("present", "past_key_values"): one for key, one in answer.items() if "present" in key}
    return {key: broken(one) if broken and key.endswith("key") else one for key, one in states.items()}


def chosen(answer: Feed, tokens: list[np.ndarray], margins: list[float]) -> np.ndarray:
    """The likeliest next token, (batch, 1)."""
    logits = answer["logits"][:, -1]
    first_two = np.sort(logits, axis=-1)[:, -2:]
    margins.append(float((first_two[:, 1] - first_two[:, 0]).min()))
    tokens.append(logits.argmax(-1)[:, None])
    return tokens[-1]


def decode(files: Files, prompt: np.ndarray, count: int, broken: Break | None = None) -> tuple[np.ndarray, float]:
    """(tokens after the prompt, smallest margin between the first two logits) of a decoder."""
    tokens, margins = [], []
    new, past, total = prompt, files.empty_past("model", len(prompt)), 0
    while len(tokens) < count:
        places = np.arange(total, total + new.shape[1], dtype=np.int64)[None].repeat(len(new), 0)
        total += new.shape[1]
        mask = np.ones((len(new), total), np.int64)
        answer = files.run("model", {"input_ids": new, "attention_mask": mask, "position_ids": places, **past})
        new, past = chosen(answer, tokens, margins), past_of(answer, broken)
    return np.concatenate(tokens, 1), min(margins)


def transcribe(files: Files, sound: np.ndarray, count: int, broken: Break | None = None) -> tuple[np.ndarray, float]:
    """The same of an encoder and its decoder."""
    tokens, margins = [], []
    encoded = files.run("encoder_model", {"input_features": sound})["last_hidden_state"]
    start = np.ones((len(sound), 1), np.int64)
    answer = files.run("decoder_model", {"input_ids": start, "encoder_hidden_states": encoded})
    states = past_of(answer, None)
    new = chosen(answer, tokens, margins)
    while len(tokens) < count:
        answer = files.run("decoder_with_past_model", {"input_ids": new, **states})
        states |= past_of(answer, broken)
        new = chosen(answer, tokens, margins)
    return np.concatenate(tokens, 1), min(margins)


# ------------------------------------------------------------------ beside eager
def compared(name: str, exporter: str, count: int) -> tuple[str, bool]:
    """(a line for the table, whether the tokens are those of eager and the control's are not)."""
    torch.manual_seed(2)
    model = llama() if name == "llama" else whisper()
    settings: Any = dict(max_new_tokens=count, min_new_tokens=count, do_sample=False, num_beams=1)
    if name == "llama":
        given, run = torch.randint(3, VOCABULARY, (2, 5)), decode
        eager = model.generate(given, attention_mask=torch.ones_like(given), **settings)[:, given.shape[1] :]
    else:
        given, run = torch.randn(2, 16, 80), transcribe
        eager = transformers.GenerationMixin.generate(model, given, **settings)[:, -count:]
    with tempfile.TemporaryDirectory() as folder:
        reports = onnxpatch.export_generation(model, folder, exporter=exporter)
        files = Files(Path(folder))
        tokens, margin = run(files, given.numpy(), count)
        control, _ = run(files, given.numpy(), count, broken=lambda keys: np.roll(keys, 1, axis=2))
    same, other = int((tokens == eager.numpy()).sum()), int((control == eager.numpy()).sum())
    distinct, of = min(len(set(row)) for row in eager.tolist()), tokens.size
    line = f"{name:8} {exporter:7} {len(reports)} files  {same} of {of} tokens as eager  {distinct} distinct  "
    return f"{line}margin {margin:.4f}  broken cache {other} of {of}", same == of and other < of


def main() -> int:
    options = argparse.ArgumentParser()
    options.add_argument("--tokens", type=int, default=64)
    options.add_argument("--exporter", choices=("dynamo", "trace"), default="dynamo")
    options.add_argument("--models", default="llama,whisper")
    asked = options.parse_args()
    lines = [compared(name, asked.exporter, asked.tokens) for name in asked.models.split(",")]
    print("\n".join(line for line, _ in lines))
    return 0 if all(right for _, right in lines) else 1


if __name__ == "__main__":
    sys.exit(main())

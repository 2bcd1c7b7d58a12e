"""What exporting a model of deployed size costs: processor seconds and private memory at the peak.

usage: python -m benchmarks.sizes [--only NAME|NAME] [--exporter trace]

A decoder of 0.6 billion weights, a ViT-L, Whisper-large's encoder and the UNet of Stable Diffusion 1.5, with random
weights. Each export runs in a process of its own, in one thread: torch.onnx.export, the kit without proof, and with
it. Seconds are those of the processor, memory is the largest private one (`benchmarks.memory`), both without what the
process had before; memory is also given as a multiple of the weights, which are 1 of it. The table goes to
benchmarks/results/sizes_<exporter>.md. It takes an hour and 12 GB: run it on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks.memory import watched
from benchmarks.quiet import quiet

RESULTS = Path(__file__).parent / "results"
KITS = {"plain": "torch.onnx.export", "unchecked": "the kit, check=False", "checked": "the kit"}
Call = tuple[torch.nn.Module, tuple[Any, ...], dict[str, dict[int, str]]]


def decoder() -> Call:
    from transformers import Qwen3Config, Qwen3ForCausalLM

    sizes = {"num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 3072}
    config = Qwen3Config(
        hidden_size=1024, num_hidden_layers=28, vocab_size=151936, tie_word_embeddings=True, use_cache=False, **sizes
    )
    ids = torch.randint(0, 1000, (2, 16))
    return Qwen3ForCausalLM(config), (ids,), {"input_ids": {0: "batch", 1: "length"}}


def vit() -> Call:
    from transformers import ViTConfig, ViTModel

    config = ViTConfig(hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096)
    return ViTModel(config), (torch.randn(2, 3, 224, 224),), {"pixel_values": {0: "batch"}}


def whisper() -> Call:
    from transformers import WhisperConfig
    from transformers.models.whisper.modeling_whisper import WhisperEncoder

    layers = {"encoder_layers": 32, "encoder_attention_heads": 20, "encoder_ffn_dim": 5120}
    config = WhisperConfig(d_model=1280, num_mel_bins=128, **layers)
    return WhisperEncoder(config), (torch.randn(1, 128, 3000),), {"input_features": {0: "batch"}}


def unet() -> Call:
    from diffusers import UNet2DConditionModel

    model = UNet2DConditionModel(sample_size=64, cross_attention_dim=768)
    args = (torch.randn(2, 4, 32, 32), torch.tensor([7]), torch.randn(2, 77, 768))
    axes = {"sample": {0: "batch", 2: "height", 3: "width"}, "timestep": {}, "encoder_hidden_states": {0: "batch"}}
    return model, args, axes


MODELS = {"decoder, 0.6 B": decoder, "ViT-L": vit, "Whisper-large's encoder": whisper, "UNet of SD 1.5": unet}


def child(name: str, exporter: Any, kit: str) -> None:
    """Make the model, say so, export it, say the seconds; in a process of its own."""
    from benchmarks import torchvision_ops

    torchvision_ops.declare()
    import onnx  # noqa: F401
    import onnxruntime  # noqa: F401
    import onnxscript  # noqa: F401

    import onnxpatch

    quiet()
    torch.set_num_threads(1)
    print(json.dumps("before"), flush=True)
    sys.stdin.readline()
    with torch.no_grad():
        model, args, axes = MODELS[name]()
    began = time.process_time()
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        file = Path(folder) / "m.onnx"
        if kit != "plain":
            onnxpatch.export(
                model.eval(), args, file, exporter=exporter, dynamic_shapes=axes, check=kit == "checked",
                external_data=True,
            )  # fmt: skip
        elif exporter == "dynamo":
            torch.onnx.export(model.eval(), args, file, dynamo=True, dynamic_shapes=axes, verbose=False)
        else:
            names, free = list(axes), {name: one for name, one in axes.items() if one}
            torch.onnx.export(model.eval(), args, str(file), dynamo=False, input_names=names, dynamic_axes=free)
    weights = sum(one.numel() * one.element_size() for one in model.parameters())
    print(json.dumps([time.process_time() - began, weights]), flush=True)


def measured(name: str, exporter: str, kit: str) -> str:
    """`59 s, 4.7 GB (2.0)`, or that it was refused."""
    found = watched(["-c", f"from benchmarks.sizes import child; child({name!r}, {exporter!r}, {kit!r})"])
    if found is None:
        return "refused"
    said, peak = found
    seconds, weights = json.loads(said[-1])
    return f"{seconds:.0f} s, {peak / 1e9:.1f} GB ({peak / weights:.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="parts of names, separated by |")
    parser.add_argument("--exporter", default="dynamo")
    asked = parser.parse_args()
    lines = [f"| model | {' | '.join(KITS.values())} |", "|---" * (len(KITS) + 1) + "|"]
    print("\n".join(lines), flush=True)
    for name in MODELS:
        if any(part in name for part in asked.only.split("|")):
            lines.append(f"| {name} | {' | '.join(measured(name, asked.exporter, kit) for kit in KITS)} |")
            print(lines[-1], flush=True)
    if not asked.only:
        about = (__doc__ or "").split("\n\n")[2]
        page = ["# What an export costs, by size", "", about, "", f"Exporter: {asked.exporter}.", "", *lines, ""]
        (RESULTS / f"sizes_{asked.exporter}.md").write_text("\n".join(page), encoding="utf-8")


if __name__ == "__main__":
    main()

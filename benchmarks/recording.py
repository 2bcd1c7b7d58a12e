"""What recording the sides that a forward takes adds to eager's own time, for models of their published size.

usage: python -m benchmarks.recording

Processor milliseconds of one run of the reference in one thread, the least of 14, without and with the recording.
Python 3.12 and later watch with sys.monitoring, earlier ones trace. Run it with both: each appends its rows to
benchmarks/results/recording.md.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from benchmarks import torchvision_ops
from onnxpatch.inputs.leaves import Inputs
from onnxpatch.verification.eager import Eager

OUT = Path(__file__).parent / "results" / "recording.md"
HEAD = "| Python | model | eager, ms | recorded, ms | ratio |\n|---|---|---|---|---|\n"
Made = tuple[nn.Module, tuple[Any, ...]]


class _Encoded(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: torch.Tensor) -> Any:
        return self.model(input_ids=ids, decoder_input_ids=ids[:, :16]).last_hidden_state


def models() -> dict[str, Callable[[], Made]]:
    torchvision_ops.declare()  # transformers and timm import torchvision
    import timm
    import transformers as hf

    ids, image = torch.randint(5, 900, (2, 64)), torch.randn(1, 3, 224, 224)
    small = {"hidden_size": 512, "intermediate_size": 1024, "num_hidden_layers": 8, "num_attention_heads": 8}
    return {
        "BERT, base": lambda: (hf.BertModel(hf.BertConfig()), (ids,)),
        "T5, small": lambda: (_Encoded(hf.T5Model(hf.T5Config())), (ids,)),
        "wav2vec 2.0, base": lambda: (hf.Wav2Vec2Model(hf.Wav2Vec2Config()), (torch.randn(1, 16000),)),
        "Llama, 8 layers of 512": lambda: (hf.LlamaModel(hf.LlamaConfig(use_cache=False, **small)), (ids,)),
        "timm's ViT, small": lambda: (timm.create_model("vit_small_patch16_224"), (image,)),
        "timm's ResNet-18": lambda: (timm.create_model("resnet18"), (image,)),
    }


def least(eager: Eager, values: Any, recorded: bool) -> float:
    found = []
    for _ in range(7):
        began = time.process_time()
        eager._run(values, counted=False, recorded=recorded)
        found.append(1000 * (time.process_time() - began))
    return min(found)


def main() -> None:
    torch.set_num_threads(1)
    lines = OUT.read_text(encoding="utf-8").splitlines()[2:] if OUT.exists() else []
    mine = f"| {platform.python_version()} |"
    lines = [line for line in lines if not line.startswith(mine)]
    for name, make in models().items():
        model, args = make()
        inputs = Inputs(model.eval(), args, {})
        eager, values = Eager(model, inputs), inputs.as_given()
        least(eager, values, True)  # the functions are read
        rounds = [(least(eager, values, False), least(eager, values, True)) for _ in range(2)]
        plain, recorded = (min(column) for column in zip(*rounds, strict=True))
        lines.append(f"{mine} {name} | {plain:.0f} | {recorded:.0f} | {recorded / plain:.2f} |")
        print(lines[-1], flush=True)
    OUT.write_text(HEAD + "\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

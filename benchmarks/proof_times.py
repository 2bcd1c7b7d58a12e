"""What one export costs in processor seconds: plain torch.onnx.export, the kit without a comparison, and with proof.

usage: python -m benchmarks.proof_times

Small text models of transformers, where nothing hides behind the arithmetic. Each figure is the least of several runs
in a process that has exported before. What the first export of a process costs more is in the second table.
"""

from __future__ import annotations

import io
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import nn

from benchmarks import forked, torchvision_ops
from benchmarks.coverage import RESULTS, warm_up
from benchmarks.quiet import quiet

SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 37, "vocab_size": 99}
RUNS = {"trace": 5, "dynamo": 2}
FORMS = ("plain", "kit, check=False", "kit")
IDS = torch.randint(3, 90, (2, 7), generator=torch.Generator().manual_seed(0))


class States(nn.Module):
    """A model of transformers that takes token ids and gives its first output, which plain torch.onnx.export takes."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: torch.Tensor) -> Any:
        return self.model(input_ids=input_ids)[0]


def models() -> Iterator[tuple[str, nn.Module]]:
    t: Any = transformers
    distil = {"dim": 32, "n_layers": 2, "n_heads": 2, "hidden_dim": 37, "vocab_size": 99}
    yield "BERT", States(t.BertModel(t.BertConfig(**SMALL)))
    yield "RoBERTa", States(t.RobertaForSequenceClassification(t.RobertaConfig(**SMALL)))
    yield "ELECTRA", States(t.ElectraModel(t.ElectraConfig(embedding_size=16, **SMALL)))
    yield "DistilBERT", States(t.DistilBertModel(t.DistilBertConfig(**distil)))
    yield "ALBERT", States(t.AlbertModel(t.AlbertConfig(embedding_size=16, **SMALL)))
    yield "MPNet", States(t.MPNetModel(t.MPNetConfig(**SMALL)))
    yield "DeBERTa v2", States(t.DebertaV2Model(t.DebertaV2Config(**SMALL)))


def job(form: str, model: nn.Module, exporter: str, file: Path) -> Callable[[], object]:
    import onnxpatch

    if form != "plain":
        shapes = {"input_ids": {0: "b", 1: "s"}}
        return lambda: onnxpatch.export(
            model, (IDS,), file, dynamic_shapes=shapes, exporter=exporter, check=form == "kit"
        )
    if exporter == "trace":
        axes = {"input_ids": {0: "b", 1: "s"}}
        return lambda: torch.onnx.export(
            model, (IDS,), str(file), dynamo=False, input_names=["input_ids"], dynamic_axes=axes, opset_version=18
        )
    free = {"input_ids": {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}}
    return lambda: torch.onnx.export(
        model, (IDS,), str(file), dynamo=True, dynamic_shapes=free, opset_version=18, verbose=False
    )


def seconds(exporter: str, model: nn.Module, form: str, runs: int) -> float:
    taken = []
    with tempfile.TemporaryDirectory() as folder:
        work = job(form, model, exporter, Path(folder) / "m.onnx")
        for _ in range(runs):
            start = time.process_time()
            work()
            taken.append(time.process_time() - start)
    return min(taken)


def table(exporter: str) -> list[str]:
    lines = [f"| {exporter} | {' | '.join(FORMS)} | kit / plain |", "|---|---|---|---|---|"]
    for model in (model for _, model in models()):
        seconds(exporter, model.eval(), "kit", 1)  # code that is read once in a process
        break
    ratios = []
    for name, model in models():
        found = [seconds(exporter, model.eval(), form, RUNS[exporter]) for form in FORMS]
        ratios.append(found[-1] / found[0])
        lines.append(f"| {name} | {' | '.join(f'{one:.2f}' for one in found)} | {ratios[-1]:.2f} |")
        print(lines[-1], flush=True)
    return [*lines, f"| median | | | | {statistics.median(ratios):.2f} |", ""]


def first(exporter: str) -> dict[str, Any]:
    """The first export of a process that has loaded torch's exporters alone; runs in a child process."""
    model = next(models())[1].eval()
    start = time.process_time()
    import onnxpatch.export  # noqa: F401

    loaded = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        job("kit", model, exporter, Path(folder) / "m.onnx")()
    return {"import": loaded - start, "export": time.process_time() - loaded}


def main() -> None:
    quiet()
    torch.set_num_threads(1)
    torchvision_ops.declare()
    warm_up()
    torch.onnx.export(nn.Linear(2, 2), (torch.randn(3, 2),), io.BytesIO(), dynamo=False)
    asked = sys.argv[1:] or ["trace", "dynamo"]
    starts = {one: forked.run(lambda one=one: first(one), 600) for one in asked}
    lines = [line for exporter in asked for line in table(exporter)]
    lines += ["| first export of a process, BERT | importing the kit | export with proof |", "|---|---|---|"]
    lines += [f"| {one} | {found['import']:.2f} | {found['export']:.2f} |" for one, found in starts.items()]
    print("\n".join(lines))
    if not sys.argv[1:]:
        head = [
            f"torch {torch.__version__}, transformers {transformers.__version__}, one thread; processor seconds.",
            "",
        ]
        (RESULTS / "proof_times.md").write_text("\n".join([*head, *lines]) + "\n")


if __name__ == "__main__":
    main()

"""Text models at real width: what other tools make of them, beside the kit and the plain dynamo export.

usage: python -m benchmarks.whole_peers [--only BERT] [--rounds 15]

As in benchmarks.whole_models: dynamic sizes from a small example, compared with eager, one thread, thread CPU time,
arms in random order; a cell is the median of the ratios to plain dynamo at opset 18 in the same round, with quartiles.
"onnxslim" and "onnxruntime's optimizer" rewrite the plain file at opset 18; "transformers' exporter" exports the model
itself with `dynamic=True`, at its own choice of an opset, plain and fused for onnxruntime's CPU provider. Arms whose
library is not installed are named below the table.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from benchmarks import torchvision_ops
from benchmarks.quiet import quiet
from benchmarks.whole_cases import CASES, Whole
from benchmarks.whole_models import ARMS, BASE, KEPT, VERSIONS, exported, installed, moved, session, timed

RESULTS = Path(__file__).parent / "results" / "whole_peers.md"
MODELS = ("BERT", "Llama")
OURS = (BASE, "kit 18", "kit 23", "kit 23, onnxruntime")
# The names that onnxruntime's optimizer has for the families, as its own script for Llama has them.
FAMILIES = {"BERT": "bert", "Llama": "gpt2"}


def slimmed(name: str, model: Any, case: Whole, plain: Path, path: Path) -> None:
    import onnx
    import onnxslim

    onnx.save(onnxslim.slim(str(plain)), path)


def optimized(name: str, model: Any, case: Whole, plain: Path, path: Path) -> None:
    from onnxruntime.transformers.optimizer import optimize_model

    config = model.model.config
    heads, width = config.num_attention_heads, config.hidden_size
    found = optimize_model(str(plain), model_type=FAMILIES[name], num_heads=heads, hidden_size=width, opt_level=0)
    found.save_model_to_file(str(path))


def by_transformers(name: str, model: Any, case: Whole, plain: Path, path: Path, fusions: str | None = None) -> None:
    import onnx_ir
    from transformers.exporters import OnnxConfig, OnnxExporter

    # torch.export fixes a batch of 1.
    args = [torch.cat([one, one]) for one in case.make(case.example)]
    given = dict(zip(model.names, args, strict=True))
    model.model.config.use_cache = False
    config = OnnxConfig(dynamic=True, ort_fusions=fusions)
    made = OnnxExporter().export(model.model, given, config=config)
    onnx_ir.save(made.program, str(path))


def fused_by_transformers(name: str, model: Any, case: Whole, plain: Path, path: Path) -> None:
    by_transformers(name, model, case, plain, path, fusions="cpu")


PEERS: dict[str, tuple[str, Callable[[str, Any, Whole, Path, Path], None]]] = {
    "onnxslim": ("onnxslim", slimmed),
    "onnxruntime's optimizer": ("onnxruntime", optimized),
    "transformers' exporter": ("transformers", by_transformers),
    "transformers' exporter, fused": ("transformers", fused_by_transformers),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=MODELS, help="names of models")
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    quiet()
    torch.set_num_threads(1)
    torchvision_ops.declare()
    peers = [label for label, (library, _) in PEERS.items() if installed(library)]
    columns = [*OURS[1:], *peers]
    lines = [f"| model | {BASE} | " + " | ".join(columns) + " |", "|---" * (len(columns) + 2) + "|"]
    for name in options.only:
        for line in measured(name, CASES[name], columns, options.rounds):
            print(line, flush=True)
            lines.append(line)
    missing = [f"{library} is not installed." for label, (library, _) in PEERS.items() if label not in peers]
    libraries = dict.fromkeys([*VERSIONS[:5], *(PEERS[label][0] for label in peers)])
    versions = ", ".join(f"{one} {metadata.version(one)}" for one in libraries)
    about = (__doc__ or "").split("\n\n")[2]
    text = ["# Whole models: other tools", "", about, "", *lines, "", *missing, f"Versions: {versions}.", ""]
    RESULTS.write_text("\n".join(text))


def measured(name: str, case: Whole, columns: list[str], rounds: int) -> list[str]:
    """The lines of one model, one for each size."""
    torch.manual_seed(0)
    model = moved(case.build()).eval()
    files = {label: exported(name, model, case, ARMS[label])[0] for label in OURS}
    plain = files[BASE]
    if not isinstance(plain, Path):
        raise RuntimeError(f"{name}: the plain export, which peers start from: {plain}")
    for label in columns:
        if label in PEERS:
            files[label] = path = KEPT / f"{name}-{label.replace(' ', '_')}.onnx"
            try:
                PEERS[label][1](name, model, case, plain, path)
            except Exception as error:
                files[label] = f"refused: {type(error).__name__}"
    sessions = {label: session(path) for label, path in files.items() if isinstance(path, Path)}
    refused = {label: path for label, path in files.items() if not isinstance(path, Path)}
    lines = []
    for size in case.sizes:
        found = {**refused, **timed(model, case.make(size), sessions, rounds)}
        lines.append(f"| {name} {size} | " + " | ".join(found[label] for label in (BASE, *columns)) + " |")
    return lines


if __name__ == "__main__":
    main()

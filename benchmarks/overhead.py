"""What the kit costs a model that is not being exported: nothing. Eager before patching, after, and beside a patch.

python -m benchmarks.overhead
"""

from __future__ import annotations

import copy
import statistics
import time
import warnings
from pathlib import Path

import torch
from torch import nn

import onnxpatch
from benchmarks import torchvision_ops
from benchmarks.verification import MODELS

RESULTS = Path(__file__).parent / "results"
ROUNDS = 60
CHOSEN = ("vit-pytorch ViT, 4 blocks", "transformers Swin, 2 stages", "position table")


def shares(models: dict[str, nn.Module], args: tuple[torch.Tensor, ...], rounds: int = ROUNDS) -> dict[str, float]:
    """Processor time of each model's call, in times of the first one's: the median of rounds that ask all in turns."""
    taken: dict[str, list[float]] = {name: [] for name in models}
    with torch.no_grad():
        for turn in range(rounds + 3):
            for name, model in sorted(models.items(), key=lambda one, turn=turn: hash((one[0], turn))):  # type: ignore[misc]
                start = time.process_time()
                model(*args)
                if turn >= 3:
                    taken[name].append(time.process_time() - start)
    first = statistics.median(taken[next(iter(models))])
    return {name: statistics.median(times) / first for name, times in taken.items()}


def measured(name: str) -> dict[str, float]:
    torch.manual_seed(0)
    model, args, sizes = MODELS[name][0]()
    model.eval()
    back, exported, beside, again = (copy.deepcopy(model) for _ in range(4))
    onnxpatch.patch_model(back).restore()
    onnxpatch.export(exported, args, None, dynamic_shapes=sizes, dynamo=False)
    with onnxpatch.patched(again):  # while it is patched, and its own copy is not
        models = {"never patched": model, "patched and given back": back, "exported": exported, "beside": beside}
        return shares(models, args)


def main() -> None:
    torch.set_num_threads(1)
    torchvision_ops.declare()
    warnings.simplefilter("ignore")
    rows = []
    for name in CHOSEN:
        found = measured(name)
        rows.append(f"| {name} | " + " | ".join(f"{found[one]:.2f}" for one in list(found)[1:]) + " |")
        print(rows[-1], flush=True)
    head = [
        f"torch {torch.__version__}, one thread; processor time of an eager call, in times of a model never patched;",
        f"medians of {ROUNDS} rounds. Beside: never patched either, called while another model is patched.",
        "",
        "| model | patched and given back | exported | beside |",
        "|---|---|---|---|",
    ]
    (RESULTS / "overhead.md").write_text("\n".join([*head, *rows]) + "\n")


if __name__ == "__main__":
    main()

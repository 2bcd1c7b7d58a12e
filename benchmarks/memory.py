"""The private memory of an export at its peak, as a multiple of the model's weights, plain and with the kit.

    python -m benchmarks.memory [--megabytes 1000] [--kits KIT ...] [--out FILE]

Each export runs in a process of its own, which makes a model of linear layers, with buffers of 64 MB. Another process
reads /proc/PID/smaps_rollup, of the whole tree of processes, a third of the time: the anonymous pages. The
pages of a file that is mapped and read are no cost, since the system takes them back when it needs them. What the
process had before the model was made (torch, onnx and onnxruntime imported) is taken off. Linux only.
"""

from __future__ import annotations

import argparse
import contextlib
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

EXPORTERS = ("dynamo", "trace")
HEADS = {
    "plain": "torch.onnx.export", "unchecked": "the kit, check=False", "checked": "the kit",
    "beside": "external_data=True", "streamed": "weights=",
}  # fmt: skip
KITS = tuple(HEADS)
_ANONYMOUS = ("Anonymous:", "Swap:")

_CHILD = """
import sys, torch, onnx, onnxruntime, onnxscript, onnxpatch, onnxpatch.export
import torch.onnx
from torch import nn

exporter, kit, layers, width, file = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5]

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(*(nn.Linear(width, width) for _ in range(layers)))
        self.register_buffer("table", torch.rand(1 << 12, 1 << 12))
        self.last = self.layers[0]  # stored once

    def forward(self, x):
        return self.last(self.layers(x)) + self.table[0, 0]

def export(model, file):
    x = torch.rand(2, model.layers[0].in_features)
    if kit == "plain" and exporter == "dynamo":
        torch.onnx.export(model, (x,), file, dynamo=True, dynamic_shapes=({0: "b"},), verbose=False)
    elif kit == "plain":
        torch.onnx.export(model, (x,), file, dynamo=False, dynamic_axes={"x": {0: "b"}}, input_names=["x"])
    else:
        onnxpatch.export(model, (x,), file, exporter=exporter, dynamic_shapes={"x": {0: "b"}}, max_probes=2,
                         external_data=kit == "beside", check=kit != "unchecked",
                         **({"weights": file + ".json"} if kit == "streamed" else {}))

if kit == "weights":  # for another process, in files of 1 GB at most, as large models have them
    import json
    from safetensors.torch import save_file

    with torch.device("meta"):
        shapes = {name: one.shape for name, one in Net().state_dict().items() if not name.startswith("last.")}
    shards, held = [{}], 0
    for name, shape in shapes.items():
        held += 4 * shape.numel()
        if held > 1e9:
            shards, held = [*shards, {}], 4 * shape.numel()
        shards[-1][name] = shape
    for number, shard in enumerate(shards):
        save_file({name: torch.rand(shape) / 1000 for name, shape in shard.items()}, f"{file}.{number}.safetensors")
    names = {name: f"m.onnx.{number}.safetensors" for number, shard in enumerate(shards) for name in shard}
    with open(file + ".json", "w") as index:
        json.dump({"weight_map": names}, index)
    sys.exit()
print("before", flush=True)
sys.stdin.readline()
with torch.no_grad(), torch.device("meta" if kit == "streamed" else "cpu"):
    model = Net().eval()
export(model, file)
print("done", flush=True)
"""


def private(pid: int) -> int:
    """Bytes of private memory of a process and of those that it started."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:  # it has ended
        return 0
    own = sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(_ANONYMOUS))
    return own + sum(private(int(child)) for child in children)


def watched(arguments: Sequence[str]) -> tuple[list[str], int] | None:
    """What a Python process prints, and how many bytes of private memory it had at most; None where it failed.

    Its first line says that all is imported: it waits for a line then, and what it has so far does not count.
    """
    with subprocess.Popen(
        [sys.executable, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        text=True,
    ) as child:  # fmt: skip
        assert child.stdin is not None and child.stdout is not None
        child.stdout.readline()
        before, most, ended = private(child.pid), [0], threading.Event()

        def watch() -> None:
            pause = 0.005
            while not ended.wait(pause):
                began = time.perf_counter()
                most[0] = max(most[0], private(child.pid))
                pause = max(0.005, 2 * (time.perf_counter() - began))  # a reading holds the child's memory up

        watcher = threading.Thread(target=watch)
        watcher.start()
        with contextlib.suppress(BrokenPipeError):  # it failed before it said anything
            child.stdin.write("\n")
            child.stdin.flush()
        said = child.stdout.read().splitlines()
        ended.set()
        watcher.join()
    return None if child.returncode or not said else (said, most[0] - before)


def peak(exporter: str, kit: str, megabytes: int) -> float:
    """The largest private memory while a model of `megabytes` is exported, as a multiple of its weights."""
    width = 2048
    layers = max(1, (megabytes - 64) // (width * width * 4 // 10**6))
    weights = 4 * (layers * (width * width + width) + (1 << 24))
    with tempfile.TemporaryDirectory() as folder:
        rest = [str(layers), str(width), str(Path(folder) / "m.onnx")]
        if kit == "streamed":
            subprocess.run([sys.executable, "-c", _CHILD, exporter, "weights", *rest], check=True)
        found = watched(["-c", _CHILD, exporter, kit, *rest])
    if found is None or "done" not in found[0]:
        raise RuntimeError(f"the export failed: {exporter}, {kit}")
    return found[1] / weights


def table(megabytes: int, exporters: Sequence[str] = EXPORTERS, kits: Sequence[str] = KITS) -> str:
    """The table, in Markdown."""
    lines = [f"| exporter | {' | '.join(HEADS[kit] for kit in kits)} |", "|---" * (len(kits) + 1) + "|"]
    for exporter in exporters:
        found = [f"{peak(exporter, kit, megabytes):.2f}" for kit in kits]
        lines.append(f"| {exporter} | {' | '.join(found)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--kits", nargs="+", choices=KITS, default=KITS)
    asked = parser.parse_args()
    found = table(asked.megabytes, kits=asked.kits)
    print(found)
    if asked.out:
        asked.out.write_text(
            f"# Private memory at the peak, as a multiple of the weights\n\nA model of {asked.megabytes} MB, "
            f"`python -m benchmarks.memory`; the model itself is 1.00 of each figure.\n\n{found}\n"
        )


if __name__ == "__main__":
    main()

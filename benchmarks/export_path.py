"""The way of one export through the code: modules entered, and calls from one file of the project to another.

usage: python -m benchmarks.export_path [--calls]

Exported, with dynamic height and width, the default exporter and max_probes=4, are Conv2d with MaxPool2d, where patches
are ready to act and none does, and Conv2d with AdaptiveAvgPool2d to 2 x 2, where one does. The first export of each
loads what is loaded lazily and is not counted; the second is.

"Modules entered" are the files under onnxpatch/ and patches/ in which a frame ran: functions, comprehensions and
generators. "Calls across files" are the Python calls in this thread whose own frame is in one of these files and whose
caller's frame is in another of them; a generator counts each time it goes on. Where torch is between two files (a
stand-in that is called during the trace), both are entered, and no call across files is counted; neither is the
`__init__` that dataclasses generates. The figures do not depend on the speed of the machine as long as the export's own
budget for its proof lasts.

--calls prints every pair of files, not only the most frequent.
"""

from __future__ import annotations

import argparse
import collections
import io
import logging
import sys
import types
import warnings
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

import onnxpatch

ROOT = Path(__file__).resolve().parents[1]
MOST_FREQUENT = 15


class Counter:
    """A profile function that counts calls between files of the project, for the thread that sets it."""

    def __init__(self) -> None:
        self.entered: set[str] = set()
        self.pairs: collections.Counter[tuple[str, str]] = collections.Counter()
        self._files: dict[str, str | None] = {}

    def __call__(self, frame: types.FrameType, event: str, arg: object) -> None:
        if event != "call":
            return
        callee = self._file(frame)
        if callee is None:
            return
        self.entered.add(callee)
        caller = self._file(frame.f_back) if frame.f_back is not None else None
        if caller is not None and caller != callee:
            self.pairs[caller, callee] += 1

    def _file(self, frame: types.FrameType) -> str | None:
        """The frame's file, relative to the project; None for other code. Looked up once per file name."""
        name = frame.f_code.co_filename
        if name not in self._files:
            self._files[name] = project_file(name)
        return self._files[name]


def project_file(name: str) -> str | None:
    """`onnxpatch/export.py` or `patches/einops/…`; onnxpatch/patches is a link, and its files are named as targets."""
    path = Path(name).resolve()
    inside = path.is_relative_to(ROOT / "onnxpatch") or path.is_relative_to(ROOT / "patches")
    return path.relative_to(ROOT).as_posix() if inside else None


MODELS: dict[str, Callable[[], nn.Module]] = {
    "Conv2d, MaxPool2d": lambda: nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.MaxPool2d(2)),
    "Conv2d, AdaptiveAvgPool2d": lambda: nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.AdaptiveAvgPool2d((2, 2))),
}


def export(name: str) -> None:
    torch.manual_seed(0)
    model, image, sizes = MODELS[name]().eval(), torch.randn(1, 3, 16, 16), ({2: "height", 3: "width"},)
    onnxpatch.export(model, (image,), io.BytesIO(), dynamic_shapes=sizes, max_probes=4)


def counted(name: str) -> Counter:
    """Counts of the second export; the first has loaded the patches and the exporter."""
    export(name)
    counter, before = Counter(), sys.getprofile()
    sys.setprofile(counter)
    try:
        export(name)
    finally:
        sys.setprofile(before)
    return counter


def main() -> None:
    options = argparse.ArgumentParser(description="Count modules entered and calls across files of one export.")
    options.add_argument("--calls", action="store_true", help="print every pair of files")
    shown = None if options.parse_args().calls else MOST_FREQUENT
    warnings.simplefilter("ignore")
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    for name in MODELS:
        counter = counted(name)
        print(f"{name}: {len(counter.entered)} modules entered, {counter.pairs.total()} calls across files")
        for (caller, callee), calls in sorted(counter.pairs.items(), key=lambda pair: (-pair[1], pair[0]))[:shown]:
            print(f"{calls:6}  {caller} -> {callee}")


if __name__ == "__main__":
    main()

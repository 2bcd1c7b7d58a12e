"""torchvision beside a CPU-only torch: its wheel brings operators compiled for CUDA, and importing it fails.

The two operators that it registers meta kernels for are declared here, without an implementation, if missing.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import torch

_kept: list[torch.library.Library] = []  # a Library takes its definitions along when it is collected


def declare() -> None:
    """Make ``import torchvision`` work where its compiled operators cannot be loaded. Does nothing where they can."""
    spec = importlib.util.find_spec("torchvision")
    if spec is None or not spec.submodule_search_locations or _kept:
        return
    for binary in Path(spec.submodule_search_locations[0]).glob("_C*.so"):
        try:
            torch.ops.load_library(binary)
            return
        except (OSError, RuntimeError):
            continue
    library = torch.library.Library("torchvision", "FRAGMENT")
    library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    library.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _kept.append(library)

"""Modules that a library imports for training or for files, stood in for, so that its models import without them."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
import types
from pathlib import Path


def stand_in(name: str, **attributes: object) -> None:
    """An empty module ``name`` with ``attributes``, in this process, where the real one is not installed."""
    if name in sys.modules or importlib.util.find_spec(name.partition(".")[0]) is not None:
        return
    parent, _, child = name.rpartition(".")
    module = types.ModuleType(name)
    module.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=True)
    module.__path__ = []  # type: ignore[attr-defined]
    for attribute, value in attributes.items():
        setattr(module, attribute, value)
    if parent:
        setattr(sys.modules[parent], child, module)
    sys.modules[name] = module


def torchaudio() -> None:
    """Make ``import torchaudio`` work without its compiled operators, which its wheel builds for CUDA.

    transformers imports a torchaudio that it finds, and fails where that one cannot be loaded: so torchaudio lies in a
    folder of its own (benchmarks/requirements-models.txt), which is added to the path of this process only.
    """
    sys.path.append(str(Path(sys.prefix) / "torchaudio"))
    stub = types.ModuleType("torchaudio._extension")
    stub._IS_TORCHAUDIO_EXT_AVAILABLE = stub._IS_ALIGN_AVAILABLE = False  # type: ignore[attr-defined]
    stub.fail_if_no_align = lambda function: function  # type: ignore[attr-defined]
    sys.modules["torchaudio._extension"] = stub

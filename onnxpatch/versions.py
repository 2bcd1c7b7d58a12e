"""The versions of onnxpatch and of the libraries that the result of an export depends on."""

from __future__ import annotations

import functools

ONNXPATCH = "0.2.0"


def versions() -> dict[str, str]:
    """Name and installed version of each library that takes part in an export. Those not installed are left out."""
    return dict(_installed())


# Reading a distribution's metadata opens files, and what is installed does not change while a process runs.
@functools.cache
def _installed() -> dict[str, str]:
    from importlib import metadata  # here: `--help` has no need of it, and it takes a tenth of its time

    installed: dict[str, str] = {}
    for name in (
        "torch",
        "onnx",
        "onnxscript",
        "onnxruntime",
        "openvino",
        "tensorrt",
        "einops",
        "transformers",
        "timm",
    ):
        try:
            installed[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return installed

"""The versions that a result depends on."""

from __future__ import annotations

from importlib import metadata

ONNXPATCH = "0.1.0"


def versions() -> dict[str, str]:
    """Installed versions of what takes part in an export; those that are absent are left out."""
    found: dict[str, str] = {}
    for name in ("torch", "onnx", "onnxscript", "onnxruntime", "einops", "transformers", "timm"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found

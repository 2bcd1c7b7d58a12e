"""Private torch APIs that list operators: those with an ONNX translation, and those in torch's own tests.

- `torch.onnx._internal.exporter` (its registry and decompositions), `torch.onnx._internal.torchscript_exporter` (its
  symbolics) and `torch._C._dispatch_get_all_op_names` have the tables. If they move, `onnxpatch ops` is empty and says
  so; nothing else uses them.
- `torch.testing._internal`, with which torch is installed, has the database `op_db`. Its source is read: importing it
  takes seconds and libraries that torch does not bring. If it moves, `onnxpatch drift` lists no operator as new.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

# OpInfo("abs", ...), UnaryUfuncInfo(\n    "sin", ...
_ENTRY = re.compile(r"\w*Info\(\s*(?:name=)?['\"](?!_refs|Test)([\w.]+)['\"]")


def onnx_translations() -> dict[str, list[Callable[..., Any]]]:
    """{"aten::add.Tensor": [the functions that write it in ONNX]} of the dynamo exporter; {} where torch moved them."""
    try:
        from torch.onnx._internal.exporter import _registration

        registered = _registration.ONNXRegistry.from_torchlib().functions
    except (ImportError, AttributeError):
        return {}
    found: dict[str, list[Callable[..., Any]]] = {}
    for metas in registered.values():
        for meta in metas:
            name = _qualified(meta.fx_target)
            written = meta.onnx_function
            found.setdefault(name, []).append(getattr(written, "func", getattr(written, "function", written)))
    return found


def onnx_decompositions() -> set[str]:
    """Overloads that the dynamo exporter decomposes before translation; empty if torch has moved them."""
    try:
        from torch.onnx._internal.exporter import _decomp, _registration

        registry = _registration.ONNXRegistry.from_torchlib()
        written = set(_decomp.get_onnx_implemented_overloads(registry))
        table = _decomp.create_onnx_friendly_decomposition_table(written)
    except (ImportError, AttributeError, TypeError):
        return set()
    return {_qualified(overload) for overload in table}


def _qualified(target: object) -> str:
    """`aten::add.Tensor`, `aten::gelu`; a Python function by its own name."""
    schema = getattr(target, "_schema", None)
    if schema is None:
        return str(getattr(target, "__name__", target))
    return f"{schema.name}.{schema.overload_name}" if schema.overload_name else str(schema.name)


def torchscript_symbolics() -> dict[str, int]:
    """{"aten::gelu": lowest opset of its symbolic} of the TorchScript exporter; {} where torch moved them."""
    # Where newer versions of torch have them, then where older ones do.
    for home, written in (("torch.onnx._internal.torchscript_exporter",) * 2, ("torch.onnx._internal", "torch.onnx")):
        try:
            registry = importlib.import_module(f"{home}.registration").registry
            package = importlib.import_module(written)
        except (ImportError, AttributeError):
            continue
        for module in pkgutil.iter_modules(package.__path__):  # importing a module registers its symbolics
            if module.name.startswith("symbolic_opset"):
                importlib.import_module(f"{written}.{module.name}")
        groups = {name: registry.get_function_group(name) for name in registry.all_functions()}
        return {name: group.get_min_supported() for name, group in groups.items() if group is not None}
    return {}


def aten_operators() -> list[str]:
    """Every aten overload that torch has, `aten::add.Tensor`: those that write into an argument left out."""
    everything: Callable[[], list[str]] = getattr(torch._C, "_dispatch_get_all_op_names", list)
    names = [name for name in everything() if name.startswith("aten::")]
    return sorted(name for name in names if not _writes(name))


def _writes(name: str) -> bool:
    packet, _, overload = name.removeprefix("aten::").partition(".")
    found = getattr(getattr(torch.ops.aten, packet, None), overload or "default", None)
    return found is None or bool(found._schema.is_mutable)


def is_composite(name: str) -> bool:
    """Whether torch itself writes the operator in terms of others, so that an exporter never sees it."""
    has_kernel: Callable[..., bool] | None = getattr(torch._C, "_dispatch_has_kernel_for_dispatch_key", None)
    return has_kernel is not None and bool(has_kernel(name, "CompositeImplicitAutograd"))


def tested_operators() -> frozenset[str]:
    """Such as "abs" and "linalg.inv"; empty where torch has moved them."""
    home = Path(torch.__file__).parent / "testing" / "_internal"
    files = home / "common_methods_invocations.py", *(home / "opinfo" / "definitions").glob("*.py")
    texts = (file.read_text(encoding="utf-8") for file in files if file.exists())
    return frozenset(name for text in texts for name in _ENTRY.findall(text))

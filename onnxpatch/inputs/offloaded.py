"""Weights that accelerate keeps on the CPU or the disk, and its hooks bring in for each call of a module.

Such a module has parameters on the meta device, the hook as `_hf_hook`, the weights by name in the hook's
`weights_map`, and its own forward as `_old_forward`. An exporter reads the parameters of the module: they are brought
in for the time of an export.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn


def offloaded(model: nn.Module) -> set[str]:
    """The paths of the tensors on the meta device whose values a hook has."""
    found: set[str] = set()
    for path, module in model.named_modules():
        found |= {f"{path}.{name}" if path else name for name, _, _ in _away(module)}
    return found


def _away(module: nn.Module) -> list[tuple[str, torch.Tensor, torch.Tensor]]:
    """(name, the tensor on the meta device, its value) of what the hook of a module brings in."""
    kept = _weights(getattr(module, "_hf_hook", None))
    if kept is None:
        return []
    tensors = [*module.named_parameters(), *module.named_buffers()]
    return [(name, tensor, kept[name]) for name, tensor in tensors if tensor.is_meta and name in kept]


def _weights(hook: Any) -> Mapping[str, torch.Tensor] | None:
    """The `weights_map` of a hook, or of the first of several."""
    own = (_weights(one) for one in getattr(hook, "hooks", ()))
    found = getattr(hook, "weights_map", None)
    return found if found is not None else next((one for one in own if one is not None), None)


@contextmanager
def weights_brought(model: object) -> Iterator[None]:
    """While this is open, offloaded modules hold their weights, and their forward is the one below the hook."""
    held: list[tuple[dict[str, Any], str, Any]] = []

    def put(store: dict[str, Any], key: str, value: object) -> None:
        held.append((store, key, store[key]))
        store[key] = value

    try:
        for module in model.modules() if isinstance(model, nn.Module) else ():
            away = _away(module)
            for name, meta, value in away:
                path, _, own = name.rpartition(".")
                owner = module.get_submodule(path)
                if isinstance(meta, nn.Parameter):
                    put(owner._parameters, own, nn.Parameter(value, requires_grad=meta.requires_grad))
                else:
                    put(owner._buffers, own, value)
            if away and "_old_forward" in vars(module):
                put(vars(module), "forward", vars(module)["_old_forward"])
        yield
    finally:
        for store, key, value in reversed(held):
            store[key] = value

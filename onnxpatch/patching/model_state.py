"""What a forward may leave behind in a model, and how to take it back without copying a weight.

Some models remember: a window shrunk for good after one small image, a table built on the first call. The reference of
a comparison has to come from the model as it was handed in, whatever was asked of it before.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from typing import Any

import torch

_BUFFER_BYTES = 256 * 1024 * 1024
_CONTAINERS = (dict, list, set, OrderedDict, defaultdict, deque)


class Snapshot:
    """The attributes of every module, and the contents of their plain containers and buffers, at one moment.

    `restore()` may be called any number of times. Parameters and large buffers are held by reference: a forward that
    writes into a parameter is not undone (`written()` names them).
    """

    def __init__(self, model: Any) -> None:
        modules = list(model.modules()) if isinstance(model, torch.nn.Module) else []
        self._modules = [m for m in modules if not isinstance(m, torch.jit.ScriptModule)]
        self._attributes = [dict(vars(m)) for m in self._modules]
        self._containers: dict[int, tuple[Any, Any]] = {}
        for attributes in self._attributes:
            for value in attributes.values():
                self._hold(value, depth=3)
        self._buffers = _small_buffers(model) if modules else []
        self._versions = _versions(model) if modules else []

    def _hold(self, value: Any, depth: int) -> None:
        if type(value) not in _CONTAINERS or id(value) in self._containers or not depth:
            return
        self._containers[id(value)] = (value, value.copy())
        for inner in value.values() if isinstance(value, dict) else value:
            self._hold(inner, depth - 1)

    def restore(self) -> None:
        for module, attributes in zip(self._modules, self._attributes, strict=True):
            found = vars(module)
            if found.keys() != attributes.keys() or any(found[k] is not v for k, v in attributes.items()):
                found.clear()
                found.update(attributes)
        for container, content in self._containers.values():
            _refill(container, content)
        for tensor, version, content in self._buffers:
            if tensor._version != version and not tensor.is_inference():
                with torch.no_grad():
                    tensor.copy_(content)

    def written(self) -> list[str]:
        """Names of parameters that were written into since the snapshot."""
        return [name for name, tensor, version in self._versions if tensor._version != version]


def _refill(container: Any, content: Any) -> None:
    if isinstance(container, dict):
        same = list(container) == list(content) and all(container[k] is content[k] for k in content)
    else:
        same = len(container) == len(content) and all(a is b for a, b in zip(container, content, strict=True))
    if same:
        return
    container.clear()
    if isinstance(container, dict | set):
        container.update(content)
    else:
        container.extend(content)


def _small_buffers(model: torch.nn.Module) -> list[tuple[torch.Tensor, int, torch.Tensor]]:
    held, total = [], 0
    for buffer in model.buffers():
        size = buffer.numel() * buffer.element_size()
        if total + size > _BUFFER_BYTES or buffer.is_meta or buffer.is_inference():
            continue
        total += size
        held.append((buffer, buffer._version, buffer.detach().clone()))
    return held


def _versions(model: torch.nn.Module) -> list[tuple[str, torch.Tensor, int]]:
    return [(n, p, p._version) for n, p in model.named_parameters() if not p.is_inference()]

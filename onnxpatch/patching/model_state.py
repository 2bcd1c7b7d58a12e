"""What a forward may leave behind in a model, and how to take it back without copying a weight.

Some models remember: a window shrunk for good after one small image, a table built on the first call. The reference of
a comparison has to come from the model as it was handed in, whatever was asked of it before. So does every path of a
forward that branches: each starts from the same attributes.

`Bindings` keeps what the attributes and buffers are bound to, and says which of them changed. `Snapshot` keeps the
contents of plain containers and of small buffers as well.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from typing import Any

import torch

_BUFFER_BYTES = 256 * 1024 * 1024
_CONTAINERS = (dict, list, set, OrderedDict, defaultdict, deque)
_REGISTERED = frozenset({"_parameters", "_buffers", "_modules"})
MISSING = object()
"""Stands for an attribute that was not there, or is no longer."""

Key = tuple[int, str]
"""(number of the module, name of the attribute); of a buffer `_buffers.name`."""


class Bindings:
    """What the attributes and buffers of a module and of everything under it are bound to at one moment."""

    def __init__(self, model: Any) -> None:
        found = list(model.modules()) if isinstance(model, torch.nn.Module) else []
        self.modules = [module for module in found if not isinstance(module, torch.jit.ScriptModule)]
        self.attributes = [dict(vars(module)) for module in self.modules]
        self._buffers = [dict(module._buffers) for module in self.modules]

    def changes(self) -> dict[Key, Any]:
        """Every attribute and buffer that was bound to something else since, with what it is bound to now."""
        found: dict[Key, Any] = {}
        before = zip(self.modules, self.attributes, self._buffers, strict=True)
        for number, (module, attributes, buffers) in enumerate(before):
            found |= {(number, name): value for name, value in _rebound(attributes, vars(module))}
            found |= {(number, f"_buffers.{name}"): value for name, value in _rebound(buffers, module._buffers)}
        return found

    def restore(self) -> None:
        """Bind everything as it was."""
        for module, attributes, buffers in zip(self.modules, self.attributes, self._buffers, strict=True):
            _bind_again(vars(module), attributes)
            _bind_again(module._buffers, buffers)

    def bind(self, key: Key, value: Any) -> None:
        """Bind one attribute to a value."""
        vars(self.module(key))[key[1]] = value

    def module(self, key: Key) -> torch.nn.Module:
        return self.modules[key[0]]

    def before(self, key: Key) -> Any:
        """What an attribute was bound to, or MISSING."""
        return self.attributes[key[0]].get(key[1], MISSING)


def _rebound(before: dict[str, Any], now: dict[str, Any]) -> list[tuple[str, Any]]:
    changed = [(name, value) for name, value in now.items() if before.get(name, MISSING) is not value]
    gone = [(name, MISSING) for name in before if name not in now]
    return [(name, value) for name, value in changed if name not in _REGISTERED] + gone


def _bind_again(now: dict[str, Any], before: dict[str, Any]) -> None:
    if now.keys() == before.keys() and all(now[name] is value for name, value in before.items()):
        return
    now.clear()
    now.update(before)


class Snapshot:
    """The attributes and buffers of every module, and the contents of their plain containers, at one moment.

    `restore()` may be called any number of times. Parameters and large buffers are held by reference: a forward that
    writes into a parameter is not undone.
    """

    def __init__(self, model: Any) -> None:
        self._bindings = Bindings(model)
        self._containers: dict[int, tuple[Any, Any]] = {}
        for attributes in self._bindings.attributes:
            for value in attributes.values():
                self._copy_contents(value, depth=3)
        self._buffers = _small_buffers(model) if isinstance(model, torch.nn.Module) else []

    def _copy_contents(self, value: Any, depth: int) -> None:
        if type(value) not in _CONTAINERS or id(value) in self._containers or not depth:
            return
        self._containers[id(value)] = (value, value.copy())
        for inner in value.values() if isinstance(value, dict) else value:
            self._copy_contents(inner, depth - 1)

    def restore(self) -> None:
        """Put attributes, containers and buffers back."""
        self._bindings.restore()
        for container, content in self._containers.values():
            _refill(container, content)
        for tensor, version, content in self._buffers:
            if tensor._version != version and not tensor.is_inference():
                with torch.no_grad():
                    tensor.copy_(content)


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
    """(buffer, its version, a copy) of the buffers that fit into a quarter of a gigabyte together."""
    held, total = [], 0
    for buffer in model.buffers():
        size = buffer.numel() * buffer.element_size()
        if total + size > _BUFFER_BYTES or buffer.is_meta or buffer.is_inference():
            continue
        total += size
        held.append((buffer, buffer._version, buffer.detach().clone()))
    return held

"""What a forward may leave behind in a model, and how to take it back without copying a weight.

Some models remember: a window shrunk for good after one small image, a table built on the first call. The reference of
a comparison has to come from the model as it was handed in, whatever was asked of it before. So does every path of a
forward that branches: each starts from the same attributes.

`Bindings` keeps what the attributes and buffers are bound to, and says which of them changed. `Snapshot` keeps what is
under them as well: plain containers and objects, and the contents of tensors.
"""

from __future__ import annotations

from typing import Any

import torch

from onnxpatch._torch.function_modes import unseen
from onnxpatch._torch.writes import Writes
from onnxpatch.inputs.held_objects import MISSING, HeldObjects, bind_again
from onnxpatch.patching.tensor_contents import TensorContents

__all__ = ["MISSING", "Bindings", "Key", "Snapshot"]

_REGISTERED = frozenset({"_parameters", "_buffers", "_modules"})

Key = tuple[int, str]
"""(number of the module, name of the attribute); of a buffer `_buffers.name`."""


class Bindings:
    """What the attributes and buffers of a module and of everything under it are bound to at one moment."""

    def __init__(self, model: object) -> None:
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
            bind_again(vars(module), attributes)
            bind_again(module._buffers, buffers)

    def bind(self, key: Key, value: object) -> None:
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


class Snapshot:
    """The attributes and buffers of every module, what is under them, and more objects of the caller's, at one moment.

    `restore()` may be called any number of times. Small buffers are copied at once, in all a quarter of a gigabyte;
    parameters and large buffers before a forward writes into them, where that runs inside `watched()`.
    """

    def __init__(self, model: object, *others: object) -> None:
        self._bindings = Bindings(model)
        modules = self._bindings.modules
        values = (value for attributes in self._bindings.attributes for value in attributes.values())
        self._objects = HeldObjects([*values, *others], apart=modules)
        self._tensors = TensorContents(model, self._objects.tensors)

    def watched(self) -> Writes:
        """Inside the block, large tensors are copied before they are written, and put back by `restore` from then
        on."""
        return Writes(self._tensors.keep)

    def restore(self) -> None:
        """Put attributes, objects and tensors back."""
        with unseen():  # what watches a forward is to see the forward alone
            self._bindings.restore()
            self._objects.restore()
            self._tensors.restore()

    def lost(self) -> list[str]:
        """Names of parameters and buffers that were written, and could not be put back."""
        return self._tensors.lost()

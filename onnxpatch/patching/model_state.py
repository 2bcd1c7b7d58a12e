"""Undoes what a forward changed in its model, without copying weights.

Some forwards keep state: a window that stays small after one small image, a table built on the first call. Every run
that is compared must start from the model as the user gave it, and so must every path of a forward that branches.

    Bindings    which object each attribute and buffer refers to; shows which of them were assigned
    Snapshot    also what these objects contain: lists, dicts, attributes, and the values of tensors
"""

from __future__ import annotations

from typing import Any

import torch

from onnxpatch._torch.function_modes import unseen
from onnxpatch._torch.writes import Writes
from onnxpatch.inputs.held_containers import HeldContainers
from onnxpatch.inputs.held_objects import MISSING, HeldObjects
from onnxpatch.patching.tensor_contents import TensorContents

__all__ = ["MISSING", "Bindings", "Key", "Snapshot"]

_REGISTERED = frozenset({"_parameters", "_buffers", "_modules"})

Key = tuple[int, str]
"""(number of the module, name of the attribute); of a buffer `_buffers.name`."""


class Bindings:
    """The objects that the attributes and buffers of a module and its submodules refer to at one moment."""

    def __init__(self, model: object) -> None:
        found = list(model.modules()) if isinstance(model, torch.nn.Module) else []
        self.modules = [module for module in found if not isinstance(module, torch.jit.ScriptModule)]
        self.attributes = [dict(vars(module)) for module in self.modules]
        self._buffers = [dict(module._buffers) for module in self.modules]
        self._held = HeldContainers()
        for module in self.modules:
            self._held.note(vars(module))
            self._held.note(module._buffers)

    def changes(self) -> dict[Key, Any]:
        """Every attribute and buffer that was assigned since, with its value now."""
        found: dict[Key, Any] = {}
        before = zip(self.modules, self.attributes, self._buffers, strict=True)
        for number, (module, attributes, buffers) in enumerate(before):
            found |= {(number, name): value for name, value in _rebound(attributes, vars(module))}
            found |= {(number, f"_buffers.{name}"): value for name, value in _rebound(buffers, module._buffers)}
        return found

    def restore(self) -> None:
        """Set every attribute and buffer back."""
        self._held.restore()

    def bind(self, key: Key, value: object) -> None:
        """Set one attribute."""
        vars(self.module(key))[key[1]] = value

    def module(self, key: Key) -> torch.nn.Module:
        return self.modules[key[0]]

    def before(self, key: Key) -> Any:
        """The former value of an attribute, or MISSING."""
        return self.attributes[key[0]].get(key[1], MISSING)


def _rebound(before: dict[str, Any], now: dict[str, Any]) -> list[tuple[str, Any]]:
    changed = [(name, value) for name, value in now.items() if before.get(name, MISSING) is not value]
    gone = [(name, MISSING) for name in before if name not in now]
    return [(name, value) for name, value in changed if name not in _REGISTERED] + gone


class Snapshot:
    """The state of a model at one moment: attributes, buffers, what they contain, and other objects of the caller.

    `restore()` may be called any number of times. Small buffers (256 MB together) are copied at once. Parameters and
    large buffers are copied just before a forward writes into them, if it runs inside `watched()`.
    """

    def __init__(self, model: object, *others: object) -> None:
        self._bindings = Bindings(model)
        modules = self._bindings.modules
        values = (value for attributes in self._bindings.attributes for value in attributes.values())
        self._objects = HeldObjects([*values, *others], apart=modules)
        self._tensors = TensorContents(model, self._objects.tensors)

    def watched(self) -> Writes:
        """A context in which large tensors are copied before they are written, so that `restore` can put them back."""
        return Writes(self._tensors.keep)

    def restore(self) -> None:
        """Put attributes, objects and tensors back."""
        with unseen():  # function modes that record a forward must not record this
            self._bindings.restore()
            self._objects.restore()
            self._tensors.restore()

    def lost(self) -> list[str]:
        """Names of parameters and buffers that were written and cannot be put back."""
        return self._tensors.lost()

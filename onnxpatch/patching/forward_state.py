"""Undoes what a forward changed: in its model, without copying weights, and in the process.

Some forwards keep state: a window that stays small after one small image, a table built on the first call. Every run
that is compared must start from the model as the user gave it, and so must every path of a forward that branches.

    Bindings              which object each attribute and buffer refers to; shows which of them were assigned
    _TensorContents       the values of tensors: small buffers are copied at once, large tensors before a write
    Snapshot              both, and what other objects contain: lists, dicts, attributes
    process_state_kept    random generators, default dtype, gradients on or off, modes
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from onnxpatch._torch import assigned_in_compiled
from onnxpatch._torch.dispatch_modes import count_writes, storage_key, writes_seen
from onnxpatch._torch.function_modes import modes_kept, unseen
from onnxpatch.inputs.held_objects import MISSING, containers_held, objects_held
from onnxpatch.process import Shared, undone

__all__ = ["MISSING", "Bindings", "Key", "Snapshot", "restore_training"]

_REGISTERED = frozenset({"_parameters", "_buffers", "_modules"})
Key = tuple[int, str]
"""(number of the module, name of the attribute); of a buffer `_buffers.name`."""

# Buffers are copied up to this size. Beyond it, and for parameters, a copy would double the memory of every export.
_BUFFER_BYTES = 256 * 1024 * 1024


@contextmanager
def process_state_kept(seed: int | None = None) -> Iterator[None]:
    """A context that restores what a forward may set: random generators, default dtype, gradients on or off, modes.

    seed: for all random generators, inside.
    """
    # Where threads overlap, each puts back what it found, which may be another's. Last comes what the first found.
    # Modes belong to this thread alone. No exporter records in inference mode.
    inference = torch.inference_mode(False) if torch.is_inference_mode_enabled() else nullcontext()
    with _KEPT.held(), undone(_put_back()), modes_kept(), inference:
        if seed is not None:
            random.seed(seed)
            np.random.seed(seed)
            _seed_torch(seed)
        yield


def _put_back() -> Callable[[], None]:
    """Sets the random generators and the default dtype, which belong to the process, to what they are now."""
    cuda = torch.cuda.is_initialized()
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    devices = torch.cuda.get_rng_state_all() if cuda else []
    dtype = torch.get_default_dtype()

    def put_back() -> None:
        random.setstate(states[0])
        np.random.set_state(states[1])
        torch.set_rng_state(states[2])
        if cuda:
            torch.cuda.set_rng_state_all(devices)
        torch.set_default_dtype(dtype)

    return put_back


_KEPT = Shared(lambda: undone(_put_back()))


def _seed_torch(seed: int) -> None:
    """torch.manual_seed also notes the seed for a CUDA that nobody uses yet, with the whole stack as text."""
    if torch.cuda.is_initialized() or torch.backends.mps.is_available():
        torch.manual_seed(seed)
    else:
        torch.default_generator.manual_seed(seed)


class Bindings:
    """The objects that the attributes and buffers of a module and its submodules refer to at one moment."""

    def __init__(self, model: torch.nn.Module) -> None:
        found = list(model.modules()) if isinstance(model, torch.nn.Module) else []
        # A ScriptModule keeps its attributes in C++; vars() does not have them.
        self.modules = [module for module in found if not isinstance(module, torch.jit.ScriptModule)]
        named = model.named_modules() if len(self.modules) < len(found) else ()
        self._compiled = [(path, module, assigned_in_compiled(module)) for path, module in named]
        self.attributes = [dict(vars(module)) for module in self.modules]
        self._buffers = [dict(module._buffers) for module in self.modules]
        # The dicts themselves, with the order of their keys: state_dict() shows it.
        self._put_back = containers_held(
            [held for one in self.modules for held in (vars(one), one._buffers, one._modules)]
        )

    def changes(self) -> dict[Key, Any]:
        """Every attribute and buffer that was assigned since, with its value now."""
        found: dict[Key, Any] = {}
        before = zip(self.modules, self.attributes, self._buffers, strict=True)
        for number, (module, attributes, buffers) in enumerate(before):
            found |= {(number, name): value for name, value in _rebound(attributes, vars(module))}
            found |= {(number, f"_buffers.{name}"): value for name, value in _rebound(buffers, module._buffers)}
        return found

    def changed_names(self) -> list[str]:
        """`layers.0.hidden` of every attribute and buffer that was assigned since."""
        paths = {id(module): path for path, module in self.modules[0].named_modules()} if self.modules else {}
        found = [(paths.get(id(self.module(key)), ""), key[1].removeprefix("_buffers.")) for key in self.changes()]
        found += [(path, name) for path, module, before in self._compiled for name in _reassigned(module, before)]
        return [f"{path}.{name}" if path else name for path, name in found]

    def restore(self) -> None:
        """Set every attribute and buffer back."""
        self._put_back()
        for _, module, before in self._compiled:
            for name in _reassigned(module, before):
                setattr(module, name, before[name])

    def bind(self, key: Key, value: object) -> None:
        """Set one attribute."""
        vars(self.module(key))[key[1]] = value

    def module(self, key: Key) -> torch.nn.Module:
        return self.modules[key[0]]

    def before(self, key: Key) -> Any:
        """The former value of an attribute, or MISSING."""
        return self.attributes[key[0]].get(key[1], MISSING)


def _reassigned(module: torch.nn.Module, before: Mapping[str, object]) -> list[str]:
    return [name for name, value in before.items() if getattr(module, name) is not value]


def _rebound(before: Mapping[str, object], now: Mapping[str, object]) -> list[tuple[str, object]]:
    changed = [(name, value) for name, value in now.items() if before.get(name, MISSING) is not value]
    gone = [(name, MISSING) for name in before if name not in now]
    # The dicts of parameters, buffers and submodules are no attributes of forward's; buffers are compared one by one.
    return [(name, value) for name, value in changed if name not in _REGISTERED] + gone


def restorer_of_tensors(model: torch.nn.Module) -> Callable[[], None]:
    """Sets the buffers and parameters of a model to what they are now; large ones only where they were copied."""
    return _TensorContents(model, ()).restore


def restorer_of_objects(model: torch.nn.Module) -> Callable[[], None]:
    """Sets what a model's attributes and buffers refer to, and what containers in them hold, to what it is now.

    What tensors hold stays: an exporter records writes into them.
    """
    bindings, buffers = Bindings(model), dict(model._buffers)
    values = (value for attributes in bindings.attributes for value in attributes.values())
    restore_objects = objects_held(values, apart=bindings.modules)[1]

    def restore() -> None:
        assigned = [name for name, value in buffers.items() if model._buffers.get(name) is not value]
        bindings.restore()
        restore_objects()
        # torch.export copies what was last assigned to the root's buffers into them, of whatever shape it is.
        for name in assigned:
            setattr(model, name, buffers[name])

    return restore


class Snapshot:
    """The state of a model at one moment: attributes, buffers, what they contain, and other objects of the caller.

    `restore()` may be called any number of times. Small buffers (256 MB together) are copied at once. Parameters and
    large buffers are copied just before a forward writes into them, if it runs inside `watched()`.
    """

    def __init__(self, model: torch.nn.Module, *others: object) -> None:
        self._bindings = Bindings(model)
        modules = self._bindings.modules
        values = (value for attributes in self._bindings.attributes for value in attributes.values())
        held, self._restore_objects = objects_held([*values, *others], apart=modules)
        self._tensors = _TensorContents(model, held)

    def watched(self) -> AbstractContextManager[object]:
        """A context in which large tensors are copied before they are written, so that `restore` can put them back."""
        return writes_seen(self._tensors.keep)

    def restore(self) -> None:
        """Put attributes, objects and tensors back."""
        with unseen():  # function modes that record a forward must not record this
            self._bindings.restore()
            self._restore_objects()
            self._tensors.restore()

    def changed(self) -> list[str]:
        """Names of the attributes and buffers of the model that were assigned or written since."""
        return list(dict.fromkeys([*self._bindings.changed_names(), *self._tensors.changed()]))

    def lost(self) -> list[str]:
        """Names of parameters and buffers that were written and cannot be put back."""
        return self._tensors.lost()

    def notes(self) -> list[str]:
        """A note for the report where something is lost."""
        names, more = ", ".join(self.lost()[:3]), f" and {len(self.lost()) - 3} more" if len(self.lost()) > 3 else ""
        note = f"the forward writes into {names}{more}, which could not be put back: reload the weights"
        return [note] if names else []


@dataclass
class _Tensor:
    """One tensor and what is known of it.

    data: shares its storage, to detect that the tensor was given another one. content: a copy, or None.
    version: torch's count of writes, which misses writes through `.data`. written: a write was seen.
    """

    name: str
    tensor: torch.Tensor
    data: torch.Tensor
    version: int
    content: torch.Tensor | None = None
    written: bool = False


class _TensorContents:
    """The values of a model's buffers and parameters, and of tensors in its other attributes."""

    def __init__(self, model: torch.nn.Module, others: Iterable[torch.Tensor]) -> None:
        self._tensors: list[_Tensor] = []
        seen: set[int] = set()
        room = _BUFFER_BYTES
        for name, tensor in (*_registered(model), *((f"a tensor of shape {tuple(one.shape)}", one) for one in others)):
            if id(tensor) in seen or not _can_be_kept(tensor):
                continue
            seen.add(id(tensor))
            noted = _Tensor(name, tensor, tensor.data, tensor._version)
            size = tensor.numel() * tensor.element_size()
            if not isinstance(tensor, torch.nn.Parameter) and size <= room:
                room -= size
                noted.content = tensor.detach().clone()
            self._tensors.append(noted)
        self._in_storage: dict[int, list[_Tensor]] = {}
        for noted in self._tensors:
            self._in_storage.setdefault(storage_key(noted.tensor), []).append(noted)

    def keep(self, tensor: torch.Tensor) -> None:
        """Copy the storage of `tensor`, which is about to be written."""
        for noted in self._in_storage.get(storage_key(tensor), ()):
            noted.written = True
            # After a first write that nobody announced, the old values are gone.
            if noted.content is None and noted.tensor._version == noted.version:
                noted.content = noted.data.clone()

    def restore(self) -> None:
        """Restore every tensor that was written and has a copy."""
        for noted in self._tensors:
            tensor = noted.tensor
            # `tensor.data = other` leaves the object, and exchanges its storage.
            if tensor.data_ptr() != noted.data.data_ptr() or tensor.shape != noted.data.shape:
                tensor.data = noted.data
                # The forward computes these values at each call: what an exporter wrote is gone with its storage.
                count_writes(tensor, noted.version)
            if noted.content is not None and (noted.written or tensor._version != noted.version):
                with torch.no_grad():
                    noted.data.copy_(noted.content)
                # A write that is undone is none: a backward of the user's may wait for this tensor.
                count_writes(tensor, noted.version)
                noted.version = tensor._version

    def changed(self) -> list[str]:
        """Names of the tensors that were written."""
        return [one.name for one in self._tensors if one.tensor._version != one.version]

    def lost(self) -> list[str]:
        """Names of the tensors that were written and have no copy."""
        return [one.name for one in self._tensors if one.content is None and one.tensor._version != one.version]


def _registered(model: torch.nn.Module) -> list[tuple[str, torch.Tensor]]:
    return [*model.named_buffers(), *model.named_parameters()] if isinstance(model, torch.nn.Module) else []


def _can_be_kept(tensor: torch.Tensor) -> bool:
    """Whether a copy is possible: inference tensors count no writes, meta tensors have no storage."""
    # data_ptr() is asked only because it raises where a tensor has no memory of its own.
    try:
        return (
            not (tensor.is_meta or tensor.is_inference()) and tensor.layout == torch.strided and tensor.data_ptr() >= 0
        )
    except (RuntimeError, NotImplementedError):
        return False


def restore_training(model: torch.nn.Module, modes: Sequence[tuple[torch.nn.Module, bool]]) -> None:
    """Set every module's training flag back to the one in `modes`, whose first entry is the root.

    torch.onnx.export(dynamo=False) sets every module's flag to the root's. If the user called train() or eval()
    meanwhile, the root's flag differs, and all flags stay as they are.
    """
    if model.training == modes[0][1]:
        for module, training in modes:
            if module.training != training:
                module.training = training

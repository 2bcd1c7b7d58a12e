"""Replaces `torch.Tensor([...])`, `torch.LongTensor([...])` and their like, which no TorchFunctionMode sees.

These are classes, not torch functions: `torch.LongTensor([n, 2])` would take the value out of the tensor `n`. While
branches are exported, the name `torch` in the modules that define the model is a proxy of the module torch that differs
in these constructors only; a `Tensor` imported by name is exchanged as well. With tensors in its list, a constructor
stacks them; called in any other way it is torch's own.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

import torch

from onnxpatch.control_flow.recording import running
from onnxpatch.control_flow.stacked_numbers import has_graph_number, stacked
from onnxpatch.patching import rebinding
from onnxpatch.patching.function_places import Place
from onnxpatch.patching.rebinding import passing_for

# torch.Tensor alone has the default dtype of the moment.
_DTYPES: dict[str, torch.dtype | None] = {
    "Tensor": None, "FloatTensor": torch.float32, "DoubleTensor": torch.float64, "LongTensor": torch.int64,
    "IntTensor": torch.int32, "BoolTensor": torch.bool, "HalfTensor": torch.float16,
}  # fmt: skip


def substitutions(model_modules: Iterable[ModuleType]) -> list[rebinding.Substitution]:
    """The proxy and the constructors, for every name of torch, or of one of its constructors, in the modules."""
    proxy = _TorchProxy()
    replacements: dict[int, object] = {id(torch): proxy}
    replacements.update((id(getattr(torch, name)), getattr(proxy, name)) for name in _DTYPES)
    found: list[rebinding.Substitution] = []
    for module in model_modules:
        for name, value in list(vars(module).items()):
            if id(value) in replacements:
                found.append(_Exchange(value, (module, name), replacements[id(value)]))
    return found


class _Exchange(rebinding.Substitution):
    """Puts a ready-made object in one place; the base class would wrap a function."""

    def __init__(self, original: object, place: Place, substitute: Any) -> None:
        self.original, self.places, self.substitute = original, [place], substitute


class _TorchProxy(types.ModuleType):
    """The module torch, with other constructors. What is set on it is set on torch."""

    def __init__(self) -> None:
        super().__init__("torch", torch.__doc__)
        for name in _DTYPES:
            setattr(self, name, _constructor(name))

    def __getattr__(self, name: str) -> object:
        return getattr(torch, name)

    def __setattr__(self, name: str, value: object) -> None:
        if name in _DTYPES:
            super().__setattr__(name, value)
        else:
            setattr(torch, name, value)

    def __dir__(self) -> list[str]:
        return dir(torch)


def _constructor(name: str) -> type:
    """A class that passes for `torch.<name>` in isinstance, comparison and attribute access."""
    original: type = getattr(torch, name)

    class Constructor(passing_for(original)):  # type: ignore[misc]
        def __call__(cls, *args: object, **kwargs: object) -> object:
            return _construct(original, _DTYPES[name], args, kwargs)

        def __getattr__(cls, attribute: str) -> object:
            return getattr(original, attribute)

    return Constructor(name, (), {"__module__": "torch"})


def _construct(
    original: Callable[..., object], dtype: torch.dtype | None, args: tuple[object, ...], kwargs: dict[str, object]
) -> object:
    capture = running()
    if capture is None or not capture.explorers or kwargs or not args:
        return original(*args, **kwargs)
    kind = torch.get_default_dtype() if dtype is None else dtype
    if len(args) == 1 and isinstance(args[0], list | tuple) and has_graph_number(args[0]):
        return stacked(args[0], kind)
    # torch.Tensor(2, 3) has sizes for arguments, not values: what is in it is not set.
    if len(args) > 1 and has_graph_number(args):
        sizes: Any = args
        return torch.empty(sizes, dtype=kind)
    return original(*args, **kwargs)

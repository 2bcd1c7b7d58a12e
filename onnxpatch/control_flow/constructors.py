"""`torch.Tensor([...])` and its kin in the user's modules: constructors that no torch function mode sees.

While branches are forked, the name `torch` in the modules that define the model stands for a proxy that differs in
these constructors only; a `Tensor` imported by name is exchanged as well.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import torch

from onnxpatch.control_flow import scalar_conversions
from onnxpatch.control_flow.current_capture import running
from onnxpatch.patching import rebinding

_TYPES: dict[str, torch.dtype] = {
    "Tensor": torch.float32, "FloatTensor": torch.float32, "DoubleTensor": torch.float64, "LongTensor": torch.int64,
    "IntTensor": torch.int32, "BoolTensor": torch.bool, "HalfTensor": torch.float16,
}  # fmt: skip


def places(model_modules: list[Any]) -> list[rebinding.Substitution]:
    """The proxy and the constructors, for every name that holds one in the modules given."""
    proxy = _Torch()
    stand_ins: dict[int, Any] = {id(torch): proxy}
    stand_ins.update((id(getattr(torch, name)), getattr(proxy, name)) for name in _TYPES)
    found: list[rebinding.Substitution] = []
    for module in model_modules:
        for name, value in list(vars(module).items()):
            if id(value) in stand_ins:
                found.append(_Exchange(value, (module, name), stand_ins[id(value)]))
    return found


class _Exchange(rebinding.Substitution):
    def __init__(self, original: Any, place: rebinding.Place, substitute: Any) -> None:
        self.original, self.places, self.substitute = original, [place], substitute


class _Torch(types.ModuleType):
    """The module torch, with other constructors."""

    def __init__(self) -> None:
        super().__init__("torch", torch.__doc__)
        for name in _TYPES:
            setattr(self, name, _constructor(name))

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _TYPES:
            super().__setattr__(name, value)
        else:
            setattr(torch, name, value)

    def __dir__(self) -> list[str]:
        return dir(torch)


def _constructor(name: str) -> type:
    original: Any = getattr(torch, name)

    class Constructor(type):
        def __call__(cls, *args: Any, **kwargs: Any) -> Any:
            return _construct(original, _TYPES[name], args, kwargs)

        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, original)

        def __subclasscheck__(cls, subclass: type) -> bool:
            return issubclass(subclass, original)

        def __getattr__(cls, attribute: str) -> Any:
            return getattr(original, attribute)

        def __eq__(cls, other: object) -> bool:
            return other is cls or other is original

        def __hash__(cls) -> int:
            return hash(original)

    return Constructor(name, (), {"__module__": "torch"})


def _construct(original: Callable[..., Any], dtype: torch.dtype, args: Any, kwargs: Any) -> Any:
    capture = running()
    listed = len(args) == 1 and not kwargs and isinstance(args[0], list | tuple)
    if capture is None or not capture.frames or not listed or not scalar_conversions.holds_tensor(args[0]):
        return original(*args, **kwargs)
    return scalar_conversions.stacked(capture, args[0], dtype)

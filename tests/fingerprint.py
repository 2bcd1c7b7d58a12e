"""Everything about a model that a patch could leave changed, as one comparable value."""

from __future__ import annotations

import sys
from typing import Any

import torch


def fingerprint(model: torch.nn.Module) -> dict[str, Any]:
    """Class, identity and every attribute of each module; identity, version and flags of each tensor; order of all."""
    modules = list(model.named_modules(remove_duplicate=False))
    return {
        "modules": [(path, id(module), type(module), _attributes(module)) for path, module in modules],
        "parameters": [(name, *_tensor(value)) for name, value in model.named_parameters(remove_duplicate=False)],
        "buffers": [(name, *_tensor(value)) for name, value in model.named_buffers(remove_duplicate=False)],
        "state_dict": [(name, value.data_ptr()) for name, value in model.state_dict().items()],
        "classes": {cls: _members(cls) for _, module in modules for cls in type(module).__mro__},
    }


def surroundings() -> dict[str, Any]:
    """What is not the model's: the functions that patches replace, as loaded modules hold them, and torch's modes."""
    import builtins

    import torch.nn.functional as F

    held = {
        (name, key): id(value)
        for name, module in list(sys.modules.items())
        if name.split(".")[0] in ("einops", "math", "builtins", "tests", "__main__") and module is not None
        for key, value in list(vars(module).items())
        if callable(value)
    }
    return {
        "held": held,
        "interpolate": id(F.interpolate),
        "int": id(builtins.int),
        "modes": torch._C._len_torch_function_stack(),
        "grad": torch.is_grad_enabled(),
        "symbolic trace": torch.fx._symbolic_trace.is_fx_tracing(),
    }


def _attributes(module: torch.nn.Module) -> list[tuple[str, Any]]:
    return [(name, _value(value)) for name, value in vars(module).items()]


def _value(value: Any) -> Any:
    if isinstance(value, dict):
        return id(value), [(key, id(item)) for key, item in value.items()]
    if isinstance(value, list | tuple | set):
        return id(value), [id(item) for item in value]
    return (id(value), *(_tensor(value) if isinstance(value, torch.Tensor) else ()))


def _tensor(value: torch.Tensor) -> tuple[Any, ...]:
    pointer = 0 if value.is_meta else value.data_ptr()
    return id(value), value._version, value.requires_grad, value.dtype, tuple(value.shape), pointer, id(value.grad)


def _members(cls: type) -> list[tuple[str, int]]:
    # What a patch could leave behind is a callable. torch itself wraps two methods of nn.Module when dynamo first runs.
    own = {"__init__", "__setstate__"} if cls is torch.nn.Module else set()
    held = [(name, value) for name, value in vars(cls).items() if name not in own]
    return [(name, id(value)) for name, value in held if callable(value) or isinstance(value, staticmethod)]


def everything(model: torch.nn.Module) -> tuple[object, object]:
    """The fingerprint of a model and of what is around it."""
    return fingerprint(model), surroundings()

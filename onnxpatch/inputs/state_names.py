"""Names of the tensors of a cache in a graph: `past_key_values.0.key` among its inputs, `present.0.key` among outputs.

Inputs are called after the argument of forward, so that `forward(ids, past=...)` has `past.0.key`. These are the names
that runtimes for language models look for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import torch

from onnxpatch.inputs.caches import is_cache, opened

_PRESENT = "present"
_PAIR, _QUADRUPLE = ("key", "value"), ("decoder.key", "decoder.value", "encoder.key", "encoder.value")


def layered_names(argument: str, value: object, cache: bool) -> list[str] | None:
    """A name for each tensor of an argument that is a cache; None for another argument.

    cache: whether `value` was opened from one. The older form, a tuple of (key, value) for each layer, is known by the
    argument's name, `past...`.
    """
    if cache:
        return list(_paths(argument, value))
    if not argument.startswith("past") or not isinstance(value, tuple | list) or not value:
        return None
    if not all(isinstance(layer, tuple | list) and len(layer) in (2, 4) for layer in value):
        return None
    if not all(isinstance(one, torch.Tensor) for layer in value for one in layer):
        return None
    parts = ((number, _PAIR if len(layer) == 2 else _QUADRUPLE) for number, layer in enumerate(value))
    return [f"{argument}.{number}.{part}" for number, names in parts for part in names]


def output_names(output: object) -> list[str] | None:
    """A name for each tensor of an output with a cache in it, in the graph's order; None for one without."""
    named = list(_named(output, ""))
    if not any(from_cache for _, from_cache in named):
        return None
    return [name for name, _ in named]


def _named(value: object, where: str) -> Iterator[tuple[str, bool]]:
    """(name, whether it is of a cache) for every tensor."""
    if isinstance(value, torch.Tensor):
        yield where or "output", False
    elif is_cache(value):
        yield from ((name, True) for name in _paths(_PRESENT, opened(value)))
    else:
        for key, inner in _items(value):
            yield from _named(inner, f"{where}.{key}" if where else f"output_{key}" if isinstance(key, int) else key)


def _items(value: object) -> Iterator[tuple[Any, Any]]:
    if isinstance(value, Mapping):
        yield from value.items()
    elif isinstance(value, tuple | list):
        yield from zip(getattr(value, "_fields", range(len(value))), value, strict=True)
    elif is_dataclass(value) and not isinstance(value, type):
        yield from ((one.name, getattr(value, one.name)) for one in fields(value))


def _paths(where: str, states: Any) -> Iterator[str]:
    if isinstance(states, torch.Tensor):
        yield where
    for key, inner in states.items() if isinstance(states, dict) else enumerate(states) if _is_list(states) else ():
        yield from _paths(f"{where}.{key}", inner)


def _is_list(states: object) -> bool:
    return isinstance(states, list | tuple)

"""Arguments of classes that exporters do not take, as plain containers of tensors, and back.

    DynamicCache of two layers             [{"key": k, "value": v}, {"key": k, "value": v}]
    EncoderDecoderCache                    [{"decoder": {"key": k, "value": v}, "encoder": {...}}, ...]
    a dataclass, a named tuple (records)   {"image": x, "mask": m}; fields without tensors are left as they are

No exporter takes an object of a class that it does not know for an input, and a trace makes a tuple of a named tuple.
Here it is opened into tensors, without registering the class anywhere: other code in the process sees its objects as
they are. What is put together again is new, so that a model that fills its cache does not change the caller's.

In a graph the tensors of a cache are called as runtimes for language models look for them: `past_key_values.0.key`
among the inputs, after the argument of forward, and `present.0.key` among the outputs.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, TypeAlias

import torch

from onnxpatch._torch import pytree
from onnxpatch.errors import InputError

States: TypeAlias = dict[str, Any]  # of one layer: name -> tensor, or decoder and encoder -> such a dict
_NAMES = {"keys": "key", "values": "value"}


def is_cache(value: object) -> bool:
    """Whether `value` is one of transformers' caches whose layers hold tensors."""
    # Not imported: where it is not loaded, nobody has made a cache.
    module = sys.modules.get("transformers.cache_utils")
    return module is not None and isinstance(value, module.Cache) and (hasattr(value, "layers") or _is_pair(value))


def is_object(value: object) -> bool:
    """Whether `value` is an argument that is opened: a cache, or a record with tensors in it."""
    return is_cache(value) or (_is_record(value) and bool(_open_fields(value)))


def opened(value: object, is_leaf: Callable[[object], bool] = is_cache) -> Any:
    """`value`, a nest of containers, with the states of its caches in their place. is_leaf: what is opened."""

    # `is_leaf`, since some versions of transformers register their caches with pytree themselves.
    def one(leaf: object) -> object:
        return _layers(leaf) if is_cache(leaf) else _open_fields(leaf) if is_leaf(leaf) else leaf

    return pytree.tree_map(one, value, is_leaf=is_leaf)


def closed(like: object, states: object) -> Any:
    """New objects with other tensors. like: the nest with caches and records that `states` was opened from."""
    leaves, spec = pytree.tree_flatten(like, is_leaf=is_object)
    parts = spec.flatten_up_to(states)
    return pytree.tree_unflatten(
        [_closed(leaf, part) if is_object(leaf) else part for leaf, part in zip(leaves, parts, strict=True)], spec
    )


def has_caches(value: object) -> bool:
    """Whether there is a cache somewhere in a nest of containers."""
    return any(map(is_cache, pytree.tree_leaves(value, is_leaf=is_cache)))


def has_objects(value: object) -> bool:
    """Whether there is a cache or a record somewhere in a nest of containers."""
    return any(map(is_object, pytree.tree_leaves(value, is_leaf=is_object)))


def _is_record(value: object) -> bool:
    """A named tuple, or a dataclass that nobody registered with pytree."""
    if isinstance(value, tuple):
        return hasattr(value, "_fields")
    return is_dataclass(value) and type(value) not in pytree.SUPPORTED_NODES and not isinstance(value, type)


def _open_fields(record: Any) -> States:
    """The fields that hold tensors, opened in turn."""
    found = {name: opened(value, is_object) for name, value in items_of(record)}
    return {
        name: value
        for name, value in found.items()
        if any(isinstance(leaf, torch.Tensor) for leaf in pytree.tree_leaves(value))
    }


def _is_pair(cache: object) -> bool:
    return hasattr(cache, "self_attention_cache") and hasattr(cache, "cross_attention_cache")


# ------------------------------------------------------------------ opening
def _layers(cache: Any) -> list[States]:
    if _is_pair(cache):
        own, cross = _layers(cache.self_attention_cache), _layers(cache.cross_attention_cache)
        return [{"decoder": mine, "encoder": theirs} for mine, theirs in zip(own, cross, strict=True)]
    return [_states(layer) for layer in cache.layers]


def _states(layer: object) -> States:
    """The tensors of one layer; those under private names are settings, no state."""
    found: States = {}
    for name, value in vars(layer).items():
        if isinstance(value, torch.Tensor) and not name.startswith("_") and not _is_size(layer, name):
            found[_NAMES.get(name, name)] = value
        elif isinstance(value, dict) and any(isinstance(one, torch.Tensor) for one in value.values()):
            found[name] = {str(key): one for key, one in value.items() if isinstance(one, torch.Tensor)}
    return found


def _is_size(layer: object, name: str) -> bool:
    """Whether it is a number of tokens that is a tensor under trace alone: static layers, which have one in eager, too,
    say so."""
    said = (vars(base).get("__annotations__", {}) for base in type(layer).__mro__)
    return name == "cumulative_length" and not any(name in one for one in said)


# ------------------------------------------------------------------ closing
def _closed(cache: Any, states: Any) -> object:
    if not is_cache(cache):
        return _closed_record(cache, {name: closed(getattr(cache, name), state) for name, state in states.items()})
    # A copy keeps the class and its settings, such as a window, and gets layers of its own.
    made = copy.copy(cache)
    if _is_pair(cache):
        made.self_attention_cache = _closed(cache.self_attention_cache, [layer["decoder"] for layer in states])
        made.cross_attention_cache = _closed(cache.cross_attention_cache, [layer["encoder"] for layer in states])
        # The model writes into this dict; copy.copy would share it with the caller's cache.
        made.is_updated = dict(cache.is_updated)
    else:
        made.layers = [_closed_layer(layer, one) for layer, one in zip(cache.layers, states, strict=True)]
    return made


def _closed_record(record: Any, fields: States) -> object:
    if isinstance(record, tuple):
        named: Any = record
        return named._replace(**fields)
    made = copy.copy(record)
    for name, value in fields.items():
        object.__setattr__(made, name, value)  # a frozen dataclass allows no other way
    return made


def _closed_layer(layer: Any, states: States) -> object:
    made = copy.copy(layer)
    for name, value in vars(layer).items():
        new = states.get(_NAMES.get(name, name))
        if isinstance(value, dict):  # of tensors, or of what is known about them: the model writes into it
            setattr(made, name, {key: (new or {}).get(str(key), one) for key, one in value.items()})
        elif new is not None:
            setattr(made, name, new)
    if isinstance(getattr(layer, "cumulative_length", None), int) and "key" in states:
        dropped = layer.cumulative_length - layer.keys.shape[-2]  # tokens that a sliding window has seen and left
        made.cumulative_length = states["key"].shape[-2] + dropped
    return made


# ------------------------------------------------------------------ dynamic shapes
def spread_shapes(where: str, value: object, spec: object) -> object:
    """The dynamic shapes of an argument with caches or records, written out for every tensor of its states.

    For a cache may be given: one dict of axes for all tensors; a list with an entry for each layer; for a layer a
    dict by name or a tuple in order. `{"decoder": ..., "encoder": ...}` is said once for all layers. For a record: a
    record of its class, a tuple of all its fields, or a dict by field.
    where: the name of the argument, for messages. Raises InputError for a list of another length.
    """
    if is_cache(value):
        layers = _layers(value)
        each = spec if isinstance(spec, list | tuple) else [spec] * len(layers)
        if len(each) != len(layers):
            raise InputError(f"{where} has {len(layers)} layers, its dynamic_shapes {len(each)} entries: give one each")
        return [_spread(layer, one) for layer, one in zip(layers, each, strict=True)]
    if is_object(value) and spec is not None:
        spec, value = _by_field(where, value, spec), dict(items_of(value))
    if isinstance(value, dict) and isinstance(spec, Mapping):
        return {key: spread_shapes(f"{where}[{key!r}]", value.get(key), one) for key, one in spec.items()}
    if isinstance(value, tuple | list) and isinstance(spec, tuple | list) and len(value) == len(spec):
        pairs = enumerate(zip(value, spec, strict=True))
        return [spread_shapes(f"{where}[{place}]", one, of) for place, (one, of) in pairs]
    return spec


def _by_field(where: str, record: object, spec: Any) -> States:
    """The dynamic shapes of a record by field, those of fields without tensors left out."""
    names = [name for name, _ in items_of(record)]
    if not isinstance(spec, Mapping):
        each = [one for _, one in items_of(spec)]
        if len(each) != len(names):
            raise InputError(f"{where} has the fields {names}, its dynamic_shapes is {spec!r}: give one entry each")
        spec = dict(zip(names, each, strict=True))
    held = _open_fields(record)
    return {name: one for name, one in spec.items() if name in held or name not in names}


def _spread(states: object, spec: object) -> object:
    if not isinstance(states, dict) or spec is None:
        return spec
    if isinstance(spec, Mapping) and all(isinstance(axis, int) for axis in spec):
        # A StaticCache counts its tokens in a tensor without axes.
        return {name: _spread(one, spec if getattr(one, "shape", True) else None) for name, one in states.items()}
    if isinstance(spec, tuple | list) and len(spec) == len(states):
        spec = dict(zip(states, spec, strict=True))
    if isinstance(spec, Mapping):
        return {name: _spread(one, spec.get(name)) for name, one in states.items()} | {
            name: one for name, one in spec.items() if name not in states
        }
    return spec


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
    if not all(map(_is_layer, value)):
        return None
    parts = ((number, _PAIR if len(layer) == 2 else _QUADRUPLE) for number, layer in enumerate(value))
    return [f"{argument}.{number}.{part}" for number, names in parts for part in names]


def _is_layer(value: object) -> bool:
    """Two tensors for a layer of a decoder; four where it also attends to an encoder."""
    if not isinstance(value, list | tuple) or len(value) not in (2, 4):
        return False
    return all(isinstance(one, torch.Tensor) for one in value)


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
        for key, inner in items_of(value):
            yield from _named(inner, f"{where}.{key}" if where else f"output_{key}" if isinstance(key, int) else key)


def items_of(value: object) -> Iterator[tuple[Any, Any]]:
    """(key, index or name of the field; what is there) of a container or a record; nothing of other values."""
    if isinstance(value, Mapping):
        yield from value.items()
    elif isinstance(value, tuple | list):
        yield from zip(getattr(value, "_fields", range(len(value))), value, strict=True)
    elif is_dataclass(value) and not isinstance(value, type):
        yield from ((one.name, getattr(value, one.name)) for one in fields(value))


def _paths(where: str, states: Any) -> Iterator[str]:
    if isinstance(states, torch.Tensor):
        yield where
    elif isinstance(states, dict | list | tuple):
        for key, inner in states.items() if isinstance(states, dict) else enumerate(states):
            yield from _paths(f"{where}.{key}", inner)

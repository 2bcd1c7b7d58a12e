"""`Inputs`: the example call of a model as an ordered list of named leaves.

A leaf is a tensor or plain value inside the arguments. `model(x, batch={"mask": m, "n": 3})` has three: `x`,
`batch_mask`, `batch_n`. They are named and ordered as the exporters name and order the graph's inputs, so that a graph
input, its dynamic shape and a new value for a probe can be matched by leaf.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch

from onnxpatch._torch import pytree
from onnxpatch.errors import InputError
from onnxpatch.inputs.held_objects import copied_value, each_once
from onnxpatch.inputs.opened_objects import closed, has_objects, is_cache, is_object, layered_names, opened

Kwargs: TypeAlias = Mapping[str, object]
# `args` as torch.onnx.export takes them: a bare tensor (or array), or the positional arguments.
ExampleArgs: TypeAlias = torch.Tensor | np.ndarray | Sequence[object]
_PLAIN = (torch.Tensor, np.ndarray, bool, int, float, str, type(None))


@dataclass(frozen=True)
class Leaf:
    """One tensor or plain value inside the arguments.

    name: the graph's name for it (`x`, `xs_0`, `batch_mask`).
    argument: the parameter of forward that it belongs to.
    index: its place in the flattened (args, kwargs), the order in which torch.export makes graph inputs.
    """

    name: str
    argument: str
    index: int
    value: Any

    @property
    def is_tensor(self) -> bool:
        """Whether the value has a shape, and is a graph input with every exporter."""
        return isinstance(self.value, torch.Tensor)

    @property
    def is_number(self) -> bool:
        """Whether the value is a Python number: torch.export makes a constant of it, TorchScript a graph input."""
        return isinstance(self.value, bool | int | float) and not self.is_tensor


class _Call(NamedTuple):
    """The arguments of one call of a model."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class Inputs:
    """The example call of a model.

    given: as the caller gave it, with NumPy arrays turned into tensors.
    args, kwargs: the same with caches, dataclasses and named tuples opened, so that every tensor in them is a leaf.
    arguments, given_arguments: both by the names of forward's parameters, in the signature's order.
    variadic: the name of forward's `*args`, or None.
    leaves: every leaf, in the order of the flattened (args, kwargs).
    has_objects: whether a cache, or a record with tensors, is among the arguments.

    Raises InputError where the arguments do not fit forward's signature.
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def __init__(self, model: torch.nn.Module, args: ExampleArgs, kwargs: Kwargs | None = None) -> None:
        call = _split_kwargs(model, args, kwargs)
        # Of tensors and numbers alone, which most calls are of, there is nothing to open.
        nested = not all(isinstance(one, _PLAIN) for one in (*call[0], *call[1].values()))
        given = pytree.tree_map(_as_tensor, call, is_leaf=is_object if nested else None)
        self.given = _Call(*given)
        self.has_objects = nested and has_objects(given)
        self.args, self.kwargs = opened(given, is_object) if self.has_objects else given
        self.arguments = bind(model, self.args, self.kwargs)
        self.given_arguments = bind(model, *self.given)
        self.variadic, self._keywords = variadic(model), variadic(model, inspect.Parameter.VAR_KEYWORD)
        flat, self._spec = pytree.tree_flatten((self.args, self.kwargs))
        names = _leaf_names(self.arguments, self.args, self.kwargs, self.given)
        self.leaves = tuple(
            Leaf(name, argument, i, v) for i, ((name, argument), v) in enumerate(zip(names, flat, strict=True))
        )

    def rebuild(self, values: Sequence[object]) -> _Call:
        """(args, kwargs) with these values as leaves, as the model takes them: in new containers and objects."""
        opened = self.rebuild_opened(values)
        return self.closed(*opened) if self.has_objects else opened

    def rebuild_opened(self, values: Sequence[object]) -> _Call:
        """The same with containers of tensors for objects, as exporters take them."""
        return _Call(*pytree.tree_unflatten(list(values), self._spec))

    def closed(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> _Call:
        """A call as the model takes it, from one with opened objects."""
        return _Call(*closed(tuple(self.given), (args, dict(kwargs))))

    @property
    def keywords(self) -> str | None:
        """The name of forward's `**kwargs`, if the call gives any; `arguments` has them below it."""
        known = self._keywords
        return known if known in self.arguments else None

    def values(self) -> list[Any]:
        """The example's leaves, copied: some forwards write into tensors that they are given, or grow a cache."""
        return [copied_value(leaf.value) for leaf in self.leaves]

    def as_given(self) -> list[Any]:
        """The same, but that a tensor which is given twice is one: a forward may write into it, or ask `key is query`.

        Exporters get two: a graph has an input for each.
        """
        return each_once(copied_value, (leaf.value for leaf in self.leaves))

    def objects(self) -> list[object]:
        """The leaves that are neither tensors nor plain values, as the caller gave them."""
        return [leaf.value for leaf in self.leaves if not leaf.is_tensor and not leaf.is_number]

    def graph_leaves(self, exporter: str) -> list[Leaf]:
        """The leaves that become graph inputs with this exporter, in the graph's order.

        dynamo: tensors, as flattened. trace and script: tensors and numbers, in the order of forward's parameters.
        """
        if exporter == "dynamo":
            return [leaf for leaf in self.leaves if leaf.is_tensor]
        # The TorchScript exporter makes inputs in the signature's order, whatever the order of the kwargs.
        return [leaf for leaf in self.in_signature_order() if leaf.is_tensor or leaf.is_number]

    def in_signature_order(self) -> list[Leaf]:
        """All leaves in the order of forward's parameters."""
        order = {name: i for i, name in enumerate(self.arguments)}
        return sorted(self.leaves, key=lambda leaf: (order.get(leaf.argument, len(order)), leaf.index))

    def find(self, name: str) -> Leaf | None:
        """The leaf of this name, or the only leaf of the argument of this name; None where there is neither."""
        for leaf in self.leaves:
            if leaf.name == name:
                return leaf
        of_argument = [leaf for leaf in self.leaves if leaf.argument == name]
        return of_argument[0] if len(of_argument) == 1 else None


def caches_loaded() -> bool:
    """Whether transformers' caches are loaded: else nobody has made one, and no value need be searched for them."""
    return "transformers.cache_utils" in sys.modules


def _as_tensor(value: object) -> object:
    # torch takes no array with negative strides. np.ascontiguousarray would make one dimension of none.
    return torch.from_numpy(np.asarray(value, order="C")) if isinstance(value, np.ndarray) else value


def _split_kwargs(
    model: torch.nn.Module, args: ExampleArgs, kwargs: Kwargs | None
) -> tuple[tuple[object, ...], dict[str, object]]:
    """(args, kwargs) after torch.onnx.export's conventions.

    A bare tensor is the one argument. A dict at the end of `args` is the keyword arguments, if `kwargs` gives none and
    the model has such keywords: a forward that takes one dict gets it as it is. Raises InputError for `args` of another
    kind.
    """
    if isinstance(args, torch.Tensor | np.ndarray):
        args = (args,)
    if not isinstance(args, tuple | list):
        raise InputError(f"args must be a tuple of forward's positional arguments, not {type(args).__name__}")
    if kwargs is not None and not isinstance(kwargs, Mapping):
        raise InputError(f"kwargs must be a dict of forward's keyword arguments, not {type(kwargs).__name__}")
    args = tuple(args)
    if not kwargs and args and isinstance(args[-1], dict) and all(isinstance(k, str) for k in args[-1]):
        keywords = (args[:-1], dict(args[-1]))
        if _fits(model, *keywords) or not _fits(model, args, {}):
            return keywords
    return args, dict(kwargs or {})


def _fits(model: torch.nn.Module, args: tuple[object, ...], kwargs: Kwargs) -> bool:
    try:
        bind(model, args, kwargs)
    except InputError:
        return False
    return True


def signature(model: torch.nn.Module) -> inspect.Signature | None:
    """The signature of `model.forward`, or of a plain function; None where Python knows none (compiled code).

    A ScriptModule's forward takes (*args, **kwargs) to Python; its own schema says which arguments there are.
    """
    forward = getattr(model, "forward", model)
    schema = getattr(forward, "schema", None)
    if schema is not None:
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        of_module = int(isinstance(model, torch.jit.ScriptModule))  # its first argument is the module, by any name
        names = [a.name for a in schema.arguments[of_module:] if a.name != "self"]
        return inspect.Signature([inspect.Parameter(n, kind, default=None) for n in names])
    try:
        return inspect.signature(forward) if callable(forward) else None
    except (TypeError, ValueError):
        return None


def variadic(model: torch.nn.Module, kind: inspect._ParameterKind = inspect.Parameter.VAR_POSITIONAL) -> str | None:
    """The name of forward's `*args`, or `**kwargs`, if it has one."""
    sig = signature(model)
    kinds = {p.kind: p.name for p in sig.parameters.values()} if sig else {}
    return kinds.get(kind)


def bind(model: torch.nn.Module, args: tuple[object, ...], kwargs: Kwargs) -> dict[str, object]:
    """Each argument of the call by the name of forward's parameter, in the signature's order.

    Parameters left to their defaults are not in it. Raises InputError where the call does not fit.
    """
    sig = signature(model)
    if sig is None:
        return {**{f"arg{i}": a for i, a in enumerate(args)}, **kwargs}
    if twice := {p.name for p in sig.parameters.values() if p.kind is p.POSITIONAL_ONLY} & set(kwargs):
        raise InputError(f"{min(twice)!r} is a positional-only parameter and a keyword of the call: rename the keyword")
    try:
        return dict(sig.bind(*args, **kwargs).arguments)
    except TypeError as error:
        said = str(error).replace(": ", " ")
        raise InputError(
            f"the arguments do not fit {type(model).__name__}.forward{_signature_text(sig)}: {said}: "
            "give positional arguments in args=, keyword ones in kwargs="
        ) from None


def _signature_text(sig: inspect.Signature) -> str:
    text = str(sig)  # transformers' forwards take dozens of parameters
    return text if len(text) <= 160 else text[:157] + "..."


def _leaf_names(arguments: Kwargs, args: tuple[object, ...], kwargs: Kwargs, given: _Call) -> list[tuple[str, str]]:
    """(leaf name, argument name) in the order of the flattened (args, kwargs), named as torch.export names inputs; the
    tensors of a cache as `layered_names` says."""
    positional = _positional_names(arguments, args, kwargs)
    names: list[tuple[str, str]] = []
    for (prefix, argument), value, before in zip(positional, args, given.args, strict=True):
        names += [(name, argument) for name in _names_below(prefix, value, before)]
    for key, value in kwargs.items():
        names += [(name, key) for name in _names_below(key, value, given.kwargs[key])]
    return names


def _names_below(prefix: str, value: object, given: object) -> list[str]:
    if isinstance(value, torch.Tensor):
        return [prefix]
    return layered_names(prefix, value, is_cache(given)) or [prefix + suffix for suffix in _suffixes(value)]


def _positional_names(arguments: Kwargs, args: tuple[object, ...], kwargs: Kwargs) -> list[tuple[str, str]]:
    """(name of the value, name of its parameter) for every positional argument; those of `*xs` are xs_0, xs_1, …"""
    names: list[tuple[str, str]] = []
    for name, value in arguments.items():
        if len(names) >= len(args):
            break
        if name in kwargs:
            continue
        # By identity: bind() gives the very objects of the call.
        if value is args[len(names)]:
            names.append((name, name))
        elif isinstance(value, tuple):  # forward's *args: bind has gathered them
            names += [(f"{name}_{i}", name) for i in range(len(value))]
    return names


def _suffixes(value: object) -> list[str]:
    """The suffix that each leaf of one argument adds to its name: "" for a bare one, `_0`, `_key` inside containers."""
    paths, _ = pytree.tree_flatten_with_path(value)
    return ["".join(f"_{_key_text(key)}" for key in path) for path, _leaf in paths]


def _key_text(key: object) -> str:
    """The text of a pytree key: the index of a sequence, the key of a dict, the name of a field."""
    for attribute in ("idx", "key", "name"):
        if hasattr(key, attribute):
            return str(getattr(key, attribute))
    return str(key)

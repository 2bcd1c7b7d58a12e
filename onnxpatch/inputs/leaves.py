"""The arguments of a call as an ordered list of named leaves: what becomes a graph input, and how to rebuild them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from onnxpatch._torch import pytree
from onnxpatch.errors import InputError


@dataclass(frozen=True)
class Leaf:
    """One tensor or plain value inside the arguments.

    name: the graph's name for it (`x`, `xs_0`, `batch_mask`); argument: the parameter of forward that holds it;
    index: its place among all leaves, in the order in which both exporters make graph inputs.
    """

    name: str
    argument: str
    index: int
    value: Any

    @property
    def is_tensor(self) -> bool:
        return isinstance(self.value, torch.Tensor)

    @property
    def is_number(self) -> bool:
        """Python numbers: constants to torch.export, graph inputs to the TorchScript exporter."""
        return isinstance(self.value, bool | int | float) and not self.is_tensor


class Inputs:
    """The example call of a model: `args` and `kwargs` as given (arrays as tensors), and their leaves.

    Raises InputError where the arguments do not fit forward's signature.
    """

    def __init__(self, model: Any, args: Any, kwargs: Mapping[str, Any] | None = None) -> None:
        self.args, self.kwargs = pytree.tree_map(_as_tensor, split_kwargs(args, kwargs))
        self.arguments = bind(model, self.args, self.kwargs)
        self.variadic = variadic(model)
        flat, self._spec = pytree.tree_flatten((self.args, self.kwargs))
        names = _leaf_names(self.arguments, self.args, self.kwargs)
        self.leaves = tuple(
            Leaf(name, argument, i, v) for i, ((name, argument), v) in enumerate(zip(names, flat, strict=True))
        )

    def rebuild(self, values: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """(args, kwargs) with the leaves replaced, containers made afresh."""
        args, kwargs = pytree.tree_unflatten(list(values), self._spec)
        return args, kwargs

    def values(self) -> list[Any]:
        """The example's leaves, tensors cloned, so that a forward that writes into its inputs spoils nothing."""
        return [leaf.value.detach().clone() if leaf.is_tensor else leaf.value for leaf in self.leaves]

    def graph_leaves(self, exporter: str) -> list[Leaf]:
        """The leaves that become graph inputs with this exporter, in order."""
        if exporter == "dynamo":
            return [leaf for leaf in self.leaves if leaf.is_tensor]
        order = {name: i for i, name in enumerate(self.arguments)}
        usable = [leaf for leaf in self.leaves if leaf.is_tensor or leaf.is_number]
        return sorted(usable, key=lambda leaf: (order.get(leaf.argument, len(order)), leaf.index))

    def find(self, name: str) -> Leaf | None:
        """A leaf by its own name, or by its argument where the argument is that one leaf."""
        for leaf in self.leaves:
            if leaf.name == name:
                return leaf
        held = [leaf for leaf in self.leaves if leaf.argument == name]
        return held[0] if len(held) == 1 else None


def _as_tensor(value: Any) -> Any:
    return torch.from_numpy(np.ascontiguousarray(value)) if isinstance(value, np.ndarray) else value


def split_kwargs(args: Any, kwargs: Mapping[str, Any] | None) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """torch.onnx.export's conventions: a bare tensor for one argument; a trailing dict holds the keyword arguments."""
    if isinstance(args, torch.Tensor | np.ndarray):
        args = (args,)
    if not isinstance(args, tuple | list):
        raise InputError(f"args must be a tuple of forward's positional arguments, not {type(args).__name__}")
    args = tuple(args)
    if not kwargs and args and isinstance(args[-1], dict) and all(isinstance(k, str) for k in args[-1]):
        return args[:-1], dict(args[-1])
    return args, dict(kwargs or {})


def signature(model: Any) -> inspect.Signature | None:
    """forward's signature; a ScriptModule keeps it in its schema; None where there is none to be had."""
    forward: Callable[..., Any] | None = getattr(model, "forward", model)
    schema = getattr(forward, "schema", None)
    if schema is not None:
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        names = [a.name for a in schema.arguments if a.name != "self"]
        return inspect.Signature([inspect.Parameter(n, kind, default=None) for n in names])
    try:
        return inspect.signature(forward) if callable(forward) else None
    except (TypeError, ValueError):
        return None


def variadic(model: Any) -> str | None:
    """The name of forward's `*args`, if it has one."""
    sig = signature(model)
    kinds = {p.kind: p.name for p in sig.parameters.values()} if sig else {}
    return kinds.get(inspect.Parameter.VAR_POSITIONAL)


def bind(model: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Each argument that is given, by the name of forward's parameter, in the signature's order."""
    sig = signature(model)
    if sig is None:
        return {**{f"arg{i}": a for i, a in enumerate(args)}, **kwargs}
    try:
        return dict(sig.bind(*args, **kwargs).arguments)
    except TypeError as error:
        raise InputError(
            f"the arguments do not fit {type(model).__name__}.forward{_shown(sig)}: {error}. "
            "Give positional ones in args=, keyword ones in kwargs=."
        ) from None


def _shown(sig: inspect.Signature) -> str:
    text = str(sig)
    return text if len(text) <= 160 else text[:157] + "..."


def _leaf_names(
    arguments: Mapping[str, Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> list[tuple[str, str]]:
    """(leaf name, argument name) in the order of the flattened (args, kwargs), named as torch.export names inputs."""
    positional = _positional_names(arguments, args, kwargs)
    names: list[tuple[str, str]] = []
    for (prefix, argument), value in zip(positional, args, strict=True):
        names += [(prefix + tail, argument) for tail in _tails(value)]
    for key, value in kwargs.items():
        names += [(key + tail, key) for tail in _tails(value)]
    return names


def _positional_names(
    arguments: Mapping[str, Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> list[tuple[str, str]]:
    names: list[tuple[str, str]] = []
    for name, value in arguments.items():
        if len(names) >= len(args):
            break
        if name in kwargs:
            continue
        if value is args[len(names)]:
            names.append((name, name))
        elif isinstance(value, tuple):  # *args
            names += [(f"{name}_{i}", name) for i in range(len(value))]
    return names


def _tails(value: Any) -> list[str]:
    """The suffix of each leaf of one argument: '' for a bare one, '_0', '_key' inside containers."""
    paths, _ = pytree.tree_flatten_with_path(value)
    return ["".join(f"_{_key_text(key)}" for key in path) for path, _leaf in paths]


def _key_text(key: Any) -> str:
    for attribute in ("idx", "key", "name"):
        if hasattr(key, attribute):
            return str(getattr(key, attribute))
    return str(key)

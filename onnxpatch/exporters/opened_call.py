"""The call of a model in a form that exporters accept: tensors, lists and dicts, each argument with a name.

A model may take or return a cache of keys and values, or return strings and dataclasses. Then the exporter sees a
forward of tensors: inside it the cache is built, and the output is flattened to tensors, in the order in which eager's
are compared. For `forward(**inputs)` the exporter sees the names of the call, since torch.export takes no dynamic
shapes for such a parameter.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from onnxpatch._torch import pytree
from onnxpatch.exporters.output_layout import OutputLayout
from onnxpatch.inputs.caches import closed, has_caches, opened
from onnxpatch.inputs.leaves import Inputs, signature
from onnxpatch.patching.swap import UndoLog
from onnxpatch.process import undone


@dataclass
class OpenedCall:
    """The arguments for an exporter."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


@contextlib.contextmanager
def opened_call(model: Any, inputs: Inputs, layout: OutputLayout | None = None) -> Iterator[OpenedCall]:
    """The call for an exporter. Inside the block, the model accepts it. layout: of the output, if it is known."""
    call = OpenedCall(*inputs.rebuild_opened(inputs.values()))
    # What the model returns is not known before it runs: its configuration says what it may.
    odd_output = _may_return_caches(model) or (layout is not None and not layout.nested)
    plain = not (inputs.has_caches or inputs.keywords or odd_output)
    # Scripted code is compiled: a mixin in front of its class would not run.
    if isinstance(model, torch.jit.ScriptModule) or plain:
        yield call
        return
    log = UndoLog()
    with undone(log.undo):
        log.specialise(model, _mixin(inputs, _by_name(signature(model), inputs), layout))
        yield call


def _may_return_caches(model: torch.nn.Module) -> bool:
    """Whether a submodule is a transformers model that returns a cache by default."""
    return any(hasattr(_config(module), "use_cache") for module in model.modules())


def _config(module: torch.nn.Module) -> object:
    try:
        return getattr(module, "config", None)
    except Exception:  # a property of the user's that means something else
        return None


def _by_name(shown: inspect.Signature | None, inputs: Inputs) -> inspect.Signature | None:
    """The signature with the given keywords in place of `**inputs`."""
    if shown is None or not inputs.keywords:
        return shown
    own = [p for p in shown.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
    named = {parameter.name for parameter in own}
    more = [name for name in inputs.kwargs if name not in named]
    return shown.replace(parameters=[*own, *(inspect.Parameter(n, inspect.Parameter.KEYWORD_ONLY) for n in more)])


def _closed(
    inputs: Inputs, shown: inspect.Signature | None, args: tuple[object, ...], kwargs: dict[str, object]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The call with caches built again. Arguments go by name: the TorchScript exporter passes them by position."""
    if not inputs.has_caches:
        return args, kwargs
    if shown is None:
        return inputs.closed(args, kwargs)
    bound = shown.bind(*args, **kwargs)
    all_given = {**inputs.given_arguments, **inputs.given.kwargs}
    for name, given in all_given.items():
        if has_caches(given) and name in bound.arguments:
            bound.arguments[name] = closed(given, bound.arguments[name])
    return bound.args, bound.kwargs


def _kind_of_self(shown: inspect.Signature) -> inspect._ParameterKind:
    kinds = [parameter.kind for parameter in shown.parameters.values()]
    # Nothing may come before a positional-only parameter but another one.
    only = inspect.Parameter.POSITIONAL_ONLY
    return only if only in kinds else inspect.Parameter.POSITIONAL_OR_KEYWORD


def _mixin(inputs: Inputs, shown: inspect.Signature | None, layout: OutputLayout | None) -> type:
    class Opened:
        def forward(self, *args: object, **kwargs: object) -> Any:
            args, kwargs = _closed(inputs, shown, args, kwargs)
            output = super().forward(*args, **kwargs)  # type: ignore[misc]
            if layout is not None and not layout.nested:
                return layout.for_exporter(output)
            if not has_caches(output):
                return output
            return tuple(leaf for leaf in pytree.tree_leaves(opened(output)) if isinstance(leaf, torch.Tensor))

    if shown is not None:
        itself = inspect.Parameter("self", _kind_of_self(shown))
        Opened.forward.__signature__ = shown.replace(  # type: ignore[attr-defined]
            parameters=[itself, *shown.parameters.values()]
        )
    return Opened

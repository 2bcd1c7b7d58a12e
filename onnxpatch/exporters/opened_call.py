"""The call of a model in the form that exporters know: tensors, lists and dicts, each argument by a name of its own.

For a model that takes or gives a cache of keys and values, the root's forward puts the cache together inside the block,
and gives the tensors of its output alone, in the order in which eager's are compared; so it does for an output that
exporters do not take, with strings or dataclasses in it. For `forward(**inputs)` it shows the names that the call
gives: torch.export takes no dynamic shapes for such a parameter.
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
from onnxpatch.undone import undone


@dataclass
class OpenedCall:
    """The arguments to hand to an exporter."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


@contextlib.contextmanager
def opened_call(model: Any, inputs: Inputs, layout: OutputLayout | None = None) -> Iterator[OpenedCall]:
    """The call for an exporter; inside the block the model takes it. layout: of the output, where it is known."""
    call = OpenedCall(*inputs.rebuild_opened(inputs.values()))
    odd_output = _may_return_caches(model) or (layout is not None and not layout.nested)
    plain = not (inputs.has_caches or inputs.keywords or odd_output)
    if isinstance(model, torch.jit.ScriptModule) or plain:
        yield call
        return
    log = UndoLog()
    with undone(log.undo):
        log.specialise(model, _mixin(inputs, _by_name(signature(model), inputs), layout))
        yield call


def _may_return_caches(model: torch.nn.Module) -> bool:
    """Whether a part of the model is one of transformers' that returns a cache unless it is told not to."""
    return any(hasattr(getattr(module, "config", None), "use_cache") for module in model.modules())


def _by_name(shown: inspect.Signature | None, inputs: Inputs) -> inspect.Signature | None:
    """The signature with the keywords that are given in place of `**inputs`."""
    if shown is None or not inputs.keywords:
        return shown
    own = [p for p in shown.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
    named = {parameter.name for parameter in own}
    more = [name for name in inputs.kwargs if name not in named]
    return shown.replace(parameters=[*own, *(inspect.Parameter(n, inspect.Parameter.KEYWORD_ONLY) for n in more)])


def _closed(
    inputs: Inputs, shown: inspect.Signature | None, args: tuple[object, ...], kwargs: dict[str, object]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The call as the model takes it. By name: the TorchScript exporter turns keywords into positions."""
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
        itself = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        Opened.forward.__signature__ = shown.replace(  # type: ignore[attr-defined]
            parameters=[itself, *shown.parameters.values()]
        )
    return Opened

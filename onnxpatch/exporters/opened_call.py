"""The call of a model in the form that exporters know: tensors, lists and dicts, each argument by a name of its own.

For a model that takes or gives a cache of keys and values, the root's forward puts the cache together inside the block,
and gives the tensors of its output alone, in the order in which eager's are compared. For `forward(**inputs)` it shows
the names that the call gives: torch.export takes no dynamic shapes for such a parameter.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from onnxpatch._torch import pytree
from onnxpatch.inputs.caches import closed, has_caches, opened
from onnxpatch.inputs.leaves import Inputs, signature
from onnxpatch.inputs.state_names import output_names
from onnxpatch.onnxfile.editing import edited
from onnxpatch.onnxfile.output_structure import rename_outputs
from onnxpatch.patching.swap import UndoLog
from onnxpatch.undone import undone


@dataclass
class OpenedCall:
    """The arguments to hand to an exporter. names: of the outputs, once the exporter has run a forward with a cache."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    names: list[str] = field(default_factory=list)

    def name_outputs(self, path: Path, given: Sequence[str] | None) -> None:
        """Name the outputs of the file; those that the user gave a name keep it."""
        if not self.names:
            return
        with edited(path) as proto:
            have = [output.name for output in proto.graph.output]
            if len(have) == len(self.names):
                named = [*(given or ()), *self.names[len(given or ()) :]]
                rename_outputs(proto.graph, dict(zip(have, named, strict=False)))


@contextlib.contextmanager
def opened_call(model: Any, inputs: Inputs) -> Iterator[OpenedCall]:
    """The call for an exporter; inside the block the model takes it."""
    call = OpenedCall(*inputs.rebuild_opened(inputs.values()))
    plain = not (inputs.has_caches or inputs.keywords or _may_return_caches(model))
    if isinstance(model, torch.jit.ScriptModule) or plain:
        yield call
        return
    log = UndoLog()
    with undone(log.undo):
        log.specialise(model, _mixin(inputs, call, _by_name(signature(model), inputs)))
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


def _mixin(inputs: Inputs, call: OpenedCall, shown: inspect.Signature | None) -> type:
    class Opened:
        def forward(self, *args: object, **kwargs: object) -> Any:
            args, kwargs = _closed(inputs, shown, args, kwargs)
            output = super().forward(*args, **kwargs)  # type: ignore[misc]
            if not has_caches(output):
                return output
            call.names = output_names(output) or []
            return tuple(leaf for leaf in pytree.tree_leaves(opened(output)) if isinstance(leaf, torch.Tensor))

    if shown is not None:
        itself = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        Opened.forward.__signature__ = shown.replace(  # type: ignore[attr-defined]
            parameters=[itself, *shown.parameters.values()]
        )
    return Opened

"""Keeps omitted default arguments of forward out of a TorchScript graph's inputs.

torch.onnx.export(dynamo=False) fills in every default of forward's signature, and makes tensors of them:

    def forward(self, x, flag=True, k=3)      export(model, (x,)) calls forward(x, tensor(True), tensor(3))

Then `if flag` and `k > 3` are traced as tensors, or fail. Here the exporter sees a forward that takes the given
arguments only. The exporter also passes arguments by position alone; keyword-only ones are passed on by keyword here.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator
from typing import Any

import torch

from onnxpatch.inputs.leaves import signature
from onnxpatch.patching.swap import UndoLog
from onnxpatch.process import undone


@contextlib.contextmanager
def positional(
    model: Any, args: tuple[Any, ...], kwargs: dict[str, object]
) -> Iterator[tuple[Any, tuple[Any, ...], dict[str, Any]]]:
    """(model, args, kwargs) for the exporter. Inside the block, forward takes the given arguments only."""
    if not (_omitted(model, args, kwargs) or _keyword_only(model, kwargs)) or isinstance(model, torch.jit.ScriptModule):
        yield model, args, kwargs
        return
    given = _ordered(model, kwargs)
    log = UndoLog()
    with undone(log.undo):
        log.specialise(model, _mixin(len(args), tuple(given)))
        yield model, (*args, *given.values()), {}


def _omitted(model: torch.nn.Module, args: tuple[object, ...], kwargs: dict[str, object]) -> list[str]:
    """Parameters whose omitted default would become a graph input, or that a decorator of forward fills in itself.

    The exporter gives every None by position. transformers' decorators give `use_cache` by keyword: one too many.
    """
    sig = signature(model)
    if sig is None or any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in sig.parameters.values()):
        return []
    rest = list(sig.parameters.values())[len(args) :]
    decorated = any(hasattr(vars(cls).get("forward"), "__wrapped__") for cls in type(model).__mro__)
    kinds = (bool, int, float, torch.Tensor, *((type(None),) if decorated else ()))
    return [p.name for p in rest if p.name not in kwargs and isinstance(p.default, kinds)]


def _keyword_only(model: torch.nn.Module, kwargs: dict[str, object]) -> list[str]:
    """Arguments that cannot be given by position, the only way the exporter has."""
    sig = signature(model)
    kinds = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD)
    return [p.name for p in sig.parameters.values() if p.kind in kinds and kwargs] if sig else []


def _ordered(model: torch.nn.Module, kwargs: dict[str, object]) -> dict[str, object]:
    sig = signature(model)
    order = list(sig.parameters) if sig else []
    return dict(sorted(kwargs.items(), key=lambda item: order.index(item[0]) if item[0] in order else len(order)))


def _mixin(count: int, names: tuple[str, ...]) -> type:
    class Positional:
        def forward(self, *values: object) -> Any:
            return super().forward(*values[:count], **dict(zip(names, values[count:], strict=True)))  # type: ignore[misc]

    return Positional


def defaults_kept(model: torch.nn.Module) -> type | None:
    """A mixin for the root that keeps torch.onnx.export(dynamo=False) from making inputs of defaults; or None.

    The signature that the exporter reads has None in place of such a default: None becomes no input. The mixin's
    forward puts the number back. A parameter that may be None by its annotation is not changed.
    """
    sig = signature(model)
    parameters = list(sig.parameters.values()) if sig else []
    # Where None is a value that the caller may give, it could not be told from an omitted argument.
    numbers = {p.name: p.default for p in parameters if _is_number(p) and "None" not in _annotated(p)}
    if not numbers or any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in parameters):
        return None
    names = [p.name for p in parameters]

    def given(name: str, value: object) -> object:
        return numbers.get(name) if value is None else value

    class Defaults:
        def forward(self, *values: object, **named: object) -> Any:
            first = list(map(given, names, values))
            rest = {name: given(name, value) for name, value in named.items()}
            return super().forward(*first, *values[len(names) :], **rest)  # type: ignore[misc]

    shown = [p.replace(default=None) if p.name in numbers else p for p in parameters]
    itself = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    # In a signature, nothing but positional-only parameters may stand before a positional-only one.
    if shown[0].kind is inspect.Parameter.POSITIONAL_ONLY:
        itself = itself.replace(kind=inspect.Parameter.POSITIONAL_ONLY)
    Defaults.forward.__signature__ = inspect.Signature([itself, *shown])  # type: ignore[attr-defined]
    return Defaults


def _is_number(parameter: inspect.Parameter) -> bool:
    return isinstance(parameter.default, bool | int | float) and parameter.kind is not inspect.Parameter.KEYWORD_ONLY


def _annotated(parameter: inspect.Parameter) -> str:
    """The annotation as text; "None" if it allows None."""
    text = str(parameter.annotation)
    # `Optional[int]` as text has no None in it.
    return "None" if "Optional" in text else text

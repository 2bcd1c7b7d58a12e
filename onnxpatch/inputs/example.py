"""The example that a model declares itself, used where the caller gives no arguments.

Looked for in this order: `torch.onnx.ExportableModule` (its `example_arguments()`), then `example_inputs` (timm and
others), `dummy_inputs` (transformers), `example_input_array` (Lightning); each may be an attribute or a method.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from onnxpatch.inputs.dynamic_shapes import ShapesSpec
from onnxpatch.inputs.leaves import ExampleArgs, Kwargs, signature

_ATTRIBUTES = ("example_inputs", "dummy_inputs", "example_input_array")


@dataclass
class ModelExample:
    """An example call, and what else the model declares about its export. None: the model says nothing about it."""

    args: ExampleArgs = ()
    kwargs: Kwargs | None = None
    dynamic_shapes: ShapesSpec = None
    input_names: Sequence[str] | None = None
    output_names: Sequence[str] | None = None


def declared_example(model: torch.nn.Module) -> ModelExample | None:
    """The example that `model` declares, or None. Methods are called, attributes read; what they raise passes."""
    sig = signature(model)
    # A forward without arguments needs no example.
    if sig is None or not sig.parameters:
        return None
    if callable(getattr(model, "example_arguments", None)):
        return _from_exportable_module(model)
    for name in _ATTRIBUTES:
        example = _read_or_call(model, name)
        if example is not None:
            return ModelExample((), example) if isinstance(example, Mapping) else ModelExample(example)
    return None


def _from_exportable_module(model: object) -> ModelExample:
    args, kwargs = model.example_arguments()  # type: ignore[attr-defined]  # the caller has looked
    shapes, input_names, output_names = (
        _read_or_call(model, name) if callable(getattr(model, name, None)) else None
        for name in ("dynamic_shapes", "input_names", "output_names")
    )
    return ModelExample(args, kwargs, shapes, input_names, output_names)


def _read_or_call(model: object, name: str) -> Any:
    value = getattr(model, name, None)
    return value() if callable(value) else value

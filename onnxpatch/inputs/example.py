"""What a model brings along for its own export: `torch.onnx.ExportableModule`, `example_inputs`, `dummy_inputs`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from onnxpatch.inputs.leaves import signature

_EXAMPLES = ("example_inputs", "dummy_inputs", "example_input_array")


@dataclass
class Brought:
    """An example call, and what else is known of the export. None: the model says nothing of it."""

    args: Any = ()
    kwargs: Mapping[str, Any] | None = None
    dynamic_shapes: Any = None
    input_names: Sequence[str] | None = None
    output_names: Sequence[str] | None = None


def given(args: Any, kwargs: Mapping[str, Any] | None) -> bool:
    """Whether the caller has given an example, so that the model need not be asked."""
    return bool(kwargs) or isinstance(args, torch.Tensor | np.ndarray) or len(args) > 0


def brought_by(model: Any) -> Brought | None:
    """The example of `model` by its own account, or None where it has none. Methods are called, attributes read."""
    sig = signature(model)
    if sig is None or not sig.parameters:
        return None
    if callable(getattr(model, "example_arguments", None)):
        return _exportable(model)
    for name in _EXAMPLES:
        found = getattr(model, name, None)
        found = found() if callable(found) else found
        if found is not None:
            return Brought((), found) if isinstance(found, Mapping) else Brought(found)
    return None


def _exportable(model: Any) -> Brought:
    args, kwargs = model.example_arguments()
    rest = {name: _asked(model, name) for name in ("dynamic_shapes", "input_names", "output_names")}
    return Brought(args, kwargs, **rest)


def _asked(model: Any, name: str) -> Any:
    method = getattr(model, name, None)
    return method() if callable(method) else None

"""Private torch APIs around the ONNX exporters: which, why, and what happens when they move.

- `torch.onnx._internal.exporter._core.export` and `_registration.ONNXRegistry`: the dynamo exporter with a registry
  that is built once, a second of every small export; where they have moved, torch.onnx.export is called.
- `torch.onnx._internal.exporter._capture_strategies`: its first half alone, torch.export as that exporter calls it;
  where they have moved, there are no halves.
- `ShapeEnv._log_guard`: called wherever torch.export settles a condition on a size, which is how the Python line is
  found (an ExportedProgram keeps no lines); no lines are known where it has moved.
- `ShapeEnv.var_to_sources`: which symbol stands for which size of the inputs, while there is no ExportedProgram yet to
  ask; where it has moved, what an unfinished export has settled is not held against other sizes.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import re
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import torch

from onnxpatch._torch.caught_errors import TraceKept

__all__ = [
    "dynamo_capture",
    "dynamo_export",
    "input_symbols",
    "watched_sizes",
]


@functools.cache
def _dynamo_registry(opset: int) -> Any:
    """The dynamo exporter's table of translations at an opset, or None where it cannot be had."""
    try:
        from torch.onnx._internal.exporter._registration import ONNXRegistry

        return ONNXRegistry.from_torchlib(opset_version=max(opset, 18))
    except Exception:  # moved, or another signature: the public export builds its own
        return None


def dynamo_capture(
    model: Any, args: tuple[Any, ...], kwargs: dict[str, Any], dynamic_shapes: Any, once: bool = False
) -> Any:
    """The first half of a dynamo export: the ExportedProgram that it translates; None where it has no halves.

    The exporter tries torch.export in several ways. once: the first of them alone. Raises what that one raised.
    """
    try:
        from torch.onnx._internal.exporter._capture_strategies import CAPTURE_STRATEGIES
    except ImportError:
        return None
    results = []
    for strategy in CAPTURE_STRATEGIES[: 1 if once else None]:
        traces = strategy.__name__.startswith("Jit")  # up to torch 2.7 or so: its last resort
        with TraceKept() if traces else contextlib.nullcontext():
            results.append(strategy(verbose=False)(model, args, kwargs, dynamic_shapes))
        if results[-1].exported_program is not None:
            return results[-1].exported_program
    raise results[0].exception or RuntimeError("torch.export gave no program")


def dynamo_export(model: Any, args: tuple[Any, ...], kwargs: dict[str, Any], dynamic_shapes: Any, opset: int) -> Any:
    """`torch.onnx.export(..., dynamo=True)` of a module, or of an ExportedProgram, to an ONNXProgram, with the
    translations loaded once."""
    registry = _dynamo_registry(opset)
    try:
        from torch.onnx._internal.exporter import _core

        export: Callable[..., Any] = _core.export
        known = set(inspect.signature(export).parameters)
    except Exception:
        known, registry = set(), None
    if registry is None or not {"registry", "opset_version", "optimize"} <= known:
        return torch.onnx.export(
            model, args, kwargs=kwargs or None, dynamo=True, dynamic_shapes=dynamic_shapes, opset_version=opset,
            verbose=False,
        )  # fmt: skip
    return export(
        model, args, kwargs or None, registry=registry, dynamic_shapes=dynamic_shapes, verbose=False,
        opset_version=opset,
    )  # fmt: skip


@contextlib.contextmanager
def watched_sizes(seen: Callable[[Any, FrameType | None, Any], None]) -> Iterator[None]:
    """Inside the block, in this thread, `seen(condition, frame, env)` is called for every sympy condition on sizes
    that torch.export relies on; the frame is torch's own, called from the user's line; env for `input_symbols`."""
    try:
        from torch.fx.experimental.symbolic_shapes import ShapeEnv

        original = ShapeEnv._log_guard
    except (ImportError, AttributeError):
        yield
        return
    thread = threading.get_ident()

    def watching(self: Any, prefix: str, g: object, *rest: Any, **named: Any) -> Any:
        if threading.get_ident() == thread:
            seen(g, sys._getframe(1), self)
        return original(self, prefix, g, *rest, **named)

    ShapeEnv._log_guard = watching  # type: ignore[method-assign]
    try:
        yield
    finally:
        ShapeEnv._log_guard = original  # type: ignore[method-assign]


def input_symbols(env: object) -> list[str]:
    """The symbols of the inputs' dynamic sizes, in the order of the inputs and of their axes."""
    found = []
    for symbol, sources in getattr(env, "var_to_sources", {}).items():
        name = getattr(sources[0], "name", "") if sources else ""
        name = name() if callable(name) else name
        if re.search(r"\.size\(\)\[\d+\]$", name):
            found.append(str(symbol))
    return found

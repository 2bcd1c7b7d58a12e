"""The proof a patch carries: a small case that fails without it and is right with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from onnxpatch.settings import EXPORTERS, Exporter

Args = tuple[Any, ...]


@dataclass(frozen=True)
class Proof:
    """A case small enough to export in a second, run by one generic test for every patch.

    build: makes the model, with random weights under which the patched code matters.
    inputs: positional arguments; the first is the export example, the others are sizes and data the trace never saw.
    dynamic_shapes: as torch.export takes them, a tuple by position or a dict by argument name.
    fails: exporters in which plain export is refused or wrong at one of the inputs.
    leaner: exporters in which plain export is right, but needs more nodes than the patched one.
    exporters: exporters in which the patched export must be right; those of `fails` and `leaner` unless named.
    options: keyword options of `patched(...)` that the patch needs (e.g. image_size).
    tolerance: largest error allowed, as a share of the output's largest magnitude.
    """

    build: Callable[[], torch.nn.Module]
    inputs: Sequence[Args] | Callable[[], Sequence[Args]]
    dynamic_shapes: Any = None
    fails: tuple[Exporter, ...] = ()
    leaner: tuple[Exporter, ...] = ()
    exporters: tuple[Exporter, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    opset: int = 18
    tolerance: float = 1e-4

    def examples(self) -> list[Args]:
        """The inputs, made anew: the export example first."""
        return list(self.inputs() if callable(self.inputs) else self.inputs)

    def served(self) -> tuple[Exporter, ...]:
        """The exporters in which the patched export must be right."""
        named = {*self.exporters, *self.fails, *self.leaner}
        return tuple(exporter for exporter in EXPORTERS if exporter in named)

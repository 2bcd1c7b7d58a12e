"""`Proof`: a small case that fails without a patch and is right with it. Every patch has one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch

from onnxpatch._torch import pytree
from onnxpatch.settings import EXPORTERS, Exporter

Args = tuple[Any, ...]


@dataclass(frozen=True)
class Proof:
    """A test case that shows what a patch cures: a small model, its inputs, and how its export fails without the patch.

    `onnxpatch list NAME --prove` runs it without any patch and with this one alone, in a second or two.

    build: makes the model, with random weights under which the patched code matters.
    inputs: positional arguments; the first is the export example, the others are sizes and data the trace never saw.
    dynamic_shapes: as torch.export takes them, a tuple by position or a dict by argument name. Left out, the axes in
        which the inputs differ are dynamic; those with equal sizes in each of the inputs have one name.
    fails: exporters in which the export without the patch is refused or wrong at one of the inputs.
    reason: a regular expression found in what the export without the patch says, or in how its output differs. It
        shows that the case fails for the cause that the patch cures, and not for another one.
    leaner: exporters in which the export without the patch is right, but needs more nodes than the patched one.
    slower: by exporter, how many times as long as the patched export the one without the patch takes, at the least. It
        is right, and both are timed at the last of the inputs.
    exporters: exporters in which the patched export must be right; those of `fails`, `leaner` and `slower` unless
        named.
    unchanged: a case in which the patch must change nothing, beside an ordinary network. It makes another model for
        the same example; or "fixed sizes": this model, with every size constant, under dynamo (under trace the exporter
        sees every size as a tensor).
    opset: of the exported file, where the patch needs a later one than 18.
    beside: names of other patches that the case needs. They act with this patch and without it.
    """

    build: Callable[[], torch.nn.Module]
    inputs: Sequence[Args] | Callable[[], Sequence[Args]]
    dynamic_shapes: Mapping[str, Any] | Sequence[Any] | None = None
    fails: tuple[Exporter, ...] = ()
    leaner: tuple[Exporter, ...] = ()
    slower: Mapping[Exporter, float] = field(default_factory=dict)
    exporters: tuple[Exporter, ...] = ()
    reason: str = ""
    beside: tuple[str, ...] = ()
    opset: int = 18
    unchanged: Callable[[], torch.nn.Module] | Literal["fixed sizes"] | None = None

    def examples(self) -> list[Args]:
        """New inputs, the export example first."""
        return list(self.inputs() if callable(self.inputs) else self.inputs)

    def specs(self, examples: Sequence[Args]) -> Mapping[str, Any] | Sequence[Any] | None:
        """`dynamic_shapes`, or what the examples say. Raises ValueError for examples of different structures."""
        return _differing(examples) if self.dynamic_shapes is None else self.dynamic_shapes

    def served(self) -> tuple[Exporter, ...]:
        """The exporters in which the patched export must be right."""
        named = {*self.exporters, *self.fails, *self.leaner, *self.slower}
        return tuple(exporter for exporter in EXPORTERS if exporter in named)

    def under(
        self, opset: int | None = None, dtype: torch.dtype | None = None, device: str | torch.device | None = None
    ) -> Proof:
        """The same case at another opset, with model and inputs in another floating-point dtype or on a device."""
        changed = replace(self, opset=self.opset if opset is None else opset)
        if dtype is None and device is None:
            return changed
        return replace(
            changed,
            build=lambda: self.build().to(device=device, dtype=dtype),
            inputs=lambda: [
                pytree.tree_map(lambda leaf: _moved(leaf, dtype, device), args) for args in self.examples()
            ],
        )


def _moved(leaf: object, dtype: torch.dtype | None, device: str | torch.device | None) -> object:
    if not isinstance(leaf, torch.Tensor):
        return leaf
    return leaf.to(device=device, dtype=dtype if leaf.is_floating_point() else None)


def _differing(examples: Sequence[Args]) -> Sequence[Any] | None:
    """The axes in which the examples differ, by the structure of the arguments; None where they differ in none."""
    flat = [pytree.tree_flatten(args) for args in examples]
    if any(structure != flat[0][1] for _, structure in flat):
        raise ValueError("the inputs of the proof have different structures: give it dynamic_shapes=")
    names: dict[tuple[int, ...], str] = {}
    specs: list[dict[int, str] | None] = []
    for leaves in zip(*(leaves for leaves, _ in flat), strict=True):
        if not all(isinstance(leaf, torch.Tensor) for leaf in leaves):
            specs.append(None)
            continue
        sizes = enumerate(zip(*(leaf.shape for leaf in leaves), strict=True))
        varied = [(axis, lengths) for axis, lengths in sizes if len({*lengths}) > 1]
        specs.append({axis: names.setdefault(lengths, f"d{len(names)}") for axis, lengths in varied} or None)
    return pytree.tree_unflatten(specs, flat[0][1]) if names else None

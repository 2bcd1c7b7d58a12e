"""`Proof`: a small case that fails without a patch and is right with it. Every patch has one.

With what many of them are made of: inputs from the sizes of their axes, and models with random weights, under which a
wrong graph gives wrong numbers.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from torch import Tensor

from onnxpatch._torch import pytree
from onnxpatch.settings import EXPORTERS, Exporter

Args = tuple[Any, ...]
LOST_DIGITS = "relative error|non-finite values differ"  # a `reason` of tries by `at_magnitudes`


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


# ------------------------------------------------------------------ what proofs are made of
def numbers(b: int, n: int) -> Tensor:
    """(b, n) of both signs, the first of them 0."""
    return torch.where(torch.arange(b * n).reshape(b, n) == 0, torch.zeros(()), torch.randn(b, n))


def positive(b: int, n: int) -> Tensor:
    """(b, n) from 0.1 to 3.1."""
    return torch.rand(b, n) * 3 + 0.1


def shares(b: int, n: int) -> Tensor:
    """(b, n) between 0 and 1."""
    return torch.rand(b, n) * 0.9 + 0.05


def pairs(b: int, n: int) -> tuple[Tensor, Tensor]:
    """Twice (b, n), of both signs; a pair in which the first is 0, and one of two equal numbers."""
    x, y = numbers(b, n), torch.randn(b, n)
    y[:, -1] = x[:, -1]
    return x, y


def integers(b: int, n: int) -> Tensor:
    """(b, n) whole numbers from -9 to 9."""
    return torch.randint(-9, 10, (b, n))


def maps(b: int, c: int, h: int, w: int) -> Tensor:
    """(b, c, h, w) of both signs."""
    return torch.randn(b, c, h, w)


def matrices(b: int, n: int, m: int) -> Tensor:
    """(b, n, m) of both signs."""
    return torch.randn(b, n, m)


def fractions(n: int) -> Tensor:
    """(n, 8) in steps from -0.9 to 0.7."""
    return torch.linspace(-0.9, 0.7, 8 * n).reshape(n, 8)


def fraction_pairs(n: int) -> tuple[Tensor, Tensor]:
    """Twice (n, 8) as `fractions`, in another order."""
    return fractions(n), fractions(n).roll(3)


def at_magnitudes(function: Callable[..., Tensor]) -> Callable[..., tuple[Tensor, ...]]:
    """A proof's case: numbers from a millionth to a hundred, each magnitude an output by itself."""

    def computed(*operands: Tensor) -> tuple[Tensor, ...]:
        return tuple(function(*(x * 10.0**power for x in operands)) for power in (-6, -5, 0, 2))

    return computed


def randomised(module: torch.nn.Module) -> torch.nn.Module:
    """Set every parameter to random normal values (standard deviation 0.5) and return the module.

    New layers have biases and tables of zeros, and norms of ones: with these a wrong graph may give right numbers.
    """
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return module


class _Computes(torch.nn.Module):
    """A model whose forward is a function of its inputs."""

    def __init__(self, function: Callable[..., object]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: object) -> object:
        return self.function(*args)


def computing(function: Callable[..., object], *inner: torch.nn.Module) -> torch.nn.Module:
    """A model that calls a function, with its names of the inputs; code of the file in which the function stands.

    inner: modules of the model, which the function takes before the inputs; they are called as it calls them.
    """
    taken = inspect.signature(function)
    names = list(taken.parameters)[: len(inner)]

    class Computing(_Computes):
        def forward(self, *args: object) -> object:
            return self.function(*[getattr(self, name) for name in names], *args)

    Computing.__module__ = function.__module__  # where `int()` and `len()` are the model's own
    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    inputs = [*taken.parameters.values()][len(inner) :]
    Computing.forward.__signature__ = taken.replace(parameters=[own, *inputs])  # type: ignore[attr-defined]
    made = Computing(function)
    for name, module in zip(names, inner, strict=True):
        setattr(made, name, module)
    return made


def of_map(layer: torch.nn.Module) -> torch.nn.Module:
    """A model that feeds a (B, H, W, C) map to a layer that takes (B, H * W, C) and (H, W); its first output.

    The layer's parameters are randomised.
    """

    def computed(layer: torch.nn.Module, x: Tensor) -> object:
        out = layer(x.flatten(1, 2), (x.shape[1], x.shape[2]))
        return out[0] if isinstance(out, tuple) else out

    return computing(computed, randomised(layer))

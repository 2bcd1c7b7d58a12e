"""`OutputLayout`: where the tensors are in what the model returns, and what the graph's outputs are called after it.

It comes from what eager returned, before the export. Exporters take nests of tensors alone: a dataclass that nobody
registered, a string, a Python number, or a dict with keys that are no strings makes them refuse the model. For such an
output the root's forward gives them the tensors, and the structure around these is written into the file.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import torch

from onnxpatch._torch import pytree
from onnxpatch.inputs.caches import opened
from onnxpatch.onnxfile import output_structure
from onnxpatch.onnxfile.output_structure import Path, at, constant, container, label, name_hint, parts
from onnxpatch.onnxfile.tree import Tree

_NUMBERS = (bool, int, float)
_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


@dataclasses.dataclass(frozen=True)
class OutputLayout:
    """The structure of an output, with a hint for the name of each tensor in it; and the places of the tensors.

    nested: exporters take the output as it is. numbers: some places hold Python numbers that differ from input to
    input, which are outputs of the graph too. dtypes: of the tensors at the places, those of such numbers included.
    """

    tree: Tree
    places: tuple[Path, ...]
    nested: bool
    numbers: bool
    dtypes: tuple[torch.dtype, ...] = ()

    def flat(self, output: object) -> list[torch.Tensor]:
        """What eager returned as the graph gives it."""
        values = self.values(output)
        if values is None:  # another structure than at the example: the comparison finds another number of tensors
            return [leaf for leaf in pytree.tree_leaves(opened(output)) if isinstance(leaf, torch.Tensor)]
        return [_as_tensor(value) for value in values]

    def for_exporter(self, output: object) -> object:
        """What the root's forward gives to an exporter: the tensors of its output alone, where these are all there."""
        values = self.values(output)
        if values is None:
            return output
        return tuple(map(_as_tensor, values))

    def values(self, output: object) -> list[object] | None:
        """The values at the places; None where the output has another structure than the one known."""
        inside = opened(output)
        found = [at(inside, place) for place in self.places]
        return found if all(isinstance(value, (torch.Tensor, *_SYMBOLIC, *_NUMBERS)) for value in found) else None

    def named(self, given: Sequence[str], used: Sequence[str]) -> tuple[Tree, list[str]]:
        """(the structure with the names of the graph's outputs in it, these names in order).

        given: the user's names, for the first outputs; used: names that are taken already.
        """
        tree = copy.deepcopy(self.tree)
        return tree, output_structure.name_leaves(tree, given, used)


def _as_tensor(value: object) -> torch.Tensor:
    """A Python number, perhaps a symbolic one, as the tensor that stands for it in the graph: int64, bool or float."""
    if isinstance(value, torch.Tensor):
        return value
    number: Any = value  # torch's annotations know no symbolic numbers
    truth, whole = isinstance(value, bool | torch.SymBool), isinstance(value, int | torch.SymInt)
    return torch.scalar_tensor(number, dtype=torch.bool if truth else torch.int64 if whole else None)


def layout_of(
    answers: Sequence[object], flatten: Callable[[object], Sequence[object]], names: Sequence[str] | None = None
) -> OutputLayout | None:
    """The layout of a model's output, from what eager returned: at the example first, at other inputs after it.

    flatten: an output -> its tensors in the graph's order. names: of the tensors, where they are known. Returns None
    where the tensors are not the leaves of the output in their order: the graph's outputs have names alone then.
    """
    walk = _Walk()
    tree = walk.tree(list(answers), (), ())
    flat = [one for one, place in zip(walk.found, walk.places, strict=True) if place not in walk.numbers]
    wanted = list(flatten(answers[0]))
    # By identity: two outputs may have equal values.
    if len(flat) != len(wanted) or any(one is not other for one, other in zip(flat, wanted, strict=True)):
        return None
    if names is not None and len(names) == len(walk.places):
        for leaf, name in zip(output_structure.leaves(tree), names, strict=True):
            leaf["hint"] = name
    nested, dtypes = not (walk.plain or walk.unregistered), tuple(_as_tensor(one).dtype for one in walk.found)
    return OutputLayout(tree, tuple(walk.places), nested, bool(walk.numbers), dtypes)


def _is_unregistered(value: object) -> bool:
    """Whether exporters take a container for what it is not."""
    # pytree takes such an object for one leaf, and exporters refuse a leaf that is no tensor.
    if dataclasses.is_dataclass(value) and type(value) not in pytree.SUPPORTED_NODES:
        return True
    # Of keys that are no strings the trace exporter makes outputs, too.
    return isinstance(value, dict) and not all(isinstance(key, str) for key in value)


class _Walk:
    """Walks what eager returned at several inputs at once. plain, unregistered: what exporters refuse was met."""

    def __init__(self) -> None:
        self.found: list[object] = []
        self.places: list[Path] = []
        self.numbers: set[Path] = set()
        self.plain = self.unregistered = False

    def tree(self, values: Sequence[object], where: Path, labels: Path) -> Tree:
        first = values[0]
        # A number that changes with the input is computed from it: an output of the graph, and no constant.
        differs = isinstance(first, _NUMBERS) and any(one != first for one in values[1:])
        if isinstance(first, torch.Tensor) or differs:
            self.found.append(first)
            self.places.append(where)
            self.numbers |= {where} if differs else set()
            self.plain |= differs
            return {"kind": "tensor", "hint": name_hint(labels)}
        inside: Mapping[Hashable, object] = parts(first)
        if not inside and not isinstance(first, dict | tuple | list):
            self.plain |= first is not None
            return constant(first)
        self.unregistered |= _is_unregistered(first)
        others = [parts(value) for value in values[1:]]
        below = {
            key: self.tree(
                [one, *(other[key] for other in others if key in other)], (*where, key), (*labels, label(first, key))
            )
            for key, one in inside.items()
        }
        return container(first, below)

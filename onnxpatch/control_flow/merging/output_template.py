"""Finds one structure for what all paths return: where its tensors are, and which of them a path may leave out.

    path 1 returns {"y": a, "mask": None}      structure {"y": Slot([a, b]), "mask": Slot([None, m])}
    path 2 returns {"y": b, "mask": m}         the slot of "mask" is optional

What is equal on all paths, and no tensor, stays in the structure as it is. Numbers that differ become slots. The root's
output may have optional slots, since a graph can return a flag beside a value; a module inside must return exactly what
every path has, since Python goes on with it.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar, cast

import torch

from onnxpatch._torch.cond import free_symbols
from onnxpatch.onnxfile.output_structure import Path, label, parts

T = TypeVar("T")
_NUMBERS = (bool, int, float, torch.SymInt, torch.SymFloat, torch.SymBool)


class _CannotMerge(Exception):
    """The paths return what no one graph can: the text says what and where."""


@dataclasses.dataclass(eq=False)
class Slot:
    """A place in the structure with a value that depends on the path.

    labels: `where` as an output is named by it. values: one for each path, None where it has none.
    """

    where: Path
    labels: Path
    values: list[object]

    @property
    def optional(self) -> bool:
        return any(value is None for value in self.values)

    @property
    def present(self) -> list[object]:
        """The values of the paths that have one."""
        return [value for value in self.values if value is not None]

    @property
    def dtype(self) -> torch.dtype:
        """The dtype in the graph: those of the paths, promoted."""
        return functools.reduce(torch.promote_types, map(_dtype, self.present))

    @property
    def mixed(self) -> bool:
        """Whether the paths have different dtypes."""
        return len({_dtype(value) for value in self.present}) > 1

    @property
    def exact(self) -> bool:
        """Whether a tensor in this place is what every path has, dtype included."""
        return all(isinstance(value, torch.Tensor) for value in self.values) and not self.mixed


def _dtype(value: object) -> torch.dtype:
    if isinstance(value, torch.Tensor):
        return value.dtype
    if isinstance(value, bool | torch.SymBool):
        return torch.bool
    return torch.get_default_dtype() if isinstance(value, float | torch.SymFloat) else torch.int64


@dataclasses.dataclass(eq=False)
class _Container:
    """A container in a structure: an example of its type, and its parts by key, index or field name."""

    like: object
    parts: dict[Hashable, Structure]


Structure: TypeAlias = "Slot | _Container | object"
"""Any other object is a constant: the same on all paths."""


class Template:
    """The structure of what all paths return.

    values: what each path returned. of_root: None and missing keys of a dict are allowed beside tensors.
    """

    def __init__(self, values: Sequence[object], of_root: bool) -> None:
        self._of_root = of_root
        self.slots: list[Slot] = []
        self.structure = self._unify(values, (), ())

    @property
    def exact(self) -> bool:
        """Whether every path returns exactly this structure."""
        return all(slot.exact for slot in self.slots)

    def _unify(self, values: Sequence[object], where: Path, labels: Path) -> Structure:
        # A path with None here does not show what the other paths have.
        first = next((value for value in values if value is not None), None)
        if isinstance(first, torch.Tensor) or any(isinstance(v, torch.Tensor) for v in values):
            return self._slot(values, where, labels)
        if not _has_tensor(first) and all(_same(value, values[0]) for value in values):
            # The same on all paths, so that Python may have it as it is. At the root it goes into the file's metadata.
            return values[0]
        if isinstance(first, _NUMBERS):
            return self._slot(values, where, labels)
        return self._container(first, values, where, labels)

    def _slot(self, values: Sequence[object], where: Path, labels: Path) -> Slot:
        if not all(value is None or isinstance(value, (torch.Tensor, *_NUMBERS)) for value in values):
            raise _CannotMerge(f"the branches return {_type_names(values)} at {format_place(where)}")
        slot = Slot(where, labels, list(values))
        # Of different numbers of dimensions, Where would broadcast one side, and torch.cond refuses both.
        ranks = {value.dim() if isinstance(value, torch.Tensor) else 0 for value in slot.present}
        if len(ranks) > 1:
            raise _CannotMerge(f"the branches return tensors of {sorted(ranks)} dimensions at {format_place(where)}")
        self.slots.append(slot)
        return slot

    def _container(self, first: object, values: Sequence[object], where: Path, labels: Path) -> _Container:
        place, present = format_place(where), [value for value in values if value is not None]
        if len(set(map(type, present if self._of_root else values))) != 1:
            raise _CannotMerge(f"the branches return {_type_names(values)} at {place}")
        found: list[Mapping[Hashable, object]] = [parts(value) for value in values]
        every = dict.fromkeys(itertools.chain.from_iterable(found))
        if not every:
            raise _CannotMerge(f"the branches return different values at {place}: {_type_names(values)}")
        if len({tuple(parts(value)) for value in present}) > 1 and not (self._of_root and isinstance(first, dict)):
            raise _CannotMerge(f"the branches return containers of different lengths or keys at {place}")
        below = {key: [part.get(key) for part in found] for key in every}
        return _Container(
            first, {key: self._unify(one, (*where, key), (*labels, label(first, key))) for key, one in below.items()}
        )


def template_of(values: Sequence[object], of_root: bool) -> Template | str:
    """The template of what paths return; why there is none, where they return what no one graph can."""
    try:
        return Template(values, of_root)
    except _CannotMerge as reason:
        return str(reason)


def folded(
    structure: Structure,
    slot: Callable[[Slot], T],
    constant: Callable[[object], T],
    container: Callable[[Any, dict[Hashable, T]], T],
) -> T:
    """A structure from its leaves up. container: called with an example of its type and what its parts gave."""
    if isinstance(structure, Slot):
        return slot(structure)
    if not isinstance(structure, _Container):
        return constant(structure)
    below = {key: folded(part, slot, constant, container) for key, part in structure.parts.items()}
    return container(structure.like, below)


def assembled(structure: Structure, values: Mapping[int, object]) -> object:
    """The structure with every slot replaced by its value, by id of the slot."""
    return folded(structure, lambda slot: values[id(slot)], lambda constant: constant, _made)


def _made(like: object, parts: dict[Hashable, object]) -> object:
    make = cast("type[Any]", type(like))
    if dataclasses.is_dataclass(like):
        return make(**{str(name): part for name, part in parts.items()})
    if isinstance(like, dict):
        return make(parts)
    return make(*parts.values()) if hasattr(like, "_fields") else make(parts.values())


def _has_tensor(value: object) -> bool:
    return isinstance(value, torch.Tensor) or any(_has_tensor(part) for part in parts(value).values())


def _same(a: object, b: object) -> bool:
    """Whether two values without tensors are equal; symbolic numbers by their expressions, no guard is added."""
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    # `a == b` would add a guard that fixes the two sizes for the whole export.
    if isinstance(a, torch.SymInt | torch.SymFloat | torch.SymBool) and isinstance(b, type(a)):
        return bool(free_symbols(a) == free_symbols(b) and a.node.expr == b.node.expr)
    if isinstance(a, bool | int | float | str | bytes | torch.dtype | torch.device):
        return bool(a == b)
    inner, other = parts(a), parts(b)
    if not inner and not isinstance(a, dict | tuple | list):
        return False
    return inner.keys() == other.keys() and all(_same(part, other[key]) for key, part in inner.items())


def _type_names(values: Iterable[object]) -> str:
    names = dict.fromkeys(type(value).__name__ for value in values)
    return " and ".join(names) if len(names) > 1 else f"different values of type {next(iter(names))}"


def format_place(where: Path) -> str:
    """A place in a structure, as Python would write it: `['aux'][0]`."""
    return "".join(f"[{part!r}]" for part in where) or "the top of the output"

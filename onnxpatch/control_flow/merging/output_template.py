"""One structure for what all paths return: where its tensors are, and which of them a path may leave out."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import torch

from onnxpatch._torch.cond import free_symbols

Path = tuple[Any, ...]
_NUMBERS = (bool, int, float, torch.SymInt, torch.SymFloat, torch.SymBool)


class CannotMerge(Exception):
    """The paths return what no one graph can: the text says what and where."""


class Absent:
    """What a path has where others have a tensor: None."""

    def __repr__(self) -> str:
        return "None"


ABSENT = Absent()


@dataclasses.dataclass(eq=False)
class Slot:
    """A place in the structure filled by a tensor that depends on the path. `values`: one for each path."""

    where: Path
    values: list[Any]

    @property
    def optional(self) -> bool:
        return ABSENT in self.values

    @property
    def present(self) -> list[Any]:
        return [value for value in self.values if value is not ABSENT]

    @property
    def dtype(self) -> torch.dtype:
        found = [_dtype(value) for value in self.present]
        result = found[0]
        for dtype in found[1:]:
            result = torch.promote_types(result, dtype)
        return result

    @property
    def mixed(self) -> bool:
        return len({_dtype(value) for value in self.present}) > 1

    @property
    def exact(self) -> bool:
        """Whether a tensor in this place is what every path has, dtype included."""
        return all(isinstance(value, torch.Tensor) for value in self.values) and not self.mixed


def _dtype(value: Any) -> torch.dtype:
    if isinstance(value, torch.Tensor):
        return value.dtype
    if isinstance(value, bool | torch.SymBool):
        return torch.bool
    return torch.get_default_dtype() if isinstance(value, float | torch.SymFloat) else torch.int64


class Template:
    """`structure`: what the paths return, with a Slot wherever they differ or hold a tensor."""

    def __init__(self, values: list[Any], liberal: bool) -> None:
        self.liberal = liberal
        self.slots: list[Slot] = []
        self.structure = self._unify(values, ())

    @property
    def exact(self) -> bool:
        return all(slot.exact for slot in self.slots)

    def _unify(self, values: list[Any], where: Path) -> Any:
        first = next((v for v in values if v is not None and v is not ABSENT), None)
        if isinstance(first, torch.Tensor) or any(isinstance(v, torch.Tensor) for v in values):
            return self._slot(values, where)
        if not _holds_tensor(first) and all(_same(value, values[0]) for value in values):
            return values[0]
        if isinstance(first, _NUMBERS):
            return self._slot(values, where)
        return self._container(first, values, where)

    def _slot(self, values: list[Any], where: Path) -> Slot:
        known = [ABSENT if value is None else value for value in values]
        wrong = [v for v in known if v is not ABSENT and not isinstance(v, (torch.Tensor, *_NUMBERS))]
        if wrong:
            raise CannotMerge(f"the branches return {_names(values)} at {spelled(where)}")
        slot = Slot(where, known)
        self._check_rank(slot)
        self.slots.append(slot)
        return slot

    def _check_rank(self, slot: Slot) -> None:
        ranks = {value.dim() if isinstance(value, torch.Tensor) else 0 for value in slot.present}
        if len(ranks) > 1:
            raise CannotMerge(f"the branches return tensors of {sorted(ranks)} dimensions at {spelled(slot.where)}")

    def _container(self, first: Any, values: list[Any], where: Path) -> Any:
        kinds = {type(value) for value in values if value is not None and value is not ABSENT}
        if len(kinds) != 1 or (not self.liberal and len({type(v) for v in values}) > 1):
            raise CannotMerge(f"the branches return {_names(values)} at {spelled(where)}")
        parts = [_parts(value) if value is not None and value is not ABSENT else None for value in values]
        names = list(dict.fromkeys(name for part in parts if part is not None for name in part))
        if not names:
            raise CannotMerge(f"the branches return different values at {spelled(where)}: {_names(values)}")
        if not self._same_keys(first, parts):
            raise CannotMerge(f"the branches return containers of different lengths or keys at {spelled(where)}")
        made = {
            name: self._unify([ABSENT if p is None else p.get(name, ABSENT) for p in parts], (*where, name))
            for name in names
        }
        return Built(first, made)

    def _same_keys(self, first: Any, parts: Iterable[Any]) -> bool:
        if self.liberal and isinstance(first, dict):
            return True
        return len({tuple(part) for part in parts if part is not None}) == 1


@dataclasses.dataclass(eq=False)
class Built:
    """A container in a structure: an example of its kind, and its parts by name or index."""

    like: Any
    parts: dict[Any, Any]


def _parts(value: Any) -> dict[Any, Any]:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, dict):
        return dict(value)
    if isinstance(value, tuple | list):
        return dict(enumerate(value))
    return {}


def assembled(structure: Any, filled: dict[int, Any]) -> Any:
    """The structure with every slot replaced by what is filled in for it (by id of the slot)."""
    if isinstance(structure, Slot):
        return filled[id(structure)]
    if not isinstance(structure, Built):
        return structure
    parts = {name: assembled(part, filled) for name, part in structure.parts.items()}
    like = structure.like
    if dataclasses.is_dataclass(like):
        made: Any = type(like)
        return made(**parts)
    if isinstance(like, dict):
        return type(like)(parts)
    return type(like)(*parts.values()) if hasattr(like, "_fields") else type(like)(parts.values())


def _holds_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor) or any(_holds_tensor(part) for part in _parts(value).values())


def _same(a: Any, b: Any) -> bool:
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    if isinstance(a, torch.SymInt | torch.SymFloat | torch.SymBool):
        return bool(free_symbols(a) == free_symbols(b) and a.node.expr == b.node.expr)
    if isinstance(a, bool | int | float | str | bytes | torch.dtype | torch.device):
        return bool(a == b)
    inner, other = _parts(a), _parts(b)
    if not inner and not isinstance(a, dict | tuple | list):
        return False
    return inner.keys() == other.keys() and all(_same(v, other[k]) for k, v in inner.items())


def _names(values: list[Any]) -> str:
    found = dict.fromkeys("None" if value is ABSENT else type(value).__name__ for value in values)
    return " and ".join(found) if len(found) > 1 else f"different values of type {next(iter(found))}"


def spelled(where: Path) -> str:
    """A place in a structure, as Python would write it."""
    return "".join(f"[{part!r}]" for part in where) or "the top of the output"

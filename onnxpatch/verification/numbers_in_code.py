"""Reads constants from a model's code: numbers that it compares with, sizes that it was made for, keys of its tables.

if int(ids[0]) == self.config.end: ...     an attribute of a module or its config
if len(x) > LONGEST: ...                   a global, an argument, a closure's
self.steps[x.shape[0]], f"{h}x{w}" == "16x12"      keys of a dict, numbers in a text
self.patch_size = 14                       a step, by its name

Only functions that ran are read. Names are looked up where the code would find them; nothing is called.
"""

from __future__ import annotations

import dis
import itertools
import math
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from onnxpatch.decisions.functions_run import Function, instruction_line, instructions_of

_CHOOSING = frozenset((
    "range", "split", "chunk", "get", "isclose", "allclose", "searchsorted", "bucketize", "digitize", "bisect",
    "bisect_left", "bisect_right", "index", "count", "islice", "batched",
))  # fmt: skip
_CONSTANTS = ("LOAD_CONST", "LOAD_SMALL_INT")
_FINITE = frozenset(("isnan", "isinf", "isfinite", "nan_to_num"))
# By the names of attributes, since nothing else tells a size from the other numbers of a model.
_NATIVE = re.compile(r"(im(age|g)?_?size|input|native|train|resol|grid|max|len|context|seq|feat.*size|win|res$)")
_STEP = re.compile(r"(patch|stride|window|win_?size|block|chunk|segment|factor|scale|hop|group_size|pool)")
_LARGEST = 4096  # of a size
_MOST = 8  # of a kind
_LONGEST = 32  # elements of a table: with more it is a vocabulary
# Short, and nothing but a word and numbers: no pattern of einops, no message.
_TEXT = re.compile(r"[A-Za-z_]{0,6}[-\d.,;:x*_ ]{1,32}")
_IN_TEXT = re.compile(r"-?\d+(?:\.\d+)?|\d+")
Row = tuple[float, ...]


@dataclass(frozen=True)
class Mentioned:
    """asked: numbers on lines that compare or choose by a number; others: elsewhere in the code. Each once.

    rows: lists of numbers on lines that ask. keys: of tables, and the numbers of texts. finite: NaN or infinity are
    asked for by name. native: sizes to try as they are. steps: strides and patch sizes; sizes may have to be multiples
    of them. files: by a number that is asked for, the files in which it is.
    """

    asked: Row = ()
    others: Row = ()
    rows: tuple[Row, ...] = ()
    keys: tuple[tuple[int, ...], ...] = ()
    finite: bool = False
    native: tuple[int, ...] = ()
    steps: tuple[int, ...] = ()
    files: Mapping[float, set[str]] = field(default_factory=dict)

    @property
    def thresholds(self) -> list[int]:
        """The numbers that may be sizes."""
        return [int(n) for n in (*self.asked, *self.others) if n == int(n) and 1 < n <= _LARGEST][:_MOST]

    def values(self, files: Collection[str]) -> list[float]:
        """The numbers that data may be compared with, where these files ask it."""
        near = (n for n in self.asked if not self.files.get(n, set()).isdisjoint(files))
        return [n for n in near if abs(n) > 1 or n != int(n)][:_MOST]


def mentioned(model: torch.nn.Module, functions: Sequence[Function]) -> Mentioned:
    """functions: of the model, those that ran."""
    attributes = _by_name(model)
    steps, native = _named(attributes, _STEP, 64), _named(attributes, _NATIVE, _LARGEST)
    asked, others = dict[float, None](), dict[float, None]()
    rows, keys, files = dict[Row, None](), dict[tuple[int, ...], None](), defaultdict[float, set[str]](set)
    for function in functions:
        for value, asks, looks_up in _loaded(function, attributes):
            for number in _numbers(value):
                (asked if asks else others).setdefault(number)
                files[number].add(function.code.co_filename)
            rows.update(dict.fromkeys(_rows(value)) if asks else {})
            # {25: x * 2}.get(n): the keys are constants, what they stand for is none.
            held = dict.fromkeys(value if isinstance(value, tuple) else (value,)) if looks_up else value
            keys.update(dict.fromkeys(_keys(held)))
    return Mentioned(
        tuple(asked), tuple(n for n in others if n not in asked), tuple(rows), tuple(keys)[:_MOST],
        any(_FINITE & set(one.code.co_names) for one in functions), _top(native), _top(steps), files,
    )  # fmt: skip


def _top(counts: Counter[int]) -> tuple[int, ...]:
    return tuple(n for n, _ in counts.most_common(_MOST))


# ------------------------------------------------------------------ the code
def _loaded(function: Function, attributes: Mapping[str, list[object]]) -> Iterator[tuple[object, bool, bool]]:
    """(value, whether its line asks, whether it may be a key of a dict that its line makes) of what a function loads.

    As far as it is known without running it.
    """
    line, found, asking, making, indexes = 0, list[tuple[int, object, bool]](), set[int](), set[int](), False
    instructions = instructions_of(function.code)
    for one, following in zip(instructions, [*instructions[1:], None], strict=True):
        line = instruction_line(one) or line
        asking |= {line} if _asks(one) else set()
        making |= {line} if one.opname in ("BUILD_MAP", "BUILD_CONST_KEY_MAP") else set()
        constant = one.opname.startswith(_CONSTANTS)
        if not (constant and _subscribes(following)):
            found += ((line, value, constant) for value in _values(one, function, attributes))
            indexes |= _subscribes(following)  # table[n], wherever the table was made
    for line, value, constant in found:
        yield value, line in asking, constant and line in making and (indexes or line in asking)


def _asks(one: dis.Instruction) -> bool:
    """Whether an instruction compares, or loads what chooses by a number."""
    chooses = one.opname.startswith("LOAD_") and str(one.argval) in _CHOOSING
    return chooses or one.opname in ("COMPARE_OP", "CONTAINS_OP")


def _values(one: dis.Instruction, function: Function, attributes: Mapping[str, list[object]]) -> Iterable[object]:
    """What an instruction may load."""
    if one.opname.startswith(_CONSTANTS):
        return (one.argval,)
    if one.opname.startswith(("LOAD_GLOBAL", "LOAD_NAME")):
        return (function.globals.get(one.argval),)
    if one.opname.startswith(("LOAD_ATTR", "LOAD_METHOD")):
        return attributes.get(one.argval, ())
    names = one.argval if isinstance(one.argval, tuple) else (one.argval,)
    local = one.opname.startswith(("LOAD_FAST", "LOAD_DEREF"))
    return [function.given[name] for name in names if name in function.given] if local else ()


def _subscribes(one: dis.Instruction | None) -> bool:
    """Whether it takes an item: what is loaded before it is a place, and no number that data is compared with."""
    return one is not None and (one.opname == "BINARY_SUBSCR" or (one.opname == "BINARY_OP" and one.argrepr == "[]"))


def _by_name(model: torch.nn.Module) -> dict[str, list[object]]:
    """The attributes of all modules, of their classes and of the objects that they hold, such as a config."""
    found: dict[str, list[object]] = {}
    for module in model.modules():
        held = [value for value in vars(module).values() if _is_plain_object(value)]
        classes = [cls for cls in type(module).__mro__ if not cls.__module__.startswith(("torch", "builtins"))]
        for owner in (vars(module), module._modules, *map(vars, held), *map(vars, classes)):
            for name, value in owner.items():
                if isinstance(value, int | float | str | tuple | list | dict | set | frozenset | torch.nn.ModuleDict):
                    found.setdefault(name, []).append(value)
    return found


def _is_plain_object(value: object) -> bool:
    return hasattr(value, "__dict__") and not callable(value) and not isinstance(value, torch.Tensor | torch.nn.Module)


# ------------------------------------------------------------------ a value
def _members(value: object) -> list[Any]:
    if isinstance(value, torch.nn.ModuleDict):
        return list(value.keys())
    if isinstance(value, str):
        return list(map(float, _IN_TEXT.findall(value))) if _TEXT.fullmatch(value) else []
    if isinstance(value, dict) and len(value) <= _LONGEST:
        return [*value, *value.values()]
    if isinstance(value, set | frozenset | tuple | list) and len(value) <= _LONGEST:
        return sorted(value, key=str) if isinstance(value, set | frozenset) else list(value)
    return []


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _numbers(value: object, depth: int = 2) -> Iterator[float]:
    if _is_number(value):
        yield value  # type: ignore[misc]
    elif depth:
        yield from itertools.chain.from_iterable(_numbers(one, depth - 1) for one in _members(value))


def _rows(value: object) -> Iterator[Row]:
    for one in (value, *_members(value)):
        row = tuple(_members(one)) if isinstance(one, tuple | list | str) else ()
        if len(row) > 0 and all(map(_is_number, row)):
            yield row


def _keys(value: object) -> Iterator[tuple[int, ...]]:
    """Each key as its numbers: (12,) or (16, 12)."""
    held = isinstance(value, set | frozenset | torch.nn.ModuleDict)
    known = list(value) if isinstance(value, dict) else _members(value) if held else [value]
    for one in known if held or isinstance(value, dict | str) else ():
        numbers = one if isinstance(one, tuple) else (one,) if _is_number(one) else _members(one)
        if 0 < len(numbers) <= 2 and all(_is_number(n) and n == int(n) for n in numbers):
            yield tuple(abs(int(n)) for n in numbers)


# ------------------------------------------------------------------ attributes
def _named(attributes: Mapping[str, list[object]], names: re.Pattern[str], largest: int) -> Counter[int]:
    """The sizes in attributes with such names."""
    public = (values for name, values in attributes.items() if names.search(name) and not name.startswith("_"))
    found = itertools.chain.from_iterable(public)
    return Counter(n for value in found for n in _whole(value) if 1 < n <= largest)


def _whole(value: object) -> Iterator[int]:
    if isinstance(value, int) and not isinstance(value, bool):
        yield value
    elif isinstance(value, tuple | list) and len(value) <= 4:
        for inner in value:
            yield from _whole(inner)

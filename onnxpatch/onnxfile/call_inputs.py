"""What a model is called with, written into the ONNX file's metadata: a graph may take less than the model does.

The TorchScript exporter drops what nothing reads, and neither exporter has inputs for text; numbers may be constants.
The metadata key `onnxpatch.inputs` names all in the order of the call, with the value of what is no tensor:

    [{"name": "x"}, {"name": "flip", "value": true}]
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from onnxpatch.errors import InputError
from onnxpatch.onnxfile.metadata import Json, damaged, parse_json, short_string

KEY = "onnxpatch.inputs"
Constant: TypeAlias = "bool | int | float | str"
_LONGEST = 200  # characters of a name or a text

# By name; None for a tensor.
Call: TypeAlias = "dict[str, Constant | None]"


def entry(call: Sequence[tuple[str, object]]) -> dict[str, str]:
    """The metadata for a call: (name, value) of each tensor, number and text. {} where one has no place in it."""
    known = [(name, _constant(value)) for name, value in call]
    if not all(len(name) <= _LONGEST and _fits(value) for name, value in known):
        return {}
    rows = [{"name": name} if value is None else {"name": name, "value": value} for name, value in known]
    return {KEY: json.dumps(rows)}


def read(metadata: Mapping[str, str]) -> Call:
    """The call in a file's metadata; {} for none. Raises InputError for an entry that `entry` cannot have made."""
    rows = parse_json(KEY, metadata[KEY]) if KEY in metadata else []
    if not isinstance(rows, list):
        raise damaged(KEY, "it is not a list of objects")
    return dict(map(_checked, rows))


def left_out(call: Call, found: dict[str, object], inputs: Sequence[str]) -> dict[str, object]:
    """The values of a call without those that the graph has no input for.

    Raises InputError for a number or a text that is another one than in the file.
    """
    for name, value in found.items():
        constant = call.get(name)
        if name not in inputs and constant is not None and not _same(value, constant):
            given = repr(value) if _constant(value) is not None else f"a {type(value).__name__}"
            raise InputError(f"{name} is {given}, and {constant!r} in this file, where it is a constant: export again")
    return {name: value for name, value in found.items() if name in inputs}


def _same(value: object, constant: Constant) -> bool:
    return _constant(value) is not None and (value == constant or (value != value and constant != constant))


def _constant(value: object) -> Constant | None:
    return value if isinstance(value, bool | int | float | str) else None


def _fits(value: Constant | None) -> bool:
    """Whether a number or text is written and read. Whole numbers have 64 bits: a longer one equals no float."""
    return len(value) <= _LONGEST if isinstance(value, str) else not isinstance(value, int) or abs(value) < 1 << 63


def _checked(row: Json) -> tuple[str, Constant | None]:
    if not isinstance(row, dict):
        raise damaged(KEY, "it is not a list of objects")
    value = row.get("value")
    if value is not None and _constant(value) is None:
        raise damaged(KEY, "a value is neither a number nor text")
    if not _fits(_constant(value)):
        raise damaged(KEY, "a value is too long")
    return short_string(KEY, row.get("name")), _constant(value)

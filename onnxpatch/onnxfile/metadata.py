"""JSON in the metadata of an ONNX file. Whoever wrote the file chose it, so it is data: parsed, measured, never run."""

from __future__ import annotations

import json
from typing import Any

from onnxpatch.errors import InputError

_MOST = 4 << 20  # characters; the plan of a model with 10,000 swapped modules takes 1.5 million
_SHORT = 200


def parsed(key: str, text: str) -> Any:
    """The JSON value under `key`. Raises InputError for text that is too long, nested too deep, or no JSON."""
    if len(text) > _MOST:
        raise damaged(key, f"it has {len(text)} characters, {_MOST} are the most")
    try:
        return json.loads(text)
    except RecursionError:
        raise damaged(key, "it is nested too deep") from None
    except ValueError as error:  # an integer of thousands of digits is one as well
        raise damaged(key, f"it is no JSON ({error})") from None


def short(key: str, value: object, most: int = _SHORT) -> str:
    """`value`, where it is a string of at most `most` characters. Raises InputError otherwise."""
    if not isinstance(value, str):
        raise damaged(key, f"{type(value).__name__} where a string belongs")
    if len(value) > most:
        raise damaged(key, f"a string of {len(value)} characters, {most} are the most")
    return value


def damaged(key: str, found: str) -> InputError:
    """The error for metadata that onnxpatch cannot have written."""
    return InputError(f"the file's metadata {key} is damaged: {found[:_SHORT]}: export the file again")

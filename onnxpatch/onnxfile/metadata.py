"""Reading JSON from the metadata of an ONNX file, which may come from anywhere: sizes are limited, nothing is run."""

from __future__ import annotations

import json
from typing import TypeAlias

from onnxpatch.errors import InputError

# What json.loads returns. In quotes: it refers to itself.
Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"

_MOST = 4 << 20  # characters; the plan of a model with 10,000 swapped modules takes 1.5 million
_SHORT = 200  # characters of a name, a version or a digest


def parse_json(key: str, text: str) -> Json:
    """The JSON value that `text` is. key: the metadata key, for messages.

    Raises InputError for text that is too long, nested too deep, or not JSON.
    """
    if len(text) > _MOST:
        raise damaged(key, f"it has {len(text)} characters, more than {_MOST}")
    try:
        value: Json = json.loads(text)
        return value
    except RecursionError:
        raise damaged(key, "it is nested too deeply") from None
    except ValueError as error:  # also what Python raises for an integer of thousands of digits
        raise damaged(key, f"it is not JSON ({error})") from None


def short_string(key: str, value: object, most: int = _SHORT) -> str:
    """`value` itself, if it is a string of at most `most` characters. Raises InputError if not."""
    if not isinstance(value, str):
        raise damaged(key, f"a {type(value).__name__} was found in place of a string")
    if len(value) > most:
        raise damaged(key, f"a string has {len(value)} characters, more than {most}")
    return value


def damaged(key: str, found: str) -> InputError:
    """The error for metadata that onnxpatch cannot have written. found: what is wrong with it."""
    return InputError(f"the file's metadata {key} is damaged: {found[:_SHORT]}: export the file again")

"""Turns results into values that JSON has: dataclasses become objects, NaN becomes null, infinity a string."""

from __future__ import annotations

import dataclasses
import math


def json_value(value: object) -> object:
    """The value with dicts, lists, strings, numbers, bools and None only. A dataclass with `ok` gets that key too."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: json_value(getattr(value, field.name)) for field in dataclasses.fields(value)}
        return fields | ({"ok": value.ok} if hasattr(value, "ok") else {})
    if isinstance(value, dict):
        return {str(key): json_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [json_value(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    return value

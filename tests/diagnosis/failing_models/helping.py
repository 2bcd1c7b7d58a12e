"""A helper as libraries have them: its line is nobody's fault, the call is."""

from __future__ import annotations

from typing import Any


def whole(x: Any) -> int:
    return int(x)

"""Counts, bytes and seconds in words: `1 size`, `3 sizes`, `194 MB`, `42 s`."""

from __future__ import annotations


def counted(number: int, name: str) -> str:
    """`1 size`, `2 sizes`. name: one whose plural has an s."""
    return f"{number} {name}{'' if number == 1 else 's'}"


def in_bytes(total: float) -> str:
    """The size of a file: `4.2 MB`."""
    for unit in ("B", "KB", "MB"):
        if total < 1000:
            return f"{total:.3g} {unit}"
        total /= 1000
    return f"{total:.3g} GB"


def in_seconds(seconds: float) -> str:
    """`0.4 s`, `42 s`."""
    return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"

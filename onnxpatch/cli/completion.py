"""Completion of patch names in a shell. It must not wait for torch: the names are read from the source of the kit."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

_NAMED = re.compile(r"""^\s*(?:@\w*\.?patch\(.*)?name=["']([\w.-]+)["']""", re.MULTILINE)


def patch_names(incomplete: str) -> list[str]:
    """The names of the kit's patches that begin with `incomplete`. A user's own patches are not among them."""
    return sorted(name for name in set(_named()) if name.startswith(incomplete))


def _named() -> Iterator[str]:
    installed = Path(__file__).parents[1] / "patches"
    folder = installed if installed.is_dir() else Path(__file__).parents[2] / "patches"  # a checkout
    for file in folder.rglob("*.py"):
        yield from _NAMED.findall(file.read_text(encoding="utf-8"))

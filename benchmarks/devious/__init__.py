"""Small models whose graphs go wrong where nobody looks, each with inputs that show it. `everything()` finds them.

Each file holds one kind. The held-out inputs of a model were written together with it, before any verdict was asked.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator

from benchmarks.devious.kinds import KINDS, Devious


def everything() -> Iterator[tuple[str, Devious]]:
    """(name, model) of every one, in the order of the files."""
    for found in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{found.name}")
    yield from KINDS.items()

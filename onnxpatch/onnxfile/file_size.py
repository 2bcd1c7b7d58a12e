"""How large a file is, with the weights beside it."""

from __future__ import annotations

import os
from pathlib import Path


def bytes_of(file: str | os.PathLike[str]) -> int:
    """The bytes of a file and of its external weights; 0 if there is no file."""
    path = Path(file)
    # The dynamo exporter puts the weights of a large model into FILE.data.
    return sum(one.stat().st_size for one in (path, path.with_name(f"{path.name}.data")) if one.is_file())


def bytes_beside(file: Path) -> int:
    """The bytes of all files in the folder of a file that an export has just made: its weights may lie in many."""
    return sum(one.stat().st_size for one in file.parent.iterdir())

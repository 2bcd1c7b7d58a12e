"""How much memory the arrays of a file take, read from its headers before anything is unpacked."""

from __future__ import annotations

import math
import zipfile
from pathlib import Path
from typing import IO, Any

from onnxpatch.errors import InputError

LARGEST = 1 << 31  # bytes that an input may take where its file does not have as many itself
_HEADERS = 4096  # entries of an archive whose headers are read


def refuse_oversized(path: Path) -> None:
    """Raises InputError where a .npz or .npy would take more memory than it may: packed bytes, or a shape that the
    file does not fill. Files of other kinds hold what they state."""
    if path.suffix == ".npz" and zipfile.is_zipfile(path):
        _refuse_archive(path)
    elif path.suffix == ".npy":
        with open(path, "rb") as file:
            _refuse_array(path, path.name, file, path.stat().st_size)


def _refuse_archive(path: Path) -> None:
    with zipfile.ZipFile(path) as archive:
        entries = archive.infolist()
        total = sum(entry.file_size for entry in entries)
        if total > max(LARGEST, 2 * path.stat().st_size) or len(entries) > _HEADERS:
            raise InputError(
                f"{path} unpacks to {total / 2**30:.1f} GiB in {len(entries)} arrays, {LARGEST >> 30} GiB in "
                f"{_HEADERS} are the most: write what is needed as .npy or .safetensors"
            )
        for entry in entries:
            with archive.open(entry) as file:
                _refuse_array(path, entry.filename, file, entry.file_size)


def _refuse_array(path: Path, name: str, file: IO[bytes], size: int) -> None:
    """Raises InputError where the header of an array asks for more than the `size` bytes that hold it."""
    needed = _stated(file)
    if needed is not None and needed > size:
        raise InputError(f"{path}: {name} states {needed / 2**30:.1f} GiB and holds {size} bytes: write it again")


def _stated(file: IO[bytes]) -> int | None:
    """Bytes of the array whose header comes next; None where there is none that numpy reads."""
    from numpy.lib import format as npy

    try:
        version = npy.read_magic(file)
        read: Any = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, _, dtype = read(file)
    except Exception:  # numpy says it better when it reads the file
        return None
    return math.prod(shape) * int(dtype.itemsize)

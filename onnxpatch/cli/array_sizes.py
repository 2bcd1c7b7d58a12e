"""Refuses .npz and .npy files whose arrays would take far more memory than the file, before anything is unpacked.

Two ways to do that: a zip archive of a few kB unpacks to terabytes, and a header may state a shape that the data after
it does not fill, which numpy allocates before it notices. .safetensors have their numbers in the file as they are.
"""

from __future__ import annotations

import math
import zipfile
from pathlib import Path
from typing import IO, TypeAlias

import numpy as np

from onnxpatch.errors import InputError

LARGEST = 1 << 31  # bytes that an input may take where its file is not as large itself
_MOST_ARRAYS = 4096  # arrays in one archive
_Header: TypeAlias = tuple[tuple[int, ...], bool, np.dtype[np.generic]]  # shape, whether in Fortran's order, dtype


def refuse_oversized(path: Path) -> None:
    """Raise InputError where a .npz or .npy would take more memory than allowed. Other files pass."""
    if path.suffix == ".npz" and zipfile.is_zipfile(path):
        _refuse_archive(path)
    elif path.suffix == ".npy":
        with open(path, "rb") as file:
            _refuse_array(path, path.name, file, path.stat().st_size)


def _refuse_archive(path: Path) -> None:
    with zipfile.ZipFile(path) as archive:
        entries = archive.infolist()
        total = sum(entry.file_size for entry in entries)
        # A file that is large itself may unpack to twice its size.
        if total > max(LARGEST, 2 * path.stat().st_size) or len(entries) > _MOST_ARRAYS:
            raise InputError(
                f"{path} unpacks to {total / 2**30:.1f} GiB in {len(entries)} arrays, more than {LARGEST >> 30} "
                f"GiB or {_MOST_ARRAYS} arrays: write the ones that are needed to .npy or .safetensors"
            )
        for entry in entries:
            with archive.open(entry) as file:
                _refuse_array(path, entry.filename, file, entry.file_size)


def _refuse_array(path: Path, name: str, file: IO[bytes], size: int) -> None:
    """Raise InputError where the header of an array states more bytes than the `size` bytes of the entry."""
    # More than stated is no danger: numpy reads as much as the header says.
    needed = _stated_bytes(file)
    if needed is not None and needed > size:
        raise InputError(f"{path}: {name} states {needed / 2**30:.1f} GiB but has {size} bytes: write it again")


def _stated_bytes(file: IO[bytes]) -> int | None:
    """The bytes that the array at this place takes by its header; None where numpy cannot read the header."""
    from numpy.lib import format as npy

    try:
        version = npy.read_magic(file)
        # Version 3.0 differs from 2.0 in the encoding of field names only.
        header: _Header = npy.read_array_header_1_0(file) if version == (1, 0) else npy.read_array_header_2_0(file)
    except Exception:  # numpy's own error, when it reads the file, says more
        return None
    shape, _, dtype = header
    return math.prod(shape) * dtype.itemsize

"""`--input`: tensors from a description such as `x=float32[2,3,H,W]`, or from .npy, .npz and .safetensors files.

x=float32[2,3,H,W=320]     random numbers, 2x3x224x320; H and W may change
tokens=int64[2,T]<1000     whole numbers below 1000
x=FILE.npz:key             one array of a file; without :key the one called x, or the only one
FILE.npz                   every array of a file, named like the arguments of forward
"""

from __future__ import annotations

import math
import re
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TypeAlias

import numpy as np
import torch

from onnxpatch.errors import InputError
from onnxpatch.onnxfile.runtimes.interface import Array as NumpyArray

LARGEST = 1 << 31  # bytes that an input may take where its file is not as large itself
_MOST_ARRAYS = 4096  # arrays in one archive
_Header: TypeAlias = tuple[tuple[int, ...], bool, np.dtype[np.generic]]  # shape, whether in Fortran's order, dtype
FILES = (".npy", ".npz", ".safetensors")
_BATCH, _PIXELS, _LENGTH = 2, 224, 16
_SHAPED = re.compile(r"(?P<dtype>[a-z][a-z0-9_]*)\[(?P<dims>[^\]]*)\](?:<(?P<below>\d+))?")


@dataclass
class Array:
    """One input.

    name: the argument, or a place in one: `x`, `xs.0`, `batch.mask`. free: axis -> name, for axes that may change.
    """

    name: str
    value: torch.Tensor
    free: dict[int, str] = field(default_factory=dict)


@dataclass
class _ExampleSizes:
    """Example sizes of the named dimensions, shared by all inputs: one name has one size.

    image: (height, width) of `--image-size`. known: sizes by name, so far. drawn: how many inputs were made so far.
    """

    image: tuple[int, int] | None = None
    known: dict[str, int] = field(default_factory=dict)
    drawn: int = 0

    def seed(self, rank: int) -> int:
        """A random seed for the next input. Each has its own: two inputs of one shape must have different numbers."""
        self.drawn += 1
        return rank + 1000 * (self.drawn - 1)

    def of(self, name: str, axis: int, rank: int, floating: bool) -> int:
        """The size of a named dimension.

        A size stated before; else 2 for a batch, 224 (or the image size) for pixels, 16 for a length.
        """
        if name not in self.known:
            self.known[name] = self._default(axis, rank, floating)
        return self.known[name]

    def _default(self, axis: int, rank: int, floating: bool) -> int:
        if axis == 0:
            return _BATCH
        if floating and rank >= 4 and axis >= rank - 2:
            return self.image[axis - rank + 2] if self.image else _PIXELS
        return _LENGTH


def read_inputs(texts: Iterable[str], image: tuple[int, int] | None = None) -> list[Array]:
    """The inputs that `--input` describes, each text of which is one or several; one name has one size in all of them.

    image: (height, width) of `--image-size`. Raises InputError that says what is not understood.
    """
    sizes = _ExampleSizes(image)
    return [array for text in texts for array in _read(text, sizes)]


def _read(text: str, sizes: _ExampleSizes) -> list[Array]:
    """The inputs that one `--input` describes."""
    name, equals, rest = text.partition("=")
    # A bracket before the = has it inside, `x[H=3]`: there is no name.
    if not equals or "[" in name or name.endswith(FILES):
        if text.endswith(FILES):
            return _all_arrays(Path(text))
        raise InputError(f"--input {text!r}: write name=float32[2,3,H,W], name=FILE.npz:key, or FILE.npz alone")
    if "[" in rest:
        return [_described(name, rest, sizes)]
    path, _, key = rest.partition(":")
    if not path.endswith(FILES):
        raise InputError(f"--input {text!r}: {rest!r} is neither float32[2,3,H,W] nor a file ({', '.join(FILES)})")
    return [Array(name, _one_array(Path(path), key or name, bool(key)))]


def _described(name: str, text: str, sizes: _ExampleSizes) -> Array:
    match = _SHAPED.fullmatch(text)
    dtype = getattr(torch, match["dtype"], None) if match else None
    if match is None or not isinstance(dtype, torch.dtype):
        raise InputError(f"--input {name}={text}: write a torch dtype and a shape, such as float32[2,3,H,W]")
    dims = [dim.strip() for dim in match["dims"].split(",")] if match["dims"].strip() else []
    named = [_dimension(name, dim, axis, len(dims), dtype.is_floating_point, sizes) for axis, dim in enumerate(dims)]
    shape = [size for _, size in named]
    total = math.prod(shape) * dtype.itemsize
    if total > LARGEST:
        raise InputError(f"--input {name}={text}: {total / 2**30:.1f} GiB at {shape}: give smaller sizes, such as H=64")
    below = int(match["below"]) if match["below"] else None
    if below == 0:
        raise InputError(f"--input {name}={text}: there are no numbers to draw from below 0: write <2 or more")
    try:
        value = _random(name, shape, dtype, below, sizes.seed(len(shape)))
    except (RuntimeError, NotImplementedError):  # quantized dtypes, bits8 and the like
        raise InputError(
            f"--input {name}={text}: torch has no random numbers of dtype {match['dtype']}: give a file"
        ) from None
    return Array(name, value, {axis: label for axis, (label, _) in enumerate(named) if label})


def _dimension(name: str, text: str, axis: int, rank: int, floating: bool, sizes: _ExampleSizes) -> tuple[str, int]:
    """(name or "", example size) of one dimension: `3`, `H` or `H=224`."""
    label, equals, number = (part.strip() for part in text.partition("="))
    if not equals and label.isdigit():
        label, number = "", label
    if not (label or number) or (label and not label.isidentifier()) or (equals and not number.isdigit()):
        raise InputError(f"--input {name}: dimension {text!r} is neither a size, a name, nor a name=size such as H=224")
    if not number:
        return label, sizes.of(label, axis, rank, floating)
    if int(number) < 1:
        raise InputError(f"--input {name}: dimension {text!r}: sizes start at 1")
    if label and sizes.known.setdefault(label, int(number)) != int(number):
        raise InputError(f"--input {name}: {label} is {number} here and {sizes.known[label]} elsewhere")
    return label, int(number)


def _random(name: str, shape: list[int], dtype: torch.dtype, below: int | None, seed: int) -> torch.Tensor:
    """Normally distributed floats, whole numbers from 0 to `below` (2 by default) or bools.

    Whole numbers and bools of an input with "mask" in its name are all 1: a random mask may mask whole rows, for which
    attention has no defined result.
    """
    generator = torch.Generator().manual_seed(seed)
    if dtype.is_complex:
        return torch.randn(shape, generator=generator, dtype=torch.complex64).to(dtype)
    if dtype.is_floating_point:
        # Drawn in float32: torch draws no normal numbers in float8.
        return torch.randn(shape, generator=generator).to(dtype)
    if "mask" in name:
        return torch.ones(shape, dtype=dtype)
    return torch.randint(0, below or 2, shape, generator=generator).to(dtype)


def _all_arrays(path: Path) -> list[Array]:
    if path.suffix == ".npy":
        raise InputError(f"--input {path}: a .npy has one array without a name: write name={path}")
    return [Array(name, value) for name, value in _tensors(path).items()]


def _one_array(path: Path, key: str, named: bool) -> torch.Tensor:
    tensors = _tensors(path)
    if key in tensors:
        return tensors[key]
    if len(tensors) == 1 and not named:
        return next(iter(tensors.values()))
    raise InputError(f"{path} has no array {key!r}; it has {', '.join(tensors) or 'none'}: write name={path}:KEY")


def _tensors(path: Path) -> dict[str, torch.Tensor]:
    """Every array of a file by its name; that of a .npy is ""."""
    try:
        if not path.is_file():
            raise InputError(f"{path}: there is no such file")
        _refuse_oversized(path)
        return _safetensors(path) if path.suffix == ".safetensors" else _numpy(path)
    except ImportError as error:
        raise InputError(f"{path}: reading it needs {error.name}: pip install 'onnxpatch[cli]'") from None
    except InputError:
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {' '.join(str(error)[:300].split())}"
        raise InputError(f"{str(path)[:300]} cannot be read as {path.suffix} ({reason})") from error


def _safetensors(path: Path) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    return dict(load_file(path))


def _numpy(path: Path) -> dict[str, torch.Tensor]:
    try:
        loaded = np.load(path, allow_pickle=False)
    except ValueError as error:  # numpy takes any file that it does not know for a pickle, and advises to allow it
        raise InputError(f"{path} has no numpy arrays, or Python objects: write it again with numpy.save") from error
    arrays = {"": loaded} if path.suffix == ".npy" else {name: loaded[name] for name in loaded.files}
    return {name: torch.from_numpy(_native(value)) for name, value in arrays.items()}


def _native(value: NumpyArray) -> NumpyArray:
    """The array contiguous and in this machine's byte order, which torch asks for."""
    return np.asarray(value, dtype=value.dtype.newbyteorder("="), order="C")


def _refuse_oversized(path: Path) -> None:
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

"""`--input`: tensors from a description such as `x=float32[2,3,H,W]`, or from .npy, .npz and .safetensors files."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from onnxpatch.cli.array_sizes import LARGEST, refuse_oversized
from onnxpatch.errors import InputError

FILES = (".npy", ".npz", ".safetensors")
_BATCH, _PIXELS, _LENGTH = 2, 224, 16
_SHAPED = re.compile(r"(?P<dtype>[a-z][a-z0-9_]*)\[(?P<dims>[^\]]*)\](?:<(?P<high>\d+))?")


@dataclass
class Array:
    """One input. name: the argument (`x`, `xs.0`, `batch.mask`); free: axis -> the name of its size."""

    name: str
    value: torch.Tensor
    free: dict[int, str] = field(default_factory=dict)


@dataclass
class Sizes:
    """Example sizes of named dimensions: the same name has the same size everywhere; and how many inputs were drawn."""

    image: tuple[int, int] | None = None
    known: dict[str, int] = field(default_factory=dict)
    drawn: int = 0

    def seed(self, rank: int) -> int:
        """A random seed of its own for every input: two of one shape must not hold the same numbers."""
        self.drawn += 1
        return rank + 1000 * (self.drawn - 1)

    def of(self, name: str, axis: int, rank: int, floating: bool) -> int:
        """The size given or met before; else 2 for a batch, 224 (or the image size) for pixels, 16 for a length."""
        if name not in self.known:
            self.known[name] = self._chosen(axis, rank, floating)
        return self.known[name]

    def _chosen(self, axis: int, rank: int, floating: bool) -> int:
        if axis == 0:
            return _BATCH
        if floating and rank >= 4 and axis >= rank - 2:
            return self.image[axis - rank + 2] if self.image else _PIXELS
        return _LENGTH


def read(text: str, sizes: Sizes) -> list[Array]:
    """One `--input`. Raises InputError that says what is not understood."""
    name, equals, rest = text.partition("=")
    if not equals or "[" in name or name.endswith(FILES):
        if text.endswith(FILES):
            return _all_of(Path(text))
        raise InputError(f"--input {text!r}: write name=float32[2,3,H,W], name=FILE.npz:key, or FILE.npz alone")
    if "[" in rest:
        return [_described(name, rest, sizes)]
    path, _, key = rest.partition(":")
    if not path.endswith(FILES):
        raise InputError(f"--input {text!r}: {rest!r} is neither float32[2,3,H,W] nor a file ({', '.join(FILES)})")
    return [Array(name, _one_of(Path(path), key or name, bool(key)))]


def _described(name: str, text: str, sizes: Sizes) -> Array:
    match = _SHAPED.fullmatch(text)
    dtype = getattr(torch, match["dtype"], None) if match else None
    if match is None or not isinstance(dtype, torch.dtype):
        raise InputError(f"--input {name}={text}: write a torch dtype and a shape, such as float32[2,3,H,W]")
    dims = [dim.strip() for dim in match["dims"].split(",")] if match["dims"].strip() else []
    free, shape = {}, []
    for axis, dim in enumerate(dims):
        label, size = _dimension(name, dim, axis, len(dims), dtype.is_floating_point, sizes)
        shape.append(size)
        if label:
            free[axis] = label
    total = math.prod(shape) * dtype.itemsize
    if total > LARGEST:
        raise InputError(f"--input {name}={text}: {total / 2**30:.1f} GiB at {shape}: give smaller sizes, such as H=64")
    high = int(match["high"]) if match["high"] else None
    if high == 0:
        raise InputError(f"--input {name}={text}: no whole number is below 0: write <2 or more")
    try:
        return Array(name, _random(name, shape, dtype, high, sizes.seed(len(shape))), free)
    except (RuntimeError, NotImplementedError):  # quantized numbers, bare bits
        raise InputError(f"--input {name}={text}: torch makes no {match['dtype']} numbers: give a file") from None


def _dimension(name: str, text: str, axis: int, rank: int, floating: bool, sizes: Sizes) -> tuple[str, int]:
    """(name or '', example size) of `3`, `H` or `H=224`."""
    label, equals, number = (part.strip() for part in text.partition("="))
    if not equals and label.isdigit():
        label, number = "", label
    if not (label or number) or (label and not label.isidentifier()) or (equals and not number.isdigit()):
        raise InputError(f"--input {name}: dimension {text!r} is neither a size, a name, nor a name=size such as H=224")
    if number and int(number) < 1:
        raise InputError(f"--input {name}: dimension {text!r}: sizes start at 1")
    if not number:
        return label, sizes.of(label, axis, rank, floating)
    if label and sizes.known.setdefault(label, int(number)) != int(number):
        raise InputError(f"--input {name}: {label} is {number} here and {sizes.known[label]} elsewhere")
    return label, int(number)


def _random(name: str, shape: list[int], dtype: torch.dtype, high: int | None, seed: int) -> torch.Tensor:
    """Normal floats, True and False, whole numbers below `high` (2 unless given), a mask of ones."""
    generator = torch.Generator().manual_seed(seed)
    if dtype.is_complex:
        return torch.randn(shape, generator=generator, dtype=torch.complex64).to(dtype)
    if dtype.is_floating_point:
        return torch.randn(shape, generator=generator).to(dtype)
    if "mask" in name:
        return torch.ones(shape, dtype=dtype)
    return torch.randint(0, high or 2, shape, generator=generator).to(dtype)


def _all_of(path: Path) -> list[Array]:
    held = _held(path)
    if path.suffix == ".npy":
        raise InputError(f"--input {path}: one array without a name: write name={path}")
    return [Array(name, value) for name, value in held.items()]


def _one_of(path: Path, key: str, named: bool) -> torch.Tensor:
    held = _held(path)
    if key in held:
        return held[key]
    if len(held) == 1 and not named:
        return next(iter(held.values()))
    raise InputError(f"{path} has no array {key!r}; it has {', '.join(held) or 'none'}: write name={path}:KEY")


def _held(path: Path) -> dict[str, torch.Tensor]:
    try:
        if not path.is_file():
            raise InputError(f"{path}: there is no such file")
        refuse_oversized(path)
        return _safetensors(path) if path.suffix == ".safetensors" else _numpy(path)
    except ImportError as error:
        raise InputError(f"{path}: reading it needs {error.name}: pip install 'onnxpatch[cli]'") from None
    except InputError:
        raise
    except Exception as error:
        told = f"{type(error).__name__}: {' '.join(str(error)[:300].split())}"
        raise InputError(f"{str(path)[:300]} cannot be read as {path.suffix} ({told})") from error


def _safetensors(path: Path) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    return dict(load_file(path))


def _numpy(path: Path) -> dict[str, torch.Tensor]:
    import numpy as np

    try:
        loaded: Any = np.load(path, allow_pickle=False)
    except ValueError as error:  # numpy takes whatever it does not know for a pickle, and says to load it unsafely
        raise InputError(f"{path} holds no numpy arrays, or Python objects: write it with numpy again") from error
    arrays = {"": loaded} if path.suffix == ".npy" else {name: loaded[name] for name in loaded.files}
    return {name: torch.from_numpy(_native(value)) for name, value in arrays.items()}


def _native(value: Any) -> Any:
    """The array in one piece and in this machine's byte order: torch takes no other."""
    import numpy as np

    return np.ascontiguousarray(value, dtype=value.dtype.newbyteorder("="))

"""Checks values against the declared inputs of a session, and describes these: `image float32[B,3,H,W]`."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from onnxpatch.errors import InputError
from onnxpatch.onnxfile.runtimes.interface import Array

if TYPE_CHECKING:
    from onnxruntime import NodeArg

# onnxruntime's names for element types, and NumPy's; what is not listed has the same name in both.
_DTYPES = {"float": "float32", "double": "float64", "string": "str", "bfloat16": "bfloat16"}
_FED_AS = {"bfloat16": "float32"}  # NumPy has no bfloat16: the bridge takes float32 for it


def described(node: NodeArg) -> str:
    """One input or output: its name, dtype and shape, with the names of sizes that may change."""
    dims = ",".join("?" if size in (None, "") else str(size) for size in node.shape or ())
    return f"{node.name} {_dtype(node)}[{dims}]"


def check(node: NodeArg, value: Array) -> None:
    """Raise InputError where an array has another dtype, rank or size than the input declares."""
    wanted = _dtype(node)
    if not node.type.startswith("tensor("):  # an optional or a sequence: onnxruntime says what is wrong with it
        return
    found = "str" if value.dtype.kind in "USO" else value.dtype.name
    shape = f"{found}[{','.join(map(str, value.shape))}]"
    if found != _FED_AS.get(wanted, wanted):
        raise InputError(f"input {described(node)}: {shape} was given: convert it to {wanted} first")
    sizes = list(node.shape or ())
    fits = len(sizes) == value.ndim and all(
        not isinstance(size, int) or size == have for size, have in zip(sizes, value.shape, strict=True)
    )
    if not fits:
        raise InputError(
            f"input {described(node)}: {shape} was given, and only sizes with a name may change: give an input of this "
            "shape, or name that size in dynamic_shapes and export again"
        )


def refuse_call(nodes: Sequence[NodeArg], given: int, unknown: Sequence[str]) -> NoReturn:
    """Raise InputError for too many or too few values; unknown: keywords that are no input of the graph."""
    takes = f"the graph takes {len(nodes)}: {', '.join(map(described, nodes)) or 'none'}"
    if not unknown:
        raise InputError(f"{given} input{'' if given == 1 else 's'} given; {takes}")
    name = unknown[0]
    near = difflib.get_close_matches(name, [node.name for node in nodes], n=1)
    hint = f"{name!r}: did you mean {near[0]!r}?" if near else f"no input is called {name!r}"
    raise InputError(f"{hint}; {takes}")


def _dtype(node: NodeArg) -> str:
    inner = node.type.removeprefix("tensor(").removesuffix(")")
    return _DTYPES.get(inner, np.dtype(inner).name if inner in np.sctypeDict else inner)

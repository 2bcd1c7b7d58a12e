"""Refuses a file whose functions call each other so often that no runtime can load it.

40 functions of two calls each are a file of 4 KB and 2^40 nodes: onnxruntime writes every call out when it loads a
file, and no limit stops it there.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator, Mapping

from onnx import FunctionProto

from onnxpatch.errors import InputError
from onnxpatch.onnxfile.graph import all_nodes
from onnxpatch.onnxfile.mapped_weights import Content, fields

_FUNCTIONS = 25  # of ModelProto
_MOST = 100_000  # nodes of one function, written out
Key = tuple[str, str]


def check_functions(model: str | bytes) -> None:
    """Raises InputError for such a file; model: its path or its bytes. Nothing else of the file is read."""
    try:
        if isinstance(model, bytes):
            calls = _calls(model)
        else:
            with open(model, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                calls = _calls(content)
    except Exception:  # damaged, or no file: the runtime says how
        return
    largest = max(_written_out(calls).values(), default=0)
    if largest > _MOST:
        name = "the model given as bytes" if isinstance(model, bytes) else os.fspath(model)
        raise InputError(
            f"{name}: its functions call each other so often that they have {largest:,} nodes written out, at most "
            f"{_MOST:,} are loaded"
        )


def _calls(content: Content) -> dict[Key, list[Key]]:
    """The operators that each function calls."""
    functions = (
        FunctionProto.FromString(content[inside:end])
        for number, _, inside, end in fields(content, 0, len(content))
        if number == _FUNCTIONS
    )
    return {(one.domain, one.name): [(n.domain, n.op_type) for n in all_nodes(one)] for one in functions}


def _written_out(calls: Mapping[Key, list[Key]]) -> dict[Key, int]:
    """How many nodes each function has. One that calls itself counts once: the runtime refuses it."""
    known: dict[Key, int] = {}
    for key in _inner_first(calls):
        known[key] = sum(known.get(called, 1) for called in calls[key])
    return known


def _inner_first(calls: Mapping[Key, list[Key]]) -> Iterator[Key]:
    entered: set[Key] = set()
    for first in calls:
        waiting = [(first, False)]
        while waiting:
            key, left = waiting.pop()
            if left:
                yield key
            elif key not in entered:
                entered.add(key)
                waiting += [(key, True), *((called, False) for called in calls[key] if called in calls)]

"""Lists which aten operators have an ONNX form in the installed torch, under which exporter, and from which opset on.

The dynamo exporter has translations (functions of onnxscript) and decompositions, the TorchScript exporter symbolics.
Which ONNX operators a translation writes is read from its source, where they are calls of `op.Name`.
"""

from __future__ import annotations

import ast
import functools
import inspect
import textwrap
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from onnxpatch._torch import operator_tables

Translation = Callable[..., object]
Dynamo = Literal["translated", "decomposed", "none"]
_DYNAMO = {
    "translated": "the dynamo exporter translates it",
    "decomposed": "the dynamo exporter decomposes it into other operators",
    "none": "the dynamo exporter has no translation",
}


@dataclass(frozen=True)
class Operator:
    """One aten operator.

    name: as torch names it, with its overload (`aten::add.Tensor`).
    dynamo: translated by onnxscript; decomposed by torch into others first; or none: the export is refused.
    trace: the lowest opset with a symbolic in the TorchScript exporter (also of scripted code); None: refused.
    onnx: the ONNX operators that its translation uses, each with the opset that introduced it.
    """

    name: str
    dynamo: Dynamo
    trace: int | None
    onnx: dict[str, int] = field(default_factory=dict)

    @property
    def opset(self) -> int | None:
        """The lowest ONNX opset at which every ONNX operator used exists; None where none is known."""
        return max(self.onnx.values(), default=None)

    def supported(self, exporter: str) -> bool:
        """Whether the exporter (dynamo, trace, script) can export it."""
        return self.dynamo != "none" if exporter == "dynamo" else self.trace is not None


# The installed torch does not change while a process runs, and reading the sources of all translations takes long.
@functools.cache
def operators() -> dict[str, Operator]:
    """Every aten operator of the installed torch that writes into none of its arguments, by name."""
    translations, _, symbolics = _tables()
    found = {}
    for name in operator_tables.aten_operators():
        used = _onnx_operators(translations.get(name, ()))
        # The TorchScript exporter's symbolics are registered without an overload.
        found[name] = Operator(name, _by_dynamo(name), min(symbolics.get(_bare(name), ()), default=None), used)
    return found


def _by_dynamo(name: str) -> Dynamo:
    translations, decompositions, _ = _tables()
    if name in translations:
        return "translated"
    return "decomposed" if name in decompositions or operator_tables.is_composite(name) else "none"


def _bare(name: str) -> str:
    """Without its overload."""
    return name.partition(".")[0]


def operator(name: str) -> Operator | None:
    """One operator by any of its spellings (`aten::roll`, `aten.roll.default`, `roll`); None where torch has none."""
    # Error messages, graphs and users write it in three ways.
    plain = name.removeprefix("torch.ops.").replace("aten.", "aten::", 1).removesuffix(".default")
    plain = plain if plain.startswith("aten::") else f"aten::{plain}"
    table = operators()
    if plain in table:
        return table[plain]
    return next((found for key, found in table.items() if _bare(key) == plain), None)


def describe(name: str) -> str:
    """One sentence on an aten operator, with or without its overload (`aten::stft`, `aten::add.Tensor`)."""
    one = operator(name)
    if one is None:
        return "not an operator of the installed torch"
    since = f" (ONNX operators from opset {one.opset})" if one.opset else ""
    if one.trace is not None:
        return f"{_DYNAMO[one.dynamo]}{since}; the TorchScript exporter translates it from opset {one.trace}"
    if one.dynamo == "none":
        return f"{_DYNAMO[one.dynamo]}{since}, nor has the TorchScript exporter"
    return f"{_DYNAMO[one.dynamo]}{since}; the TorchScript exporter has no translation"


def by_dynamo(name: str) -> Dynamo:
    """How the dynamo exporter takes any overload of `aten::roll`; "none" too where it has no form of the inner `_roll`.

    A decomposition is no promise: it may end in other operators without a translation.
    """
    inner = name.replace("::", "::_")
    found = {
        one: {_by_dynamo(key) for key in operator_tables.aten_operators() if _bare(key) == one} for one in (name, inner)
    }
    if "translated" in found[name]:
        return "translated"
    return "none" if {"none"} in found.values() else "decomposed"


def torchscript_opsets(name: str) -> list[int]:
    """The opsets for which the TorchScript exporter has a symbolic of its own, ascending; [] where it has none.

    name: of an operator, or of the inner one that it calls (`_name`).
    """
    bare = name.removeprefix("torch.ops.").removeprefix("aten").lstrip(".:").partition(".")[0]
    found = (_tables()[2].get(f"aten::{one}") for one in (bare, bare.lstrip("_")))
    return next(filter(None, found), [])


@functools.cache
def _tables() -> tuple[dict[str, list[Translation]], set[str], dict[str, list[int]]]:
    """(translations by name, names with a decomposition, opsets with a symbolic by name without overload)."""
    return (
        operator_tables.onnx_translations(),
        operator_tables.onnx_decompositions(),
        operator_tables.torchscript_symbolics(),
    )


@functools.cache
def introduced() -> dict[str, int]:
    """The opset that introduced each ONNX operator, from the installed onnx."""
    import onnx

    schemas = [one for one in onnx.defs.get_all_schemas_with_history() if one.domain == ""]
    # The oldest last: it stays.
    return {one.name: one.since_version for one in sorted(schemas, key=lambda one: -one.since_version)}


def _onnx_operators(functions: Iterable[Translation]) -> dict[str, int]:
    """The ONNX operators that translation functions write, each with the opset that introduced it.

    Those of the functions that they call are included; variants of a translation count together.
    """
    since = introduced()
    names = {name for function in functions for name in _written(function)}
    return {name: since[name] for name in sorted(names) if name in since}


@functools.cache
def _written(function: Translation) -> frozenset[str]:
    return frozenset(_search(function, set()))


def _search(function: object, seen: set[object]) -> Iterator[str]:
    """Names of `op.Name` in a function's source and in the functions that it calls by name."""
    # onnxscript keeps the Python function of a translation in `func` or in `function`.
    function = getattr(function, "func", None) or getattr(function, "function", function)
    if function in seen or not inspect.isfunction(function):
        return
    # Functions may call each other.
    seen.add(function)
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, SyntaxError):
        return
    for node in ast.walk(tree):
        # torchlib imports its opset under names such as `op` and `op18`.
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id.startswith("op"):
            yield node.attr
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield from _search(function.__globals__.get(node.func.id), seen)

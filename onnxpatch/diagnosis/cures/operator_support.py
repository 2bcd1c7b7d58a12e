"""Which aten operators have an ONNX form in the installed torch, under which exporter, and from which opset on."""

from __future__ import annotations

import ast
import functools
import inspect
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from onnxpatch._torch import operator_tables

Dynamo = Literal["translated", "decomposed", "none"]
_DYNAMO = {
    "translated": "the dynamo exporter translates it",
    "decomposed": "the dynamo exporter takes it apart into other operators",
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
        """Whether the exporter (dynamo, trace, script) knows a form of it."""
        return self.dynamo != "none" if exporter == "dynamo" else self.trace is not None


@functools.cache
def operators() -> dict[str, Operator]:
    """Every aten operator of the installed torch that writes into none of its arguments, by name."""
    translations, decompositions, symbolics = _known()
    found = {}
    for name in operator_tables.aten_operators():
        status: Dynamo = "none"
        if name in translations:
            status = "translated"
        elif name in decompositions or operator_tables.is_composite(name):
            status = "decomposed"
        used = onnx_operators(translations.get(name, ()))
        found[name] = Operator(name, status, symbolics.get(name.partition(".")[0]), used)
    return found


def operator(name: str) -> Operator | None:
    """One operator by any of its spellings (`aten::roll`, `aten.roll.default`, `roll`); None where torch has none."""
    plain = name.removeprefix("torch.ops.").replace("aten.", "aten::", 1).removesuffix(".default")
    plain = plain if plain.startswith("aten::") else f"aten::{plain}"
    table = operators()
    if plain in table:
        return table[plain]
    return next((found for key, found in table.items() if key.partition(".")[0] == plain), None)


def describe(name: str) -> str:
    """One sentence on an aten operator, with or without its overload (`aten::stft`, `aten::add.Tensor`)."""
    one = operator(name)
    if one is None:
        return "not an operator of the installed torch"
    since = f" (ONNX operators from opset {one.opset})" if one.opset else ""
    if one.trace is not None:
        return f"{_DYNAMO[one.dynamo]}{since}; TorchScript's translates it from opset {one.trace}"
    if one.dynamo == "none":
        return f"{_DYNAMO[one.dynamo]}{since}, nor has TorchScript's"
    return f"{_DYNAMO[one.dynamo]}{since}; TorchScript's has none"


@functools.cache
def _known() -> tuple[dict[str, list[Callable[..., Any]]], set[str], dict[str, int]]:
    return (
        operator_tables.onnx_translations(),
        operator_tables.onnx_decompositions(),
        operator_tables.torchscript_symbolics(),
    )


@functools.cache
def introduced() -> dict[str, int]:
    """The opset that introduced each ONNX operator, from the installed onnx."""
    import onnx

    first: dict[str, int] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.domain == "":
            first[schema.name] = min(schema.since_version, first.get(schema.name, schema.since_version))
    return first


def onnx_operators(functions: Any) -> dict[str, int]:
    """The ONNX operators that translation functions write, each with the opset that introduced it.

    Read from their source, with those of the functions that they call; of several variants, all together.
    """
    since = introduced()
    names = {name for function in functions for name in _written(function)}
    return {name: since[name] for name in sorted(names) if name in since}


@functools.cache
def _written(function: Any) -> frozenset[str]:
    return frozenset(_search(function, set()))


def _search(function: Any, seen: set[Any]) -> Iterator[str]:
    function = getattr(function, "func", None) or getattr(function, "function", function)
    if function in seen or not inspect.isfunction(function):
        return
    seen.add(function)
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, SyntaxError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id.startswith("op"):
            yield node.attr
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield from _search(function.__globals__.get(node.func.id), seen)

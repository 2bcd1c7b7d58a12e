"""Conditions on sizes that torch.export relied on. The ONNX file does not hold them: beyond them it may be wrong.

They tell where to look: a guard that some size eager accepts breaks is turned into a probe at that size.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from onnxpatch._torch.size_conditions import compiled_condition, size_conditions
from onnxpatch.inputs.dims import DynamicDim
from onnxpatch.inputs.leaves import Inputs
from onnxpatch.inputs.size_expressions import SizeExpression
from onnxpatch.verification.oracle import Oracle
from onnxpatch.verification.probe import Probe

_MOST = 100  # guards that are looked at
_WIDTH = {1: 200, 2: 48, 3: 10}  # sizes tried per dimension, by how many dimensions the guard speaks of


@dataclass(frozen=True)
class Guard:
    """One condition: its text, the dimensions it speaks of, and a function from sizes to whether it holds."""

    expression: str
    dimensions: tuple[str, ...]
    condition: Any
    symbols: tuple[tuple[Any, str], ...]
    source: str = ""

    def holds(self, sizes: dict[str, int]) -> bool | None:
        """Whether the condition holds at these sizes; None where it cannot be told."""
        if any(name not in sizes for _, name in self.symbols):
            return None
        return holds(self._compiled, [sizes[name] for _, name in self.symbols])

    @functools.cached_property
    def _compiled(self) -> Callable[..., Any]:
        return compiled_condition(self.condition, [symbol for symbol, _ in self.symbols])


def holds(condition: Callable[..., Any], sizes: Sequence[int]) -> bool | None:
    """What a compiled condition says of sizes; None where it cannot be evaluated there.

    A division by zero or the root of a negative number has no answer, and torch may write a function that is not known
    (NameError), or not of numbers alone (TypeError).
    """
    try:
        return bool(condition(*sizes))
    except (ArithmeticError, ValueError, NameError, TypeError):
        return None


def guards_of(exported: object, inputs: Inputs, dims: Sequence[DynamicDim]) -> list[Guard]:
    """The conditions on the declared dimensions, those that hold at every size left out."""
    places, conditions = size_conditions(exported)
    tensors = inputs.graph_leaves("dynamo")
    declared = {(leaf, axis): size for d in dims for leaf, axis, size in d.places}
    sizes = {
        symbol: declared[tensors[i].index, axis]
        for (i, axis), symbol in places.items()
        if i < len(tensors) and (tensors[i].index, axis) in declared
    }
    names = {symbol: size.names[0] for symbol, size in sizes.items() if size.is_plain}
    sums = _as_sums(sizes, names)
    found = []
    for assumed, source in conditions:
        condition = assumed.subs(sums)  # torch.export knows a size such as past+n as a symbol of its own
        symbols = tuple(sorted(((s, names[s]) for s in condition.free_symbols if s in names), key=lambda p: p[1]))
        if symbols and len(symbols) == len(condition.free_symbols):
            text = _renamed(condition, symbols)
            found.append(Guard(text, tuple(name for _, name in symbols), condition, symbols, source))
    return found


def _as_sums(sizes: Mapping[Any, SizeExpression], names: Mapping[Any, str]) -> dict[Any, Any]:
    """What stands for the symbols of axes that follow other dimensions: a sum of those dimensions' own symbols."""
    own = {name: symbol for symbol, name in names.items()}
    return {
        symbol: size.constant + sum(factor * own[name] for name, factor in size.terms)
        for symbol, size in sizes.items()
        if not size.is_plain and all(name in own for name in size.names)
    }


def _renamed(condition: Any, symbols: Sequence[tuple[Any, str]]) -> str:
    import sympy

    return str(condition.subs({symbol: sympy.Symbol(name, integer=True) for symbol, name in symbols}))


def breaking_probes(guards: Sequence[Guard], search: Oracle, most: int = 6) -> list[tuple[Guard, Probe]]:
    """For each guard a probe that breaks it and that eager accepts, as near to the example as there is."""
    found: list[tuple[Guard, Probe]] = []
    accepted = search.accepted()
    for guard in guards[:_MOST]:
        tried = [*accepted, *(probe for _, probe in found)]
        known = next((p for p in tried if guard.holds(p.sizes) is False), None)
        probe = known or next(_breaking(guard, search), None)
        if probe:
            found.append((guard, probe))
        if len(found) == most:
            break
    return found


def _breaking(guard: Guard, search: Oracle, tries: int = 5) -> Iterator[Probe]:
    """Probes that eager accepts at sizes that break the guard, those nearest to the example first."""
    dims = {dim.name: dim for dim in search.dims}
    mine = [dims[name] for name in guard.dimensions]
    if len(mine) > 3:
        return
    example = {dim.name: dim.size for dim in search.dims}
    grids = [_around(dim, search)[: _WIDTH[len(mine)]] for dim in mine]
    broken = []
    for sizes in itertools.product(*grids):
        wish = {**example, **dict(zip(guard.dimensions, sizes, strict=True))}
        if guard.holds(wish) is False:
            broken.append(wish)
    for wish in sorted(broken, key=lambda w: _far(w, example))[:tries]:
        probe = search.at(wish, kind="guard", far=True)
        if probe:
            yield probe


def _far(sizes: dict[str, int], example: dict[str, int]) -> float:
    """How much else than the example: square and strided sizes are the likelier to be accepted."""
    change = sum(abs(math.log(sizes[name] / example[name])) for name in sizes)
    odd = sum(size % 8 != 0 for name, size in sizes.items() if example[name] % 8 == 0)
    return change + odd


def _around(dim: DynamicDim, search: Oracle) -> list[int]:
    """Sizes near the example's, those that the model mentions, multiples of common strides, then every small one."""
    n = dim.size
    hints = search.hints
    mentioned = [*hints.native, *hints.thresholds, *(c + 1 for c in hints.thresholds)]
    steps = {1, 2, 4, 8, 16, *hints.steps}
    near = [n + sign * k * step for k in (0, 1, 2, 3) for step in sorted(steps) for sign in (1, -1)]
    wide = [2 * n, 3 * n, n // 2, 4 * n, n // 4, 1, 2, 3, *range(1, 4 * n)]
    order = dict.fromkeys([n, *mentioned, *near, *wide])
    least, most = max(1, dim.minimum), min(8 * n + 64, dim.maximum or math.inf)
    return [size for size in order if least <= size <= most]

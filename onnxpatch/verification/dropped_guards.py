"""Conditions on sizes that torch.export assumed and the ONNX file does not check.

    if (h // 8) * (w // 8) == 16: ...      torch.export follows one side and records Eq((h//8)*(w//8), 16)

Its ExportedProgram raises at a size that breaks such a guard. The ONNX file runs there, and may be wrong. So for each
guard a size is searched that breaks it and that eager accepts; the file is compared there.
"""

from __future__ import annotations

import functools
import itertools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from onnxpatch._torch.guards import compiled_condition, size_conditions
from onnxpatch.inputs.axis_specs import SizeExpression
from onnxpatch.inputs.dims import DynamicDim
from onnxpatch.inputs.leaves import Inputs
from onnxpatch.onnxfile.runtime import Graph
from onnxpatch.results.checks import Checked, DroppedGuard
from onnxpatch.verification.findings import source_line
from onnxpatch.verification.oracle import Oracle
from onnxpatch.verification.probe import Probe

_MOST_GUARDS = 100  # guards that are evaluated
_MOST_PROBES, _TRIES = 6, 5  # in all, and sizes tried for one guard
_QUOTIENT = re.compile(r"\(?\b(?:Int|Float)TrueDiv\((\w+), (\w+)\)\)?")  # torch's name for the `/` of two sizes
_WIDTH = {1: 200, 2: 48, 3: 10}  # by the number of dimensions in a guard: sizes tried for each


@dataclass(frozen=True)
class _Guard:
    """One condition: the dimensions in it, its text in their names, and a compiled function of their sizes."""

    condition: Any
    symbols: tuple[tuple[Any, str], ...]
    source: str = ""

    @property
    def dimensions(self) -> tuple[str, ...]:
        return tuple(name for _, name in self.symbols)

    @functools.cached_property
    def expression(self) -> str:
        # Only of conditions that are told: the text of a long one takes seconds.
        import sympy

        renamed = {symbol: sympy.Symbol(name, integer=True) for symbol, name in self.symbols}
        return _QUOTIENT.sub(r"\1/\2", str(self.condition.xreplace(renamed)))

    def holds(self, sizes: dict[str, int]) -> bool | None:
        """Whether the condition is true at these sizes; None if it cannot be evaluated."""
        if not sizes.keys() >= set(self.dimensions):
            return None
        return self.holds_at([[sizes[name] for name in self.dimensions]])[0]

    @functools.cached_property
    def holds_at(self) -> Callable[[Iterable[Sequence[int]]], list[bool | None]]:
        """The same as a compiled function of points, each the sizes of `dimensions` in their order."""
        return compiled_condition(self.condition, [symbol for symbol, _ in self.symbols])


Broken = tuple[_Guard, Probe]
"""A condition that was relied on, and a probe at which it does not hold."""


def guards_of(exported: object, inputs: Inputs, dims: Sequence[DynamicDim]) -> list[_Guard]:
    """The conditions on the declared dimensions, without those that are true at every size."""
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
        # torch.export has a symbol of its own for a size such as past+n. `subs` would sort by counting all nodes.
        condition = assumed.xreplace(sums)
        symbols = tuple(sorted(((s, names[s]) for s in condition.free_symbols if s in names), key=lambda p: p[1]))
        # One with a number from data, or an axis that was not declared, cannot be evaluated at sizes.
        if symbols and len(symbols) == len(condition.free_symbols):
            found.append(_Guard(condition, symbols, source))
    return found


def _as_sums(sizes: Mapping[Any, SizeExpression], names: Mapping[Any, str]) -> dict[Any, Any]:
    """By the symbol of an axis such as past+n: the sum of the symbols of past and n."""
    import sympy

    own = {name: symbol for symbol, name in names.items()}
    return {
        symbol: sympy.sympify(size.constant) + sum(factor * own[name] for name, factor in size.terms)
        for symbol, size in sizes.items()
        if not size.is_plain and all(name in own for name in size.names)
    }


def breaking_probes(guards: Sequence[_Guard], search: Oracle) -> list[Broken]:
    """For each guard a probe that breaks it and that eager accepts, near the example if possible."""
    found: list[Broken] = []
    accepted = search.accepted()
    for guard in guards[:_MOST_GUARDS]:
        tried = [*accepted, *(probe for _, probe in found)]
        # One that has been run already costs nothing.
        known = next((p for p in tried if guard.holds(p.sizes) is False), None)
        probe = known or next(_breaking(guard, search), None)
        if probe:
            found.append((guard, probe))
        if len(found) == _MOST_PROBES:
            break
    return found


def _breaking(guard: _Guard, search: Oracle) -> Iterator[Probe]:
    """Probes at sizes that break the guard and that eager accepts, those nearest to the example first."""
    dims = {dim.name: dim for dim in search.dims}
    mine = [dims[name] for name in guard.dimensions]
    if len(mine) > 3:  # the grid of sizes would have thousands of points
        return
    # Evaluating a guard is cheap, running eager is not: filter the grid by the guard first, then ask for few sizes.
    grids = [_around(dim, search)[: _WIDTH[len(mine)]] for dim in mine]
    points = list(itertools.product(*grids))
    broken = [
        {**search.example, **dict(zip(guard.dimensions, sizes, strict=True))}
        for sizes, holds in zip(points, guard.holds_at(points), strict=True)
        if holds is False
    ]
    for wish in sorted(broken, key=lambda w: _far(w, search.example))[:_TRIES]:
        probe = search.at(wish, kind="guard", far=True)
        if probe:
            yield probe


def _far(sizes: dict[str, int], example: dict[str, int]) -> float:
    """The distance from the example. Sizes with its ratios and its stride count as nearer: eager often wants them."""
    change = sum(abs(math.log(sizes[name] / max(1, example[name]))) for name in sizes)
    odd = sum(size % 8 != 0 for name, size in sizes.items() if example[name] % 8 == 0)
    return change + odd


def _around(dim: DynamicDim, search: Oracle) -> list[int]:
    """Sizes to try: those in the model's code, those near the example, multiples of strides, then every small one."""
    n = dim.size
    hints = search.mentioned
    mentioned = [*hints.native, *hints.thresholds, *(c + 1 for c in hints.thresholds)]
    steps = {1, 2, 4, 8, 16, *hints.steps}
    near = [n + sign * k * step for k in (0, 1, 2, 3) for step in sorted(steps) for sign in (1, -1)]
    wide = [2 * n, 3 * n, n // 2, 4 * n, n // 4, 1, 2, 3, *range(1, 4 * n)]
    order = dict.fromkeys([n, *mentioned, *near, *wide])
    least, most = max(1, dim.minimum), min(8 * n + 64, dim.maximum or math.inf)
    return [size for size in order if least <= size <= most]


def dropped_guards(
    graph: Graph, checks: Sequence[Checked], probes: Sequence[Probe], broken: Sequence[Broken]
) -> list[DroppedGuard]:
    """The conditions that a probe breaks, each with what the graph does at that probe. Probes not run are left out."""
    status = dict(zip(probes, checks, strict=False))
    ran = [(guard, probe) for guard, probe in broken if probe in status]
    # An equality pins a size. Where a probe breaks one, that is the cause, and not an inequality that it breaks as
    # well.
    pins = [guard for guard, _ in ran if guard.expression.startswith("Eq(")]
    found = []
    for guard, probe in ran:
        # A file that is wrong at the example already, such as a quantized one, is so for another reason.
        blamed = checks[0].ok and (guard in pins or all(pin.holds(probe.sizes) is not False for pin in pins))
        found.append(_dropped(guard, probe, status[probe], graph, blamed))
    return found


def _dropped(guard: _Guard, probe: Probe, check: Checked, graph: Graph, blamed: bool) -> DroppedGuard:
    """blamed: this condition is the cause, not another one (an equality) that the probe breaks as well."""
    node = next((n for n in graph.proto.graph.node if check.node and n.name == check.node), None)
    source = guard.source or (source_line(node) if node is not None else "")
    return DroppedGuard(guard.expression, probe.sizes, blamed and not check.ok, source, check.node)

"""Why a graph is wrong at a size: a dynamic dimension was specialized, or a condition on sizes was dropped.

A specialized dimension shows in the declared shapes of the file's inputs, or at a node: one that fails at every other
size, or one whose output keeps its shape when its input's shape changes.

A dropped condition is a guard, which torch.export assumed and the ONNX file does not check:

    if (h // 8) * (w // 8) == 16: ...      torch.export follows one side and records Eq((h//8)*(w//8), 16)

Its ExportedProgram raises at a size that breaks the guard. The ONNX file runs there, and may be wrong. So for each
guard a size is searched that breaks it and that eager accepts; the file is compared there.
"""

from __future__ import annotations

import functools
import itertools
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from onnxpatch._torch.guards import compiled_condition, size_conditions
from onnxpatch.inputs.axis_specs import SizeExpression
from onnxpatch.inputs.dims import DynamicDim
from onnxpatch.inputs.leaves import Inputs
from onnxpatch.onnxfile.graph import all_nodes, scopes
from onnxpatch.onnxfile.runtime import Graph, intermediate_shapes
from onnxpatch.results.checks import Checked, DroppedGuard, Frozen, Unproven
from onnxpatch.verification.input_matching import Feed
from onnxpatch.verification.oracle import Oracle
from onnxpatch.verification.probe import Probe
from onnxpatch.verification.reference import Reference

_MOST = 5
# Operators that may take their output's size from a constant, where the model takes it from its input.
_SIZED = frozenset({"Reshape", "Expand", "Resize", "Tile", "Pad", "CenterCropPad"})
_LONGEST = 10_000  # characters of a stack trace that are read: a file may have any text there


def specialized(
    graph: Graph, feed: Feed, dims: Sequence[DynamicDim], checks: Sequence[Checked], probes: Sequence[Probe]
) -> list[Frozen]:
    """Dimensions declared dynamic that the file keeps at the example's size. checks: of the first probes, in order."""
    found = frozen_inputs(graph, feed, dims)
    example = probes[0]
    bad = [(c, p) for c, p in zip(checks, probes, strict=False) if not c.ok and p.sizes != example.sizes]
    bad.sort(key=lambda pair: _moved(example, pair[1]).count(","))  # H alone says more than H and W together
    for check, probe in bad[: 2 * _MOST]:
        at_node = frozen_at(graph, check.node, example, probe, checks) if check.node else None
        if at_node and (at_node.node, at_node.dimension) not in [(one.node, one.dimension) for one in found]:
            found.append(at_node)
    # With the most dimensions moved, most nodes show that they keep a size.
    silent = next((p for c, p in reversed(bad) if c.status == "wrong"), None)
    if silent is not None:
        found += list(frozen_nodes(graph, feed, example, silent))[:_MOST]
    return _fewest_moved(found)


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


def _fewest_moved(found: list[Frozen]) -> list[Frozen]:
    """Without the nodes that already fail when fewer dimensions change: H alone, then not H and W again."""
    moved = [(set(one.dimension.split(", ")), one) for one in found]
    return [one for names, one in moved if not any(less < names and other.node == one.node for less, other in moved)]


def _moved(example: Probe, probe: Probe) -> str:
    return ", ".join(name for name, size in probe.sizes.items() if example.sizes.get(name) != size)


def _dropped(guard: _Guard, probe: Probe, check: Checked, graph: Graph, blamed: bool) -> DroppedGuard:
    """blamed: this condition is the cause, not another one (an equality) that the probe breaks as well."""
    node = next((n for n in graph.proto.graph.node if check.node and n.name == check.node), None)
    source = guard.source or (source_line(node) if node is not None else "")
    return DroppedGuard(guard.expression, probe.sizes, blamed and not check.ok, source, check.node)


# ------------------------------------------------------------------ specialized dimensions
def frozen_inputs(graph: Graph, feed: Feed, dims: Sequence[DynamicDim]) -> list[Frozen]:
    """Dimensions declared dynamic that the file's own inputs show as a number."""
    found = []
    name_of = {leaf: name for name, leaf in feed.leaves.items()}
    for dim in dims:
        for leaf, axis, size in dim.places:
            if leaf not in name_of:
                continue
            shape = graph.input_shape(name_of[leaf])
            if axis < len(shape) and isinstance(shape[axis], int):
                name = dim.name if size.is_plain else size.text or f"{dim.name}'s derived Dim"
                found.append(Frozen(name, f"is {shape[axis]} in the file: input {name_of[leaf]!r}, axis {axis}"))
    return list(dict.fromkeys(found))  # an axis of size past+n is listed for past and for n


def frozen_at(graph: Graph, node_name: str, example: Probe, other: Probe, checks: Sequence[Checked]) -> Frozen | None:
    """The node that the runtime named when it failed at another size. It is called specialized if no other is right."""
    moved = [name for name, size in other.sizes.items() if example.sizes.get(name) != size]
    kept, failing = (", ".join(str(probe.sizes[name]) for name in moved) for probe in (example, other))
    right = {tuple(check.sizes[name] for name in moved) for check in checks if check.ok and check.sizes}
    right.discard(tuple(example.sizes[name] for name in moved))
    for node in all_nodes(graph.proto.graph):
        if node.name == node_name:
            others = " and ".join(", ".join(map(str, sizes)) for sizes in sorted(right)[:_MOST])
            where = f"was specialized to {kept}; this node fails at {failing}"
            if right:
                where = f"makes this node fail at {failing}, not at {others}"
            return Frozen(", ".join(moved), where, node.name, node.op_type, source_line(node))
    return None


def frozen_nodes(graph: Graph, feed: Feed, example: Probe, other: Probe) -> Iterator[Frozen]:
    """Nodes such as Reshape whose output keeps a size between two probes at which their input changes it."""
    before, after = (intermediate_shapes(graph, feed.of(probe.values)) for probe in (example, other))
    moved = _moved(example, other)
    for node in graph.proto.graph.node:
        if node.op_type not in _SIZED or not node.input:
            continue
        data, data_after = before.get(node.input[0]), after.get(node.input[0])
        out, out_after = before.get(node.output[0]), after.get(node.output[0])
        # Only where the axes of input and output can be taken for the same ones.
        if data is None or data_after is None or out is None or out_after is None or len(data) != len(out):
            continue
        kept = [a for a, size in enumerate(data) if size != data_after[a] and out[a : a + 1] == out_after[a : a + 1]]
        if kept:
            where = f"keeps axes {kept} of its output at {list(out)}"
            yield Frozen(moved, where, node.name, node.op_type, source_line(node))


def source_line(node: Any) -> str:
    """`file:line in function: code` of the innermost frame, if the exporter kept it; else the module path, or ''."""
    kept = {entry.key: entry.value for entry in getattr(node, "metadata_props", ())}
    trace = kept.get("pkg.torch.onnx.stack_trace", "") or node.doc_string
    # The dynamo exporter writes a Python traceback, whose last frame is the innermost.
    frames = re.findall(r'File "([^"]+)", line (\d+), in (\S+)\n\s*([^\n]*)', trace[-_LONGEST:])
    if frames:
        file, line, function, code = frames[-1]
        return f"{file}:{line} in {function}: {code.strip()}"
    # The TorchScript exporter writes `file.py(line): function`, the innermost frame first.
    found = re.search(r"(\S+\.py)\((\d+)\): (\S+)", trace[:_LONGEST])
    if found:
        return f"{found[1]}:{found[2]} in {found[3]}"
    # The last name is the node's own, the one before it the module's.
    named = [scope for scope in scopes(node) or () if scope]
    return f"in module {named[-2]}" if len(named) > 1 else ""


def unproven_dimensions(reference: Reference, checks: Sequence[Checked]) -> list[Unproven]:
    """The dynamic dimensions of which no other size has a verdict, with what would prove each of them."""
    known = [check.sizes for check in checks if check.status in ("right", "wrong", "refused")]
    oracle = reference.oracle
    return [
        Unproven(dim.name, dim.size, _reason(dim, reference), _remedy(dim, reference))
        for dim in reference.dims
        if not oracle.is_moved(dim, {sizes[dim.name] for sizes in known if dim.name in sizes})
    ]


def names_of_one_size(reference: Reference) -> list[str]:
    """Notes on dimensions with two names of which eager takes equal sizes only, as `x + y` does."""
    answers = [(sizes, probe is not None) for sizes, probe in reference.oracle.answers()]
    notes = []
    for one, other in itertools.combinations(reference.dims, 2):
        pairs = [((sizes[one.name], sizes[other.name]), taken) for sizes, taken in answers]
        equal = [taken for (a, b), taken in pairs if a == b != one.size]
        # Size 1 fits others by broadcasting.
        unequal = [taken for (a, b), taken in pairs if a != b and 1 not in (a, b)]
        if one.size == other.size and any(equal) and len(unequal) > 1 and not any(unequal):
            both = f"{one.name!r} and {other.name!r}"
            notes.append(f"the model takes equal sizes of {both} only: give both one name in dynamic_shapes")
    return notes


def _reason(dim: DynamicDim, reference: Reference) -> str:
    refusal = reference.oracle.refused_alone.get(dim.name) or reference.oracle.first_refusal
    if refusal:
        return f"eager refuses the other sizes that were tried, such as {refusal}"
    if reference.oracle.too_large:
        return f"other sizes were not tried: {next(iter(reference.oracle.too_large.values()))}"
    if reference.budget.over() or reference.oracle.cut_short:
        return "max_seconds was reached before another size was compared"
    return "no other size was compared within max_probes and the budget"


def _remedy(dim: DynamicDim, reference: Reference) -> str:
    names = {leaf.index: leaf.name for leaf in reference.inputs.leaves}
    axes = [f"axis {axis} of {names[leaf]}" for leaf, axis, _ in dim.places]
    return (
        f"data=[args] with inputs that the model accepts at another {dim.name} ({', '.join(axes[:3])}) would prove it"
    )


# ------------------------------------------------------------------ guards
_MOST_GUARDS = 100  # guards that are evaluated
_QUOTIENT = re.compile(r"\(?\b(?:Int|Float)TrueDiv\((\w+), (\w+)\)\)?")  # torch's name for the `/` of two sizes
_WIDTH = {1: 200, 2: 48, 3: 10}  # by the number of dimensions in a guard: sizes tried for each


@dataclass(frozen=True)
class _Guard:
    """One condition: its text, the dimensions in it, and a compiled function of their sizes."""

    expression: str
    dimensions: tuple[str, ...]
    condition: Any
    symbols: tuple[tuple[Any, str], ...]
    source: str = ""

    def holds(self, sizes: dict[str, int]) -> bool | None:
        """Whether the condition is true at these sizes; None if it cannot be evaluated."""
        if not sizes.keys() >= set(self.dimensions):
            return None
        return self.holds_at(*(sizes[name] for name in self.dimensions))

    @functools.cached_property
    def holds_at(self) -> Callable[..., bool | None]:
        """The same as a compiled function of the sizes of `dimensions`, in their order."""
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
            text = _renamed(condition, symbols)
            found.append(_Guard(text, tuple(name for _, name in symbols), condition, symbols, source))
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


def _renamed(condition: Any, symbols: Sequence[tuple[Any, str]]) -> str:
    import sympy

    text = str(condition.xreplace({symbol: sympy.Symbol(name, integer=True) for symbol, name in symbols}))
    return _QUOTIENT.sub(r"\1/\2", text)


def breaking_probes(guards: Sequence[_Guard], search: Oracle, most: int = 6) -> list[Broken]:
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
        if len(found) == most:
            break
    return found


def _breaking(guard: _Guard, search: Oracle, tries: int = 5) -> Iterator[Probe]:
    """Probes at sizes that break the guard and that eager accepts, those nearest to the example first."""
    dims = {dim.name: dim for dim in search.dims}
    mine = [dims[name] for name in guard.dimensions]
    if len(mine) > 3:  # the grid of sizes would have thousands of points
        return
    # Evaluating a guard is cheap, running eager is not: filter the grid by the guard first, then ask for few sizes.
    example = {dim.name: dim.size for dim in search.dims}
    grids = [_around(dim, search)[: _WIDTH[len(mine)]] for dim in mine]
    broken = [
        {**example, **dict(zip(guard.dimensions, sizes, strict=True))}
        for sizes in itertools.product(*grids)
        if guard.holds_at(*sizes) is False
    ]
    for wish in sorted(broken, key=lambda w: _far(w, example))[:tries]:
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

"""Private torch APIs on sizes and conditions that torch.export writes as expressions, for `branches=True` and others.

Each function says what it uses. If one of them moves, exports with branches=True are refused. `free_symbols` serves
other exports with symbolic sizes, too: they are refused where `SymNode.expr` moves.

Of a value read from a tensor (`u0`), torch.export asks `u0 > 1`, `Eq(u0, 0)`, `u1 < s0*s1`, and knows no answer: sizes
have the example's, such a value has none. `assume` reads it as torch reads sizes of which it knows nothing: not 0, not
1, equal to no size, and as a position inside of what it is compared with. The answer is no assert: with its range
narrowed, torch's second trace would get other expressions for the sizes made before it than the first. Used are
`SymBool.node`, `.shape_env`, `.expr`. If they move, such questions are refused as before.
"""

from __future__ import annotations

import builtins
import contextlib
import math
import operator
from collections.abc import Callable, Iterator
from typing import Any

import torch

from onnxpatch._torch.function_modes import trace_suspended, tracing_parts
from onnxpatch._torch.one_export import Replaced

_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)
# `FakeWorld` names symbols after a number: the place of the input, or for sizes that could not be computed from those
# of the inputs this much and more; that much and more where they depend on values.
MADE_UP, BY_DATA = 1000, 10**9
_LARGE = 10**9 + 7  # as large as any number from data
_ORDERS: dict[str, Callable[[Any, Any], Any]] = {
    "StrictLessThan": operator.lt,
    "LessThan": operator.le,
    "StrictGreaterThan": operator.gt,
    "GreaterThan": operator.ge,
}


def free_symbols(number: object) -> set[Any]:
    """The sympy symbols in a SymInt, SymFloat or SymBool; none in anything else."""
    # No default for what a symbolic number lacks: where torch has moved `expr`, "no symbols" would pass for a static
    # size, and the example's would be in the graph without an error.
    return set(number.node.expr.free_symbols) if isinstance(number, _SYMBOLIC) else set()


def operations(number: object) -> int:
    """How many operations compute a SymInt, SymFloat or SymBool from sizes; 0 for anything else."""
    return int(number.node.expr.count_ops()) if isinstance(number, _SYMBOLIC) else 0


def substitute_symbols(number: Any, symbols: dict[Any, Any]) -> object:
    """A symbolic number with its symbols replaced (sympy symbol -> SymInt or int)."""
    found = free_symbols(number) & symbols.keys()
    if not found:
        return number
    node = number.node
    # No hints below: torch works them out from the expression when it is asked for them.
    changed = node.expr.subs({s: getattr(getattr(symbols[s], "node", None), "expr", symbols[s]) for s in found})
    if isinstance(number, torch.SymBool):
        return node.shape_env.create_symboolnode(changed)
    if isinstance(number, torch.SymFloat):
        return node.shape_env.create_symfloatnode(changed, hint=None)
    return node.shape_env.create_symintnode(changed, hint=None)


def in_steps(number: Any) -> object:
    """A symbolic number that torch cannot make nodes of, computed anew from its symbols; others as they are.

    Inside a branch of torch.cond, torch makes the nodes of a number from its expression. It fails at a product of three
    sizes or more ("mul expected 2 arguments, got 3"), and at what it has no operator for, a float or the lesser of two
    sizes say ("is not tracked with proxy"). Where `sympy_interp` has moved, or has no Python for a part, it still does.
    """
    if not free_symbols(number):
        return number
    import sympy

    expression, env = number.node.expr, number.node.shape_env
    parts = (part for part in sympy.preorder_traversal(expression) if part.args)
    if all(_has_nodes(part) for part in parts) or not all(symbol.is_integer for symbol in expression.free_symbols):
        return number
    try:
        from torch.utils._sympy.interp import sympy_interp
        from torch.utils._sympy.reference import PythonReferenceAnalysis
    except ImportError:
        return number

    class Steps(PythonReferenceAnalysis):
        """Python's operators on symbolic numbers, two operands at a time."""

        @staticmethod
        def trunc_to_int(x: object, dtype: torch.dtype) -> object:
            return torch.sym_int(x)

        @staticmethod
        def int_truediv(a: Any, b: Any) -> object:
            return a / b

        truediv = int_truediv

    sizes = {symbol: env.create_symintnode(symbol, hint=None) for symbol in expression.free_symbols}
    try:
        computed = sympy_interp(Steps, sizes, expression)
    except (AttributeError, KeyError, TypeError):
        return number
    return computed if isinstance(computed, _SYMBOLIC) else number


def _has_nodes(part: Any) -> bool:
    """Whether torch makes nodes of this part of an expression; a sum may have any number of terms."""
    if part.is_Mul:
        return len(part.args) == 2
    return bool(part.is_Add or part.is_Boolean) or type(part).__name__ in ("FloorDiv", "Mod")


def constant_answer(condition: torch.SymBool) -> bool | None:
    """The value of a condition that is the same for all sizes of at least 1; None if it depends on a size.

    torch.export's ranges start at 2 for sizes without bounds, since it treats 0 and 1 specially: a lower bound of 2 or
    less is read as 1. Conditions on numbers taken from data depend on them.
    """
    from torch.utils._sympy.value_ranges import ValueRanges, bound_sympy

    node = condition.node
    expression = node.shape_env.replace(node.expr)
    if expression.is_Boolean and not expression.free_symbols:
        return bool(expression)
    ranges = {}
    for symbol in expression.free_symbols:
        known = node.shape_env.var_to_range.get(symbol)
        if known is None or symbol not in hints(node.shape_env):
            ranges[symbol] = known or ValueRanges.unknown_int()
        else:
            ranges[symbol] = ValueRanges(max(1, known.lower) if known.lower > 2 else 1, known.upper)
    bounds = bound_sympy(expression, ranges)
    return bool(bounds.lower) if bounds.is_singleton() else None


def hints(shape_env: Any) -> Any:
    # Newer versions of torch call it backed_var_to_val.
    return getattr(shape_env, "backed_var_to_val", None) or shape_env.var_to_val


def hint_of(condition: torch.SymBool) -> bool | None:
    """The value of a condition at the example's sizes; None if it depends on data."""
    node = condition.node
    values = hints(node.shape_env)
    expression = node.expr
    if not all(symbol in values for symbol in expression.free_symbols):
        return None
    # Not by bool(condition), which would add a guard that fixes the branch.
    return bool(expression.subs({symbol: values[symbol] for symbol in expression.free_symbols}))


def equates(condition: torch.SymBool, answer: bool) -> bool:
    """Whether the answer makes two sizes equal: `a == b` answered True, or `a != b` answered False."""
    import sympy

    wanted = sympy.Eq if answer else sympy.Ne
    return isinstance(condition.node.expr, wanted)


def implied(condition: torch.SymBool, known: list[tuple[torch.SymBool, bool]]) -> bool | None:
    """The answer to a condition on sizes that follows from answers to others; None where none is seen to.

    It follows from the same condition, also of an equal size (`x.shape == y.shape`), a size's value (`n == 1`, so not
    `n > 4`) or a remainder (`n % 2 == 0`, so not `(n + 1) % 2 == 0`).
    """
    import sympy

    facts = [one.node.expr if answer else sympy.Not(one.node.expr) for one, answer in known]
    values = dict(pair for fact in facts if isinstance(fact, sympy.Eq) for pair in _known_sizes(*fact.args))
    asked, *facts = (one.xreplace(values) for one in (condition.node.expr, *facts))
    asked = asked.xreplace({sympy.Not(fact): sympy.false for fact in facts} | dict.fromkeys(facts, sympy.true))
    answers = {
        asked.xreplace(numbers)
        for numbers in _remainders(asked, facts)
        if all(fact.xreplace(numbers) != sympy.false for fact in facts)
    }
    return bool(answers.pop()) if len(answers) == 1 and answers <= {sympy.true, sympy.false} else None


def _known_sizes(left: Any, right: Any) -> Iterator[tuple[Any, Any]]:
    """(a size, what it is): a number, or an equal size whose name comes sooner."""
    for size, value in ((left, right), (right, left)):
        if size.is_Symbol and (value.is_Integer or (value.is_Symbol and str(value) < str(size))):
            yield size, value


def _remainders(asked: Any, facts: list[Any]) -> Iterator[dict[Any, Any]]:
    """For each remainder that a term may have: the remainders in conditions, of it and of what is a number more."""
    import sympy

    functions = [part for one in (asked, *facts) for part in one.atoms(sympy.Function)]
    parts = [part for part in functions if part.func.__name__.endswith("Mod") and part.args[1].is_Integer]
    term = next((part.args[0].as_coeff_Add()[1] for part in parts if asked.has(part)), None)
    shifts = {part: part.args[0].as_coeff_Add()[0] for part in parts if part.args[0].as_coeff_Add()[1] == term}
    for value in range(math.lcm(*(int(part.args[1]) for part in shifts))):
        yield {part: (shift + value) % part.args[1] for part, shift in shifts.items()}


def suppressed_guards(condition: torch.SymBool) -> contextlib.AbstractContextManager[None]:
    """A context in which guards on sizes are evaluated at the example's sizes and not recorded."""
    return condition.node.shape_env.suppress_guards()


def conclusions(condition: torch.SymBool) -> Callable[[], None]:
    """Notes what torch has concluded about sizes; calling the result makes it forget what it concludes from now on.

    `ShapeEnv.guards`, `var_to_range`, `replacements`, `axioms`, `divisible`, and the counters by which it knows that
    its caches are old. If one of them moves, nothing is forgotten: a size that a failed path took for fixed stays so.
    """
    env = condition.node.shape_env
    try:
        guards = len(env.guards)
        kept = {name: getattr(env, name).copy() for name in ("var_to_range", "replacements", "axioms", "divisible")}
        env._update_version_counter  # noqa: B018
    except AttributeError:
        return lambda: None

    def forget() -> None:
        del env.guards[guards:]
        known = kept["var_to_range"].keys()
        for name, value in kept.items():
            again = value.copy()  # this may be called again
            if name in ("var_to_range", "replacements"):  # a number read from data since then keeps its own
                again.update((symbol, one) for symbol, one in getattr(env, name).items() if symbol not in known)
            setattr(env, name, again)
        for counter in ("_version_counter", "_replacements_version_counter"):
            setattr(env, counter, getattr(env, counter, 0) + 1)
        env._resimplify_floor_div_axioms = True
        env._update_version_counter()

    return forget


def compiled_function(
    name: str, names: list[str], lines: list[str], functions: dict[str, tuple[Callable[..., Any], list[torch.Tensor]]]
) -> Callable[..., Any]:
    """A TorchScript function with arguments `names` and the body `lines`, which may call the `functions`.

    functions: by name, (a function, its example inputs); they are traced. `CompilationUnit.define`, `_jit_pass_inline`
    and `_create_function_from_graph` are what torch.jit.script itself is made of. If they move, loops and branches
    with other shapes are refused under the trace exporter. The caller must keep the function alive: a traced graph
    refers to it without owning it.
    """
    with trace_suspended(), tracing_parts():
        known = {
            called: _traced(function, tuple(operand.detach().clone() for operand in example))
            for called, (function, example) in functions.items()
        }
    source = f"def {name}({', '.join(names)}):\n" + "".join(f"    {line}\n" for line in lines)
    found = {**known, "torch": torch}
    unit = torch.jit.CompilationUnit()
    # `rcb` is how TorchScript looks up names: the traced functions first, then torch and Python's builtins.
    unit.define(source, rcb=lambda wanted: found.get(wanted, getattr(builtins, wanted, None)))
    graph = getattr(unit, name).graph.copy()
    torch._C._jit_pass_inline(graph)
    return torch._C._create_function_from_graph(name, graph)


def _traced(function: Callable[..., object], example: tuple[torch.Tensor, ...]) -> object:
    return torch.jit.trace(function, example, check_trace=False)


def is_by_data(env: Any, symbol: Any) -> bool:
    """Whether a symbol is a size that depends on values in a tensor, such as the number of rows of `x[mask]`."""
    sources = getattr(env, "var_to_sources", {}).get(symbol, ())
    names = [str(getattr(getattr(one, "base", one), "source_name", "")) for one in sources]
    return any(name.startswith("in") and name[2:].isdigit() and int(name[2:]) >= BY_DATA for name in names)


def by_data(number: torch.SymBool | torch.SymInt) -> bool:
    """Whether a condition or a size depends on a value read from a tensor."""
    env = number.node.shape_env
    known = hints(env)
    return any(symbol not in known or is_by_data(env, symbol) for symbol in number.node.expr.free_symbols)


def assume(condition: torch.SymBool) -> bool | None:
    """The answer to a condition on whole numbers from data; None where none is told.

    None is told of bools from data, of what torch itself knows, and of comparisons with a number such as `n > 5`.
    """
    import sympy
    from torch.fx.experimental.symbolic_shapes import statically_known_true

    if not by_data(condition) or statically_known_true(condition) or statically_known_true(torch.sym_not(condition)):
        return None
    env = condition.node.shape_env
    expression = env.replace(condition.node.expr)
    numbers = [symbol for symbol in expression.free_symbols if symbol not in hints(env)]
    ranges = [env.var_to_range.get(symbol) for symbol in numbers]
    if not all(symbol.is_integer for symbol in numbers) or any(one is not None and one.upper <= 1 for one in ranges):
        return None  # a bool is 0 or 1
    answer = isinstance(expression, sympy.Ne) if isinstance(expression, sympy.Eq | sympy.Ne) else None
    if type(expression).__name__ in _ORDERS:
        answer = _ordered(expression, numbers, hints(env))
    return answer


def _ordered(expression: Any, numbers: list[Any], sizes: Any) -> bool | None:
    """`left < right`: alike for every number from 2 on, or a position in a size."""
    found = {
        bool(expression.xreplace(dict.fromkeys(numbers, number)).xreplace(sizes)) for number in (2, 3, 100, _LARGE)
    }
    if len(found) == 1:
        return found.pop()
    order = _ORDERS[type(expression).__name__]
    left, right = (bool(side.free_symbols & set(numbers)) for side in expression.args)
    mixed = left == right or not all(side.free_symbols for side in expression.args)
    return None if mixed else bool(order(0, 1) if left else order(1, 0))


def _removing(original: Callable[..., bool]) -> Callable[..., bool]:
    def without_unused(graph: Any) -> bool:
        while unused := [node for node in graph.nodes() if _is_unused(node)] if _UNUSED.here() else []:
            for node in unused:
                node.destroy()
            torch._C._jit_pass_dce(graph)
        return original(graph)

    return without_unused


def _is_unused(node: Any) -> bool:
    recorded = node.kind() == "prim::PythonOp" and node.pyname() == "_Recorded"
    return recorded and not any(value.uses() for value in node.outputs())


def _removing_loops(original: Callable[..., None]) -> Callable[..., None]:
    def without_unused_loops(graph: Any) -> None:
        original(graph)
        while unused := list(_unused_loops(graph)) if _UNUSED_LOOPS.here() else []:
            for node in unused:
                node.destroy()
            original(graph)

    return without_unused_loops


def _unused_loops(block: Any) -> Iterator[Any]:
    for node in block.nodes():
        if node.kind() == "onnx::Loop" and not any(value.uses() for value in node.outputs()):
            yield node
        else:
            for inner in node.blocks():
                yield from _unused_loops(inner)


_UNUSED = Replaced("torch._C._jit_pass_cse", _removing)
_UNUSED_LOOPS = Replaced("torch._C._jit_pass_dce_allow_deleting_nodes_with_side_effects", _removing_loops)


@contextlib.contextmanager
def unused_removed() -> Iterator[None]:
    """A context in which the TorchScript exporter, called in this thread, removes what nothing uses.

    Both sides of a branch run in the trace, and are repeated inside of an If; a loop that is found in plain Python is
    written more than once. What is left over is removed by torch, but not a Loop, which might have no end, nor what the
    kit recorded as one node (`formulas.nodes`): the next step, `torch._C._jit_pass_cse`, would take it in place of the
    If's own, so that one side ran for every input. With `torch._C._jit_pass_dce` it is removed before. If one of them
    moves, some such models are refused, and files keep loops that they do not need.
    """
    with _UNUSED.held(), _UNUSED_LOOPS.held():
        yield

"""The conditions on sizes that torch.export assumes (guards): which are dropped, which lines they name, how to read and
compile them. All by private torch APIs.

- `ShapeEnv.guards` (torch.export) and `ShapeEnv.deferred_runtime_asserts` (torch.onnx): the conditions on sizes, with
  the line that caused them (`ShapeGuard.sloc`, `RuntimeAssert.stack`). An operator's condition, such as two equal sizes
  in an addition, is checked at run time as well. If sympy cannot solve it for a size, torch.export raises
  NotImplementedError, so it is dropped: `s0 == 2 * (s0 // 2)`, say, of `x + up(down(x))`, where the addition itself
  fails at an odd size. If these move, such models are refused.
- `uninteresting_files`: the files that torch skips when it looks for the line of a guard. onnxpatch's files are added
  while a patched model runs. If it moves, guards name lines of onnxpatch.
- `ShapeEnv.deferred_runtime_asserts` and `ExportedProgram.range_constraints`, by way of the inputs' fake tensors: the
  ONNX exporter drops the assert nodes. If these move, no condition is known: ({}, []).
- `ReferenceAnalysis.int_truediv`: what torch makes the nodes of a condition with. It divides sympy's expressions, and
  asks a node for its truth: "symbolically traced variables cannot be used as inputs to control flow". Nodes divide
  themselves inside of an export. If it moves, models with a condition on a quotient of sizes are refused. The same of
  `PythonReferenceAnalysis.round_to_int` and a condition on a rounded one: nodes have no `__round__`.
- `_fast_expand`: torch expands every part of an expression again at each question about it, which takes minutes for
  nested windows. Inside of an export it does so once. If it moves, such models take as long as in torch. So they do if
  torch's FloorDiv no longer calls `sympy.simplify` for a quotient by a common factor.
- `torch.utils._sympy.functions`: torch's own sympy functions (FloorDiv, Mod, ...), by name. A condition with a function
  that is not in the table below cannot be evaluated, and counts as unknown.
"""

from __future__ import annotations

import contextlib
import math
import operator
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import sympy
import torch
from sympy.printing.lambdarepr import LambdaPrinter

from onnxpatch._torch.one_export import Replaced
from onnxpatch.messages.user_code import is_user_file
from onnxpatch.process import undone

# torch computes the shapes of operators' results in these files, of `cat` in the last.
_OPERATORS = tuple(
    os.path.join(os.path.dirname(torch.__file__), part) for part in ("_subclasses", "_meta", "_refs", "_prims")
)


@contextlib.contextmanager
def ignore_frames(files: Iterable[str]) -> Iterator[None]:
    """A context in which torch names no line of `files` as the cause of a guard."""
    try:
        from torch.fx.experimental.symbolic_shapes import uninteresting_files

        known = uninteresting_files()
        added = set(files) - known
    except (ImportError, AttributeError):
        yield
        return
    with undone(lambda: known.difference_update(added)):
        known.update(added)
        yield


def _dividing(original: Any) -> Any:
    def int_truediv(a: Any, b: Any) -> Any:
        # A node, or a symbolic number, is divided as it stands.
        known = all(isinstance(one, sympy.Basic | int | float) for one in (a, b))
        return original.__func__(a, b) if known else a / b

    return staticmethod(int_truediv)


def _rounding(original: Any) -> Any:
    def round_to_int(a: Any, dtype: object) -> Any:
        # A node of a graph has no `__round__`: the graph calls Python's `round`.
        proxy = isinstance(a, torch.fx.Proxy)
        return a.tracer.create_proxy("call_function", round, (a,), {}) if proxy else original.__func__(a, dtype)

    return staticmethod(round_to_int)


_QUOTIENTS = Replaced("torch.utils._sympy.reference.ReferenceAnalysis.int_truediv", _dividing)
_ROUNDED = Replaced("torch.utils._sympy.reference.PythonReferenceAnalysis.round_to_int", _rounding)


def _once(original: Any) -> Any:
    known: dict[Any, Any] = {}

    def expand(expression: Any) -> Any:
        if expression not in known:
            found = original(expression)
            known[expression] = None if found is expression else found
        # The object itself: another one that is equal counts as changed, and all around it is made again.
        return expression if known[expression] is None else known[expression]

    return expand


_EXPANDED = Replaced("torch.fx.experimental.symbolic_shapes._fast_expand", _once)


def _divided(original: Any) -> Any:
    def simplify(expression: Any, *args: Any, **kwargs: Any) -> Any:
        if args or kwargs or not _SIMPLIFIED.here():  # another thread's, of sympy itself
            return original(expression, *args, **kwargs)
        # A quotient by a common factor, which the division takes out of every term.
        terms = sympy.Add.make_args(found := sympy.expand_mul(expression, deep=False))
        whole = all(term.as_coeff_Mul()[0].is_Integer and _is_product(term) for term in terms)
        return found if whole else original(expression)

    return simplify


def _is_product(term: Any) -> bool:
    return not any(factor.is_Pow and factor.exp.could_extract_minus_sign() for factor in sympy.Mul.make_args(term))


_SIMPLIFIED = Replaced("torch.utils._sympy.functions.sympy.simplify", _divided)


@contextlib.contextmanager
def conditions_solved() -> Iterator[None]:
    """A context in which torch.export may assume a condition on a quotient of sizes, expands each one once, and divides
    without a search for the shortest form."""
    with _QUOTIENTS.held(), _ROUNDED.held(), _EXPANDED.held(), _SIMPLIFIED.held():
        yield


def drop_unsolvable_guards() -> None:
    """Drop guards that torch.export may fail to solve. Call it at the end of a forward under torch.export."""
    with contextlib.suppress(ImportError, AttributeError):
        from torch._guards import detect_fake_mode

        mode = detect_fake_mode()
        if mode is None or mode.shape_env is None:
            return
        env = mode.shape_env
        # Under the key None are the asserts that have no number taken from data.
        kept: tuple[list[Any], list[Any]] = (env.guards, env.deferred_runtime_asserts.get(None, []))
        for conditions in kept:
            conditions[:] = [one for one in conditions if not (_agreement(one.expr) and _by_operator(one))]


def _by_operator(condition: Any) -> bool:
    """Whether an operator caused the guard, not an `if` of the model."""
    from torch.fx.experimental.symbolic_shapes import uninteresting_files

    if hasattr(condition, "sloc"):
        place = condition.sloc.framework_loc
        return str(getattr(place, "filename", place)).startswith(_OPERATORS)
    files = (frame.filename for frame in reversed(condition.stack.summary()))
    return next((file for file in files if file not in uninteresting_files()), "").startswith(_OPERATORS)


def _agreement(expression: object) -> bool:
    """Whether the condition is the equality of two lengths computed from one size."""
    sides = (expression.lhs, expression.rhs) if isinstance(expression, sympy.Eq) else ()
    # Of one size: an equality of two sizes says something that the model relies on.
    return len(sides) == 2 and len(sides[0].free_symbols) == 1 and sides[0].free_symbols == sides[1].free_symbols


# torch's own functions of sizes, as Python computes them. sympy writes its own (Eq, floor) itself.
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "Mod": operator.mod, "PythonMod": operator.mod, "FloorDiv": operator.floordiv, "CleanDiv": operator.floordiv,
    "ModularIndexing": lambda base, divisor, modulus: base // divisor % modulus, "IntTrueDiv": operator.truediv,
    "FloatTrueDiv": operator.truediv, "ToFloat": float, "FloorToInt": math.floor, "CeilToInt": math.ceil,
    "TruncToInt": math.trunc, "TruncToFloat": math.trunc, "RoundToInt": round, "RoundDecimal": round,
    "PowByNatural": operator.pow, "FloatPow": math.pow, "OpaqueUnaryFn_sqrt": math.sqrt, "Max": max, "Min": min,
    "BitwiseFn_bitwise_and": operator.and_, "BitwiseFn_bitwise_or": operator.or_,
    "BitwiseFn_bitwise_xor": operator.xor, "Identity": lambda value: value,
    "Where": lambda condition, a, b: a if condition else b,
}  # fmt: skip


class _Printer(LambdaPrinter):
    """Writes torch's functions as calls. sympy would write torch's Mod(a + b, 4) as `a + b % 4`."""

    def _print(self, expr: Any, **kwargs: object) -> str:
        if not str(type(expr).__module__).startswith("torch."):
            return str(super()._print(expr, **kwargs))
        # The name is looked up in `_FUNCTIONS`.
        return f"{type(expr).__name__}({', '.join(self._print(argument) for argument in expr.args)})"


def compiled_condition(
    condition: object, symbols: Sequence[object]
) -> Callable[[Iterable[Sequence[int]]], list[bool | None]]:
    """A Python function of the symbols' values, in order, at several points: whether a sympy condition holds at each,
    None where that is not known.

    Compiled, since thousands of sizes are tried, and sympy's substitution takes a millisecond for each. A condition may
    divide by zero, or have a function of torch that is not in the table (NameError) or takes more than numbers
    (TypeError).
    """
    printer = _Printer({"fully_qualified_modules": False, "inline": True, "allow_unknown_functions": True})
    compiled: Callable[..., Any] = sympy.lambdify(list(symbols), condition, [_FUNCTIONS, "math"], printer)

    def holds(*values: int) -> bool | None:
        try:
            return bool(compiled(*values))
        except (ArithmeticError, ValueError, NameError, TypeError):
            return None

    return lambda points: [holds(*values) for values in points]


def size_conditions(exported: object) -> tuple[dict[tuple[int, int], Any], list[tuple[Any, str]]]:
    """The conditions on sizes that an ExportedProgram assumes.

    Returns ({(user input, axis): symbol}, [(sympy condition, source line)]).
    """
    places: dict[tuple[int, int], Any] = {}
    env = None
    for index, fake in enumerate(_user_inputs(exported)):
        for axis, size in enumerate(getattr(fake, "shape", ())):
            node = getattr(size, "node", None)
            if isinstance(size, torch.SymInt) and node is not None:
                env = env or getattr(node, "shape_env", None)
                if getattr(node.expr, "is_Symbol", False):
                    places[index, axis] = node.expr
    asserts = getattr(env, "deferred_runtime_asserts", {}) or {}
    conditions = [(one.expr, _assert_source(one)) for group in asserts.values() for one in group]
    return places, conditions + _range_conditions(exported)


def _user_inputs(exported: Any) -> list[object]:
    wanted = set(exported.graph_signature.user_inputs)
    nodes = [node for node in exported.graph.nodes if node.op == "placeholder" and node.name in wanted]
    values = [node.meta.get("val") for node in nodes]
    return [value for value in values if isinstance(value, torch.Tensor)]


def _range_conditions(exported: object) -> list[tuple[Any, str]]:
    found: list[tuple[Any, str]] = []
    for symbol, bounds in getattr(exported, "range_constraints", {}).items():
        # torch writes an open end as infinity, or as a number near sys.maxsize.
        low, high = (b if getattr(b, "is_Integer", False) and b < 2**31 else None for b in (bounds.lower, bounds.upper))
        if low is not None and low > 1:
            found.append((sympy.Ge(symbol, low), ""))
        if high is not None:
            found.append((sympy.Le(symbol, high), ""))
    return found


def _assert_source(one: object) -> str:
    """The innermost Python line outside torch where the condition arose; '' if torch did not keep it."""
    stack: Any = getattr(one, "stack", None)
    try:
        frames = stack.summary() if hasattr(stack, "summary") else ()
    except Exception:  # a captured traceback may be gone; the condition itself still counts
        return ""
    outside = [f for f in frames if is_user_file(f.filename)]
    return f"{outside[-1].filename}:{outside[-1].lineno} {outside[-1].line or ''}".strip() if outside else ""

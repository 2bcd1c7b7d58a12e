"""Reads the conditions on sizes that torch.export assumed, from private torch APIs, and compiles them.

- `ShapeEnv.deferred_runtime_asserts` and `ExportedProgram.range_constraints`, by way of the inputs' fake tensors: the
  ONNX exporter drops the assert nodes. If these move, no condition is known: ({}, []).
- `torch.utils._sympy.functions`: torch's own sympy functions (FloorDiv, Mod, ...), by name. A condition with a function
  that is not in the table below cannot be evaluated, and counts as unknown.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import sympy
import torch
from sympy.printing.lambdarepr import LambdaPrinter

from onnxpatch.messages.user_code import is_user_file

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

    def _print(self, expr: Any, **kwargs: Any) -> str:
        if not str(type(expr).__module__).startswith("torch."):
            return str(super()._print(expr, **kwargs))
        return f"{type(expr).__name__}({', '.join(self._print(argument) for argument in expr.args)})"


def compiled_condition(condition: object, symbols: Sequence[object]) -> Callable[..., Any]:
    """A Python function of the symbols' values, in order, that evaluates a sympy condition.

    Compiled, since thousands of sizes are tried, and sympy's substitution takes a millisecond for each. The function
    raises NameError if the condition has a function of torch that is not in the table.
    """
    printer = _Printer({"fully_qualified_modules": False, "inline": True, "allow_unknown_functions": True})
    compiled: Callable[..., Any] = sympy.lambdify(list(symbols), condition, [_FUNCTIONS, "math"], printer)
    return compiled


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


def _user_inputs(exported: Any) -> list[Any]:
    wanted = set(exported.graph_signature.user_inputs)
    nodes = [node for node in exported.graph.nodes if node.op == "placeholder" and node.name in wanted]
    values = [node.meta.get("val") for node in nodes]
    return [value for value in values if isinstance(value, torch.Tensor)]


def _range_conditions(exported: object) -> list[tuple[Any, str]]:
    found: list[tuple[Any, str]] = []
    for symbol, bounds in getattr(exported, "range_constraints", {}).items():
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

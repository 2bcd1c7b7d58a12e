"""Finds expressions that choose a value without an `if`, by a number that may come from an input.

    max(int(n), 100)                     which of the two
    [x, x * 7][bool(torch.equal(a, b))]  true or false
    sorted(ids), table.get(n, 1.0)       in which order; which key, or none
    int(f"{n:04d}"[1]), np.ceil(n / 256) a text, a hash, what numpy and math make of a size: its value

What each comes out as, `choice_outcomes.py` tells.
"""

from __future__ import annotations

import ast

from onnxpatch.decisions.choice_outcomes import (
    BUILTINS,
    METHODS,
    PURE_MODULES,
    TEXT_AND_NUMBER,
    Choice,
    Place,
    is_name,
    named,
    place,
    root,
    words,
)
from onnxpatch.decisions.conditionals import SAYING, Source

_BOOLS = words("bool equal allclose is_nonzero isclose array_equal startswith endswith is_integer")
# Tensors have these too, and most often it is theirs.
_VALUES = words("str repr format hash hex bin ord bisect bisect_left bisect_right isqrt") | (
    TEXT_AND_NUMBER - words("split join conjugate")
)
_COMPUTES = words("sum round pow divmod len")  # Python's own; and whatever is math's
_BITS = (ast.RShift, ast.BitAnd, ast.BitXor)
_WRAPS = words("int float len ord str hash bool abs round")
_NODES = (
    ast.Name, ast.Constant, ast.Attribute, ast.Subscript, ast.Slice, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare,
    ast.Call, ast.keyword, ast.JoinedStr, ast.FormattedValue, ast.Tuple, ast.List, ast.Dict, ast.Set, ast.IfExp,
    ast.GeneratorExp, ast.ListComp, ast.comprehension, ast.Lambda, ast.arguments, ast.arg, ast.Starred,
    ast.expr_context, ast.operator, ast.unaryop, ast.boolop, ast.cmpop,
)  # fmt: skip


def choices(source: Source) -> dict[int, list[Choice]]:
    """By line: what is chosen there, in a function and in the lambdas and comprehensions inside of it."""
    found: dict[Place, Choice] = {}
    # What a condition asks is known; what is checked or said, the output does not depend on.
    messages = (node.msg for node in source.nodes if isinstance(node, ast.Assert) and node.msg is not None)
    apart = [*source.tests, *messages, *(node for node in source.nodes if _only_says(node))]
    passed_over = {part for node in apart for part in ast.walk(node)}
    asked = {test.id for test in source.tests if isinstance(test, ast.Name)}
    for node in source.nodes:
        choice = _chosen(node, source) if isinstance(node, ast.expr) and node not in passed_over else None
        # `is_long = n > 100` is asked where `if is_long` is.
        if choice is None or _assigned(choice.node, source) in asked or not _is_pure(choice.node):
            continue
        found.setdefault(place(choice.node), choice)
    by_line: dict[int, list[Choice]] = {}
    for choice in found.values():
        by_line.setdefault(choice.node.lineno, []).append(choice)
    return by_line


def _assigned(node: ast.expr, source: Source) -> str:
    """The name that an expression is assigned to; "" if it is to none, or to more."""
    around = source.parents.get(node)
    target = around.targets[0] if isinstance(around, ast.Assign) else getattr(around, "target", None)
    return target.id if isinstance(target, ast.Name) and getattr(around, "value", None) is node else ""


def _chosen(node: ast.expr, source: Source) -> Choice | None:
    """The choice that an expression makes."""
    if isinstance(node, ast.Compare):
        return Choice(node, "bool", (node,))
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load) and _is_place(node.slice):
        return Choice(node, "key", (node.slice,))
    if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.BinOp) and _is_text_or_bits(node)):
        return _as_value(node, source)
    return _chosen_by_call(node, source) if isinstance(node, ast.Call) else None


def _is_text_or_bits(node: ast.BinOp) -> bool:
    fills = isinstance(node.op, ast.Mod) and isinstance(getattr(node.left, "value", None), str | bytes)  # "%d" % n
    return fills or isinstance(node.op, _BITS)


def _only_says(node: ast.AST) -> bool:
    function = node.func if isinstance(node, ast.Call) else None
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    return isinstance(node, ast.Raise) or name in SAYING or "assert" in name or "check" in name


def _chosen_by_call(node: ast.Call, source: Source) -> Choice | None:
    name, own = getattr(node.func, "attr", ""), isinstance(node.func, ast.Name)
    name = getattr(node.func, "id", name)
    if _is_bool(node, name):  # or a tensor, which is none
        return Choice(node, "bool", (node,))
    if own and name in ("min", "max", "sorted"):
        plain = not node.keywords and not any(isinstance(one, ast.Starred) for one in node.args)
        return Choice(node, ("order" if name == "sorted" else "which") if plain else "value", _compared(node))
    if name == "get" and node.args and not own:
        return Choice(node, "key", (node.args[0],))
    return _as_value(node, source) if name in _VALUES or _computes(node) else None


def _computes(node: ast.Call) -> bool:
    """Whether it is a function of numpy, math and the like, or one of Python's own that makes a number of others."""
    if isinstance(node.func, ast.Name):
        return node.func.id in _COMPUTES and not is_name(node.args[:1])
    return root(node.func) in ("np", "numpy", *PURE_MODULES)


def _is_bool(node: ast.Call, name: str) -> bool:
    if isinstance(node.func, ast.Name) and name in ("any", "all"):
        return True
    as_number = name in ("int", "float") and any(isinstance(one, ast.Compare) for one in node.args)
    return name in _BOOLS or as_number


def _compared(node: ast.Call) -> tuple[ast.expr, ...]:
    only = node.args[0] if len(node.args) == 1 else None
    return tuple(only.elts) if isinstance(only, ast.Tuple | ast.List) else (node,)


def _as_value(node: ast.expr, source: Source) -> Choice:
    """The value that is made of a text, or of a number: of `int(f"{n:04d}"[1])` the whole."""
    around = source.parents.get(node)
    while isinstance(around, ast.expr) and _passes_on(around, node):
        node, around = around, source.parents.get(around)
    return Choice(node, "value", (node,))


def _passes_on(around: ast.expr, node: ast.expr) -> bool:
    if isinstance(around, ast.Subscript):
        return around.value is node
    if isinstance(around, ast.Attribute):
        return around.attr in TEXT_AND_NUMBER
    if not isinstance(around, ast.Call) or node is around.func:
        return isinstance(around, ast.Call)
    return getattr(around.func, "id", "") in _WRAPS or root(around.func) in PURE_MODULES


def _is_place(node: ast.expr) -> bool:
    """Whether it may be a number or a key: no constant, no slice."""
    parts = node.elts if isinstance(node, ast.Tuple) else [node]
    return not any(isinstance(one, ast.Slice | ast.Starred) for one in parts) and any(
        isinstance(part, ast.Name) for part in ast.walk(node)
    )


def _is_pure(node: ast.expr) -> bool:
    """Whether an expression is made of what changes nothing, as far as its text tells."""
    parts = list(ast.walk(node))
    calls = (one for one in parts if isinstance(one, ast.Call))
    return (
        bool(named(node) - BUILTINS) and all(isinstance(one, _NODES) for one in parts) and all(map(_may_be_pure, calls))
    )


def _may_be_pure(call: ast.Call) -> bool:
    if isinstance(call.func, ast.Name | ast.Attribute):
        return isinstance(call.func, ast.Name) or call.func.attr in METHODS | TEXT_AND_NUMBER or bool(root(call.func))
    return False

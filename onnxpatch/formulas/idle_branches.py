"""Looks at the `if` that a running function is evaluating: does its body change nothing where the test is false?

    if pad_h or pad_w:                      if x.shape[1] > n:        if pad_h or pad_w:
        x = F.pad(x, (0, pad_w, 0, pad_h))      x = x[:, :n]              return F.pad(x, (0, pad_w, 0, pad_h))
    if pad_w > 0:                                                     return x
        x = x[..., :-pad_w]

Padding by nothing and cropping what is short enough change nothing, so both may be done at every size. An exporter that
traces at a size where the test is false would leave them out for good.
"""

from __future__ import annotations

import ast
import functools
import itertools
from collections.abc import Iterator
from types import CodeType, FrameType

from onnxpatch._torch.symbolic_sizes import never_negative
from onnxpatch.formulas.pad_calls import assigns, pad_call
from onnxpatch.formulas.shortcuts import tree_of


def may_always_run(frame: FrameType, line: int | None = None) -> bool:
    """Whether `frame` is evaluating the test of an `if` whose body changes nothing where the test is false.

    line: where the test stands, if `frame` is somewhere else by now.
    """
    line = frame.f_lineno if line is None else line
    for first, last, positive in _idle(frame.f_code):
        if first <= line <= last:
            return all(name in frame.f_locals and never_negative(frame.f_locals[name]) for name in positive)
    return False


def crops_ends(frame: FrameType) -> bool:
    """Whether `frame` is in the body of `if n: x = x[..., :-n]`: there `-n` may be read as `size - n`.

    Python runs the body where n is not 0, and there the two are the same. Where n is 0, `x[..., :-0]` would be empty.
    """
    return any(first <= frame.f_lineno <= last for first, last in _end_crops(frame.f_code))


@functools.lru_cache(maxsize=4096)
def _end_crops(code: CodeType) -> tuple[tuple[int, int], ...]:
    """(first line, last line) of the bodies of such tests."""
    found = [node for node in _ifs(tree_of(code)) if _crops_ends(node.body, set(_amounts(node.test) or ()))]
    return tuple((node.body[0].lineno, node.body[-1].end_lineno or node.body[-1].lineno) for node in found)


@functools.lru_cache(maxsize=4096)
def _idle(code: CodeType) -> tuple[tuple[int, int, frozenset[str]], ...]:
    """(first line, last line, names) of such tests; the names are those that must never be negative."""
    tree = tree_of(code)
    found: list[tuple[int, int, frozenset[str]]] = []
    padding: set[str] = set()
    for node in _ifs(tree):
        amounts = _amounts(node.test)
        names: frozenset[str] | None = frozenset() if _is_crop(node) else None
        if amounts is not None and node.body and all(_adds_nothing(one, set(amounts)) for one in node.body):
            # A later `if` of the same test may crop to a size: it crops what this one has padded.
            padding.add(ast.unparse(node.test))
            names = _compared(amounts)
        elif amounts is not None and _crops_back(node, set(amounts), padding):
            names = _compared(amounts)
        if names is not None:
            found.append(_place(node, names))
    return (*found, *_padded_returns(tree))


def _place(node: ast.If, names: frozenset[str]) -> tuple[int, int, frozenset[str]]:
    return node.test.lineno, node.test.end_lineno or node.test.lineno, names


def _padded_returns(tree: ast.AST | None) -> Iterator[tuple[int, int, frozenset[str]]]:
    """As `_idle`, for an `if` that returns its input padded and is followed by a return of the input as it is."""
    for node in ast.walk(tree) if tree else ():
        for field in ("body", "orelse"):
            statements = getattr(node, field, None)
            for one, after in itertools.pairwise(statements if isinstance(statements, list) else []):
                if isinstance(one, ast.If) and not one.orelse and isinstance(after, ast.Return):
                    amounts = _amounts(one.test)
                    if amounts is not None and _returns_padded(one.body, after, set(amounts)):
                        yield _place(one, _compared(amounts))


def _returns_padded(body: list[ast.stmt], after: ast.Return, names: set[str]) -> bool:
    call = pad_call(body[0].value) if len(body) == 1 and isinstance(body[0], ast.Return) else None
    if call is None or after.value is None:
        return False
    same = isinstance(call.padded, ast.Name) and ast.unparse(after.value) == call.padded.id
    return same and isinstance(call.amounts, ast.Tuple | ast.List) and _is_zero(call.amounts, names)


def _ifs(tree: ast.AST | None) -> Iterator[ast.If]:
    """Every `if` without an `else`, from the top of the function to its end."""
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.If) and not node.orelse] if tree else []
    yield from sorted(nodes, key=lambda node: node.lineno)


def _compared(amounts: dict[str, bool]) -> frozenset[str]:
    return frozenset(name for name, compared in amounts.items() if compared)


def _amounts(test: ast.expr) -> dict[str, bool] | None:
    """The names that are 0 if `test` is false, each with whether it must never be negative for that to be so."""
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.Or):
        each = [_amounts(value) for value in test.values]
        return None if any(one is None for one in each) else {k: v for one in each if one for k, v in one.items()}
    if isinstance(test, ast.Name):
        return {test.id: False}
    if not isinstance(test, ast.Compare) or len(test.ops) != 1 or not isinstance(test.left, ast.Name):
        return None
    zero = isinstance(test.comparators[0], ast.Constant) and test.comparators[0].value == 0
    if not zero or not isinstance(test.ops[0], ast.Gt | ast.NotEq):
        return None
    return {test.left.id: isinstance(test.ops[0], ast.Gt)}


def _adds_nothing(statement: ast.stmt, names: set[str]) -> bool:
    """Whether a statement changes nothing where all `names` are 0: `x = F.pad(x, (0, n))`, `length += n`."""
    if isinstance(statement, ast.AugAssign):
        return isinstance(statement.op, ast.Add | ast.Sub) and _is_zero(statement.value, names)
    if not isinstance(statement, ast.Assign):
        return False
    seen = _reshaped(statement.value)
    call = pad_call(seen)
    if call is None or not _is_zero(call.amounts, names):
        return False
    # x = F.pad(x.view(...), ...).view(...) has both, or neither
    return assigns(statement, call.padded if seen is statement.value else _reshaped(call.padded))


def _reshaped(value: ast.expr) -> ast.expr:
    """The `x` of `x.view(...)` and `x.reshape(...)`, which leave its elements in order; else the value itself."""
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in ("view", "reshape"):
        return value.func.value
    return value


def _is_zero(expression: ast.expr, names: set[str]) -> bool:
    """Whether an expression of these names and numbers alone is 0, or a list of zeros, where the names are."""
    # A call, an attribute or another name may be anything, also where these names are 0.
    used = {node.id for node in ast.walk(expression) if isinstance(node, ast.Name)}
    known = (ast.Name, ast.Constant, ast.Tuple, ast.List, ast.BinOp, ast.operator, ast.UnaryOp, ast.unaryop, ast.Load)
    if not used <= names or not all(isinstance(node, known) for node in ast.walk(expression)):
        return False
    # Only names, numbers and operators get here, so evaluating them with every name 0 has no side effects.
    code = compile(ast.fix_missing_locations(ast.Expression(expression)), "<amounts>", "eval")
    try:
        value = eval(code, {"__builtins__": {}}, dict.fromkeys(used, 0))
    except (ArithmeticError, TypeError):
        return False
    return not any(value) if isinstance(value, tuple | list) else not value


def _crops(body: list[ast.stmt]) -> bool:
    """Whether the body is `x = x[:, :h, :w]` alone: what an `if` of the same test padded is cut off again."""
    parts = crop_of(body)
    return parts is not None and all(part.lower is None and _is_size(part.upper) for part in parts[1])


def _crops_back(node: ast.If, names: set[str], padding: set[str]) -> bool:
    """Whether a crop is idle. One to a size is so only if an earlier `if` of the same test has padded."""
    # The ifs come in the order of their lines.
    return _crops_ends(node.body, names) or (ast.unparse(node.test) in padding and _crops(node.body))


def _crops_ends(body: list[ast.stmt], names: set[str]) -> bool:
    """Whether the body is a crop alone, `x = x[..., n // 2 : -(n - n // 2)]`, by amounts that are 0 with `names`."""
    parts = crop_of(body)
    return parts is not None and all(
        (part.lower is None or _is_zero(part.lower, names)) and (part.upper is None or _is_end(part.upper, names))
        for part in parts[1]
    )


def _is_end(bound: ast.expr, names: set[str]) -> bool:
    return isinstance(bound, ast.UnaryOp) and isinstance(bound.op, ast.USub) and _is_zero(bound.operand, names)


def _is_size(bound: ast.expr | None) -> bool:
    """Not a number, nor one counted from the end: `x[:-0]` has nothing left."""
    return bound is not None and not isinstance(bound, ast.Constant | ast.UnaryOp)


def crop_of(body: list[ast.stmt]) -> tuple[str, list[ast.Slice]] | None:
    """(source, its slices other than `:`) of `x = x[...]` with slices by names, without steps; else None."""
    assigned = body[0]
    value = assigned.value if isinstance(assigned, ast.Assign) and len(body) == 1 else None
    if isinstance(value, ast.Call) and ast.unparse(value).endswith("].contiguous()"):
        value = getattr(value.func, "value", None)
    if not isinstance(assigned, ast.Assign) or not isinstance(value, ast.Subscript):
        return None
    source = ast.unparse(value.value)
    slices = [part for part in ast.walk(value.slice) if isinstance(part, ast.Slice)]
    parts = [part for part in slices if part.lower or part.upper]
    if [ast.unparse(target) for target in assigned.targets] != [source] or any(part.step for part in slices):
        return None
    return (source, parts) if parts else None


def _is_crop(node: ast.If) -> bool:
    """`if n < x.shape[i]: x = x[..., :n]`, or `x[..., -n:]`, which start at the first where there are fewer.

    Before it may stand `y is not None and`.
    """
    test, cropped = node.test, crop_of(node.body)
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) and all(map(_is_given, test.values[:-1])):
        test = test.values[-1]
    if cropped is None or not isinstance(test, ast.Compare) or len(test.ops) != 1:
        return False
    smaller, larger = test.left, test.comparators[0]
    if isinstance(test.ops[0], ast.Gt | ast.GtE):
        smaller, larger = larger, smaller
    elif not isinstance(test.ops[0], ast.Lt | ast.LtE):
        return False
    source, parts = cropped
    bound = ast.unparse(smaller)
    sized = ast.unparse(larger).startswith((f"{source}.shape[", f"{source}.size("))
    kept = [_kept(part) for part in parts]
    return sized and kept == [bound]


def _is_given(test: ast.expr) -> bool:
    return isinstance(test, ast.Compare) and all(isinstance(one, ast.IsNot) for one in test.ops)


def _kept(part: ast.Slice) -> str | None:
    """How many a slice keeps at most, from the start or to the end."""
    if part.lower is None and part.upper is not None:
        return ast.unparse(part.upper)
    lower = part.lower
    last = part.upper is None and isinstance(lower, ast.UnaryOp) and isinstance(lower.op, ast.USub)
    return ast.unparse(lower.operand) if last and isinstance(lower, ast.UnaryOp) else None

"""Reads the source of a running function: its `if`s, what they compare, and what an expression is there.

A rule reads a function once, and is asked at each of its `if`s:

    @at_line
    def _crops(tree):                       which tests it knows, and what it needs to know of each
        for node, behind in ifs(tree):
            yield node.test, ...
    _crops(frame)                           what it found at the line that the frame is at
"""

from __future__ import annotations

import ast
import copy
import functools
import inspect
import linecache
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any, TypeAlias, TypeVar

from onnxpatch.messages.user_code import code_within

T = TypeVar("T")
Lines: TypeAlias = "ast.expr | Sequence[ast.stmt]"
"""A test, or the body of an `if`."""

_SIGNS: dict[type[ast.cmpop], str] = {
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=",
}  # fmt: skip
OPPOSITES = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "=="}
_NUMBERS = (ast.Name, ast.Constant, ast.BinOp, ast.operator, ast.UnaryOp, ast.unaryop, ast.Load)


@dataclass(frozen=True)
class CodeComparison:
    """`left < right`, or with another of the six signs."""

    left: ast.expr
    sign: str
    right: ast.expr

    @property
    def sides(self) -> tuple[ast.expr, ast.expr]:
        return self.left, self.right

    @property
    def ordered(self) -> tuple[ast.expr, ast.expr] | None:
        """(smaller, larger) of an order; None for == and !=."""
        if self.sign in ("==", "!="):
            return None
        return (self.left, self.right) if self.sign in ("<", "<=") else (self.right, self.left)

    def values(self, frame: FrameType) -> tuple[Any, str, Any]:
        """The two sides in a running function, with the sign between them."""
        return value_in(self.left, frame), self.sign, value_in(self.right, frame)


def at_line(find: Callable[[ast.AST], Iterable[tuple[Lines, T]]]) -> Callable[..., list[T]]:
    """A function of a frame, and of a line if the frame is elsewhere by now: what `find` knows of that line.

    find: gives (what stands on the lines, what is known of it) for a syntax tree, outer ones first.
    """

    # One parse for each function, however often its `if`s are asked. The source does not change meanwhile.
    @functools.lru_cache(maxsize=4096)
    def read(code: CodeType) -> tuple[tuple[int, int, T], ...]:
        tree = tree_of(code)
        return tuple((*_span(lines), known) for lines, known in find(tree)) if tree else ()

    def at(frame: FrameType, line: int | None = None) -> list[T]:
        line = frame.f_lineno if line is None else line
        return [known for first, last, known in read(frame.f_code) if first <= line <= last]

    return at


def _span(lines: Lines) -> tuple[int, int]:
    first, last = (lines, lines) if isinstance(lines, ast.expr) else (lines[0], lines[-1])
    return first.lineno, last.end_lineno or last.lineno


def tree_of(code: CodeType) -> ast.AST | None:
    """The syntax tree of a function, with the lines and columns of its file; None where there is no source to read."""
    first, lines = code.co_firstlineno, linecache.getlines(code.co_filename)
    if not 0 < first <= len(lines):
        return None  # typed in, or generated
    try:
        block = _block(code, lines[first - 1 :])
        # Behind as many lines as in the file, and inside an `if`, so that lines and columns stay.
        head = "\n" * (first - 2) + "if 1:\n" if block[0][:1].isspace() else "\n" * (first - 1)
        tree = ast.parse(head + "".join(block))
    except (SyntaxError, IndexError, ValueError, RecursionError):  # a lambda in the middle of a call
        return None
    return next((node for node in ast.walk(tree) if getattr(node, "name", None) == code.co_name), tree)


def _block(code: CodeType, lines: list[str]) -> list[str]:
    """The lines of a function, of which the first are given; inspect.getblock takes twice as long as the parser."""
    last = max(line or 0 for one in code_within(code) for _, _, line in one.co_lines()) - code.co_firstlineno
    indent = len(lines[0]) - len(lines[0].lstrip())
    for at in range(last + 1, len(lines)) if last and code.co_name.isidentifier() else ():
        if (text := lines[at].strip()) and len(lines[at]) - len(lines[at].lstrip()) <= indent:
            # A text or a call that ends here, or a comment, is none that another statement follows.
            return inspect.getblock(lines) if text[0] in ")]}#\"'" else lines[:at]
    return inspect.getblock(lines)


def ifs(tree: ast.AST, with_else: bool = False) -> list[tuple[ast.If, list[ast.stmt]]]:
    """(if, the statements behind it in its block), in the order of their lines. with_else: those with `else` too.

    A test that the line above gives a name, for this `if` alone (`odd = n % 2 == 1`), counts as what was named.
    """
    blocks = (getattr(node, name, None) for node in ast.walk(tree) for name in ("body", "orelse", "finalbody"))
    found = [
        (_with_its_test(one, block[max(place - 1, 0)], tree), block[place + 1 :])
        for block in blocks
        if isinstance(block, list)
        for place, one in enumerate(block)
        if isinstance(one, ast.If) and (with_else or not one.orelse)
    ]
    return sorted(found, key=lambda pair: pair[0].lineno)


def _with_its_test(node: ast.If, before: ast.stmt, tree: ast.AST) -> ast.If:
    target, value = assigned_by(before) or ("", None)
    if not isinstance(value, ast.BoolOp | ast.Compare) or not isinstance(node.test, ast.Name) or node.test.id != target:
        return node
    if sum(name.id == target for name in names_used([tree])) != 2:
        return node
    test, made = copy.copy(value), copy.copy(node)
    # `a or b` of tensors is one of them, which the `if` asks again.
    test.end_lineno, made.test = node.test.end_lineno, test
    return made


def comparison(test: ast.expr) -> CodeComparison | None:
    """The only comparison that a test is; None for any other test."""
    if not isinstance(test, ast.Compare) or len(test.ops) != 1 or type(test.ops[0]) not in _SIGNS:
        return None
    return CodeComparison(test.left, _SIGNS[type(test.ops[0])], test.comparators[0])


def parts_of(test: ast.expr, operator: type[ast.boolop]) -> list[ast.expr]:
    """The tests that `and`, or `or`, joins; else the test itself."""
    return test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, operator) else [test]


def is_identity(test: ast.expr) -> bool:
    """`x is None`, `x is not None`: decided in Python, alike at every size."""
    return isinstance(test, ast.Compare) and all(isinstance(sign, ast.Is | ast.IsNot) for sign in test.ops)


def is_plain(expression: ast.expr, *more: type[ast.AST]) -> bool:
    """Whether an expression is made of names, numbers and operators alone, so that evaluating it changes nothing.

    more: other parts that it may have.
    """
    return all(isinstance(part, (*_NUMBERS, *more)) for part in ast.walk(expression))


def is_number(expression: ast.expr | None, number: int) -> bool:
    """Whether an expression is this number, as it stands."""
    return isinstance(expression, ast.Constant) and bool(expression.value == number)


def assigned_by(statement: ast.stmt) -> tuple[str, ast.expr] | None:
    """(target, value) of `target = value`, the target as it is written; None for any other statement."""
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return None
    return ast.unparse(statement.targets[0]), statement.value


def names_used(trees: Iterable[ast.AST]) -> Iterator[ast.Name]:
    """The names in some expressions or statements."""
    return (node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Name))


def names_elsewhere(tree: ast.AST, body: Sequence[ast.stmt]) -> set[str]:
    """The names in a function outside of a body."""
    inside = {id(name) for name in names_used(body)}
    return {name.id for name in names_used([tree]) if id(name) not in inside}


def value_in(expression: ast.expr, frame: FrameType) -> Any:
    """What an expression is in a running function."""
    return evaluated(expression, frame.f_locals, frame.f_globals)


def evaluated(expression: ast.expr, names: Mapping[str, Any], others: dict[str, Any] | None = None) -> Any:
    """What an expression is with these names. others: more names; none of Python's own unless they are there."""
    code = compile(ast.fix_missing_locations(ast.Expression(expression)), "<if>", "eval")
    return eval(code, {"__builtins__": {}} if others is None else others, names)

"""An `if` that returns a stored table where it is long enough, and else makes it anew.

    if self.table is not None and self.table.shape[0] >= n:
        return self.table[:n]
    self.table = torch.arange(n)[:, None] * self.slopes
    return self.table

What is made does not depend on what was stored, so it may be made at every size: in the graph the stored table would
end where the model makes a longer one. Whether both are the same is for the comparison to say, as ever: a table may
have been trained since.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from types import FrameType

from onnxpatch.decisions.if_rules.source import Lines, at_line, comparison, ifs, parts_of

_NAMED = (ast.Name, ast.Attribute)


def remakes_table(frame: FrameType) -> bool:
    """Whether `frame` is evaluating the test of an `if` that returns a stored table, and else makes it anew."""
    return bool(_tables(frame))


@at_line
def _tables(tree: ast.AST) -> Iterator[tuple[Lines, str]]:
    for node, _ in ifs(tree):
        returned = node.body[-1].value if isinstance(node.body[-1], ast.Return) else None
        stored = _stored(returned)
        behind = [one for one in _statements(tree) if one.lineno > (node.end_lineno or node.lineno)]
        if stored and any(_is_long(part, stored) for part in parts_of(node.test, ast.And)) and _remade(stored, behind):
            yield node.test, stored


def _stored(returned: ast.expr | None) -> str:
    """What `return table` or `return table[:n]` returns; '' for any other value."""
    while isinstance(returned, ast.Subscript):
        returned = returned.value
    return ast.unparse(returned) if isinstance(returned, _NAMED) else ""


def _is_long(part: ast.expr, stored: str) -> bool:
    """`table.shape[i] >= n`, `table.size(i) > n`, and the same the other way round."""
    compared = comparison(part)
    sides = compared.ordered if compared is not None else None
    starts = (f"{stored}.shape[", f"{stored}.size(", f"len({stored})")
    return sides is not None and ast.unparse(sides[1]).startswith(starts)


def _statements(tree: ast.AST) -> list[ast.stmt]:
    """The statements of a function without those that hold others, in the order of their lines."""
    found = [one for one in ast.walk(tree) if isinstance(one, ast.stmt) and not hasattr(one, "body")]
    return sorted(found, key=lambda one: one.lineno)


def _remade(stored: str, behind: Sequence[ast.stmt]) -> bool:
    """Whether statements make another table, and do not read the stored one."""
    for statement in behind:
        parts = [part for part in ast.walk(statement) if isinstance(part, _NAMED) and ast.unparse(part) == stored]
        if any(isinstance(part.ctx, ast.Load) for part in parts):
            return False
        if parts:
            return True
        if isinstance(statement, ast.Return):
            return not isinstance(statement.value, ast.Constant | None)
    return False

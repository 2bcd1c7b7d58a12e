"""Whether a second identical call of the model has another answer: the file is then right for the first one alone.

self.hidden = self.cell(x, self.hidden)      the second call starts from what the first one kept; a graph does not
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Sequence

import torch

from onnxpatch.decisions.conditionals import source_of
from onnxpatch.decisions.functions_run import Function
from onnxpatch.verification.eager import Eager

_TOLERANCE = 1e-3  # of the largest magnitude of an output
_MOST = 3  # that are named


def changes_of_a_call(eager: Eager, values: Sequence[object]) -> list[str]:
    """What a call changes that the next one reads: `hidden (model.py:12)`; [] where the second answer is the same."""
    first, second, names = eager.twice(values)
    if first.outputs is None or second.outputs is None or not any(map(_differ, first.outputs, second.outputs)):
        return []
    ran = first.taken.lines if first.taken is not None else set()
    lines = [(name, _line(eager.sides.functions, ran, name.rpartition(".")[2])) for name in names[:_MOST]]
    said = [f"{name} ({line})" if line else name for name, line in lines]
    return said or ["something that is no attribute of a module"]


def _differ(one: torch.Tensor | None, other: torch.Tensor | None) -> bool:
    if one is None or other is None or one.shape != other.shape:
        return one is not other
    if not one.is_floating_point():
        return not torch.equal(one, other)
    one, other = one.double(), other.double()
    largest = float(one.abs().nan_to_num(0.0, 0.0, 0.0).max()) if one.numel() else 0.0
    return not torch.allclose(one, other, rtol=0.0, atol=_TOLERANCE * largest, equal_nan=True)


def _line(functions: Sequence[Function], ran: Collection[tuple[int, int]], name: str) -> str:
    """The line that ran on which a function of the model assigns an attribute or writes into it."""
    for function in functions:
        source = source_of(function.code) if name in function.code.co_names else None
        for node in ast.walk(source.tree) if source is not None else ():
            line = getattr(node, "lineno", 0)
            if (function.number, line) in ran and any(_is_of(part, name) for part in _written(node)):
                return f"{function.code.co_filename}:{line}"
    return ""


def _written(node: ast.AST) -> Iterator[ast.expr]:
    if isinstance(node, ast.Assign):
        yield from node.targets
    elif isinstance(node, ast.AugAssign | ast.AnnAssign):
        yield node.target
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr.endswith("_"):
        yield node.func.value


def _is_of(target: ast.expr, name: str) -> bool:
    """Whether a target is an attribute of this name, or a part of one."""
    if isinstance(target, ast.Tuple | ast.List):
        return any(_is_of(part, name) for part in target.elts)
    while isinstance(target, ast.Subscript):
        target = target.value
    return isinstance(target, ast.Attribute) and target.attr == name

"""Whether a second identical call of the model has another answer: the file is then right for the first one alone.

self.hidden = self.cell(x, self.hidden)      the second call starts from what the first one kept; a graph does not
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Sequence

from onnxpatch.decisions.conditionals import source_of
from onnxpatch.decisions.definitions import stored
from onnxpatch.decisions.functions_run import Function
from onnxpatch.verification.comparison import compare_all
from onnxpatch.verification.eager import Answer, Eager

_MOST = 3  # that are named


def changes_of_a_call(eager: Eager, values: Sequence[object], first: Answer) -> list[str]:
    """What a call changes that the next one reads: `hidden (model.py:12)`; [] where the second answer is the same.

    first: the answer of the last call, to the same values, after which the model's state was left as it was.
    """
    second, names = eager.again(values)
    if first.outputs is None or second.outputs is None:
        return []
    if all(one.ok for one in compare_all([""] * len(first.outputs), first.outputs, second.outputs)):
        return []
    ran = first.taken.lines if first.taken is not None else set()
    lines = [(name, _line(eager.sides.functions, ran, name.rpartition(".")[2])) for name in names[:_MOST]]
    said = [f"{name} ({line})" if line else name for name, line in lines]
    return said or ["something that is no attribute of a module"]


def _line(functions: Sequence[Function], ran: Collection[tuple[int, int]], name: str) -> str:
    """The line that ran on which a function of the model assigns an attribute or writes into it."""
    for function in functions:
        source = source_of(function.code) if name in function.code.co_names else None
        for node in source.nodes if source is not None else ():
            line = getattr(node, "lineno", 0)
            if (function.number, line) in ran and name in (
                *(attribute for attribute, *_ in stored(node)),
                _in_place(node),
            ):
                return f"{function.code.co_filename}:{line}"
    return ""


def _in_place(node: ast.AST) -> str:
    """The attribute that a call such as `self.hidden[0].add_(1)` writes into."""
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr.endswith("_")):
        return ""
    target = node.func.value
    while isinstance(target, ast.Subscript):
        target = target.value
    return target.attr if isinstance(target, ast.Attribute) else ""

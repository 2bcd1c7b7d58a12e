"""`assert (x > 0).all()` under dynamo: a bool of data. Where it is false, eager has no answer to compare."""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable
from types import CodeType

import torch
from torch import Tensor

from onnxpatch import Proof, patch
from onnxpatch.decisions.place import deciding_frame
from onnxpatch.formulas.proof_models import Computes
from onnxpatch.formulas.shortcuts import tree_of


class _Asserted(torch.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        scale = x.abs().amax(1, keepdim=True) + 1
        assert (scale > 0).all(), "a scale of 0"
        assert not x.isnan().any() and not x.isinf().any()
        return x / scale


@patch(
    "torch.Tensor.__bool__",
    name="asserted-data",
    why="Could not guard on data-dependent expression Eq(u0, 1), at an `assert` on the values of a tensor",
    link="https://github.com/gemelo-ai/vocos/blob/main/vocos/spectral_ops.py",
    exporters=("dynamo",),
    proof=Proof(
        _Asserted,
        lambda: [(torch.randn(b, n),) for b, n in ((2, 5), (3, 9), (1, 1))],
        ({0: "batch", 1: "length"},),
        fails=("dynamo",),
        reason="data-dependent",
        unchanged=lambda: Computes(lambda x: x * 2),
    ),
)
def asserted_data(original: Callable[[Tensor], bool], tensor: Tensor) -> bool:
    """Answers as the `assert` expects it. The graph has no assertions."""
    frame = deciding_frame(1)
    for first, last, answer in _asserts(frame.f_code) if frame is not None else ():
        if first <= frame.f_lineno <= last:  # type: ignore[union-attr]
            return answer
    return NotImplemented


@functools.lru_cache(maxsize=4096)
def _asserts(code: CodeType) -> tuple[tuple[int, int, bool], ...]:
    """(first line, last line, what the bools in its test have to be) of the asserts for which that can be told."""
    tree = tree_of(code)
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.Assert)] if tree else []
    found = [(node.test, _expected(node.test)) for node in nodes]
    return tuple((test.lineno, test.end_lineno or test.lineno, answer) for test, answer in found if answer is not None)


def _expected(test: ast.expr) -> bool | None:
    parts = test.values if isinstance(test, ast.BoolOp) else [test]
    negated = [isinstance(part, ast.UnaryOp) and isinstance(part.op, ast.Not) for part in parts]
    inner = [part.operand if isinstance(part, ast.UnaryOp) and isinstance(part.op, ast.Not) else part for part in parts]
    # What is decided on the way to the test need not be as the test.
    nodes = [node for part in inner for node in ast.walk(part)]
    decided = any(isinstance(node, ast.IfExp | ast.BoolOp | ast.Not) for node in nodes)
    called = any(isinstance(node, ast.Call) and ast.unparse(node.func) == "bool" for node in nodes)
    return None if decided or called or len(set(negated)) > 1 else not negated[0]

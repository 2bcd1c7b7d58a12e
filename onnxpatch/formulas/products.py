"""An einsum of two tensors as one matrix product, or as one multiplication, with the axes moved around it.

    b h i d, b h j d -> b h i j    shared b h, summed d, left i, right j:   a [b h i d] @ b [b h d j]
    b h j d, d -> b h j d          nothing summed:                          a [b h j d] * b [d]
    b n d, b n d -> b n            summed, nothing left or right:           (a * b).sum(-1)

MatMul has one axis of rows, one of columns and one that is summed; shared axes, and what is left, lie outside of them.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from onnxpatch.formulas.nodes import numbers

Letters = tuple[str, ...]
# Of which onnxruntime has MatMul and Mul. Of whole numbers, too: its Einsum ends the process up to 1.23 where an axis
# is empty. Not float64: with a transposed operand, that MatMul has no kernel there.
_DTYPES = (torch.float32, torch.int32, torch.int64)


@dataclass(frozen=True)
class _Product:
    """Which letter goes where: `summed` is in both operands alone, `shared` in the output too.

    left, right: those of one operand and the output. At most one letter is summed. exchanged: the operands come in the
    other order than in the equation.
    """

    first: str
    second: str
    output: str
    shared: Letters
    summed: Letters
    left: Letters
    right: Letters
    exchanged: bool = False

    def exchange(self) -> _Product:
        """The same product, with the operands in the other order."""
        return _Product(self.second, self.first, self.output, self.shared, self.summed, self.right, self.left, True)

    def of(self, first: Tensor, second: Tensor) -> Tensor:
        """The product of two tensors whose shared and summed axes are as long in the one as in the other."""
        if not self.left and not self.right and self.summed:
            order = (*self.shared, *self.summed)
            made = (_moved(first, self.first, order) * _moved(second, self.second, order)).sum(-1)
            return _moved(made, "".join(self.shared), tuple(self.output))
        if not self.summed:
            return _moved(first, self.first, tuple(self.output)) * _moved(second, self.second, tuple(self.output))
        return self._matmul(first, second)

    def _matmul(self, first: Tensor, second: Tensor) -> Tensor:
        # Letters of one operand but its last are outer axes, over which the other one is repeated.
        outer_left, rows = self.left[:-1], self.left[-1:]
        outer_right, columns = self.right[:-1], self.right[-1:]
        outer = tuple(letter for letter in self.output if letter in (*outer_left, *outer_right, *self.shared))
        a = _moved(first, self.first, (*outer, *rows, *self.summed))
        b = _moved(second, self.second, (*outer, *self.summed, *columns))
        a = a if rows else a.unsqueeze(-2)
        b = b if columns else b.unsqueeze(-1)
        made = torch.matmul(a, b)
        made = made if columns else made.squeeze(-1)
        made = made if rows else made.squeeze(-1 if not columns else -2)
        return _moved(made, "".join((*outer, *rows, *columns)), tuple(self.output))


@functools.lru_cache(maxsize=256)
def plan_product(equation: str) -> _Product | None:
    """The plan of an equation such as `b h i d, b h j d -> b h i j`, or None where no single product does it.

    None: another number of operands than two, `...`, a letter twice in one operand, a letter of one operand that the
    output lacks, several that are summed, or several on both sides that are in one operand alone.
    """
    letters = _letters(equation)
    if letters is None:
        return None
    first, second, output = letters
    summed = tuple(letter for letter in first if letter in second and letter not in output)
    shared = tuple(letter for letter in output if letter in first and letter in second)
    left, right = (tuple(letter for letter in one if letter not in other) for one, other in
                   ((first, second), (second, first)))  # fmt: skip
    if len(summed) > 1 or not {*left, *right} <= {*output} or (summed and min(len(left), len(right)) > 1):
        return None
    made = _Product(first, second, output, shared, summed, left, right)
    # If one operand alone has outer axes, it comes first, and the other one stays a plain matrix for MatMul.
    return made.exchange() if len(left) < len(right) and not shared else made


def _letters(equation: str) -> tuple[str, str, str] | None:
    """The letters of two operands and of the output; None where there are others, or one is there twice."""
    before, arrow, output = equation.replace(" ", "").partition("->")
    operands = before.split(",")
    if len(operands) != 2 or not all(one.isalpha() or not one for one in (*operands, output)):
        return None
    first, second = operands
    if not arrow:
        output = "".join(sorted(letter for letter in {*first, *second} if (first + second).count(letter) == 1))
    if any(len({*one}) != len(one) for one in (first, second, output)) or not {*output} <= {*first, *second}:
        return None
    return first, second, output


def einsum(equation: str, first: Tensor, second: Tensor) -> Tensor | None:
    """torch.einsum of two tensors of one dtype, float32 or whole numbers, as one product; None where that is not
    possible, or an axis is broadcast."""
    plan = plan_product(equation)
    if plan is None or first.dtype not in _DTYPES or second.dtype != first.dtype:
        return None
    operands = (second, first) if plan.exchanged else (first, second)
    names = (plan.first, plan.second)
    if any(len(letters) != one.dim() for letters, one in zip(names, operands, strict=True)):
        return None
    one, other = (dict(zip(letters, numbers(x.shape), strict=True)) for letters, x in zip(names, operands, strict=True))
    if any(_is_one(one[letter]) != _is_one(other[letter]) for letter in (*plan.shared, *plan.summed)):
        return None  # torch repeats an axis of length 1
    return plan.of(*operands)


def _is_one(size: object) -> bool:
    return isinstance(size, int) and size == 1


def _moved(x: Tensor, names: str, order: Sequence[str]) -> Tensor:
    """`x` with its axes in this order, and axes of length 1 for those that it lacks."""
    present = [names.index(name) for name in order if name in names]
    x = x if present == sorted(present) else x.permute(present)
    missing = [place for place, name in enumerate(order) if name not in names]
    if missing == list(range(len(missing))) and len(missing) < len(order):  # broadcasting adds those in front
        return x
    for place in missing:
        x = x.unsqueeze(place)
    return x

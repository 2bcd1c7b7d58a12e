"""Calls of torch as the ONNX nodes for which runtimes have one kernel: RMS normalization, LSTM, GRU, RNN, products.

https://onnx.ai/onnx/operators/onnx__LSTM.html: its `sequence_lens` stop each sequence where it ends, start the backward
direction there, and leave zeros behind. torch has no such call but for packed sequences, which torch.export refuses.

An einsum of two tensors is one MatMul, or one multiplication, with the axes moved around it. MatMul has one axis of
rows, one of columns and one that is summed; shared axes, and what is left, lie outside of them:

    b h i d, b h j d -> b h i j    shared b h, summed d, left i, right j:   a [b h i d] @ b [b h d j]
    b h j d, d -> b h j d          nothing summed:                          a [b h j d] * b [d]
    b n d, b n d -> b n            summed, nothing left or right:           (a * b).sum(-1)
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from onnxpatch.formulas.nodes import Value, Writer, as_ints, placed, run, target_opset

_OPSET = 23  # the first opset with RMSNormalization
# The order of ONNX's gates in torch's: i o f c of i f g o, and z r h of r z n.
_GATES: dict[str, tuple[int, ...]] = {"LSTM": (0, 3, 1, 2), "GRU": (1, 0, 2), "RNN": (0,)}
State = Tensor | tuple[Tensor, Tensor]
# On the `batch_sizes` of a sequence that is packed in name only: the length of each sequence.
_LENGTHS = "__onnxpatch_lengths__"


def normalized_by_rms(x: Tensor, weight: Tensor | None, eps: float, axes: Sequence[int] = (-1,)) -> Tensor:
    """x / sqrt(mean(x^2) + eps) over the last `axes`, times the weight. x: float32 or float64."""
    if weight is None or target_opset() < _OPSET:
        # A division: onnxruntime's fusion does not recognize a product with the reciprocal.
        normal = x / torch.sqrt(x.pow(2).mean(list(axes), keepdim=True) + eps)
        return normal if weight is None else normal * weight

    def in_torch(x: Tensor, weight: Tensor) -> Tensor:
        return x / torch.sqrt(x.pow(2).mean(list(axes), keepdim=True) + eps) * weight

    def in_onnx(writer: Writer, x: Value, weight: Value) -> Value:
        return writer.node("RMSNormalization", x, weight, shape=writer.shape(x), axis=-len(axes), epsilon=eps)

    return run((in_torch, in_onnx), x, weight)


def keep_lengths(x: Tensor, lengths: Tensor) -> PackedSequence:
    """Padded sequences, (length, batch, ...), that pass for packed ones and know their lengths."""
    steps = lengths + 0  # a tensor of its own, for the mark
    vars(steps)[_LENGTHS] = lengths
    return PackedSequence(x, steps)


def lengths_of(sequence: object) -> Tensor | None:
    """The lengths that `keep_lengths` was given; None for a sequence that is packed in truth, and for a tensor."""
    found = vars(sequence.batch_sizes).get(_LENGTHS) if isinstance(sequence, PackedSequence) else None
    return found if isinstance(found, Tensor) else None


def writable(layer: torch.nn.RNNBase) -> bool:
    """Whether nodes can be written for a layer: no projection, no dropout at work, torch 2.8 or later."""
    dropping = layer.training and layer.dropout > 0 and layer.num_layers > 1
    return not layer.proj_size and not dropping and hasattr(torch.onnx, "ops")


def run_layers(layer: torch.nn.RNNBase, x: Tensor, lengths: Tensor | None, state: State | None) -> tuple[Tensor, State]:
    """What the layer makes of sequences of these lengths.

    x: (length, batch, features), in which what is behind a sequence's end does not matter. lengths: (batch,), int64;
    None where all are as long as x.
    state: as the layer takes it. Returns (length, batch, directions * hidden), zeros behind the ends, and the last
    state of each sequence, (layers * directions, batch, hidden).
    """
    directions = 2 if layer.bidirectional else 1
    kind = "RNN" if layer.mode.startswith("RNN") else layer.mode
    given = () if state is None else state if isinstance(state, tuple) else (state,)
    last: list[tuple[Tensor, ...]] = []
    for number in range(layer.num_layers):
        start = [one[number * directions : (number + 1) * directions] for one in given]
        x, *ends = _run(layer, kind, number, x, lengths, start)
        last.append(tuple(ends))
    joined = tuple(torch.cat(parts) for parts in zip(*last, strict=True))
    return x, joined if len(joined) == 2 else joined[0]


def _run(layer: Any, kind: str, number: int, x: Tensor, lengths: Tensor | None, start: list[Tensor]) -> list[Tensor]:
    suffixes = [f"l{number}", f"l{number}_reverse"] if layer.bidirectional else [f"l{number}"]
    input_weights, weights = (_ordered(layer, kind, name, suffixes) for name in ("weight_ih", "weight_hh"))
    biases = None
    if layer.bias:
        # torch's two biases are one input of the node, side by side.
        biases = torch.cat([_ordered(layer, kind, name, suffixes) for name in ("bias_ih", "bias_hh")], 1)
    attributes: dict[str, Any] = {"hidden_size": layer.hidden_size}
    attributes["direction"] = "bidirectional" if layer.bidirectional else "forward"
    if kind == "GRU":
        attributes["linear_before_reset"] = 1  # as torch: the reset gate acts on what the bias was added to
    if kind == "RNN":
        attributes["activations"] = ["Relu" if layer.mode == "RNN_RELU" else "Tanh"] * len(suffixes)
    states = 2 if kind == "LSTM" else 1
    length, batch, _ = x.shape
    shapes = [(length, len(suffixes), batch, layer.hidden_size), *[(len(suffixes), batch, layer.hidden_size)] * states]
    starts: list[Tensor | None] = [*start] or [None] * states
    # ONNX declares sequence_lens as int32.
    ends = None if lengths is None else lengths.to(torch.int32)
    inputs = [x, input_weights, weights, biases, ends, *starts]
    made = torch.onnx.ops.symbolic_multi_out(kind, inputs, attributes, dtypes=[x.dtype] * len(shapes), shapes=shapes)
    made = [placed(one, x) for one in made]
    # ONNX gives the directions an axis of their own, torch joins them with the features.
    return [made[0].permute(0, 2, 1, 3).flatten(2), *made[1:]]


def _ordered(layer: Any, kind: str, name: str, suffixes: list[str]) -> Tensor:
    """(directions, gates * hidden, ...): a parameter of each direction, its gates in ONNX's order."""
    parts = []
    for suffix in suffixes:
        # Slices, which are folded into the weights; the Split of a `chunk` is not.
        stored, size = getattr(layer, f"{name}_{suffix}"), layer.hidden_size
        parts.append(torch.cat([stored[place * size : (place + 1) * size] for place in _GATES[kind]]))
    return torch.stack(parts)


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


def product_of_einsum(equation: str, first: Tensor, second: Tensor) -> Tensor | None:
    """torch.einsum of two tensors of one dtype, float32 or whole numbers, as one product; None where that is not
    possible, or an axis is broadcast."""
    plan = plan_product(equation)
    if plan is None or first.dtype not in _DTYPES or second.dtype != first.dtype:
        return None
    operands = (second, first) if plan.exchanged else (first, second)
    names = (plan.first, plan.second)
    if any(len(letters) != one.dim() for letters, one in zip(names, operands, strict=True)):
        return None
    one, other = (dict(zip(letters, as_ints(x.shape), strict=True)) for letters, x in zip(names, operands, strict=True))
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

"""Layers of torch.nn as the ONNX nodes for which runtimes have one kernel: RMS normalization, LSTM, GRU and RNN.

https://onnx.ai/onnx/operators/onnx__LSTM.html: its `sequence_lens` stop each sequence where it ends, start the backward
direction there, and leave zeros behind. torch has no such call but for packed sequences, which torch.export refuses.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from onnxpatch.formulas.nodes import Recipe, Value, Writer, run, target_opset

_OPSET = 23  # the first opset with RMSNormalization
# The order of ONNX's gates in torch's: i o f c of i f g o, and z r h of r z n.
_GATES: dict[str, tuple[int, ...]] = {"LSTM": (0, 3, 1, 2), "GRU": (1, 0, 2), "RNN": (0,)}
State = Tensor | tuple[Tensor, Tensor]
# On the `batch_sizes` of a sequence that is packed in name only: the length of each sequence.
_LENGTHS = "__onnxpatch_lengths__"


def rms_norm(x: Tensor, weight: Tensor | None, eps: float, axes: Sequence[int] = (-1,)) -> Tensor:
    """x / sqrt(mean(x^2) + eps) over the last `axes`, times the weight. x: float32 or float64."""
    if weight is None or target_opset() < _OPSET:
        # A division: onnxruntime's fusion does not recognize a product with the reciprocal.
        normal = x / torch.sqrt(x.pow(2).mean(list(axes), keepdim=True) + eps)
        return normal if weight is None else normal * weight

    def in_torch(x: Tensor, weight: Tensor) -> Tensor:
        return x / torch.sqrt(x.pow(2).mean(list(axes), keepdim=True) + eps) * weight

    def in_onnx(writer: Writer, x: Value, weight: Value) -> Value:
        return writer.node("RMSNormalization", x, weight, shape=writer.shape(x), axis=-len(axes), epsilon=eps)

    return run(Recipe(in_torch, in_onnx), x, weight)


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

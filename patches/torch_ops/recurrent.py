"""Recurrent layers over a dynamic length, and sequences of several lengths, packed or padded."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils import rnn
from torch.nn.utils.rnn import PackedSequence

from onnxpatch import Proof, Settings, When, exporting, op, patch, running_model
from onnxpatch.formulas.layer_nodes import State, keep_lengths, lengths_of, run_layers, writable
from onnxpatch.formulas.symbolic import as_tensor, same_size, symbolic, whole_of


class _Steps(torch.nn.Module):
    """Layers of each kind over steps of which there are any number, one of them from a state of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = torch.nn.LSTM(3, 4, 2, batch_first=True, bidirectional=True)
        self.gru = torch.nn.GRU(8, 5)
        self.rnn = torch.nn.RNN(5, 6, nonlinearity="relu", bidirectional=True, bias=False)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        encoded, (hidden, cell) = self.lstm(x)
        decoded, last = self.gru(encoded.transpose(0, 1), hidden[:1].repeat(1, 1, 2)[..., :5])
        alone = *self.rnn(decoded[:, 0]), *self.gru(encoded[0], hidden[:1, 0, :1].repeat(1, 5))
        return (*self.rnn(decoded), *alone, cell, last)


def _dynamo(module: torch.nn.Module, settings: Settings) -> str | None:
    if module.proj_size:
        return "its outputs are projected: 'projected-lstm'"
    return None if settings.exporter == "dynamo" else "recurrent layers are right under the other exporters"


@patch(
    "torch.nn.LSTM",
    "torch.nn.GRU",
    "torch.nn.RNN",
    name="recurrent-layers",
    why="a recurrent layer over a dynamic length: torch.export unrolls it, tracing inferred a static shape for "
    "dimension x.shape[1], or the graph has the example's length: cannot be reshaped to the requested shape",
    link="https://github.com/pytorch/pytorch/issues/171978",
    when=When(exporters=("dynamo",), accepts=_dynamo),
    proof=Proof(
        _Steps,
        lambda: [(torch.randn(b, n, 3),) for b, n in ((2, 5), (3, 9), (1, 1), (2, 31))],
        fails=("dynamo",),
        reason="static shape|requested shape",
        unchanged="fixed sizes",
    ),
)
class _RecurrentLayer:
    """Runs a layer over steps whose number may change, and over sequences that are packed in name only."""

    def forward(self, input: Any, hx: Any = None) -> Any:
        layer: Any = self
        lengths = lengths_of(input)
        if not writable(layer):
            return NotImplemented
        if lengths is not None:
            # ONNX's LSTM, GRU and RNN take the lengths themselves, and leave zeros behind each end.
            output, last = run_layers(layer, input.data, lengths, hx)
            return PackedSequence(output, input.batch_sizes), last
        if not isinstance(input, Tensor):
            return NotImplemented
        axis = int(layer.batch_first) if input.dim() == 3 else 0
        # With a fixed number of steps torch's own export is right.
        if not symbolic(input.shape[axis]):
            return NotImplemented
        if input.dim() == 2:  # one sequence: a batch of one
            start = hx if hx is None else _each(hx, lambda part: part.unsqueeze(1))
            output, last = run_layers(layer, input.unsqueeze(1), None, start)
            return output.squeeze(1), _each(last, lambda part: part.squeeze(1))
        output, last = run_layers(layer, input.transpose(0, axis), None, hx)
        return output.transpose(0, axis), last


class _Projections(torch.nn.Module):
    """Outputs and states of fewer numbers than the cells have, in both directions, the second time from a state."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.LSTM(3, 5, 2, batch_first=True, bidirectional=True, proj_size=2)
        self.second = torch.nn.LSTM(4, 6, bidirectional=True, proj_size=3, bias=False)
        self.alone = torch.nn.LSTM(6, 4, proj_size=1)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        encoded, (hidden, cell) = self.first(x)
        start = hidden[:2, :, :1].repeat(1, 1, 3), cell[2:, :, :1].repeat(1, 1, 6)
        decoded, last = self.second(encoded.transpose(0, 1), start)
        return hidden, cell, decoded, *last, self.alone(decoded[:, 0])[0]


@patch(
    "torch.nn.LSTM",
    name="projected-lstm",
    why="LSTMs with projections: not supported by the exporter; Input initial_c must have shape {1,2,6}",
    link="https://arxiv.org/abs/1402.1128",
    when=When(exporters=("dynamo", "trace"), accepts=lambda module, _: None if module.proj_size else "no projection"),
    proof=Proof(
        _Projections,
        lambda: [(torch.randn(b, n, 3),) for b, n in ((2, 5), (3, 9), (1, 1), (2, 31))],
        fails=("dynamo", "trace"),
        reason="LSTMs with projections|must have shape|static shape",
        beside=("recurrent-layers",),
    ),
)
class _Projected:
    """Runs an LSTM whose output is projected, P h, as one without: its recurrent weights are those times P.

    A state that is given is projected already, and P cannot be taken off it again. So it is appended to the input of
    the first step, where it meets the recurrent weights as they are.
    """

    def forward(self, input: Any, hx: Any = None) -> Any:
        layer: Any = self
        if (isinstance(input, PackedSequence) and hx is not None) or (layer.training and layer.dropout > 0):
            return NotImplemented
        ways = ("", "_reverse")[: 1 + layer.bidirectional]
        starts = [None] * layer.num_layers if hx is None else list(zip(*(x.split(len(ways)) for x in hx), strict=True))
        last: list[tuple[Tensor, Tensor]] = []
        for number, start in enumerate(starts):
            input, ends = _one_layer(layer, [f"l{number}{way}" for way in ways], input, start)
            last.append(ends)
        return input, tuple(torch.cat(parts) for parts in zip(*last, strict=True))


def _one_layer(layer: Any, names: list[str], x: Any, start: Any) -> tuple[Any, tuple[Tensor, Tensor]]:
    """(What a layer makes of a tensor or a packed sequence, its last states). names: of its directions."""
    part = _without_projection(layer, names, start is not None)
    if start is not None:
        x = _with_first(x, start[0], int(layer.batch_first and x.dim() == 3))
        start = torch.zeros_like(start[1]), start[1]
    found = _RecurrentLayer.forward(part, x, start) if exporting() == "dynamo" else NotImplemented
    output, (hidden, cell) = torch.nn.LSTM.forward(part, x, start) if found is NotImplemented else found
    projections = [getattr(layer, f"weight_hr_{name}").transpose(0, 1) for name in names]

    def projected(sides: Any) -> list[Tensor]:
        return [torch.matmul(side, each) for side, each in zip(sides, projections, strict=True)]

    packed = isinstance(output, PackedSequence)
    data = torch.cat(projected((output.data if packed else output).split(layer.hidden_size, -1)), -1)
    return (output._replace(data=data) if packed else data), (torch.stack(projected(hidden)), cell)


def _without_projection(layer: Any, names: list[str], given: bool) -> Any:
    """One of its layers. given: its inputs have the state of each direction beside them."""
    part = copy.copy(layer)
    weights: dict[str, Tensor] = {}
    for number, name in enumerate(names):
        place = name.replace(name.removesuffix("_reverse"), "l0")
        own, recurrent = getattr(layer, f"weight_ih_{name}"), getattr(layer, f"weight_hh_{name}")
        more = [recurrent if other == number else torch.zeros_like(recurrent) for other in range(len(names))]
        weights[f"weight_ih_{place}"] = torch.cat([own, *more], 1) if given else own
        weights[f"weight_hh_{place}"] = torch.matmul(recurrent, getattr(layer, f"weight_hr_{name}"))
        if layer.bias:
            weights |= {f"bias_{kind}_{place}": getattr(layer, f"bias_{kind}_{name}") for kind in ("ih", "hh")}
    changed = {"num_layers": 1, "proj_size": 0, "_flat_weights_names": [*weights], "_parameters": {}}
    listed = {"_flat_weights": [*weights.values()], "_flat_weight_refs": [None] * len(weights)}
    vars(part).update(weights, input_size=weights["weight_ih_l0"].shape[1], **changed, **listed)
    return part


def _with_first(x: Tensor, hidden: Tensor, axis: int) -> Tensor:
    """x, (..., length, ..., features), with the state of each direction beside the step at which it begins."""
    ticks = torch.arange(x.shape[axis], device=x.device).reshape(-1, *(1,) * (x.dim() - 1 - axis))
    ends = (ticks == 0, ticks == x.shape[axis] - 1)
    sides = zip(hidden, ends, strict=False)
    return torch.cat([x, *(torch.where(end, side.unsqueeze(axis), 0.0) for side, end in sides)], -1)


def _each(state: State, change: Callable[[Tensor], Tensor]) -> Any:
    return tuple(map(change, state)) if isinstance(state, tuple) else change(state)


class _Tagger(torch.nn.Module):
    """Both directions of two layers, packed and padded again, once as long as the longest, once as the input."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = torch.nn.LSTM(3, 4, 2, batch_first=True, bidirectional=True)
        self.gru = torch.nn.GRU(8, 5)

    def forward(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, ...]:
        packed = rnn.pack_padded_sequence(x, lengths.tolist(), batch_first=True, enforce_sorted=False)
        packed, (hidden, cell) = self.lstm(packed)
        padded, found = rnn.pad_packed_sequence(packed, batch_first=True)
        whole, _ = rnn.pad_packed_sequence(self.gru(packed)[0], padding_value=-1.0, total_length=x.shape[1])
        return padded, found, whole, hidden, cell


class _Longest(torch.nn.Module):
    """As long as the longest sequence."""

    def __init__(self, listed: bool = False) -> None:
        super().__init__()
        self.lstm, self.listed = torch.nn.LSTM(3, 4, batch_first=True), listed

    def forward(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        given = lengths.tolist() if self.listed else lengths
        packed = self.lstm(rnn.pack_padded_sequence(x, given, batch_first=True, enforce_sorted=False))[0]
        filled = rnn.pad_packed_sequence(packed, padding_value=-1.0)[0]
        return rnn.pad_packed_sequence(packed, batch_first=True)[0], filled


def _sequences() -> list[tuple[Tensor, Tensor]]:
    # Of the longest sequences only one is as long as its input.
    given = ((7, (3, 5)), (6, (2, 6, 1)), (4, (1,)), (15, (12, 14)))
    return [(torch.randn(len(lengths), size, 3), torch.tensor(lengths)) for size, lengths in given]


@op(
    "nn.utils.rnn.pack_padded_sequence",
    name="packed-sequences",
    why="zeros(): argument 'size' failed to unpack the object at pos 2: torch.export cannot follow packed sequences; "
    "Could not extract specialized integer, where lengths.tolist() gives their lengths",
    reason="failed to unpack|numel.. on tensor with symbolic|specialized integer",
    link="https://github.com/pytorch/pytorch/issues/171978",
    exporters=("dynamo",),
    tries=_sequences,
    case=_Tagger,
    beside=("recurrent-layers", "padded-sequences", "symbolic-items", "rows-apart", "rows-counted"),
)
def pack_sequences(
    original: Callable[..., rnn.PackedSequence],
    input: Tensor,
    lengths: object,
    batch_first: bool = False,
    enforce_sorted: bool = True,
) -> rnn.PackedSequence:
    """The padded sequences, (length, batch, ...), with their lengths in the place of the sizes of the steps."""
    # Before torch 2.8 no node can be written under dynamo, and the layers below need one.
    if not hasattr(torch.onnx, "ops"):
        return NotImplemented
    counts = whole_of(lengths)
    counts = torch.as_tensor(lengths) if counts is None else counts
    return keep_lengths(input.transpose(0, 1) if batch_first else input, counts.to(torch.int64))


def _listed(original: Callable[..., Any], input: Tensor, lengths: object, *options: Any, **named: Any) -> Any:
    """Gives torch the tensor whose numbers a list has."""
    whole = whole_of(lengths)
    return NotImplemented if whole is None else original(input, whole, *options, **named)


op(
    "nn.utils.rnn.pack_padded_sequence",
    name="listed-lengths",
    why="lengths.tolist() are the example's: Cannot export individual pack_padded_sequence",
    reason="individual pack|shape",
    link="https://github.com/pytorch/pytorch/issues/48460",
    exporters=("trace",),
    tries=_sequences,
    case=lambda: _Longest(listed=True),
    beside=("padded-sequences", "symbolic-items"),
    to=_listed,
)


@op(
    "nn.utils.rnn.pad_packed_sequence",
    name="padded-sequences",
    why="the graph's answer is as long as its input, eager's as the longest sequence",
    reason="shape|numel.. on tensor with symbolic",
    link="https://github.com/pytorch/pytorch/issues/48460",
    tries=_sequences,
    case=_Longest,
    beside=("packed-sequences", "recurrent-layers"),
)
def pad(
    original: Callable[..., tuple[Tensor, Tensor]],
    sequence: Any,
    batch_first: bool = False,
    padding_value: float = 0.0,
    total_length: Any = None,
) -> tuple[Tensor, Tensor]:
    """(batch, length, ...) or (length, batch, ...), cut to the longest sequence or filled up to `total_length`."""
    if exporting() == "trace":
        if total_length is not None and not _branches_exported():
            return NotImplemented
        padded, lengths = original(sequence, batch_first, padding_value)
        lengths = lengths.to(torch.int32).to(torch.int64)  # the exporter has int32 here, and takes it for int64
        end = lengths.amax(0)
        # torch's own code compares this length with the others: a branch, whose other side raises.
        if total_length is not None:
            places = torch.minimum(torch.arange(total_length), end - 1)
            padded = padded.index_select(int(batch_first), places)
            return _filled(padded, lengths, batch_first, padding_value), lengths
        padded = padded[:, :end] if batch_first else padded[:end]
        # The recurrent layer of the graph leaves zeros there.
        return (_filled(padded, lengths, batch_first, padding_value) if padding_value else padded), lengths
    known = lengths_of(sequence)
    if known is None:
        return NotImplemented
    data: Tensor = sequence.data
    inside = torch.arange(data.shape[0])[:, None] < known
    data = torch.where(inside.reshape(*inside.shape, *(1,) * (data.dim() - 2)), data, padding_value)
    if total_length is None or not same_size(total_length, data.shape[0]):
        longest: Any = known.amax(0).item()
        data = data[:longest]
        if total_length is not None:
            more = (0, 0) * (data.dim() - 1) + (0, total_length - longest)
            data = torch.nn.functional.pad(data, more, value=padding_value)
    return (data.transpose(0, 1) if batch_first else data), known


def _branches_exported() -> bool:
    model = running_model()
    return model is not None and model.settings.branches


def _filled(padded: Tensor, lengths: Tensor, batch_first: bool, value: float) -> Tensor:
    """`padded` with `value` behind the end of each sequence."""
    rows = torch.arange(padded.shape[1 if batch_first else 0])
    inside = rows < lengths[:, None] if batch_first else rows[:, None] < lengths
    for _ in range(padded.dim() - 2):
        inside = inside.unsqueeze(-1)
    return torch.where(inside, padded, value)


def _two_sequences(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Of sizes, and of as many rows as data decides, none maybe."""
    chosen = torch.nn.utils.rnn.pad_sequence([x[x[:, 0] > 0], y])
    return torch.nn.utils.rnn.pad_sequence([x, y], batch_first=True, padding_value=-1.0), chosen


@op(
    "nn.utils.rnn.pad_sequence",
    why="Exporting the operator 'aten::pad_sequence' to ONNX opset version 18 is not supported; Could not guard on "
    "data-dependent expression: torch.export asks which is the longest",
    reason="aten::pad_sequence|data-dependent|static shape",
    link="https://github.com/pytorch/pytorch/issues/98549",
    # The longer one is once the first, once the second.
    tries=lambda b, n: (torch.randn(b, 3), torch.randn(n, 3)),
    sizes=((5, 2), (4, 9), (1, 1)),
    case=_two_sequences,
)
def padded(
    original: Callable[..., Tensor],
    sequences: Any,
    batch_first: bool = False,
    padding_value: float = 0.0,
    padding_side: str = "right",
) -> Tensor:
    """Gathers each sequence with a row of padding behind it, which stands for all that is beyond its end."""
    if exporting() == "dynamo" and not any(symbolic(each.shape[0]) for each in sequences):
        return NotImplemented
    lengths = [as_tensor(each.shape[0], torch.int64, each.device) for each in sequences]
    longest: Any = torch.stack(lengths).amax(0)
    ticks = torch.arange(longest, device=sequences[0].device)
    rows = []
    for each, length in zip(sequences, lengths, strict=True):
        # Padded on the left, a sequence starts where as many places are left as it has entries.
        place = ticks if padding_side == "right" else ticks - (longest - length)
        longer = torch.cat((each, each.new_full((1, *each.shape[1:]), padding_value)))
        rows.append(longer.index_select(0, torch.where((place >= 0) & (place < length), place, length)))
    return torch.stack(rows, 0 if batch_first else 1)

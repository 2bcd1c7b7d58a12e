"""nn.LSTM, nn.GRU and nn.RNN over a dynamic length or over packed sequences, under dynamo, as ONNX's own nodes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from onnxpatch import Proof, Settings, When, patch
from onnxpatch.formulas.recurrent_nodes import lengths_of, run_layers, writable
from onnxpatch.formulas.symbolic import symbolic


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
        return (*self.rnn(decoded), cell, last)


def _dynamo(module: torch.nn.Module, settings: Settings) -> str | None:
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
class RecurrentLayer:
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
        # With a fixed number of steps torch's own export is right.
        if not isinstance(input, Tensor) or input.dim() != 3 or not symbolic(input.shape[int(layer.batch_first)]):
            return NotImplemented
        output, last = run_layers(layer, input.transpose(0, 1) if layer.batch_first else input, None, hx)
        return output.transpose(0, 1) if layer.batch_first else output, last

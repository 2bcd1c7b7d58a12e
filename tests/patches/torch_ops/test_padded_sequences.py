"""Sequences padded up to a length that is given, where branches are exported too."""

import pytest
import torch
from torch import nn
from torch.nn.utils import rnn

import onnxpatch

pytestmark = pytest.mark.exports

SIZES = {"x": {0: "b", 1: "n"}, "lengths": {0: "b"}}


class Padded(nn.Module):
    def __init__(self, batch_first, total):
        super().__init__()
        self.lstm, self.batch_first, self.total = nn.LSTM(3, 4, batch_first=batch_first), batch_first, total

    def forward(self, x, lengths):
        rows = x if self.batch_first else x.transpose(0, 1)
        packed = rnn.pack_padded_sequence(rows, lengths, batch_first=self.batch_first, enforce_sorted=False)
        out, _ = self.lstm(packed)
        total = x.shape[1] if self.total is None else self.total
        return rnn.pad_packed_sequence(out, self.batch_first, -1.0, total_length=total)


@pytest.mark.parametrize(("batch_first", "total"), [(True, None), (False, None), (True, 9)])
def test_a_total_length_under_branches(batch_first, total):
    model, args = Padded(batch_first, total).eval(), (torch.rand(2, 5, 3), torch.tensor([5, 3]))
    options = dict(exporter="trace", dynamic_shapes=SIZES, attempts="asked", max_probes=6)
    data = [(torch.rand(3, 7, 3), torch.tensor([2, 6, 4]))]
    assert onnxpatch.export(model, args, branches=True, data=data, **options).ok

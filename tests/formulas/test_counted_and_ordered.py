"""Repeats by counts, medians, distances and pooled maxima: as eager at sizes the export never saw."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from onnxpatch.patches.torch_ops.adaptive_pooling import largest_under
from onnxpatch.patches.torch_ops.order_statistics import kthvalue, median
from onnxpatch.patches.torch_ops.products import euclidean
from onnxpatch.patches.torch_ops.repeats import repeated
from tests.formulas.forms import EXPORTERS, differences

pytestmark = [pytest.mark.parametrize("exporter", EXPORTERS), pytest.mark.exports]
BOTH = ({0: "n"}, {0: "m"})


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
def test_repeats(exporter, dtype):
    counts = [torch.randint(0, 4, (n,)) for n in (7, 1, 300)] + [torch.tensor([0, 0, 3, 0]), torch.tensor([0, 0, 0])]
    inputs = [(torch.randn(len(each), 2), each.to(dtype)) for each in counts]
    form, eager = (lambda x, c: repeated(x, c, 0)), (lambda x, c: x.repeat_interleave(c, 0))
    assert not differences(form, eager, exporter, ({0: "n"}, {0: "n"}), inputs, most_nodes=20)


def test_medians(exporter):
    inputs = [(torch.randn(3, n).round(decimals=1),) for n in (40, 1, 2, 301, 4000)]
    inputs[3][0][1, 5] = inputs[3][0][1, 9] = torch.nan
    inputs[3][0][2, :3] = torch.inf
    form, eager = (lambda x: median(x, 1, False)[0]), (lambda x: torch.median(x, 1).values)
    assert not differences(form, eager, exporter, ({1: "n"},), inputs)


def test_indices_of_medians(exporter):
    inputs = [(torch.randperm(n)[None].float(),) for n in (40, 1, 301)]
    form, eager = (lambda x: median(x, 1, True)), (lambda x: tuple(torch.median(x, 1, True)))
    assert not differences(form, eager, exporter, ({1: "n"},), inputs)


def test_kth_values(exporter):
    inputs = [(torch.randint(-50, 50, (3, n)),) for n in (40, 3, 301)]
    form, eager = (lambda x: kthvalue(x, 3, 1, True)[0]), (lambda x: torch.kthvalue(x, 3, 1, True)[0])
    assert not differences(form, eager, exporter, ({1: "n"},), inputs)


def test_distances(exporter):
    inputs = [(torch.randn(n, 6), torch.randn(m, 6)) for n, m in ((30, 40), (1, 1), (5, 25), (300, 200))]
    near = 1000 + 100 * torch.randn(20, 6)
    inputs.append((near, near + torch.randn(20, 6) / 100))  # torch takes differences of so few rows
    assert not differences(euclidean, torch.cdist, exporter, BOTH, inputs, 1e-5)


@pytest.mark.parametrize("size", [(7, 7), (1, 3)])
def test_pooled_maxima(exporter, size):
    inputs = [(torch.randn(2, 3, h, w) - 5,) for h, w in ((9, 11), (1, 1), (7, 14), (4, 5), (57, 31))]
    form = lambda x: largest_under(largest_under(x, -2, size[0]), -1, size[1])  # noqa: E731
    eager = lambda x: F.adaptive_max_pool2d(x, size)  # noqa: E731
    assert not differences(form, eager, exporter, ({0: "b", 2: "h", 3: "w"},), inputs)

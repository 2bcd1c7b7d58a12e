"""Places in sorted tables and membership, at sizes the export never saw, ties, NaN, infinities and the largest integers
included."""

from __future__ import annotations

import pytest
import torch

import onnxpatch
from onnxpatch.patches.torch_ops.ordering import contained, search
from tests.formulas.forms import EXPORTERS, differences, nodes

pytestmark = pytest.mark.exports

# The other dtypes go the same way in the graph; under dynamo each takes seconds to export.
SLOW = pytest.mark.slow
BOTH = ({0: "n"}, {0: "m"})


def numbers(count: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Many equal ones among them."""
    return torch.randn(count).mul(count).round(decimals=0).to(dtype)


def tables(dtype: torch.dtype) -> list[tuple[torch.Tensor, torch.Tensor]]:
    sizes = [(50, 40), (1, 3), (0, 4), (31, 20), (32, 20), (33, 20), (1023, 99), (1024, 99), (1025, 99), (40000, 300)]
    return [(numbers(n, dtype).sort()[0], numbers(m, dtype)) for n, m in sizes]


@pytest.mark.parametrize(
    ("exporter", "right"),
    [("trace", False), ("trace", True), ("dynamo", True), pytest.param("dynamo", False, marks=SLOW)],
)
def test_floats(exporter, right):
    inputs = tables(torch.float32)
    inputs[-1][1][:3] = torch.tensor([torch.nan, torch.inf, -torch.inf])
    inputs[-1][0][-1] = torch.inf
    eager = lambda table, values: torch.searchsorted(table, values, right=right)  # noqa: E731
    form = lambda table, values: search(table, values, right=right)  # noqa: E731
    assert not differences(form, eager, exporter, BOTH, inputs, most_nodes=24)


@pytest.mark.parametrize(
    ("exporter", "dtype"),
    [
        *(("trace", dtype) for dtype in (torch.int64, torch.int32, torch.int8, torch.float64)),
        ("dynamo", torch.int64),
        *(pytest.param("dynamo", dtype, marks=SLOW) for dtype in (torch.int32, torch.int8, torch.float64)),
    ],
)
def test_dtypes_and_the_largest_number(exporter, dtype):
    inputs = tables(dtype if dtype != torch.int8 else torch.int64)
    if not dtype.is_floating_point:
        inputs = [(table.clamp(-100, 100).to(dtype), values.clamp(-100, 100).to(dtype)) for table, values in inputs]
        inputs[-2][0][-3:] = torch.iinfo(dtype).max
        inputs[-2][1][:3] = torch.iinfo(dtype).max
    eager = lambda table, values: torch.searchsorted(table, values, right=True)  # noqa: E731
    form = lambda table, values: search(table, values, right=True)  # noqa: E731
    assert not differences(form, eager, exporter, BOTH, inputs)


@pytest.mark.parametrize("exporter", EXPORTERS)
def test_a_table_for_each_row(exporter):
    sizes = [(3, 40, 7), (5, 9, 3), (1, 1, 1), (4, 500, 600)]
    inputs = [(torch.randn(2, b, n).sort()[0], torch.randn(2, b, m)) for b, n, m in sizes]
    assert not differences(search, torch.searchsorted, exporter, ({1: "b", 2: "n"}, {1: "b", 2: "m"}), inputs)


@pytest.mark.parametrize(
    ("exporter", "count"),
    [
        *(("trace", count) for count in (9, 32, 65, 5000)),
        *(("dynamo", count) for count in (9, 65)),
        *(pytest.param("dynamo", count, marks=SLOW) for count in (32, 5000)),
    ],
)
def test_a_table_of_known_length(exporter, count):
    table = torch.randn(count).sort()[0]
    inputs = [(torch.randn(m, 3),) for m in (4, 1, 300)]
    form = lambda values: search(table, values, length=count)  # noqa: E731
    nodes = 30
    eager = lambda values: torch.searchsorted(table, values)  # noqa: E731
    assert not differences(form, eager, exporter, ({0: "m"},), inputs, most_nodes=nodes)


@pytest.mark.parametrize("exporter", EXPORTERS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
def test_members(exporter, dtype):
    inputs = [(numbers(n, dtype), numbers(m, dtype)) for n, m in ((30, 40), (5, 0), (1, 1), (300, 300), (2000, 5000))]
    if dtype.is_floating_point:
        inputs[3][0][:4] = torch.tensor([torch.nan, torch.inf, -torch.inf, 1.0])
        inputs[3][1][:4] = torch.tensor([torch.nan, torch.nan, -torch.inf, 1.0])
    else:
        inputs[3][0][0] = inputs[3][1][0] = torch.iinfo(dtype).max
    assert not differences(contained, torch.isin, exporter, BOTH, inputs)


def test_no_members_and_the_inverse():
    values = torch.tensor([1, 2, torch.iinfo(torch.int64).max])
    assert contained(values, torch.tensor([2]), invert=True).tolist() == [True, False, True]
    assert not contained(values, torch.tensor([], dtype=torch.int64)).any()


class Stored(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", torch.arange(0, 400, 2))


class Marked(Stored):
    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return torch.isin(ids, torch.tensor([1, 7, 9])) | torch.isin(ids, self.table[3:5], invert=True)


@pytest.mark.parametrize("exporter", EXPORTERS)
def test_few_fixed_members_are_compared_one_by_one(exporter, tmp_path):
    ids, path = torch.randint(0, 12, (2, 9)), tmp_path / "m.onnx"
    assert onnxpatch.export(Marked(), (ids,), path, exporter=exporter, dynamic_shapes=({0: "b", 1: "n"},))
    assert nodes(path.read_bytes()) < 40


class Cut(Stored):
    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return torch.searchsorted(self.table[: ids.shape[1]], ids, right=True)


def test_a_stored_table_that_is_cut_to_a_size_has_no_known_length(tmp_path):
    # Places behind the table were those of the example's length.
    ids = torch.randint(0, 50, (2, 9))
    assert onnxpatch.export(Cut(), (ids,), tmp_path / "m.onnx", exporter="trace", dynamic_shapes=({0: "b", 1: "n"},))

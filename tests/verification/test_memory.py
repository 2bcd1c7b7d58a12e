"""Models whose data sizes a tensor: no run takes more than its limit, and the report names the inputs left out."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import onnxpatch
from onnxpatch._torch.dispatch_modes import CountedRun
from onnxpatch.errors import InputError
from onnxpatch.inputs.leaves import Inputs
from onnxpatch.limits import checked_bytes, peak_of_process
from onnxpatch.verification.probe import Budget
from onnxpatch.verification.reference import Reference
from tests.layers import Computes

MB = 1e6
FUZZED = 200
QUICK = range(4, 8)  # of these, in every run of the tests: two of them reach the limit
AT_ONCE = 25


# ------------------------------------------------------------------ models made by chance
def _count(x: Tensor, power: int) -> int:
    return int(x.abs().max().item()) ** power


# What data decides, each as a size: (x, whole numbers n >= 0, a large number) -> a tensor.
GROWS: dict[str, Any] = {
    "arange": lambda x, n, by: torch.arange(n * by).float(),
    "zeros": lambda x, n, by: torch.zeros(n * by, 4),
    "full": lambda x, n, by: torch.full((n, by), 1.5),
    "empty_like": lambda x, n, by: torch.zeros_like(x.new_zeros(1).expand(n * by)),
    "expand": lambda x, n, by: x.flatten()[:1].expand(n * by) + 1,
    "repeat": lambda x, n, by: x.flatten().repeat(n * by),
    "repeat_interleave": lambda x, n, by: torch.repeat_interleave(x.flatten(), n * by),
    "pad": lambda x, n, by: nn.functional.pad(x, (0, n * by)),
    "one_hot": lambda x, n, by: nn.functional.one_hot(torch.tensor([n * by])),
    "bincount": lambda x, n, by: torch.bincount(torch.tensor([n * by])),
    "linspace": lambda x, n, by: torch.linspace(0, 1, n * by + 1),
    "eye": lambda x, n, by: torch.eye(n * int(by**0.5) + 1),
    "outer": lambda x, n, by: torch.outer(torch.ones(n * int(by**0.5) + 1), torch.ones(n * int(by**0.5) + 1)),
    "interpolate": lambda x, n, by: nn.functional.interpolate(x[None], size=n * by + 1),
    "cat": lambda x, n, by: torch.cat([x.flatten().repeat(1000)] * min(n + 1, 100_000)),
    "meshgrid": lambda x, n, by: sum(torch.meshgrid(*[torch.arange(n * int(by**0.5) + 1)] * 2, indexing="ij")),
    "tril": lambda x, n, by: torch.tril_indices(n * int(by**0.5) + 1, n * int(by**0.5) + 1),
    "loop": lambda x, n, by: [x := torch.cat([x, x]) for _ in range(min(n, 60))][-1:] or x,
}


class SizedByData(nn.Module):
    """One or two of these, chosen by chance, from a power of the largest whole number in the data."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        chance = random.Random(seed)
        self.names = chance.sample(sorted(GROWS), chance.choice((1, 1, 2)))
        self.by = 10 ** chance.randrange(4, 9)
        self.power = chance.choice((1, 2, 4))

    def forward(self, x: Tensor, steps: Tensor) -> Tensor:
        total = x.sum()
        for name in self.names:
            grown = GROWS[name](x, _count(steps, self.power), self.by)
            for one in grown if isinstance(grown, list) else [grown]:
                total = total + one.float().mean().nan_to_num()
        return total


def _searched(seed: int) -> Reference:
    model = SizedByData(seed).eval()
    example = torch.ones(2, 3), torch.zeros(2, 3, dtype=torch.long)
    return Reference(model, Inputs(model, example), [], Budget(16))


def _within(seeds: range) -> None:
    before = peak_of_process() or 0
    stopped = 0
    for seed in seeds:
        reference = _searched(seed)
        assert reference.eager.peak <= reference.eager.limits[0], seed
        stopped += bool(reference.oracle.too_large)
    assert stopped > len(seeds) // 10  # else nothing was tested
    # Beside the counted results, kernels need some memory, and the allocator keeps some.
    assert (peak_of_process() or 0) < before + 2 * 512 * MB + 300 * MB


def test_no_model_of_a_sample_takes_more_than_its_limit() -> None:
    _within(QUICK)


@pytest.mark.slow  # ten minutes in all
@pytest.mark.parametrize("first", range(0, FUZZED, AT_ONCE))
def test_no_model_takes_more_than_its_limit(first: int) -> None:
    _within(range(first, first + AT_ONCE))


# ------------------------------------------------------------------ the report
class Durations(nn.Module):
    def forward(self, ids: Tensor) -> Tensor:
        return torch.arange(int(ids.max()) ** 8).sum() + ids


@pytest.mark.exports
def test_inputs_that_need_too_much_are_named_and_the_limit_is_the_users() -> None:
    ids = torch.tensor([1, 2, 3])
    report = onnxpatch.export(Durations().eval(), (ids,), exporter="trace", bounds="never", max_memory="1MB")
    assert report.memory["limit"] == MB
    assert 0 < report.memory["example"] <= report.memory["peak"] <= MB
    assert report.memory["left_out"] >= 1
    (note,) = [note for note in report.notes if note.startswith("not tried")]
    assert "max_memory" in note and "torch.arange" in note


def test_an_example_beyond_the_limit_is_refused_in_one_line() -> None:
    model = Computes(lambda x: x.repeat(1000)).eval()
    with pytest.raises(InputError, match=r"the example itself takes more than max_memory="):
        Reference(model, Inputs(model, (torch.ones(1000),)), [], Budget(4, max_memory=1e6))


@pytest.mark.parametrize("asked, bytes", [(2e9, 2e9), ("2GB", 2e9), ("1.5 gib", 1.5 * 2**30), (None, None)])
def test_max_memory_is_written_as_a_number_or_with_a_unit(asked: Any, bytes: float | None) -> None:
    assert checked_bytes(asked) == bytes


@pytest.mark.parametrize("asked", [0, -1, True, "much", "2 apples", float("nan")])
def test_what_is_no_number_of_bytes_is_refused(asked: Any) -> None:
    with pytest.raises(InputError, match="give the bytes that one run may take"):
        checked_bytes(asked)


# ------------------------------------------------------------------ what is counted
@pytest.mark.parametrize("make", [torch.bincount, torch.repeat_interleave])
def test_what_one_number_makes_large_is_not_made(make: Any) -> None:
    with CountedRun(MB) as run:
        make(torch.tensor([10**7]))
    assert "would make 80 MB" in run.stopped


def test_memory_is_counted_until_it_is_freed() -> None:
    with CountedRun() as run:
        for _ in range(5):
            torch.zeros(1000).add(1)
    assert run.peak == 2 * 4000


def test_an_operator_beyond_the_limit_does_not_run_though_the_model_catches_exceptions() -> None:
    with CountedRun(MB) as run:
        try:
            torch.zeros(10**13)
        except Exception:
            torch.zeros(1)
        pytest.fail("it went on")
    assert run.stopped.startswith("torch.zeros would make 40,000,000 MB") and run.peak == 0


def test_nested_tensors_are_counted():
    """torch's encoder layers pack padded rows into a nested tensor in eval, which has no shape to ask for."""
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 2).eval().requires_grad_(False)
    x, padding = torch.randn(3, 12, 16), torch.arange(12) >= torch.tensor([[12], [7], [3]])
    expected = encoder(x, src_key_padding_mask=padding)
    with CountedRun(512 * MB):
        assert torch.equal(encoder(x, src_key_padding_mask=padding), expected)

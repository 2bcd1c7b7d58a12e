"""Sizes that stand in the graph are read off it, and the others still come from fake tensors."""

from __future__ import annotations

import torch

from onnxpatch._torch import traced_sizes
from onnxpatch._torch.symbolic_sizes import traced_value
from onnxpatch._torch.traced_sizes import fixed_number, static_sizes_known


def asked(forward, *args, ran):
    """What `forward` returns of `static_number` while it is traced. ran: gathers the operators that were run."""
    found = []

    def seen(self, kind, node, given, original=traced_sizes._Sizes._run):
        ran.append(kind)
        return original(self, kind, node, given)

    def traced(*inputs):
        found.extend(fixed_number(size) for size in forward(*inputs))
        return inputs[0] * 1

    with static_sizes_known():
        kept, traced_sizes._Sizes._run = traced_sizes._Sizes._run, seen
        try:
            torch.jit.trace(traced, args, check_trace=False)
        finally:
            traced_sizes._Sizes._run = kept
    return found


def test_the_three_of_queries_keys_and_values_is_read_off():
    def forward(x):
        split = x.reshape(x.shape[0], x.shape[1], 3, 2, -1).permute(2, 0, 3, 1, 4)
        return split.shape[0], split.contiguous().transpose(0, 2).shape[-3]

    ran = []
    assert asked(forward, torch.ones(2, 5, 12), ran=ran) == [3, 3]
    assert set(ran) == {"prim::NumToTensor"}  # no operator


def test_it_is_read_off_through_unbind_and_select():
    def forward(x):
        split = x.reshape(x.shape[0], x.shape[1], 3, 2, 4).permute(2, 0, 3, 1, 4)
        query, _, _ = split.unbind(0)
        return query.shape[-1], query.shape[1], split[1].shape[-1], split.select(1, 0).shape[0], query.shape[0]

    ran = []
    assert asked(forward, torch.ones(2, 5, 24), ran=ran)[:4] == [4, 2, 4, 3]
    assert asked(lambda x: [x.unbind(1)[0].shape[1], x[0].shape[0]], torch.ones(2, 2, 5), ran=[]) == [None, None]


def test_what_does_not_stand_there_is_not_guessed():
    def forward(x):
        split = x.reshape(x.shape[0], 3, -1)
        return split.shape[0], split.shape[2], split.transpose(1, 2).shape[1], split.shape[1]

    ran = []
    assert asked(forward, torch.ones(2, 12), ran=ran) == [None, None, None, 3]
    assert "aten::reshape" in ran


def test_a_weight_that_the_trace_does_not_have_is_a_constant() -> None:
    """torch's error for it prints the weight, under the trace: the third one ended the process."""
    weights = [torch.nn.Parameter(torch.ones(shape)) for shape in [(1,), (3, 4), (16, 3, 4, 4)]]
    kinds: list[str] = []

    def branch(x: torch.Tensor) -> torch.Tensor:
        kinds.extend(value.node().kind() for weight in weights if (value := traced_value(weight)) is not None)
        return x * 2

    torch.jit.trace(branch, (torch.ones(3),), check_trace=False)
    assert kinds == ["prim::Constant"] * 3
    assert all(weight.requires_grad for weight in weights)

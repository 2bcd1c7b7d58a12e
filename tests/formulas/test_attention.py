"""Attention in every form that an opset and the choice of operators allow, at sizes and masks the trace never saw."""

from __future__ import annotations

from collections import Counter
from typing import Any

import onnx
import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention as attention

import onnxpatch
from tests import exporting

pytestmark = pytest.mark.exports

Tensor = torch.Tensor
SHAPES = ({0: "batch", 1: "queries"}, {0: "batch", 1: "keys"}, {0: "batch", 3: "keys"}, {2: "queries", 3: "keys"})


class Calls(torch.nn.Module):
    """The calls that models make: without a mask, padded, with a bias, causal, and with a bias for each head."""

    def __init__(self, heads: int, shared: int) -> None:
        super().__init__()
        self.heads, self.shared = heads, shared

    def forward(self, x: Tensor, y: Tensor, keep: Tensor, bias: Tensor) -> list[Tensor]:
        q = x.unflatten(-1, (self.heads, -1)).transpose(1, 2)
        k = y[..., : 4 * self.shared].unflatten(-1, (self.shared, -1)).transpose(1, 2)
        v = y[..., -6 * self.shared :].unflatten(-1, (self.shared, -1)).permute(0, 2, 1, 3)
        gqa: dict[str, Any] = {"enable_gqa": True} if self.heads != self.shared else {}
        return [
            attention(q, k, v, **gqa),
            attention(q, k, v, keep, **gqa),
            attention(q, k, v, bias, scale=0.7, **gqa).transpose(1, 2).flatten(2),
            attention(q, k, v, is_causal=True, **gqa),
            attention(q * 2, k, v, bias[:, :1].expand(-1, self.heads, -1, -1) > -1, **gqa),
        ]


def given(batch: int, queries: int, keys: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, ...]:
    keep = torch.rand(batch, 1, 1, keys) > 0.4
    keep[-1] = False  # a sequence that is padding and nothing else
    bias = torch.randn(1, 1, queries, keys).masked_fill(torch.rand(queries, keys) > 0.6, -torch.inf)
    bias[..., 0, :] = -torch.inf
    if dtype == torch.float32:  # no query without keys: torch gives the mean
        bias[..., -1, :] = torch.finfo(dtype).min
    return torch.randn(batch, queries, 16).to(dtype), torch.randn(batch, keys, 24).to(dtype), keep, bias.to(dtype)


def exported(model: torch.nn.Module, args: tuple, exporter: str, opset: int, operators: str = "portable") -> bytes:
    with onnxpatch.patched(model, exporter=exporter, opset=opset, operators=operators):
        return exporting.export(model, args, exporter, SHAPES, opset)


def operators_in(file: bytes) -> Counter[str]:
    return Counter(node.op_type for node in onnx.load_from_string(file).graph.node)


FORMS = [
    ("dynamo", 18, "portable", 2),
    ("dynamo", 23, "portable", 2),
    ("dynamo", 24, "onnxruntime", 4),
    ("trace", 18, "portable", 2),
    *(
        pytest.param(*form, marks=pytest.mark.slow)
        for form in [
            ("dynamo", 18, "portable", 4),
            ("dynamo", 18, "onnxruntime", 4),
            ("trace", 23, "portable", 2),
            ("trace", 23, "portable", 4),
        ]
    ),
]


@pytest.mark.parametrize(("exporter", "opset", "operators", "shared"), FORMS)
def test_right_at_other_sizes_and_masks(exporter, opset, operators, shared):
    torch.manual_seed(0)
    model = Calls(4, shared).eval()
    file = exported(model, given(2, 5, 7), exporter, opset, operators)
    for args in (given(3, 9, 4), given(1, 6, 6), given(2, 2, 11)):
        assert exporting.wrong(exporting.run(file, args), model(*args), 1e-5) is None
    found = operators_in(file)
    assert found["Attention"] == (0 if opset < 23 else 4 if operators == "onnxruntime" and shared == 4 else 5)
    assert found["MultiHeadAttention"] == (operators == "onnxruntime" and shared == 4)


@pytest.mark.slow  # eight seconds; attention under autocast stays in test_dtypes
def test_half_precision():
    torch.manual_seed(0)
    model = Calls(4, 2).eval()
    file = exported(model, given(2, 5, 7, torch.float16), "dynamo", 23)
    assert operators_in(file)["Attention"] == 5
    args = given(3, 9, 4, torch.float16)
    assert exporting.wrong(exporting.run(file, args), model(*args), 1e-2) is None


def test_double_precision_and_scales_of_sizes_stay_written_out():
    class Scaled(torch.nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            q = x.unflatten(-1, (2, -1)).transpose(1, 2)
            return attention(q.double(), q.double(), q.double()), attention(q, q, q, scale=1 / x.shape[1])

    with onnxpatch.patched(Scaled(), opset=23) as patched:
        file = exporting.export(patched.model, (torch.randn(2, 5, 8),), "dynamo", ({1: "length"},), 23)
    assert "Attention" not in operators_in(file)
    x = torch.randn(2, 9, 8)
    assert exporting.wrong(exporting.run(file, (x,)), Scaled()(x), 1e-5) is None


class Layers(torch.nn.Module):
    """Two layers that share a mask; the second one's keys come from a cache."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(8, 8)

    def forward(self, x: Tensor, cached: Tensor, keep: Tensor) -> Tensor:
        for past in (None, cached):
            q = self.inner(x).unflatten(-1, (2, -1)).transpose(1, 2)
            k = q if past is None else torch.cat([past, q], 2)
            mask = (
                keep[:, None, None]
                if past is None
                else torch.nn.functional.pad(keep, (3, 0), value=True)[:, None, None]
            )
            x = x + attention(q, k, k, mask).transpose(1, 2).flatten(2)
        return x


@pytest.mark.parametrize(
    ("opset", "expected"), [(18, {"MatMul": 6, "Softmax": 2}), (23, {"MatMul": 2, "Attention": 2})]
)
def test_keys_are_moved_once_and_nothing_is_added_to_the_scores_twice(opset, expected):
    model = Layers().eval()
    args = torch.randn(2, 5, 8), torch.randn(2, 2, 3, 4), torch.rand(2, 5) > 0.3
    with onnxpatch.patched(model, opset=opset):
        file = exporting.export(model, args, "dynamo", ({1: "length"}, None, {1: "length"}), opset)
    found = operators_in(file)
    assert {name: found[name] for name in expected} == expected
    assert found["IsNaN"] == found["Sqrt"] == 0
    flat = [len(node.attribute) for node in onnx.load_from_string(file).graph.node if node.op_type == "Attention"]
    assert flat in ([], [3, 1])  # with numbers of heads: on three dimensions


@pytest.mark.slow  # a model of transformers: ten seconds
def test_flex_attention_as_transformers_calls_it() -> None:
    """By a function that torch.compile made, with a mask that is to be a BlockMask."""
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        vocab_size=99, hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=4,
        num_key_value_heads=2, use_cache=False, attn_implementation="flex_attention",
    )  # fmt: skip
    model, ids = transformers.LlamaForCausalLM(config).eval(), torch.randint(0, 99, (2, 9))
    shapes = {"input_ids": {0: "batch", 1: "length"}}
    report = onnxpatch.export(
        model, (), kwargs={"input_ids": ids}, dynamic_shapes=shapes, exporter="trace", max_probes=4
    )
    assert report.ok and "flex-attention" in str(report.plan)


def test_the_reference_compiles_nothing() -> None:
    compiled: list[object] = []

    def backend(graph: Any, example: object) -> Any:
        compiled.append(example)
        return graph.forward

    doubled = torch.compile(lambda x: x * 2, backend=backend)

    class Doubled(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            found: Tensor = doubled(x) + x.shape[0]
            return found

    assert onnxpatch.export(Doubled(), (torch.randn(3),), dynamic_shapes=({0: "n"},), exporter="trace").ok
    assert not compiled
    doubled(torch.randn(2))
    assert compiled  # outside, it is compiled as before

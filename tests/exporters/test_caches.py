"""Caches of keys and values as inputs and outputs: taken as they are, named, proven at other pasts."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import onnxruntime
import pytest
import torch
from torch import nn
from torch.utils import _pytree as pytree

import onnxpatch
from onnxpatch import InputError
from onnxpatch.inputs import dynamic_shapes as shapes
from onnxpatch.inputs.leaves import Inputs
from onnxpatch.inputs.opened_objects import closed, opened

pytestmark = pytest.mark.exports

transformers = pytest.importorskip("transformers")
EXPORTERS = ["dynamo", "trace"]
ONE_QUICK = [pytest.param("dynamo", marks=pytest.mark.slow), "trace"]
SMALL = dict(vocab_size=99, max_position_embeddings=64, pad_token_id=0)


def llama() -> nn.Module:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        hidden_size=16, intermediate_size=16, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
        head_dim=8, **SMALL,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config).eval()


def states(batch: int, past: int, layers: int = 2, heads: int = 1) -> list[tuple[torch.Tensor, torch.Tensor]]:
    return [(torch.randn(batch, heads, past, 8), torch.randn(batch, heads, past, 8)) for _ in range(layers)]


def cache(batch: int, past: int) -> Any:
    return transformers.DynamicCache(states(batch, past))


def call(batch: int, new: int, past: int) -> dict[str, Any]:
    mask = torch.ones(batch, past + new, dtype=torch.int64)
    return {
        "input_ids": torch.randint(0, 99, (batch, new)),
        "attention_mask": mask,
        "past_key_values": cache(batch, past),
    }


SHAPES = {
    "input_ids": {0: "b", 1: "n"},
    "attention_mask": {0: "b", 1: "past+n"},
    "past_key_values": {0: "b", 2: "past"},
}


@pytest.mark.parametrize("exporter", EXPORTERS)
def test_a_decoder_with_its_cache(exporter: str, tmp_path: Path) -> None:
    model, kwargs = llama(), call(2, 3, 5)
    before = copy.deepcopy(kwargs["past_key_values"])
    report = onnxpatch.export(
        model, (), tmp_path / "m.onnx", kwargs=kwargs, dynamic_shapes=SHAPES, exporter=exporter,
        data=[((), call(3, 4, 0))], max_probes=6,
    )  # fmt: skip
    assert report.ok and report.refused == 0
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx")
    past = [f"past_key_values.{layer}.{part}" for layer in (0, 1) for part in ("key", "value")]
    assert [value.name for value in session.get_inputs()] == ["input_ids", "attention_mask", *past]
    present = [f"present.{layer}.{part}" for layer in (0, 1) for part in ("key", "value")]
    assert [value.name for value in session.get_outputs()] == ["logits", *present]
    assert session.get_inputs()[2].shape == ["b", 1, "past", 8] and session.get_inputs()[1].shape == ["b", "past+n"]
    # The caller's own cache is what it was, and its class is known to nobody's pytree.
    for mine, was in zip(kwargs["past_key_values"].layers, before.layers, strict=True):
        assert torch.equal(mine.keys, was.keys)
    assert transformers.DynamicCache not in pytree.SUPPORTED_NODES
    assert type(model) is transformers.LlamaForCausalLM


@pytest.mark.parametrize("exporter", ONE_QUICK)
def test_a_prefill_gives_its_cache(exporter: str, tmp_path: Path) -> None:
    ids = torch.randint(0, 99, (2, 4))
    onnxpatch.export(
        llama(), (ids,), tmp_path / "m.onnx", dynamic_shapes=({0: "b", 1: "n"},), exporter=exporter, max_probes=4
    )
    names = [value.name for value in onnxruntime.InferenceSession(tmp_path / "m.onnx").get_outputs()]
    assert names[:3] == ["logits", "present.0.key", "present.0.value"]
    assert onnxpatch.verify(tmp_path / "m.onnx", llama(), (ids,), max_probes=4).ok


class TakesTuples(nn.Module):
    """A decoder of the older kind: a tuple of (key, value) for each layer."""

    def forward(self, x: torch.Tensor, past: tuple[tuple[torch.Tensor, torch.Tensor], ...]) -> Any:
        return {"y": x + sum(k.sum() + v.sum() for k, v in past), "keys": [torch.cat([k, v], 2) for k, v in past]}


@pytest.mark.parametrize("exporter", EXPORTERS)
def test_tuples_are_named_by_layer(exporter: str, tmp_path: Path) -> None:
    past = tuple(states(2, 3))
    axes = ((({2: "p"}, {2: "p"}),) * 2,)
    onnxpatch.export(
        TakesTuples().eval(), (torch.randn(2, 4), past), tmp_path / "m.onnx", exporter=exporter, max_probes=4,
        dynamic_shapes=({0: "b"}, *axes),
    )  # fmt: skip
    names = [value.name for value in onnxruntime.InferenceSession(tmp_path / "m.onnx").get_inputs()]
    assert names == ["x", "past.0.key", "past.0.value", "past.1.key", "past.1.value"]


def bart() -> nn.Module:
    torch.manual_seed(0)
    config = transformers.BartConfig(
        d_model=16, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2, decoder_attention_heads=2,
        encoder_ffn_dim=16, decoder_ffn_dim=16, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1, **SMALL,
    )  # fmt: skip
    return transformers.BartForConditionalGeneration(config).eval()


class Decoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.model = bart()

    def forward(self, input_ids: torch.Tensor, encoder_hidden_states: torch.Tensor, past_key_values: Any) -> Any:
        encoded = transformers.modeling_outputs.BaseModelOutput(last_hidden_state=encoder_hidden_states)
        return self.model(
            decoder_input_ids=input_ids, encoder_outputs=encoded, past_key_values=past_key_values, use_cache=True
        )


@pytest.mark.parametrize("exporter", ONE_QUICK)
def test_the_cache_of_an_encoder_decoder(exporter: str, tmp_path: Path) -> None:
    own, cross = states(2, 5, 1, 2), states(2, 4, 1, 2)
    past = transformers.EncoderDecoderCache([(*a, *b) for a, b in zip(own, cross, strict=True)])
    shapes = {
        "input_ids": {0: "b", 1: "n"},
        "encoder_hidden_states": {0: "b", 1: "source"},
        "past_key_values": {"decoder": {0: "b", 2: "past"}, "encoder": {0: "b", 2: "source"}},
    }
    kwargs = {
        "input_ids": torch.randint(0, 99, (2, 3)),
        "encoder_hidden_states": torch.randn(2, 4, 16),
        "past_key_values": past,
    }
    onnxpatch.export(
        Decoder().eval(), (), tmp_path / "m.onnx", kwargs=kwargs, dynamic_shapes=shapes, exporter=exporter, max_probes=5
    )
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx")
    layer = [f"0.{side}.{part}" for side in ("decoder", "encoder") for part in ("key", "value")]
    assert [v.name for v in session.get_inputs() if "past" in v.name] == [f"past_key_values.{name}" for name in layer]
    assert [v.name for v in session.get_outputs() if "present" in v.name] == [f"present.{name}" for name in layer]


def test_shapes_of_a_cache_in_every_form() -> None:
    class Model(nn.Module):
        def forward(self, past: Any) -> Any:
            return past

    inputs = Inputs(Model(), (cache(2, 3),))
    axes, both = {0: "b", 2: "p"}, {"key": {0: "b", 2: "p"}, "value": {0: "b", 2: "p"}}
    for given in (axes, [axes, axes], [(axes, axes), (axes, axes)], [both, axes]):
        assert shapes.read_shapes(inputs, {"past": given}) == [axes] * 4
    with pytest.raises(InputError, match="past has 2 layers, its dynamic_shapes 3 entries"):
        shapes.read_shapes(inputs, {"past": [axes] * 3})
    with pytest.raises(InputError, match="names 'keys'; it has"):
        shapes.read_shapes(inputs, {"past": {"keys": axes}})


@pytest.mark.slow  # two seconds under trace, four under dynamo
@pytest.mark.parametrize("exporter", EXPORTERS)
def test_a_static_cache_in_a_loop(exporter: str, tmp_path: Path) -> None:
    """Six tokens after a prompt of four, in a cache of twelve places; dynamic in the batch."""
    model: Any = llama()
    mine = transformers.StaticCache(config=model.config, max_cache_len=12)
    with torch.no_grad():
        token = model(torch.randint(3, 99, (2, 4)), past_key_values=mine).logits[:, -1:].argmax(-1)
    kwargs, axes = {"input_ids": token, "past_key_values": copy.deepcopy(mine)}, {0: "b"}
    report = onnxpatch.export(
        model, (), tmp_path / "m.onnx", kwargs=kwargs, dynamic_shapes={"input_ids": axes, "past_key_values": axes},
        exporter=exporter, max_probes=4,
    )  # fmt: skip
    assert report.ok and {check.sizes["b"] for check in report.checks} >= {2, 3}
    session, theirs = onnxpatch.Session(tmp_path / "m.onnx"), copy.deepcopy(mine)
    for _ in range(6):
        with torch.no_grad():
            wanted = model(token, past_key_values=theirs).logits
        found = session(input_ids=token, past_key_values=mine)
        assert torch.allclose(torch.as_tensor(found["logits"]), wanted, atol=1e-5)
        token, mine = wanted[:, -1:].argmax(-1), found["past_key_values"]


def test_a_cache_is_put_together_anew() -> None:
    config = transformers.Gemma2Config(sliding_window=4, num_hidden_layers=2)
    before = transformers.DynamicCache(states(1, 3), config=config)
    after = closed((before,), opened((transformers.DynamicCache(states(1, 2), config=config),)))[0]
    assert after is not before and after.get_seq_length() == 2 and before.get_seq_length() == 3
    after.update(*states(1, 1, 1)[0], 0)
    assert after.get_seq_length() == 3 and before.layers[0].keys.shape[-2] == 3

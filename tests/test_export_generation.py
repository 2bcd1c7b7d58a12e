"""export_generation: which files it writes, what is in them, and for what models it has none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from torch import nn

import onnxpatch
from onnxpatch import ExportError, InputError
from onnxpatch.generation.export import generation_parts
from tests.exporters.test_caches import bart, llama

pytestmark = pytest.mark.exports

transformers = pytest.importorskip("transformers")
QUICK = [pytest.param("dynamo", marks=pytest.mark.slow), "trace"]


def test_a_decoder_is_one_file(tmp_path: Path) -> None:
    reports = onnxpatch.export_generation(llama(), tmp_path, exporter="trace", max_probes=4)
    assert {file.name for file in tmp_path.iterdir()} == {"model.onnx", "config.json", "generation_config.json"}
    assert [report.ok for report in reports.values()] == [True]
    assert [report.file for report in reports.values()] == [str(tmp_path / "model.onnx")]
    lengths = {(check.sizes["past_sequence_length"], check.kind) for check in reports["model.onnx"].checks}
    assert {(0, "given"), (6, "given")} <= lengths  # the prompt's turn, and one more token
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    shapes = {value.name: value.shape for value in session.get_inputs()}
    assert shapes["attention_mask"] == ["batch_size", "past_sequence_length + sequence_length"]
    assert shapes["past_key_values.1.value"] == ["batch_size", 1, "past_sequence_length", 8]


@pytest.mark.parametrize("exporter", QUICK)
def test_an_encoder_decoder_is_three(exporter: str, tmp_path: Path) -> None:
    reports = onnxpatch.export_generation(bart(), tmp_path, exporter=exporter, max_probes=4)
    assert list(reports) == ["encoder_model.onnx", "decoder_model.onnx", "decoder_with_past_model.onnx"]
    step = onnxruntime.InferenceSession(tmp_path / "decoder_with_past_model.onnx")
    sides = ("decoder.key", "decoder.value", "encoder.key", "encoder.value")
    past = [f"past_key_values.0.{side}" for side in sides]
    assert {value.name for value in step.get_inputs()} == {"input_ids", "encoder_attention_mask", *past}
    assert [value.name for value in step.get_outputs()] == ["logits", *(f"present.0.{side}" for side in sides[:2])]
    first = onnxruntime.InferenceSession(tmp_path / "decoder_model.onnx")
    assert [value.name for value in first.get_outputs()] == ["logits", *(f"present.0.{side}" for side in sides)]


def test_an_encoder_decoder_with_a_window_keeps_all_keys() -> None:
    """After a prompt longer than the window, the layers of T5Gemma's own cache have different lengths."""
    side = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
            "num_key_value_heads": 1, "head_dim": 8, "vocab_size": 99, "sliding_window": 4,
            "layer_types": ["sliding_attention", "full_attention"]}  # fmt: skip
    config = transformers.T5GemmaConfig(encoder=side, decoder=side | {"cross_attention_hidden_size": 16}, vocab_size=99)
    first = generation_parts(transformers.T5GemmaForConditionalGeneration(config).eval())[1]
    tokens = torch.randint(3, 99, (2, 7))
    with torch.no_grad():
        kept = first.module(**{**first.kwargs, "input_ids": tokens})["past_key_values"].self_attention_cache
    assert [layer.keys.shape[2] for layer in kept.layers] == [7, 7]


def test_what_genai_reads_names_the_files_own_inputs_and_outputs(tmp_path: Path) -> None:
    onnxpatch.export_generation(llama(), tmp_path, exporter="trace", max_probes=1, check=False, genai=True)
    written = json.loads((tmp_path / "genai_config.json").read_text())["model"]
    decoder = written["decoder"]
    session = onnxruntime.InferenceSession(tmp_path / decoder["filename"])
    shapes = {value.name: value.shape for value in session.get_inputs()}
    layers = range(decoder["num_hidden_layers"])
    assert set(shapes) == {one % n if "%" in one else one for one in decoder["inputs"].values() for n in layers}
    outputs = {one % n if "%" in one else one for one in decoder["outputs"].values() for n in layers}
    assert {value.name for value in session.get_outputs()} == outputs
    heads = [decoder["num_key_value_heads"], decoder["head_size"]]
    assert [shapes["past_key_values.0.key"][axis] for axis in (1, 3)] == heads
    assert written["vocab_size"] == 99
    with pytest.raises(InputError, match="genai=True"):
        onnxpatch.export_generation(bart(), tmp_path / "bart", genai=True)
    assert not (tmp_path / "bart").exists()


def test_nothing_is_left_where_one_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = bart()
    monkeypatch.setattr(type(model.get_decoder()), "forward", refusing(type(model.get_decoder()).forward))
    with pytest.raises(ExportError, match="no graph of this"):
        onnxpatch.export_generation(model, tmp_path, exporter="trace", max_probes=2)
    assert list(tmp_path.iterdir()) == []


def refusing(forward):  # type: ignore[no-untyped-def]
    def run(self, *args, **kwargs):  # type: ignore[no-untyped-def]
        if torch._C._get_tracing_state() is not None:  # not is_tracing(), which an attempt answers as eager does
            raise RuntimeError("no graph of this")
        return forward(self, *args, **kwargs)

    return run


def test_models_without_such_a_cache_are_told_so(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="Linear has no config and generate"):
        onnxpatch.export_generation(nn.Linear(2, 2), tmp_path)
    config = transformers.RwkvConfig(hidden_size=16, attention_hidden_size=16, num_hidden_layers=2, vocab_size=99)
    with pytest.raises(InputError, match="RwkvForCausalLM keeps no keys and values"):
        onnxpatch.export_generation(transformers.RwkvForCausalLM(config).eval(), tmp_path)


# ------------------------------------------------------------------ states of a fixed size
SMALL = {"vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2}
HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 48}
STATEFUL: dict[str, tuple[str, dict[str, Any]]] = {
    "state spaces": ("FalconMamba", {**SMALL, "state_size": 4}),
    "state spaces of heads": (
        "Mamba2",
        {**SMALL, "state_size": 8, "num_heads": 8, "head_dim": 8, "n_groups": 2, "chunk_size": 4},
    ),
    "attention in every second layer": (
        "Bamba",
        {
            **SMALL, **HEADS, "attn_layer_indices": [1], "mamba_n_heads": 8, "mamba_d_head": 8, "mamba_d_state": 8,
            "mamba_chunk_size": 4,
        },
    ),
    "convolutions and attention": ("Lfm2", {**SMALL, **HEADS, "layer_types": ["conv", "full_attention"]}),
}  # fmt: skip


def stateful(kind: str) -> Any:
    name, settings = STATEFUL[kind]
    torch.manual_seed(0)
    model = getattr(transformers, f"{name}ForCausalLM")(getattr(transformers, f"{name}Config")(**settings)).eval()
    with torch.no_grad():
        for weight in model.parameters():  # as they are initialized, the states hardly change the logits
            if weight.dim() > 1:
                weight.copy_(torch.randn_like(weight) * 0.3)
    return model


def generated(file: Path, ids: torch.Tensor, mask: torch.Tensor, count: int) -> torch.Tensor:
    """The greedy loop, a token at a time from states of zeros."""
    session = onnxruntime.InferenceSession(file)
    outputs = [value.name for value in session.get_outputs()]
    past = {
        value.name: np.zeros([len(ids)] + [size if isinstance(size, int) else 0 for size in value.shape[1:]], "float32")
        for value in session.get_inputs()
        if value.name.startswith("past")
    }
    tokens, seen = ids.numpy(), mask.numpy()
    for place in range(ids.shape[1] + count - 1):
        feed = {"input_ids": tokens[:, place : place + 1], "attention_mask": seen[:, : place + 1], **past}
        found = dict(zip(outputs, session.run(None, feed), strict=True))
        past = {name: found[name.replace("past_key_values", "present")] for name in past}
        if place + 1 >= ids.shape[1]:
            tokens = np.concatenate([tokens, found["logits"][:, -1].argmax(-1)[:, None]], axis=1)
            seen = np.concatenate([seen, np.ones_like(seen[:, :1])], axis=1)
    return torch.from_numpy(tokens)


QUICKEST = "convolutions and attention"
KINDS = [pytest.param(one, marks=[] if one == QUICKEST else pytest.mark.slow) for one in STATEFUL]  # 4 s each


@pytest.mark.parametrize("kind", KINDS)
def test_states_are_inputs_and_outputs(kind: str, tmp_path: Path) -> None:
    model = stateful(kind)
    assert onnxpatch.export_generation(model, tmp_path, exporter="trace", max_probes=3)["model.onnx"].ok
    for batch, prompt, padding, count in ((1, 1, 0, 32), (2, 5, 2, 32), (1, 4, 0, 64)):
        ids = torch.randint(3, 99, (batch, prompt))
        mask = torch.ones_like(ids)
        mask[0, :padding] = 0
        how = {"do_sample": False, "max_new_tokens": count, "min_new_tokens": count}
        wanted = model.generate(ids, attention_mask=mask, eos_token_id=None, pad_token_id=0, **how)
        assert torch.equal(generated(tmp_path / "model.onnx", ids, mask, count), wanted)


def test_a_model_that_ignores_its_states_is_refused(tmp_path: Path) -> None:
    model = stateful("convolutions and attention")

    class Forgetful(type(model)):  # type: ignore[misc]
        def forward(self, *args: Any, past_key_values: Any = None, cache: Any = None, **kwargs: Any) -> Any:
            return super().forward(*args, **kwargs)

    model.__class__ = Forgetful
    with pytest.raises(InputError, match="does not go on from the cache that it returned"):
        onnxpatch.export_generation(model, tmp_path)


def test_what_is_left_out_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    model = llama()
    assert generation_parts(model)[0].note == ""
    monkeypatch.setattr(type(model), "input_modalities", ("text", "audio"))
    assert (
        "the files take text: LlamaForCausalLM also takes audio, which is left out" in generation_parts(model)[0].note
    )


def test_a_model_that_is_called_in_another_way_is_one_error(monkeypatch: pytest.MonkeyPatch) -> None:
    model = llama()
    monkeypatch.setattr(type(model), "forward", lambda self, *args, **kwargs: [][1])
    with pytest.raises(InputError, match=r"(?s)cannot be called as export_generation.*IndexError.*one by one"):
        generation_parts(model)

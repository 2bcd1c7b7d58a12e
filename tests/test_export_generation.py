"""export_generation: which files it writes, what is in them, and for what models it has none."""

from __future__ import annotations

from pathlib import Path

import onnxruntime
import pytest
import torch
from torch import nn

import onnxpatch
from onnxpatch import ExportError, InputError
from tests.exporters.test_caches import bart, llama

pytestmark = pytest.mark.exports

transformers = pytest.importorskip("transformers")
QUICK = [pytest.param("dynamo", marks=pytest.mark.slow), "trace"]


def test_a_decoder_is_one_file(tmp_path: Path) -> None:
    reports = onnxpatch.export_generation(llama(), tmp_path, exporter="trace", max_probes=4)
    assert {file.name for file in tmp_path.iterdir()} == {"model.onnx", "config.json", "generation_config.json"}
    assert [report.ok for report in reports.values()] == [True]
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


def test_nothing_is_left_where_one_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = bart()
    monkeypatch.setattr(type(model.get_decoder()), "forward", refusing(type(model.get_decoder()).forward))
    with pytest.raises(ExportError, match="no graph of this"):
        onnxpatch.export_generation(model, tmp_path, exporter="trace", max_probes=2)
    assert list(tmp_path.iterdir()) == []


def refusing(forward):  # type: ignore[no-untyped-def]
    def run(self, *args, **kwargs):  # type: ignore[no-untyped-def]
        if torch.jit.is_tracing():
            raise RuntimeError("no graph of this")
        return forward(self, *args, **kwargs)

    return run


def test_models_without_such_a_cache_are_told_so(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="Linear has no config and generate"):
        onnxpatch.export_generation(nn.Linear(2, 2), tmp_path)
    config = transformers.MambaConfig(hidden_size=16, state_size=4, num_hidden_layers=1, vocab_size=99)
    with pytest.raises(InputError, match="MambaForCausalLM keeps no keys and values"):
        onnxpatch.export_generation(transformers.MambaForCausalLM(config).eval(), tmp_path)

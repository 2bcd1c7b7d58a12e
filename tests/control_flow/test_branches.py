"""Python branches on data and on sizes: every branch of every model, through onnxruntime, under both exporters."""

from __future__ import annotations

import copy
import sys
from pathlib import Path

import pytest
import torch

import onnxpatch
from tests.control_flow import (
    branch_models,
    counted_loops,
    data_sizes,
    models_with_nodes,
    refused_models,
    written_models,
)
from tests.control_flow.branch_cases import REFUSED, RIGHT, Case, Refusal
from tests.exporting import export, run, wrong

pytestmark = pytest.mark.exports

EXPORTERS = ("dynamo", "trace")
REGISTERED = (branch_models, counted_loops, models_with_nodes, refused_models, written_models)  # by importing them


@pytest.mark.parametrize("exporter", EXPORTERS)
@pytest.mark.parametrize("case", RIGHT, ids=lambda case: case.name)
def test_every_branch_is_in_the_graph(case: Case, exporter: str) -> None:
    model = case.model()
    eager = copy.deepcopy(model)
    with onnxpatch.patched(model, branches=True, exporter=exporter):
        file = export(model, case.inputs[0], exporter, case.dynamic)
    for inputs in case.inputs:
        with torch.no_grad():
            wanted = case.reference(eager(*copy.deepcopy(inputs)), inputs)
        assert wrong(run(file, inputs), wanted, 1e-4) is None, inputs


@pytest.mark.parametrize("exporter", EXPORTERS)
def test_a_number_from_data_chooses_a_layer_at_every_size(exporter: str) -> None:
    case = next(case for case in RIGHT if case.name == "chosen_expert")
    asked = {"branches": True, "exporter": exporter, "attempts": "asked"}
    assert onnxpatch.export(case.model(), case.inputs[0], dynamic_shapes=case.dynamic, **asked).ok


@pytest.mark.slow
@pytest.mark.parametrize("exporter", EXPORTERS)
def test_speech_of_as_many_frames_as_the_model_computes_durations_for(exporter: str) -> None:
    speech = pytest.importorskip("transformers.models.fastspeech2_conformer.modeling_fastspeech2_conformer")
    layers = dict.fromkeys(("encoder_layers", "decoder_layers"), 1)
    heads = dict.fromkeys(("encoder_num_attention_heads", "decoder_num_attention_heads"), 2)
    units = dict.fromkeys(("hidden_size", "encoder_linear_units", "decoder_linear_units", "num_mel_bins"), 16)
    postnet = {"speech_decoder_postnet_layers": 2, "speech_decoder_postnet_units": 16}
    config = speech.FastSpeech2ConformerConfig(**layers, **heads, **units, **postnet)
    model = data_sizes.Spectrogram(speech.FastSpeech2ConformerModel(config)).eval()
    asked = {"branches": True, "exporter": exporter, "attempts": "asked"}
    assert onnxpatch.export(model, (torch.randint(3, 70, (1, 7)),), dynamic_shapes=({1: "length"},), **asked).ok


@pytest.mark.parametrize("exporter", EXPORTERS)
@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.name)
def test_a_refusal_names_module_line_and_remedy(case: Refusal, exporter: str) -> None:
    model = case.model()
    before = copy.deepcopy(vars(model)), type(model)
    with (
        pytest.raises(Exception) as caught,  # torch wraps it
        onnxpatch.patched(model, branches=True, exporter=exporter, **case.options),
    ):
        export(model, case.inputs, exporter, case.dynamic)
    refusal = caught.value if isinstance(caught.value, onnxpatch.OnnxpatchError) else caught.value.__cause__
    assert isinstance(refusal, onnxpatch.BranchError)
    assert "refused_models.py:" in str(refusal)
    for text in case.says:
        assert text in str(refusal)
    assert vars(model).keys() == before[0].keys()
    assert type(model) is before[1]


@pytest.mark.parametrize("exporter", EXPORTERS)
def test_what_a_hook_of_the_model_returns_is_its_output(exporter: str, tmp_path: Path) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 3)).eval()
    model[0].register_forward_hook(lambda module, args, output: output * 2 if output.sum() > 0 else output)
    model.register_forward_hook(lambda module, args, output: {"y": output, "total": output.sum(0)})
    file = tmp_path / "m.onnx"
    onnxpatch.export(
        model,
        (torch.randn(2, 3),),
        file,
        dynamic_shapes=({0: "b"},),
        exporter=exporter,
        branches=True,
        attempts="asked",
    )
    for x in (torch.full((4, 3), 3.0), torch.full((1, 3), -3.0)):
        found = onnxpatch.Session(file)(x)
        assert wrong(list(found.values()), list(model(x).values()), 1e-4) is None and list(found) == ["y", "total"]


def test_nothing_of_the_kit_is_left_behind() -> None:
    model = RIGHT[0].model()
    before = torch.SymBool.__bool__, torch.SymInt.__index__, dict(vars(sys.modules[type(model).__module__]))
    with onnxpatch.patched(model, branches=True):
        export(model, RIGHT[0].inputs[0], "dynamo", RIGHT[0].dynamic)
    assert (torch.SymBool.__bool__, torch.SymInt.__index__) == before[:2]
    assert vars(sys.modules[type(model).__module__]).keys() == before[2].keys()


def test_eager_inside_the_context_is_eager() -> None:
    case = next(case for case in RIGHT if case.name == "nothing_found")
    model = case.model()
    with onnxpatch.patched(model, branches=True):
        assert model(torch.zeros(3, 4)) is None


@pytest.mark.parametrize("exporter", EXPORTERS)
def test_a_tensor_of_items_has_the_default_dtype(exporter: str) -> None:
    case = next(case for case in RIGHT if case.name == "list_of_items")
    torch.set_default_dtype(torch.float64)
    try:
        model = case.model()
        with onnxpatch.patched(model, branches=True, exporter=exporter):
            file = export(model, case.inputs[0], exporter, case.dynamic)
        for inputs in case.inputs:
            assert wrong(run(file, inputs), model(*inputs), 1e-9) is None
    finally:
        torch.set_default_dtype(torch.float32)

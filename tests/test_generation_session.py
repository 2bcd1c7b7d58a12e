"""GenerationSession: the tokens of model.generate, token by token, for each kind of folder and each kind of search."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import onnxpatch
from onnxpatch import InputError
from tests.exporters.test_caches import bart, llama
from tests.test_export_generation import stateful

pytestmark = pytest.mark.exports

transformers = pytest.importorskip("transformers")
GREEDY: dict[str, Any] = {"do_sample": False, "eos_token_id": None, "pad_token_id": 0}
ENDS: dict[str, Any] = {**GREEDY, "eos_token_id": [7, 9, 11, 13]}
WAYS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "greedy, with ends": {**ENDS},
    "beams": {"num_beams": 3},
    "beams, with ends": {**ENDS, "num_beams": 4, "length_penalty": 2.0},
    "beams that stop early": {**ENDS, "num_beams": 2, "early_stopping": True},
    "beams that never stop early": {**ENDS, "num_beams": 2, "early_stopping": "never", "length_penalty": -1.0},
    "drawn": {"do_sample": True, "temperature": 0.7, "top_k": 20, "top_p": 0.9},
    "no repetition": {**ENDS, "repetition_penalty": 1.3, "no_repeat_ngram_size": 2, "min_new_tokens": 8},
    "suppressed": {"suppress_tokens": [5, 6, 17], "begin_suppress_tokens": [40, 41], "forced_eos_token_id": 3},
}


def restless(model: Any) -> Any:
    """Larger weights than a fresh model has: those of a fresh one hardly look at the tokens before."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.dim() == 2:
                scale = 1.0 if "embed" in name else 2.5 / weight.shape[1] ** 0.5
                weight.copy_(torch.randn(weight.shape, generator=generator) * scale)
    return model


MODELS = {
    "decoder": lambda: restless(llama()),
    "encoder-decoder": lambda: restless(bart()),
    "states": lambda: stateful("convolutions and attention"),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """(model, session) by kind. The files' own proofs are those of test_export_generation."""
    found: dict[str, Any] = {}

    def get(kind: str) -> Any:
        if kind not in found:
            model, folder = MODELS[kind](), tmp_path_factory.mktemp(kind)
            onnxpatch.export_generation(model, folder, exporter="trace", verify=False)
            found[kind] = model, onnxpatch.GenerationSession(folder)
        return found[kind]

    return get


KINDS = [pytest.param(kind, marks=[] if kind == "decoder" else pytest.mark.slow) for kind in MODELS]


def prompt(batch: int, length: int, padding: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    ids = torch.randint(3, 99, (batch, length), generator=torch.Generator().manual_seed(batch + length))
    mask = torch.ones_like(ids)
    mask[0, :padding] = 0
    return ids, mask


def settings(kind: str, **more: Any) -> dict[str, Any]:
    own = {"forced_bos_token_id": None, "decoder_start_token_id": 2} if kind == "encoder-decoder" else {}
    return {**GREEDY, **own, "max_new_tokens": 24, **more}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", KINDS)
def test_the_tokens_are_those_of_generate(made: Any, kind: str, way: str) -> None:
    model, session = made(kind)
    how = settings(kind, **WAYS[way])
    for batch, length, padding in ((1, 1, 0), (3, 5, 2)):
        ids, mask = prompt(batch, length, padding)
        torch.manual_seed(5)
        wanted = model.generate(ids, attention_mask=mask, **how)
        found = session.generate(ids, attention_mask=mask, seed=5, **how)
        assert torch.equal(found, wanted)


@pytest.mark.slow
@pytest.mark.parametrize("kind, count", [("decoder", 256), ("encoder-decoder", 60), ("states", 256)])
def test_many_tokens(made: Any, kind: str, count: int) -> None:
    """As many as the model has positions for."""
    model, session = made(kind)
    ids, mask = prompt(2, 4, 1)
    how = settings(kind, max_new_tokens=count)
    wanted = model.generate(ids, attention_mask=mask, **how)
    assert torch.equal(session.generate(ids, attention_mask=mask, **how), wanted)


@pytest.mark.slow  # a file for each window
@pytest.mark.parametrize("window", [3, 12])
def test_windows_shorter_and_longer_than_the_prompt(window: int, tmp_path: Path) -> None:
    """The session's cache grows with the text; eager's is as long as the window, or static."""
    model = restless(mistral(window))
    onnxpatch.export_generation(model, tmp_path, exporter="trace", verify=False)
    session = onnxpatch.GenerationSession(tmp_path)
    for batch, length, padding in ((1, 1, 0), (3, 7, 2)):
        ids, mask = prompt(batch, length, padding)
        found = session.generate(ids, attention_mask=mask, **settings("decoder"))
        for kept in (None, "static"):
            how = settings("decoder", cache_implementation=kept)
            assert torch.equal(model.generate(ids, attention_mask=mask, **how), found)
    wide = restless(mistral(64)).generate(ids, attention_mask=mask, **settings("decoder"))
    assert not torch.equal(wide, found)  # the window matters


def mistral(window: int) -> Any:
    torch.manual_seed(0)
    config = transformers.MistralConfig(
        hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        vocab_size=99, max_position_embeddings=64, sliding_window=window,
    )  # fmt: skip
    return transformers.MistralForCausalLM(config).eval()


def test_tokens_are_streamed_as_they_are_found(made: Any) -> None:
    _, session = made("decoder")
    ids, mask = prompt(3, 5, 2)
    how = settings("decoder", max_new_tokens=9)
    whole = session.generate(ids.numpy(), attention_mask=mask.numpy(), **how)
    assert isinstance(whole, np.ndarray)
    stream = session.stream(ids, attention_mask=mask, **how)
    assert next(stream).tolist() == whole[:, 5].tolist()
    assert torch.equal(torch.stack(list(stream), 1), torch.from_numpy(whole[:, 6:]))
    with pytest.raises(InputError, match="num_beams=1 to stream"):
        session.stream(ids, num_beams=2)


def test_draws_follow_the_seed_and_processors_are_called(made: Any) -> None:
    _, session = made("decoder")
    ids, _ = prompt(2, 4)
    how = settings("decoder", do_sample=True)
    assert torch.equal(session.generate(ids, seed=1, **how), session.generate(ids, seed=1, **how))
    assert not torch.equal(session.generate(ids, seed=1, **how), session.generate(ids, seed=2, **how))
    always = session.generate(ids, processors=[lambda _, scores: scores.index_fill(1, torch.tensor([8]), 1e9)], **how)
    assert set(always[:, 4:].flatten().tolist()) == {8}


def test_what_nothing_reads_is_refused(made: Any, tmp_path: Path) -> None:
    _, session = made("decoder")
    ids, _ = prompt(1, 2)
    with pytest.raises(InputError, match="pixel_values: no input"):
        session.generate(ids, pixel_values=torch.ones(1))
    with pytest.raises(InputError, match=r"(?s)guidance_scale=3.* is not done here"):
        session.generate(ids, guidance_scale=3.0)
    with pytest.raises(InputError, match="num_beams and do_sample together"):
        session.generate(ids, num_beams=2, do_sample=True)
    with pytest.raises(InputError, match="input_ids is missing"):
        session.generate()
    with pytest.raises(InputError, match="no files of a loop"):
        onnxpatch.GenerationSession(tmp_path)
    with pytest.raises(InputError, match="there is no folder"):
        onnxpatch.GenerationSession(tmp_path / "none")


def test_the_folders_settings_hold(made: Any) -> None:
    model, session = made("decoder")
    ids, _ = prompt(2, 3)
    assert session.defaults["eos_token_id"] == json.loads(model.generation_config.to_json_string())["eos_token_id"]
    assert torch.equal(session.generate(ids, max_new_tokens=6), model.generate(ids, max_new_tokens=6))


@pytest.mark.slow  # three files: eight seconds
def test_a_sound_of_any_length(tmp_path: Path) -> None:
    """Moonshine's encoder reads a waveform, shortens it, and gives the mask of its answer with it."""
    config = transformers.MoonshineConfig(
        vocab_size=99, hidden_size=32, intermediate_size=48, encoder_num_hidden_layers=1, decoder_num_hidden_layers=1,
        encoder_num_attention_heads=4, decoder_num_attention_heads=4, pad_token_id=0, eos_token_id=2,
        decoder_start_token_id=1,
    )  # fmt: skip
    torch.manual_seed(0)
    model = restless(transformers.MoonshineForConditionalGeneration(config).eval())
    onnxpatch.export_generation(model, tmp_path, exporter="trace", verify=False)
    session = onnxpatch.GenerationSession(tmp_path)
    for batch, samples in ((1, 3500), (3, 6500)):
        sound = torch.randn(batch, samples)
        how = {**GREEDY, "max_new_tokens": 32}
        wanted = transformers.GenerationMixin.generate(model, sound, **how)
        assert torch.equal(session.generate(input_values=sound, **how), wanted)


@pytest.mark.slow  # a file that is proven: four seconds
def test_a_cache_in_bfloat16(tmp_path: Path) -> None:
    """Step by step along eager's tokens, the logits are eager's within bfloat16's rounding."""
    model, scores = llama().to(torch.bfloat16), []
    onnxpatch.export_generation(model, tmp_path, exporter="trace", max_probes=3)
    session = onnxpatch.GenerationSession(tmp_path)
    ids, mask = prompt(3, 5, 2)
    wanted = model.generate(ids, attention_mask=mask, **settings("decoder"))

    def along(texts: torch.Tensor, found: torch.Tensor) -> torch.Tensor:
        scores.append(found)
        return found.scatter(1, wanted[:, texts.shape[1], None], 1e9)

    assert torch.equal(session.generate(ids, attention_mask=mask, processors=[along], **settings("decoder")), wanted)
    whole = torch.cat([mask, torch.ones(3, 24, dtype=torch.int64)], 1)
    eager = model(wanted, attention_mask=whole, position_ids=(whole.cumsum(1) - 1).clamp(min=0)).logits[:, 4:-1]
    assert (torch.stack(scores, 1) - eager).abs().max() <= 6e-2 * eager.abs().max()
    # Beams put the rows of the cache in another order.
    assert session.generate(ids, attention_mask=mask, **settings("decoder", num_beams=3)).shape == wanted.shape

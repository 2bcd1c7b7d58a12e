"""Models that write sound: the delayed rows of codebooks, the files, and the sound of model.generate."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import onnxpatch
from onnxpatch import InputError
from onnxpatch.generation.turns import delayed
from tests.test_generation_session import restless

transformers = pytest.importorskip("transformers")
PADDING = 64


def musicgen(channels: int = 1) -> Any:
    """A MusicGen of two layers, whose codec has four codebooks of 64 codes for each side."""
    text = transformers.T5Config(vocab_size=99, d_model=32, d_kv=8, d_ff=32, num_layers=2, num_heads=4)
    codec = transformers.EncodecConfig(
        sampling_rate=800, num_filters=4, hidden_size=16, codebook_size=PADDING, codebook_dim=16, num_lstm_layers=1,
        upsampling_ratios=[4, 2], target_bandwidths=[4.0],
    )  # fmt: skip
    decoder = transformers.models.musicgen.configuration_musicgen.MusicgenDecoderConfig(
        vocab_size=PADDING, num_hidden_layers=2, hidden_size=16, ffn_dim=32, num_attention_heads=4,
        num_codebooks=4 * channels, audio_channels=channels, pad_token_id=PADDING, bos_token_id=PADDING,
    )  # fmt: skip
    config = transformers.MusicgenConfig(text_encoder=text, audio_encoder=codec, decoder=decoder)
    torch.manual_seed(0)
    return transformers.MusicgenForConditionalGeneration(config).eval()


@pytest.mark.parametrize("channels", [1, 2])
def test_rows_are_delayed_as_in_transformers(channels: int) -> None:
    decoder = musicgen(channels).decoder
    rows = 2 * decoder.num_codebooks
    for length, given in ((12, 1), (12, 4), (7, 1), (6, 1), (9, 2)):
        ids = torch.randint(0, PADDING, (rows, given)).index_fill(1, torch.tensor([0]), PADDING)
        _, wanted = decoder.build_delay_pattern_mask(ids, PADDING, length)
        assert torch.equal(delayed(ids, decoder.num_codebooks, channels, length), wanted)


@pytest.mark.exports
@pytest.mark.slow  # four files: fifteen seconds
@pytest.mark.parametrize("channels, exporter", [(1, "dynamo"), (2, "trace")])
def test_the_sound_is_that_of_generate(channels: int, exporter: str, tmp_path: Path) -> None:
    model = restless(musicgen(channels))
    reports = onnxpatch.export_generation(model, tmp_path, exporter=exporter, max_probes=4)
    assert list(reports)[3:] == ["encodec_decode.onnx"]
    session = onnxpatch.GenerationSession(tmp_path)
    ids, mask = torch.randint(3, 60, (3, 6)), torch.ones(3, 6, dtype=torch.int64)
    mask[0, :2] = 0
    ways: list[dict[str, Any]] = [
        {}, {"guidance_scale": 3.0}, {"max_new_tokens": 3}, {"repetition_penalty": 1.5},
        {"do_sample": True, "temperature": 0.7, "guidance_scale": 2.0},
    ]  # fmt: skip
    for way in ways:
        how = {"attention_mask": mask, "do_sample": False, "max_new_tokens": 16, **way}
        torch.manual_seed(3)
        wanted = model.generate(ids, **how)
        assert wanted.shape[1] == channels
        torch.testing.assert_close(session.generate(ids, seed=3, **how), wanted, rtol=1e-4, atol=1e-6)
    with pytest.raises(InputError, match="beams of codebooks"):
        session.generate(ids, num_beams=2)

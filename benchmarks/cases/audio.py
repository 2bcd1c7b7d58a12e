"""transformers' audio models, tiny: waveforms and spectrograms of any length, padded masks, codecs, vocoders."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from benchmarks.case import Args, Case, randomise
from benchmarks.transformers_models import Keyword, ids, made, padded, sized

LIBRARIES = ("transformers",)
LEFT_OUT = {
    "vits, bark (whole)": "draw noise inside forward; their parts are cases",
    "musicgen, moshi (whole)": "their decoders are cases, musicgen's loop is in benchmarks.generation",
}
TINY = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, vocab_size=20)
CONVOLUTIONS = dict(conv_dim=(16, 16, 16), conv_stride=(5, 2, 2), conv_kernel=(10, 3, 3), num_conv_pos_embeddings=8,
                    num_conv_pos_embedding_groups=2, **TINY)  # fmt: skip
SEW = dict(CONVOLUTIONS, squeeze_factor=2)
SPEECH = dict(d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4,
              encoder_ffn_dim=64, decoder_ffn_dim=64, vocab_size=99, pad_token_id=0, bos_token_id=1, eos_token_id=2,
              decoder_start_token_id=1, num_mel_bins=16)  # fmt: skip
# Batch and samples: the example; then shorter, longer, odd.
WAVES = ((2, 400), (3, 400), (1, 120), (3, 1000), (2, 333), (1, 641))
LONG = ((2, 48), (3, 48), (1, 40), (3, 120), (2, 57))
FRAMES = ((2, 24), (3, 24), (1, 8), (3, 60), (2, 17))
SAMPLES, TIME = {0: "batch", 1: "samples"}, {0: "batch", 1: "frames"}


def heard(
    auto: str,
    kind: str,
    field: str,
    names: str,
    make: Callable[..., Args],
    sizes: Sequence[tuple[int, ...]],
    shapes: Any,
    call: dict[str, Any] | None = None,
    **options: Any,
) -> Callable[[], Case]:
    """A model called by keyword on what ``make`` makes of one of ``sizes``."""
    build = lambda: Keyword(made(auto, kind, **options), names.split(), field.split(), **(call or {}))  # noqa: E731
    return lambda: sized(build(), make, sizes, shapes)


def wave(auto: str, kind: str, field: str = "last_hidden_state", mask: bool = False, **options: Any) -> Any:
    names = "input_values attention_mask" if mask else "input_values"
    make = lambda b, n: (torch.randn(b, n), *([padded_half(b, n)] if mask else []))  # noqa: E731
    return heard(auto, kind, field, names, make, WAVES, (SAMPLES,) * len(names.split()), **{**CONVOLUTIONS, **options})


def padded_half(batch: int, length: int) -> torch.Tensor:
    """Samples that count: all, three quarters, a half."""
    kept = torch.tensor([length * (4 - row) // 4 for row in range(batch)])
    return (torch.arange(length) < kept[:, None]).long()


def spectrum(auto: str, kind: str, field: str = "last_hidden_state", sizes: Any = FRAMES, **options: Any) -> Any:
    """A model on (batch, frames, 16 bins) with a mask."""
    make = lambda b, n: (torch.randn(b, n, 16), padded_half(b, n))  # noqa: E731
    return heard(auto, kind, field, "input_features attention_mask", make, sizes, (TIME, TIME), **options)


def codec(kind: str, field: str, sizes: Sequence[tuple[int, ...]] = WAVES, **options: Any) -> Any:
    make = lambda b, n: (torch.randn(b, 1, n),)  # noqa: E731
    return heard("AutoModel", kind, field, "input_values", make, sizes, ({0: "batch", 2: "samples"},), **options)


def whisper(batch: int, length: int) -> Args:
    return torch.randn(batch, 16, 40), ids(batch, length)


def dictation(batch: int, frames: int, length: int) -> Args:
    return torch.randn(batch, frames, 16), padded_half(batch, frames), ids(batch, length)


def codebooks(batch: int, length: int) -> Args:
    return torch.randint(0, 16, (batch * 4, length)), padded(batch, length)


def hifigan() -> Case:
    from transformers import SpeechT5HifiGan, SpeechT5HifiGanConfig

    config = SpeechT5HifiGanConfig(model_in_dim=16, upsample_initial_channel=16, upsample_rates=[4, 2],
                                   upsample_kernel_sizes=[8, 4], resblock_kernel_sizes=[3],
                                   resblock_dilation_sizes=[[1, 3]])  # fmt: skip
    return sized(randomise(SpeechT5HifiGan(config)), lambda b, n: (torch.randn(b, n, 16),), FRAMES, (TIME,))


def vits_text() -> Case:
    from transformers import VitsConfig
    from transformers.models.vits.modeling_vits import VitsTextEncoder

    config = VitsConfig(hidden_size=32, ffn_dim=64, num_hidden_layers=2, num_attention_heads=2, flow_size=16,
                        window_size=2)  # fmt: skip
    names = ("input_ids", "attention_mask", "padding_mask")

    def make(batch: int, length: int) -> Args:
        mask = padded(batch, length)
        return torch.randint(3, 30, (batch, length)), mask, mask[..., None].float()

    model = Keyword(randomise(VitsTextEncoder(config)), names, ("last_hidden_state", "prior_means"))
    return sized(model, make, ((2, 7), (3, 7), (1, 1), (3, 16)), (TIME, TIME, TIME))


STATE = "last_hidden_state"
ENCODEC = dict(hidden_size=16, num_filters=4, upsampling_ratios=[4, 2], codebook_size=16, num_lstm_layers=1)
MIMI = dict(hidden_size=16, num_filters=4, upsampling_ratios=[4, 2], codebook_size=16, codebook_dim=8,
            vector_quantization_hidden_dimension=8, num_quantizers=4, upsample_groups=16, num_hidden_layers=1,
            intermediate_size=32, num_attention_heads=2, num_key_value_heads=2, head_dim=8)  # fmt: skip
SPEECHT5 = dict(hidden_size=32, encoder_layers=1, decoder_layers=1, encoder_attention_heads=4,
                decoder_attention_heads=4, encoder_ffn_dim=64, decoder_ffn_dim=64, conv_dim=(16, 16),
                conv_stride=(5, 2), conv_kernel=(10, 3), num_conv_pos_embeddings=8, num_conv_pos_embedding_groups=2,
                vocab_size=99)  # fmt: skip
CLAP = dict(spec_size=32, num_mel_bins=16, window_size=2, patch_size=4, patch_stride=(4, 4), hidden_size=32,
            patch_embeds_hidden_size=16, depths=[1, 1], num_attention_heads=[2, 2], num_hidden_layers=2,
            projection_dim=16)  # fmt: skip
MUSICGEN = dict(vocab_size=16, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, ffn_dim=64,
                num_codebooks=4, pad_token_id=0, bos_token_id=0, max_position_embeddings=64)  # fmt: skip

CASES: dict[str, Callable[[], Case]] = {
    "wav2vec2": wave("AutoModel", "wav2vec2"),
    "wav2vec2_masked": wave("AutoModel", "wav2vec2", mask=True, feat_extract_norm="layer", do_stable_layer_norm=True),
    "wav2vec2_ctc": wave("AutoModelForCTC", "wav2vec2", "logits", mask=True),
    "wav2vec2_classifier": wave("AutoModelForAudioClassification", "wav2vec2", "logits", mask=True,
                                classifier_proj_size=16),
    "wav2vec2_adapter": wave("AutoModel", "wav2vec2", add_adapter=True, num_adapter_layers=1),
    "wav2vec2_conformer": wave("AutoModel", "wav2vec2-conformer", mask=True, position_embeddings_type="relative",
                               max_source_positions=12, conv_depthwise_kernel_size=7),
    "wav2vec2_conformer_rotary": wave("AutoModel", "wav2vec2-conformer", position_embeddings_type="rotary",
                                      conv_depthwise_kernel_size=7),
    "hubert": wave("AutoModel", "hubert", mask=True),
    "wavlm": wave("AutoModel", "wavlm", mask=True, num_buckets=20, max_bucket_distance=40),
    "data2vec_audio": wave("AutoModel", "data2vec-audio", mask=True, conv_pos_kernel_size=3),
    "unispeech": wave("AutoModel", "unispeech", mask=True),
    "unispeech_sat": wave("AutoModel", "unispeech-sat", mask=True),
    "sew": wave("AutoModel", "sew", **SEW),
    "sew_masked": wave("AutoModel", "sew", mask=True, **SEW),
    "sew_d": wave("AutoModel", "sew-d", **SEW, position_buckets=8, max_position_embeddings=64),
    "wav2vec2_bert": spectrum("AutoModel", "wav2vec2-bert", feature_projection_input_dim=16,
                              conv_depthwise_kernel_size=7, left_max_position_embeddings=8,
                              right_max_position_embeddings=4, **TINY),
    "parakeet_ctc": spectrum("AutoModelForCTC", "parakeet_ctc", field="logits", vocab_size=20, encoder_config=dict(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, num_mel_bins=16,
        subsampling_conv_channels=8, conv_kernel_size=5)),
    "lasr_ctc": spectrum("AutoModelForCTC", "lasr_ctc", field="logits", sizes=LONG, vocab_size=20, encoder_config=dict(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, num_mel_bins=16,
        subsampling_conv_channels=8, conv_kernel_size=5)),
    "whisper": heard("WhisperForConditionalGeneration", "whisper", "logits", "input_features decoder_input_ids",
                     whisper, ((2, 5), (3, 5), (1, 1), (3, 12)), ({0: "batch"}, {0: "batch", 1: "length"}),
                     dict(use_cache=False), max_source_positions=20, max_target_positions=32, **SPEECH),
    "whisper_classifier": heard("AutoModelForAudioClassification", "whisper", "logits", "input_features",
                                lambda b: (torch.randn(b, 16, 40),), ((2,), (3,), (1,)), ({0: "batch"},),
                                max_source_positions=20, classifier_proj_size=16, **SPEECH),
    "speech_to_text": heard("Speech2TextForConditionalGeneration", "speech_to_text", "logits",
                            "input_features attention_mask decoder_input_ids", dictation,
                            ((2, 24, 5), (3, 24, 5), (1, 9, 1), (3, 61, 12)),
                            (TIME, TIME, {0: "batch", 1: "length"}), dict(use_cache=False), conv_channels=32,
                            input_feat_per_channel=16, max_source_positions=10, max_target_positions=8, **SPEECH),
    "moonshine": heard("MoonshineForConditionalGeneration", "moonshine", "logits", "input_values decoder_input_ids",
                       lambda b, n, t: (torch.randn(b, n), ids(b, t)), ((2, 1600, 5), (3, 1600, 5), (1, 900, 1),
                       (3, 3333, 12)), (SAMPLES, {0: "batch", 1: "length"}), dict(use_cache=False), hidden_size=32,
                       intermediate_size=64, encoder_num_hidden_layers=1, decoder_num_hidden_layers=1,
                       encoder_num_attention_heads=4, decoder_num_attention_heads=4, vocab_size=99),
    "speecht5_asr": heard("SpeechT5ForSpeechToText", "speecht5", "logits",
                          "input_values attention_mask decoder_input_ids",
                          lambda b, n, t: (torch.randn(b, n), padded_half(b, n), ids(b, t)),
                          ((2, 400, 5), (3, 400, 5), (1, 120, 1), (3, 1000, 12)),
                          (SAMPLES, SAMPLES, {0: "batch", 1: "length"}), dict(use_cache=False), **SPEECHT5),
    "speech_spectrogram_transformer": heard(
        "AutoModel", "audio-spectrogram-transformer", STATE, "input_values", lambda b: (torch.randn(b, 40, 16),),
        ((2,), (3,), (1,)), ({0: "batch"},), patch_size=8, frequency_stride=4, time_stride=4, max_length=40,
        num_mel_bins=16, **{**TINY, "vocab_size": 20}),
    "clap_audio": heard("ClapAudioModelWithProjection", "clap_audio_model", "audio_embeds", "input_features",
                        lambda b, n: (torch.randn(b, 1, n, 16),), ((2, 60), (3, 60), (1, 32), (2, 41)),
                        ({0: "batch", 2: "frames"},), **CLAP),
    "encodec": codec("encodec", "audio_values", **ENCODEC),
    "encodec_normalised": codec("encodec", "audio_values", normalize=True, norm_type="time_group_norm",
                                use_causal_conv=False, **ENCODEC),
    "mimi": codec("mimi", "audio_values", ((2, 192), (3, 192), (1, 64), (2, 500)), **MIMI),
    "dac": codec("dac", "audio_values", encoder_hidden_size=8, downsampling_ratios=[2, 4], decoder_hidden_size=32,
                 n_codebooks=2, codebook_size=16, codebook_dim=4),
    "hifigan": hifigan,
    "musicgen_decoder": heard("MusicgenForCausalLM", "musicgen_decoder", "logits", "input_ids attention_mask",
                              codebooks, ((2, 7), (3, 7), (1, 1), (3, 16)),
                              ({0: "4*batch", 1: "length"}, {0: "batch", 1: "length"}), dict(use_cache=False),
                              **MUSICGEN),
    "vits_text": vits_text,
    "fastspeech2": heard("FastSpeech2ConformerModel", "fastspeech2_conformer", "spectrogram", "input_ids",
                         lambda b, n: (torch.randint(3, 70, (b, n)),), ((1, 7), (1, 5), (1, 16)), ({1: "length"},),
                         hidden_size=32, encoder_layers=1, decoder_layers=1, encoder_num_attention_heads=2,
                         decoder_num_attention_heads=2, encoder_linear_units=32, decoder_linear_units=32,
                         speech_decoder_postnet_layers=2, speech_decoder_postnet_units=16, num_mel_bins=16),
}  # fmt: skip

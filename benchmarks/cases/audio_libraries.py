"""torchaudio, encodec, vocos, snac, demucs, openunmix: tiny; waveforms and spectrograms of any length."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any

import torch

from benchmarks import stand_ins
from benchmarks.case import Args, Case, randomise
from benchmarks.transformers_models import Keyword, sized

LIBRARIES = ("encodec", "vocos", "snac", "demucs", "openunmix")
LEFT_OUT = {
    "torchaudio's RNN-T loss, lfilter, forced alignment": "compiled operators, which its wheel builds for CUDA only",
    "torchaudio's Tacotron2 (whole), WaveRNN's infer": "decode in a Python loop until a stop token",
}
WAVES = ((2, 400), (3, 400), (1, 160), (2, 1001))
FRAMES = ((2, 12), (3, 12), (1, 4), (2, 31))
SAMPLES, FRAME = {0: "batch", 1: "samples"}, {0: "batch", 1: "frames"}


def model(path: str, make: Callable[..., Args], sizes: Sequence[tuple[int, ...]], shapes: Any, *before: Any,
          **options: Any) -> Callable[[], Case]:  # fmt: skip
    """``package.function_or_class`` called with ``options``."""

    def build() -> Case:
        stand_ins.torchaudio()
        module, _, name = path.rpartition(".")
        return sized(randomise(getattr(importlib.import_module(module), name)(*before, **options)), make, sizes, shapes)

    return build


def wave(batch: int, samples: int) -> Args:
    return (torch.randn(batch, samples),)


def channels(count: int) -> Callable[..., Args]:
    return lambda batch, samples: (torch.randn(batch, count, samples),)


def frames_and_lengths(width: int) -> Callable[..., Args]:
    """Spectrograms of lengths that the data says; the first of the batch is whole."""

    def make(batch: int, length: int) -> Args:
        return torch.randn(batch, length, width), torch.tensor([max(1, length - 3 * i) for i in range(batch)])

    return make


def codec() -> Case:
    stand_ins.torchaudio()
    from encodec.model import EncodecModel
    from encodec.modules import SEANetDecoder, SEANetEncoder
    from encodec.quantization import ResidualVectorQuantizer

    size = dict(dimension=16, n_filters=4, ratios=[4, 2], lstm=1)
    quantizer = ResidualVectorQuantizer(dimension=16, n_q=2, bins=16)
    with torch.no_grad():  # weight_norm keeps a weight that it computed, which cannot be copied with its gradient
        made = EncodecModel(SEANetEncoder(**size), SEANetDecoder(**size), quantizer, [1.5], 24000, 1)
    return sized(randomise(made), channels(1), WAVES, ({0: "batch", 2: "samples"},))


def vocoder() -> Case:
    stand_ins.torchaudio()
    from vocos.heads import ISTFTHead
    from vocos.models import VocosBackbone

    made = torch.nn.Sequential(VocosBackbone(16, 24, 48, 2), ISTFTHead(24, 32, 8, padding="same"))
    return sized(randomise(made), lambda b, n: (torch.randn(b, 16, n),), FRAMES, ({0: "batch", 2: "frames"},))


def vocoder_features() -> Case:
    stand_ins.torchaudio()
    from torchaudio.transforms import MelSpectrogram

    made = MelSpectrogram(n_fft=64, hop_length=16, n_mels=8)
    return sized(made, wave, WAVES, (SAMPLES,))


def unmixing() -> Case:
    stand_ins.torchaudio()
    from openunmix.model import OpenUnmix

    made = OpenUnmix(nb_bins=17, nb_channels=2, hidden_size=16, nb_layers=1)
    return sized(randomise(made), lambda b, n: (torch.rand(b, 2, 17, n),), FRAMES, ({0: "batch", 3: "frames"},))


def attended() -> Case:
    """torchaudio's wav2vec 2.0, with the lengths of the waveforms."""
    stand_ins.torchaudio()
    from torchaudio.models import wav2vec2_model

    made = wav2vec2_model("group_norm", [(16, 10, 5), (16, 3, 2)], False, 32, 0.0, 7, 2, 2, 4, 0.0, 64, 0.0, 0.0,
                          False, 0.0, 9)  # fmt: skip
    lengths = lambda b, n: (torch.randn(b, n), torch.tensor([n - 50 * i for i in range(b)]))  # noqa: E731
    return sized(Keyword(randomise(made), ("waveforms", "lengths")), lengths, WAVES, (SAMPLES, {0: "batch"}))


TWO = ({0: "batch", 2: "samples"},)
MEL = ({0: "batch", 2: "frames"},)
DEMUCS = dict(sources=["a", "b"], audio_channels=2, channels=8, depth=2, lstm_layers=1, resample=False)

CASES: dict[str, Callable[[], Case]] = {
    "torchaudio_conformer": model("torchaudio.models.Conformer", frames_and_lengths(16), FRAMES, (FRAME, {0: "batch"}),
                                  input_dim=16, num_heads=2, ffn_dim=32, num_layers=1,
                                  depthwise_conv_kernel_size=5),
    "torchaudio_emformer": model("torchaudio.models.Emformer", lambda b, n: (torch.randn(b, n + 1, 16),
                                 torch.tensor([max(4, n - 4 * i) for i in range(b)])),
                                 ((2, 12), (3, 12), (1, 4), (2, 28)), (FRAME, {0: "batch"}), 16, 2, 32, 1, 4,
                                 right_context_length=1),
    "torchaudio_wav2letter": model("torchaudio.models.Wav2Letter", channels(8), ((2, 64), (3, 64),
                                   (1, 40), (2, 150)), MEL, num_classes=5, input_type="mfcc", num_features=8),
    "torchaudio_deepspeech": model("torchaudio.models.DeepSpeech", lambda b, n: (torch.randn(b, 1, n, 8),), FRAMES,
                                   ({0: "batch", 2: "frames"},), n_feature=8, n_hidden=16, n_class=5),
    "torchaudio_conv_tasnet": model("torchaudio.models.ConvTasNet", channels(1), WAVES, TWO, num_sources=2,
                                    enc_kernel_size=16, enc_num_feats=16, msk_kernel_size=3, msk_num_feats=8,
                                    msk_num_hidden_feats=16, msk_num_layers=2, msk_num_stacks=1),
    "torchaudio_wavernn": model("torchaudio.models.WaveRNN", lambda b, n: (torch.randn(b, 1, (n - 4) * 8),
                                torch.randn(b, 1, 8, n)), ((2, 12), (3, 12), (1, 6), (2, 24)),
                                ({0: "batch", 2: "8*frames-32"}, {0: "batch", 3: "frames"}), upsample_scales=[2, 4],
                                n_classes=8, hop_length=8, n_res_block=1, n_rnn=8, n_fc=8, kernel_size=5, n_freq=8,
                                n_hidden=8, n_output=8),
    "torchaudio_wav2vec2": attended,
    "torchaudio_mel": vocoder_features,
    "torchaudio_squim": model("torchaudio.models.squim_objective_model", wave, ((2, 1600), (3, 1600), (1, 800),
                              (2, 3333)), (SAMPLES,), feat_dim=16, win_len=16, d_model=8, nhead=2, hidden_dim=8,
                              num_blocks=1, rnn_type="LSTM", chunk_size=8),
    "encodec": codec,
    "vocos": vocoder,
    "snac": model("snac.SNAC", channels(1), ((2, 256), (3, 256), (1, 64), (2, 512)), TWO, encoder_dim=4,
                  encoder_rates=[2, 4], latent_dim=16, decoder_dim=16, decoder_rates=[4, 2], attn_window_size=None,
                  codebook_size=16, codebook_dim=4, vq_strides=[2, 1], noise=False, depthwise=False),
    "demucs": model("demucs.demucs.Demucs", channels(2), ((2, 400), (3, 400), (1, 200), (2, 1001)), TWO, **DEMUCS),
    "hdemucs": model("demucs.hdemucs.HDemucs", channels(2), ((2, 4096), (3, 4096), (1, 2048), (2, 9000)), TWO,
                     sources=["a", "b"], audio_channels=2, channels=8, depth=5, nfft=1024, cac=True, dconv_attn=9,
                     dconv_lstm=9),
    "openunmix": unmixing,
}  # fmt: skip

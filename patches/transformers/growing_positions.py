"""Tables of sines and cosines that grow with the text, and rotary frequencies (dynamic NTK), at every length."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from onnxpatch import KnownBody, Proof, Settings, When, patch
from onnxpatch.formulas.calls import temporary_attributes
from onnxpatch.formulas.symbolic import as_tensor, symbolic
from onnxpatch.patching.proof import computing, randomised

# forward as most models have it, then with other dtypes of the angles, other orders of sine and cosine, and for images
_FORWARD = ("8851abe280f0", "365d5916be02", "1f5de54a8712", "0edd352fd84b", "5b3dbb316e89", "c3342476249a")
WRITTEN_FOR = "transformers 5.23.0"
_MODELS = "transformers.models"
WHY = "if max_pos > self.weights.size(0): the table is made anew in Python, and in the graph it ends"
LINK = "https://github.com/huggingface/transformers/issues/22848"
_SINES_FIRST = (
    "xglm.modeling_xglm.XGLMSinusoidalPositionalEmbedding",
    "m2m_100.modeling_m2m_100.M2M100SinusoidalPositionalEmbedding",
    "nllb_moe.modeling_nllb_moe.NllbMoeSinusoidalPositionalEmbedding",
    "speech_to_text.modeling_speech_to_text.Speech2TextSinusoidalPositionalEmbedding",
    "speecht5.modeling_speecht5.SpeechT5SinusoidalPositionalEmbedding",
    "seamless_m4t.modeling_seamless_m4t.SeamlessM4TSinusoidalPositionalEmbedding",
    "seamless_m4t_v2.modeling_seamless_m4t_v2.SeamlessM4Tv2SinusoidalPositionalEmbedding",
    "kosmos2.modeling_kosmos2.Kosmos2TextSinusoidalPositionalEmbedding",
    "kosmos2_5.modeling_kosmos2_5.Kosmos2_5TextSinusoidalPositionalEmbedding",
    "trocr.modeling_trocr.TrOCRSinusoidalPositionalEmbedding",
)
_COSINES_FIRST = (
    "musicgen.modeling_musicgen.MusicgenSinusoidalPositionalEmbedding",
    "musicgen_melody.modeling_musicgen_melody.MusicgenMelodySinusoidalPositionalEmbedding",
)


def _embedded(positions: torch.nn.Module) -> torch.nn.Module:
    return computing(lambda positions, ids: positions(ids) * 2, positions)


def _speech() -> torch.nn.Module:
    from transformers.models.speech_to_text.modeling_speech_to_text import Speech2TextSinusoidalPositionalEmbedding

    return _embedded(Speech2TextSinusoidalPositionalEmbedding(8, 6, 1))


def _music() -> torch.nn.Module:
    from transformers.models.musicgen.modeling_musicgen import MusicgenSinusoidalPositionalEmbedding

    return _embedded(MusicgenSinusoidalPositionalEmbedding(8, 6))


def _translation() -> torch.nn.Module:
    from transformers.models.fsmt.modeling_fsmt import SinusoidalPositionalEmbedding

    # Not the sines that the class begins with: a table that is grown is made anew from its first row.
    return _embedded(randomised(SinusoidalPositionalEmbedding(8, 6, 1)))


def _grown(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], cosines_first: bool) -> Tensor | None:
    """The table with a row for every token there is behind its last; None where no size is dynamic."""
    given = [value for value in (*args, *kwargs.values()) if value is not None]
    # The classes name their arguments differently; ids (batch, ..., length) or embeddings (batch, length, channels) are
    # the first tensor of several dimensions in all of them.
    of = next(value for value in given if isinstance(value, Tensor) and value.dim() > 1)
    length = of.shape[1] if of.is_floating_point() else of.shape[-1]
    # What is left are numbers: how many tokens came before.
    past = [value for value in given if value is not of and not isinstance(value, bool)]
    past = [value for value in past if not isinstance(value, Tensor) or value.dim() == 0]
    if not any(map(symbolic, (length, *past))):
        return None
    table = module.weights
    # More rows than are missing: their number would need a comparison with the table's, and unread rows do no harm.
    rows = torch.arange(length + sum(past), device=table.device) + table.shape[0]
    return torch.cat([table, _waves(rows.float()[:, None], table.shape[1], cosines_first).to(table.dtype)])


def _waves(places: Tensor, width: int, cosines_first: bool = False) -> Tensor:
    """The sines and cosines of places (..., 1), (..., width)."""
    half = width // 2
    frequencies = torch.exp(torch.arange(half, device=places.device).float() * -(math.log(10000) / (half - 1)))
    angles = places * frequencies
    waves = [angles.cos(), angles.sin()] if cosines_first else [angles.sin(), angles.cos()]
    # Of an odd width the last column is zeros in the models, too.
    return torch.cat([*waves, torch.zeros_like(angles[..., :1])] if width % 2 else waves, dim=-1)


def _proof(build: Any, shape: tuple[int, ...]) -> Proof:
    return Proof(
        build=build,
        # The tables have 8 rows or so: 20 tokens outgrow them.
        inputs=lambda: [(torch.randint(2, 9, (batch, *shape, length)),) for batch, length in ((2, 5), (3, 20), (1, 1))],
        fails=("dynamo", "trace"),
        reason="out of data bounds|relative error|inferred a static shape",
    )


class _Growing:
    """A module whose buffer `weights` is the table; in transformers 4 a parameter of that name."""

    cosines_first = False

    def forward(self: Any, *args: object, **kwargs: object) -> Any:
        """Runs the class's own forward on a table that is long enough."""
        table = _grown(self, args, kwargs, self.cosines_first)
        if table is None:
            return NotImplemented
        # The table is longer than any position, so the model's own `if` that would make a new one is false at every
        # size. An attribute of the instance hides the buffer or parameter, which stays as it is.
        with temporary_attributes(self, weights=table):
            return super().forward(*args, **kwargs)  # type: ignore[misc]


@patch(
    *(f"{_MODELS}.{path}" for path in _SINES_FIRST),
    name="growing-positions",
    why=WHY,
    link=LINK,
    proof=_proof(_speech, ()),
)
class _SinesFirst(_Growing):
    """A row is the sines of a position's angles, then the cosines."""


@patch(
    *(f"{_MODELS}.{path}" for path in _COSINES_FIRST),
    name="growing-positions-cosines",
    why=WHY,
    link=LINK,
    proof=_proof(_music, (2,)),
)
class _CosinesFirst(_Growing):
    """A row is the cosines of a position's angles, then the sines."""

    cosines_first = True


@patch(
    f"{_MODELS}.fsmt.modeling_fsmt.SinusoidalPositionalEmbedding",
    name="growing-position-weights",
    why="if max_pos > self.weight.size(0): the table is made anew in Python, and in the graph it ends",
    link=LINK,
    when=When(
        bodies={"forward": {KnownBody("4b4b9ec94934", WRITTEN_FOR), KnownBody("b736febb80c4", "transformers 5.24.0")}}
    ),
    proof=_proof(_translation, ()),
)
class _PositionWeights:
    """Rows of the weight where it is long enough for the text, sines and cosines of all positions where it is not."""

    def forward(self: Any, input: Tensor, **cached: int) -> Tensor:
        """input: (batch, length), of which `padding_idx` has no position. cached: how many positions come before, which
        transformers calls past_key_values_length, and cache_length from 5.24 on."""
        before = sum(cached.values())
        longest = self.padding_idx + 1 + before + input.shape[1]
        if not symbolic(longest):
            return NotImplemented
        positions = self.make_positions(input, self.padding_idx) + before
        rows = self.weight.shape[0]
        stored = torch.nn.functional.embedding(positions.clamp(max=rows - 1), self.weight)
        made = _waves(positions[..., None].float(), self.embedding_dim).to(stored.dtype)
        made = made.masked_fill((positions == self.padding_idx)[..., None], 0.0)
        return torch.where(as_tensor(longest, torch.int64) > rows, made, stored)


class _Rotary(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        from transformers import LlamaConfig
        from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

        rope = dict(rope_type="dynamic", rope_theta=1e4, factor=2.0)
        config = LlamaConfig(hidden_size=16, num_attention_heads=2, max_position_embeddings=8, rope_parameters=rope)
        self.rotary = LlamaRotaryEmbedding(config)

    def forward(self, x: Tensor) -> Tensor:
        cos, sin = self.rotary(x, torch.arange(x.shape[1])[None])
        return x * cos + x.flip(-1) * sin


def _grows(module: nn.Module, settings: Settings) -> str | None:
    """The reason to leave a rotary embedding alone."""
    kind = getattr(module, "rope_type", "")
    return None if isinstance(kind, str) and "dynamic" in kind else "its frequencies are the same at every length"


@patch(
    "transformers.models.llama.modeling_llama.LlamaRotaryEmbedding",
    name="dynamic-rope",
    why="if seq_len > self.max_seq_len_cached: the frequencies are those of the example's length",
    link="https://github.com/huggingface/transformers/issues/25104",
    when=When(bodies={"forward": {KnownBody(each, WRITTEN_FOR) for each in _FORWARD}}, accepts=_grows),
    proof=Proof(
        build=_Rotary,
        # Trained for 8 positions: the frequencies change beyond these.
        inputs=lambda: [(torch.randn(b, n, 8),) for b, n in ((2, 5), (3, 20), (1, 1), (2, 11))],
        fails=("dynamo", "trace"),
        reason="relative error|data-dependent",
    ),
)
class _LlamaRotaryEmbedding:
    """Angles of positions, for heads of queries and keys."""

    def forward(self: Any, x: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor]:
        """position_ids: (batch, length), or with an axis in front for the axes of an image."""
        from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

        frequencies, self.attention_scaling = ROPE_INIT_FUNCTIONS[self.rope_type](
            self.config, x.device, seq_len=torch.max(position_ids) + 1
        )
        # The original forward updates its frequencies by a Python `if` on the length, for "dynamic" types only. They
        # are computed here for every length, so while it runs the type is one that is never updated.
        with temporary_attributes(self, rope_type="default", inv_freq=frequencies):
            return super().forward(x, position_ids)  # type: ignore[misc]

"""How the next token is chosen from logits: what `generation_config.json` and a call ask for, as transformers means it.

What a folder's settings ask for and nothing here does is refused, since other tokens would come out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch

from onnxpatch.errors import InputError

Processor = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
_NEVER = float("-inf")
# Settings of transformers that change tokens; each with the value at which it does nothing.
_UNKNOWN: dict[str, object] = {
    "sequence_bias": None, "encoder_repetition_penalty": 1.0, "encoder_no_repeat_ngram_size": 0,
    "bad_words_ids": None, "exponential_decay_length_penalty": None, "min_p": None, "typical_p": 1.0, "top_h": None,
    "epsilon_cutoff": 0.0, "eta_cutoff": 0.0, "penalty_alpha": None, "dola_layers": None, "num_beam_groups": 1,
    "constraints": None, "force_words_ids": None, "watermarking_config": None, "renormalize_logits": False,
    "num_return_sequences": 1,
}  # fmt: skip


@dataclass(frozen=True)
class TokenChoice:
    """Settings of a generation, by transformers' names and with its defaults."""

    max_new_tokens: int | None = None
    max_length: int | None = None
    min_new_tokens: int | None = None
    min_length: int | None = None
    eos_token_id: int | Sequence[int] | None = None
    pad_token_id: int | None = None
    bos_token_id: int | None = None
    decoder_start_token_id: int | None = None
    do_sample: bool = False
    temperature: float = 1.0
    top_k: int = 50
    top_p: float = 1.0
    num_beams: int = 1
    length_penalty: float = 1.0
    early_stopping: bool | str = False
    repetition_penalty: float = 1.0
    no_repeat_ngram_size: int = 0
    forced_bos_token_id: int | None = None
    forced_eos_token_id: int | Sequence[int] | None = None
    suppress_tokens: Sequence[int] | None = None
    begin_suppress_tokens: Sequence[int] | None = None
    guidance_scale: float | None = None

    @classmethod
    def known(cls) -> set[str]:
        """The names of the settings."""
        return {one.name for one in fields(cls)}

    @property
    def ends(self) -> list[int]:
        """The tokens that end a text."""
        return _listed(self.eos_token_id)

    @property
    def filling(self) -> int:
        """The token after the end of a text."""
        if self.pad_token_id is None:
            return self.ends[0] if self.ends else -1
        return self.pad_token_id

    def longest(self, prompt: int) -> int:
        """How long a text may be, its prompt of this many tokens included."""
        if self.max_new_tokens is not None:
            return prompt + self.max_new_tokens
        return self.max_length if self.max_length is not None else prompt + 20

    def scores(self, ids: torch.Tensor, scores: torch.Tensor, prompt: int, more: Sequence[Processor]) -> torch.Tensor:
        """Scores (batch, vocabulary) of the next tokens as they are compared. ids: the texts so far; prompt: the length
        that they began with; more: the caller's own, in transformers' form."""
        scores = self._forced(self._less_repeated(scores, ids), ids.shape[1], prompt)
        for process in more:
            scores = process(ids, scores)
        return self._warped(scores) if self.do_sample else scores

    def _less_repeated(self, scores: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        if self.repetition_penalty != 1.0:
            # A token that is none of the vocabulary, as MusicGen's padding, counts for nothing.
            count = scores.shape[1]
            seen = scores.new_zeros(len(scores), count + 1).scatter(1, ids.clamp(max=count), 1.0)[:, :-1] > 0
            penalized = torch.where(scores < 0, scores * self.repetition_penalty, scores / self.repetition_penalty)
            scores = torch.where(seen, penalized, scores)
        if self.no_repeat_ngram_size:
            scores = _without_repeats(ids, scores, self.no_repeat_ngram_size)
        return scores

    def _forced(self, scores: torch.Tensor, length: int, prompt: int) -> torch.Tensor:
        """Without the tokens that may not stand at this place of a text, or the one that must alone."""
        if length < max(self.min_length or 0, prompt + (self.min_new_tokens or 0)):
            scores = _without(scores, self.ends)
        if self.forced_bos_token_id is not None and length == 1:
            scores = _only(scores, [self.forced_bos_token_id])
        if self.forced_eos_token_id is not None and length == self.longest(prompt) - 1:
            scores = _only(scores, _listed(self.forced_eos_token_id))
        scores = _without(scores, self.suppress_tokens or ())
        if length == prompt + (prompt == 1 and self.forced_bos_token_id is not None):
            scores = _without(scores, self.begin_suppress_tokens or ())
        return scores

    def _warped(self, scores: torch.Tensor) -> torch.Tensor:
        scores = scores / self.temperature
        if self.top_k:
            least = scores.topk(min(self.top_k, scores.shape[-1])).values[:, -1:]
            scores = scores.masked_fill(scores < least, _NEVER)
        if self.top_p < 1.0:
            rising, order = scores.sort(descending=False)
            outside = rising.softmax(-1).cumsum(-1) <= 1 - self.top_p
            outside[:, -1] = False  # one token stays
            scores = scores.masked_fill(outside.scatter(1, order, outside), _NEVER)
        return scores


def choice_of(settings: Mapping[str, Any], given: Mapping[str, Any], guided: bool = False) -> TokenChoice:
    """settings: of the folder; given: of the call, which come first; guided: whether the loop follows guidance_scale.

    Raises InputError for what is not done here.
    """
    whole = {**settings, **given}
    for name, nothing in (_UNKNOWN if guided else {**_UNKNOWN, "guidance_scale": 1}).items():
        if whole.get(name) not in (None, nothing):
            raise InputError(
                f"{name}={whole[name]!r} (generation_config.json, or the call) is not done here: leave it out with "
                f"{name}=None, or give what it does as one of processors="
            )
    known = {name: value for name, value in whole.items() if name in TokenChoice.known() and value is not None}
    made = TokenChoice(**known)
    if made.do_sample and made.num_beams > 1:
        raise InputError("num_beams and do_sample together are not done here: give num_beams=1, or do_sample=False")
    return made


def _listed(value: int | Sequence[int] | None) -> list[int]:
    return [] if value is None else [value] if isinstance(value, int) else list(value)


def _without(scores: torch.Tensor, tokens: Sequence[int]) -> torch.Tensor:
    return scores.index_fill(1, torch.tensor(list(tokens)), _NEVER) if tokens else scores


def _only(scores: torch.Tensor, tokens: Sequence[int]) -> torch.Tensor:
    return torch.full_like(scores, _NEVER).index_fill(1, torch.tensor(list(tokens)), 0.0)


def _without_repeats(ids: torch.Tensor, scores: torch.Tensor, size: int) -> torch.Tensor:
    """No `size` tokens in a row come twice in a text."""
    if ids.shape[1] < size:
        return scores
    runs = ids.unfold(1, size, 1)  # (batch, runs, size)
    again = (runs[:, :, :-1] == ids[:, None, ids.shape[1] - size + 1 :]).all(-1)
    banned = torch.zeros_like(scores).scatter_add(1, runs[:, :, -1], again.to(scores.dtype))
    return scores.masked_fill(banned > 0, _NEVER)

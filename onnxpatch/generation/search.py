"""The search for a text: the likeliest token or a drawn one at each step, or the best of several texts (beams)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from onnxpatch.generation.choice import Choice, Processor
from onnxpatch.generation.turns import Turns

_WORST = -1.0e9  # transformers' score of a text that is not to be chosen


def tokens_of(
    turns: Turns,
    ids: torch.Tensor,
    logits: torch.Tensor,
    choice: Choice,
    more: Sequence[Processor] = (),
    generator: torch.Generator | None = None,
) -> Iterator[torch.Tensor]:
    """The next token of every text (batch,), until all have ended. ids: (batch, n) so far; logits: after them."""
    prompt, longest = ids.shape[1], choice.longest(ids.shape[1])
    ends, open_ = torch.tensor(choice.ends, dtype=torch.int64), torch.ones(len(ids), dtype=torch.bool)
    while ids.shape[1] < longest:
        scores = choice.scores(ids, logits, prompt, more)
        if choice.do_sample:
            tokens = torch.multinomial(scores.softmax(-1), 1, generator=generator)[:, 0]
        else:
            tokens = scores.argmax(-1)
        tokens = torch.where(open_, tokens, choice.filling) if len(ends) else tokens
        ids = torch.cat([ids, tokens[:, None]], dim=1)
        yield tokens
        open_ &= ~torch.isin(tokens, ends)
        if ids.shape[1] >= longest or not open_.any():
            return
        logits = turns.next(tokens[:, None])


def best_of_beams(
    turns: Turns, ids: torch.Tensor, logits: torch.Tensor, choice: Choice, more: Sequence[Processor] = ()
) -> torch.Tensor:
    """The best text of `choice.num_beams` for every text of the batch, in transformers' order of equals."""
    batch, prompt, beams = len(ids), ids.shape[1], choice.num_beams
    longest, ends = choice.longest(prompt), torch.tensor(choice.ends, dtype=torch.int64)
    wide = max(2, 1 + len(ends)) * beams  # so that enough are left where some end
    turns.select(torch.arange(batch).repeat_interleave(beams))
    logits = logits.repeat_interleave(beams, 0)

    # transformers takes a padding of 0 for none here.
    running = torch.full((batch, beams, longest), choice.pad_token_id or choice.ends[0] if choice.ends else -1)
    running[:, :, :prompt] = ids[:, None]
    done, lengths = running.clone(), torch.zeros(batch, beams, dtype=torch.int64)
    # The beams begin alike: all but the first are left out of the first choice.
    running_scores = torch.full((batch, beams), _WORST)
    running_scores[:, 0] = 0
    done_scores, finished = torch.full((batch, beams), _WORST), torch.zeros(batch, beams, dtype=torch.bool)
    improvable = torch.ones(batch, 1, dtype=torch.bool)
    for length in range(prompt, longest):
        so_far = running[:, :, :length].flatten(0, 1)
        scores = choice.scores(so_far, logits.log_softmax(-1), prompt, more)
        scores = (scores.unflatten(0, (batch, beams)) + running_scores[:, :, None]).flatten(1)
        top, flat = scores.topk(wide)
        parents, tokens = flat // logits.shape[-1], flat % logits.shape[-1]
        texts = _of(running, parents)
        texts[:, :, length] = tokens
        ended = torch.isin(tokens, ends) | (length + 1 >= longest)

        still = top + ended * _WORST
        order = still.topk(beams)[1]
        running, running_scores = _of(texts, order), _of(still, order)
        rows = (_of(parents, order) + torch.arange(batch)[:, None] * beams).flatten()

        # Only the first beams may end here; the others were there to go on with.
        first = ended & (torch.arange(wide) < beams)
        full = finished.all(-1, keepdim=True) & (choice.early_stopping is True)
        final = top / (length + 1 - prompt) ** choice.length_penalty
        final = final + full * _WORST + ~improvable * _WORST + ~first * _WORST
        merged = torch.cat([done_scores, final], 1)
        order = merged.topk(beams)[1]
        done, done_scores = _of(torch.cat([done, texts], 1), order), _of(merged, order)
        finished = _of(torch.cat([finished, first], 1), order)
        lengths = _of(torch.cat([lengths, torch.full((batch, wide), length + 1 - prompt)], 1), order)

        improvable = improvable & _may_improve(
            choice, running_scores, done_scores, finished, length + 1 - prompt, prompt
        )
        if not improvable.any() or (finished.all() and choice.early_stopping is True) or ended.all():
            break
        turns.select(rows)
        logits = turns.next(running[:, :, length].flatten()[:, None])
    return done[:, 0, : prompt + int(lengths[:, 0].max())]


def _of(values: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """values: (batch, n, ...); rows: (batch, k), which of the n."""
    return values[torch.arange(len(values))[:, None], rows]


def _may_improve(
    choice: Choice, running: torch.Tensor, done: torch.Tensor, finished: torch.Tensor, length: int, prompt: int
) -> torch.Tensor:
    """Whether a text that goes on can be better than the worst that has ended, (batch, 1)."""
    if choice.early_stopping == "never" and choice.length_penalty > 0:
        length = choice.longest(prompt) - prompt
    best = running[:, :1] / length**choice.length_penalty
    worst = torch.where(finished, done.min(1, keepdim=True)[0], _WORST)
    return (best > worst).any(-1, keepdim=True)

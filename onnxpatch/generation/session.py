"""`GenerationSession`: the files of a generation loop in onnxruntime, called as `model.generate` is.

The search for a text takes the likeliest token or a drawn one at each step, or the best of several texts (beams).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from onnxpatch.errors import InputError
from onnxpatch.generation.choice import Processor, TokenChoice, choice_of
from onnxpatch.generation.turns import Turns, kind_of
from onnxpatch.onnxfile.repeated_calls import CachedGraph
from onnxpatch.onnxfile.runtimes.interface import Provider, as_array, importable


class GenerationSession:
    """The folder of `export_generation` in onnxruntime. Keys, values and states stay in its memory between two tokens.

        session = onnxpatch.GenerationSession("folder")
        tokens = session.generate(ids, attention_mask=mask, max_new_tokens=256)

    folder: with the ONNX files, config.json and generation_config.json.
    providers: onnxruntime's, the CPU's by default.
    config, defaults: what the two JSON files say.

    Raises InputError for a folder without the files of a loop, or one that onnxruntime cannot load, and ImportError
    without onnxruntime.
    """

    def __init__(self, folder: str | os.PathLike[str], providers: Sequence[Provider] | None = None) -> None:
        if not importable("onnxruntime"):
            raise ImportError("GenerationSession runs files in onnxruntime: pip install 'onnxpatch[verify]'")
        place = Path(folder)
        if not place.is_dir():
            raise InputError(f"there is no folder {str(place)!r}")
        names, self._kind = kind_of({file.stem for file in place.glob("*.onnx")})
        self._graphs = {name: CachedGraph(place / f"{name}.onnx", providers) for name in names}
        self.config, self.defaults = (_read(place / name) for name in ("config.json", "generation_config.json"))

    def generate(
        self, input_ids: Any = None, *, seed: int | None = None, processors: Sequence[Processor] = (), **given: Any
    ) -> Any:
        """The tokens that `model.generate` gives for the same arguments: (batch, length), the prompt included.

        Of a model that writes sound (MusicGen) the sound: (batch, channels, samples) float32.

        input_ids: (batch, n) int64, padded on the left. For an encoder-decoder the encoder's input, under its own name
            where that is another (`input_features=sound`); the prompt of its decoder is `decoder_input_ids`.
        given: inputs of the files (`attention_mask`, `pixel_values`), and transformers' settings: `max_new_tokens`,
            `num_beams`, `length_penalty`, `do_sample`, `temperature`, `top_k`, `top_p`, `repetition_penalty`,
            `eos_token_id` and others. What is left out is taken from generation_config.json; None switches a setting
            off.
        seed: for sampling. The tokens are those of `model.generate` after `torch.manual_seed(seed)`.
        processors: functions of (tokens so far (batch, n), scores (batch, vocabulary)) that return new scores.

        Tensors in, a tensor out; arrays in, an array out. Raises InputError for an input or a setting that nothing here
        reads, RunError where onnxruntime refuses the inputs.
        """
        turns, ids, logits, choice = self._started(input_ids, given)
        arrays = not any(isinstance(value, torch.Tensor) for value in (input_ids, *given.values()))
        if choice.num_beams > 1:
            whole = _best_of_beams(turns, ids, logits, choice, processors)
        else:
            new = _tokens_of(turns, ids, logits, choice, processors, _generator(seed))
            whole = torch.cat([ids, *(one[:, None] for one in new)], dim=1)
        whole = turns.finished(whole)
        return whole.numpy() if arrays else whole

    def stream(
        self, input_ids: Any = None, *, seed: int | None = None, processors: Sequence[Processor] = (), **given: Any
    ) -> Iterator[torch.Tensor]:
        """Yield the same tokens as they are found: one int64 tensor (batch,) for each step, without the prompt.

        The arguments are those of `generate`. Raises InputError for more than one beam: beams are compared at the end.
        Of a model that writes sound, the tokens are (batch * codebooks,).
        """
        turns, ids, logits, choice = self._started(input_ids, given)
        if choice.num_beams > 1:
            raise InputError("beams are compared to their end: give num_beams=1 to stream, or call generate")
        return _tokens_of(turns, ids, logits, choice, processors, _generator(seed))

    def _started(self, ids: Any, given: dict[str, Any]) -> tuple[Turns, torch.Tensor, torch.Tensor, TokenChoice]:
        """(the states after the prompt, the texts so far, the logits after them, how to choose)."""
        turns = self._kind(self._graphs, self.config)
        takes = turns.takes()
        values = {"input_ids": ids, **given}
        inputs = {name: _tensor(one) for name, one in values.items() if name in takes and one is not None}
        settings = {name: one for name, one in given.items() if name not in takes}
        choice = choice_of(self.defaults, settings, turns.guided)
        if unknown := {name for name, one in settings.items() if one is not None} - TokenChoice.known():
            raise InputError(f"{', '.join(sorted(unknown))}: no input ({', '.join(sorted(takes))}), and no setting")
        return (turns, *turns.start(inputs, choice), choice)


def _read(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    return found


def _tensor(value: Any) -> torch.Tensor:
    return value if isinstance(value, torch.Tensor) else torch.from_numpy(as_array(value))


def _generator(seed: int | None) -> torch.Generator | None:
    return None if seed is None else torch.Generator().manual_seed(seed)


_WORST = -1.0e9  # transformers' score of a text that is not to be chosen


def _tokens_of(
    turns: Turns,
    ids: torch.Tensor,
    logits: torch.Tensor,
    choice: TokenChoice,
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


def _best_of_beams(
    turns: Turns, ids: torch.Tensor, logits: torch.Tensor, choice: TokenChoice, more: Sequence[Processor] = ()
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
    choice: TokenChoice, running: torch.Tensor, done: torch.Tensor, finished: torch.Tensor, length: int, prompt: int
) -> torch.Tensor:
    """Whether a text that goes on can be better than the worst that has ended, (batch, 1)."""
    if choice.early_stopping == "never" and choice.length_penalty > 0:
        length = choice.longest(prompt) - prompt
    best = running[:, :1] / length**choice.length_penalty
    worst = torch.where(finished, done.min(1, keepdim=True)[0], _WORST)
    return (best > worst).any(-1, keepdim=True)

"""`GenerationSession`: the files of a generation loop in onnxruntime, called as `model.generate` is."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from onnxpatch.errors import InputError
from onnxpatch.generation.choice import Choice, Processor, choice_of
from onnxpatch.generation.folders import kind_of
from onnxpatch.generation.search import best_of_beams, tokens_of
from onnxpatch.generation.turns import Turns
from onnxpatch.onnxfile.cached_graph import CachedGraph
from onnxpatch.onnxfile.runtimes.interface import Provider, as_array, importable


class GenerationSession:
    """The folder of `export_generation` in onnxruntime. Keys, values and states stay in its memory between two tokens.

    folder: with the ONNX files, config.json and generation_config.json. providers: onnxruntime's, the CPU's by default.
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
        self,
        input_ids: Any = None,
        *,
        seed: int | None = None,
        processors: Sequence[Processor] = (),
        **given: Any,
    ) -> Any:
        """The tokens that `model.generate` gives for the same arguments: (batch, length), the prompt included.

        input_ids: (batch, n) whole numbers, padded on the left; for an encoder-decoder what its encoder reads, by the
        encoder's own names: `input_features=sound`. The prompt of its decoder is `decoder_input_ids`.
        given: inputs of the files (`attention_mask`, `pixel_values`), and transformers' settings: `max_new_tokens`,
        `num_beams`, `length_penalty`, `do_sample`, `temperature`, `top_k`, `top_p`, `repetition_penalty`,
        `eos_token_id` and others; left out, those of generation_config.json hold, and None leaves one of them out.
        seed: of the draws, which are those of `torch.manual_seed(seed)` before `model.generate`.
        processors: called with (texts so far, scores) before the choice; they return scores.

        Tensors in, a tensor out; arrays in, an array out. Raises InputError for an input or a setting that nothing here
        reads, RunError where onnxruntime refuses the inputs.
        """
        turns, ids, logits, choice = self._started(input_ids, given)
        arrays = not any(isinstance(value, torch.Tensor) for value in (input_ids, *given.values()))
        if choice.num_beams > 1:
            whole = best_of_beams(turns, ids, logits, choice, processors)
        else:
            new = tokens_of(turns, ids, logits, choice, processors, _generator(seed))
            whole = torch.cat([ids, *(one[:, None] for one in new)], dim=1)
        return whole.numpy() if arrays else whole

    def stream(
        self,
        input_ids: Any = None,
        *,
        seed: int | None = None,
        processors: Sequence[Processor] = (),
        **given: Any,
    ) -> Iterator[torch.Tensor]:
        """The same tokens as they are found: one tensor (batch,) for each step, without the prompt. No beams."""
        turns, ids, logits, choice = self._started(input_ids, given)
        if choice.num_beams > 1:
            raise InputError("beams are compared to their end: give num_beams=1 to stream, or call generate")
        return tokens_of(turns, ids, logits, choice, processors, _generator(seed))

    def _started(self, ids: Any, given: dict[str, Any]) -> tuple[Turns, torch.Tensor, torch.Tensor, Choice]:
        """(the states after the prompt, the texts so far, the logits after them, how to choose)."""
        turns = self._kind(self._graphs, self.config)
        takes = turns.takes()
        values = {"input_ids": ids, **given}
        inputs = {name: _tensor(one) for name, one in values.items() if name in takes and one is not None}
        settings = {name: one for name, one in given.items() if name not in takes}
        choice = choice_of(self.defaults, settings)
        if unknown := {name for name, one in settings.items() if one is not None} - Choice.known():
            raise InputError(f"{', '.join(sorted(unknown))}: no input ({', '.join(sorted(takes))}), and no setting")
        return (turns, *turns.start(inputs, choice), choice)


def _read(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    return found


def _tensor(value: Any) -> torch.Tensor:
    return value if isinstance(value, torch.Tensor) else torch.from_numpy(as_array(value))


def _generator(seed: int | None) -> torch.Generator | None:
    return None if seed is None else torch.Generator().manual_seed(seed)

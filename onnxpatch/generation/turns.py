"""The steps of a loop over the files of a folder: the prompt, then a token for each text, then another.

Each class runs one kind of folder and holds the states in between; `folders.kind_of` says which.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import torch

from onnxpatch.errors import InputError
from onnxpatch.generation.choice import Choice
from onnxpatch.onnxfile.cached_graph import CachedGraph, States, rows_of

Tensors = Mapping[str, torch.Tensor]


class Turns(ABC):
    """The states of the texts that are being written.

    graphs: by the file's name without its ending. config: what config.json says.
    """

    def __init__(self, graphs: Mapping[str, CachedGraph], config: Mapping[str, Any]) -> None:
        self.graphs, self.config, self.states = graphs, config, States()

    def takes(self) -> set[str]:
        """The names of what `start` may be given."""
        return {name for graph in self.graphs.values() for name in graph.inputs if name not in graph.states}

    @abstractmethod
    def start(self, inputs: Tensors, choice: Choice) -> tuple[torch.Tensor, torch.Tensor]:
        """(the texts so far (batch, n), the logits (batch, vocabulary) after them)."""

    @abstractmethod
    def next(self, tokens: torch.Tensor) -> torch.Tensor:
        """The logits after one more token for each text, (batch, 1)."""

    def select(self, rows: torch.Tensor) -> None:
        """Go on with these texts, in this order."""
        self.states = rows_of(self.states, rows)


class DecoderTurns(Turns):
    """A decoder: `model.onnx`."""

    def start(self, inputs: Tensors, choice: Choice) -> tuple[torch.Tensor, torch.Tensor]:
        graph, ids = self.graphs["model"], needed(inputs, "input_ids")
        mask = inputs.get("attention_mask", default_mask(ids, choice))
        self.states, self.mask = graph.empty(len(ids)), mask[:, :0]
        # One that keeps states of a fixed size reads a prompt token by token.
        step = 1 if graph.inputs["input_ids"][1] == 1 else ids.shape[1]
        for first in range(0, ids.shape[1], step):
            logits = self._step(ids[:, first : first + step], mask[:, first : first + step], inputs)
        return ids, logits

    def next(self, tokens: torch.Tensor) -> torch.Tensor:
        return self._step(tokens, torch.ones_like(tokens), {})

    def _step(self, ids: torch.Tensor, mask: torch.Tensor, inputs: Tensors) -> torch.Tensor:
        self.mask = torch.cat([self.mask, mask], dim=1)
        feed = {"input_ids": ids, "attention_mask": self.mask, "position_ids": places(self.mask, ids.shape[1])}
        answer, self.states = self.graphs["model"]({**inputs, **feed}, self.states)
        return answer["logits"][:, -1].float()

    def select(self, rows: torch.Tensor) -> None:
        super().select(rows)
        self.mask = self.mask[rows]


def places(mask: torch.Tensor, count: int) -> torch.Tensor:
    """The positions of the last `count` tokens, counted from the first that is no padding."""
    return (mask.cumsum(1) - 1).clamp(min=0)[:, -count:]


class EncoderDecoderTurns(Turns):
    """An encoder-decoder: `encoder_model.onnx`, `decoder_model.onnx` and `decoder_with_past_model.onnx`."""

    def takes(self) -> set[str]:
        return {*self.graphs["encoder_model"].inputs, "decoder_input_ids"}

    def start(self, inputs: Tensors, choice: Choice) -> tuple[torch.Tensor, torch.Tensor]:
        encoder = self.graphs["encoder_model"]
        if "input_ids" in encoder.inputs:
            inputs = {"attention_mask": default_mask(needed(inputs, "input_ids"), choice), **inputs}
        encoded = encoder(inputs, {})[0]["last_hidden_state"]
        self.read = {"encoder_hidden_states": encoded}
        if "attention_mask" in inputs:
            self.read["encoder_attention_mask"] = inputs["attention_mask"]
        ids = inputs.get("decoder_input_ids")
        if ids is None:
            first = choice.bos_token_id if choice.decoder_start_token_id is None else choice.decoder_start_token_id
            if first is None:
                raise InputError("decoder_start_token_id is missing: generation_config.json has none, give it here")
            ids = torch.full((len(encoded), 1), first)
        answer, self.states = self.graphs["decoder_model"]({**self.read, "input_ids": ids}, {})
        return ids, answer["logits"][:, -1].float()

    def next(self, tokens: torch.Tensor) -> torch.Tensor:
        answer, after = self.graphs["decoder_with_past_model"]({**self.read, "input_ids": tokens}, self.states)
        self.states = {**self.states, **after}  # the keys of the encoder's answer stay
        return answer["logits"][:, -1].float()

    def select(self, rows: torch.Tensor) -> None:
        super().select(rows)
        self.read = {name: value[rows] for name, value in self.read.items()}


def needed(inputs: Tensors, name: str) -> torch.Tensor:
    if name not in inputs:
        raise InputError(f"{name} is missing: give it by that name")
    return inputs[name]


def default_mask(ids: torch.Tensor, choice: Choice) -> torch.Tensor:
    """As transformers makes it: 0 at padding, where that token is none of the ends."""
    if choice.pad_token_id is None or choice.pad_token_id in choice.ends:
        return torch.ones_like(ids)
    return (ids != choice.pad_token_id).to(torch.int64)

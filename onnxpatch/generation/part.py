"""One graph of a generation loop with its example (`Part`), and what all of them share: tensors and caches go in,
tensors and caches come out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

# The names of axes that tools for language models know.
BATCH, NEW, PAST, SOURCE = "batch_size", "sequence_length", "past_sequence_length", "encoder_sequence_length"
TOTAL = f"{PAST} + {NEW}"
TOKENS = {0: BATCH, 1: NEW}
STATES = {0: BATCH, 2: PAST}

Inputs = Mapping[str, torch.Tensor]


@dataclass(frozen=True)
class Part:
    """One graph: its file, its module, what to export it with, and inputs to compare it at beside the kit's own.

    note: for its report, what of the model is not in it.
    """

    file: str
    module: nn.Module
    kwargs: dict[str, Any]
    shapes: dict[str, Any]
    data: Sequence[dict[str, Any]] = ()
    output_names: list[str] = field(default_factory=list)
    note: str = ""


class Around(nn.Module):
    """A module around a model, in eval mode if the model is."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model, self.training = model, model.training


def some_tokens(model: Any, batch: int, count: int) -> torch.Tensor:
    # Ids 0 to 2 are padding, begin and end in many vocabularies, which models treat in a way of their own.
    return torch.randint(3, model.config.get_text_config(decoder=True).vocab_size, (batch, count))

"""`Part`: one graph of a generation loop, with the example that it is exported with."""

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

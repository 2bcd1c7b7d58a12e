"""What the families of transformers share: tiny configurations, models called by keyword, inputs with padded masks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.case import Args, Case, randomise

VOCABULARY = 99
TEXT = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, vocab_size=VOCABULARY,
            max_position_embeddings=64, pad_token_id=0, bos_token_id=1, eos_token_id=2)  # fmt: skip
# Batch and length: the example; then lengths from 1 to over twice its own, batches of 1 and 3.
LENGTHS = ((2, 7), (3, 7), (1, 1), (3, 16), (2, 5), (1, 20))


class Keyword(nn.Module):
    """A model called by keyword: forward's arguments by position are ``names``, the answer some fields of the output.

    fields: names of attributes, or of one item of a tuple; all of the output when there are none.
    """

    def __init__(self, model: nn.Module, names: Sequence[str], fields: Sequence[str] = (), **fixed: Any) -> None:
        super().__init__()
        self.model, self.names, self.fields, self.fixed = model, list(names), list(fields), fixed

    def forward(self, a: Any, b: Any = None, c: Any = None, d: Any = None, e: Any = None, f: Any = None) -> Any:
        given = dict(zip(self.names, (a, b, c, d, e, f), strict=False))
        output = self.model(**given, **self.fixed)
        return [getattr(output, name) for name in self.fields] if self.fields else output


def made(auto: str, kind: str, **options: Any) -> nn.Module:
    """A model of transformers by its class (an Auto class, too) and its model type, from a configuration."""
    import transformers

    config = transformers.AutoConfig.for_model(kind, **options)
    cls = getattr(transformers, auto)
    return randomise(cls.from_config(config) if auto.startswith("AutoModel") else cls(config))


def ids(batch: int, length: int) -> Tensor:
    """Token ids that are none of the special ones."""
    return torch.randint(3, VOCABULARY, (batch, length))


def padded(batch: int, length: int, left: bool = False) -> Tensor:
    """A mask: the first row whole, each later one a little shorter, never empty."""
    kept = torch.tensor([max(1, length - 2 * row) for row in range(batch)])
    mask = (torch.arange(length) < kept[:, None]).long()
    return mask.flip(1) if left else mask


def ids_and_mask(batch: int, length: int) -> Args:
    return ids(batch, length), padded(batch, length)


def sized(
    model: nn.Module,
    make: Callable[..., Args],
    sizes: Sequence[tuple[int, ...]],
    dynamic_shapes: Any,
    tolerance: float = 1e-3,
    native: int | None = None,
) -> Case:
    """A case at each of ``sizes``, the first of which is the example; ``make`` turns one into arguments.

    native: which of the sizes is the one that the model was made for, where that is not the first.
    """
    return Case(model.eval(), [make(*size) for size in sizes], dynamic_shapes, tolerance, native)


SEQUENCE = {0: "batch", 1: "length"}


def text(
    auto: str,
    kind: str,
    field: str = "last_hidden_state",
    *,
    names: str = "input_ids attention_mask",
    make: Callable[..., Args] = ids_and_mask,
    sizes: Sequence[tuple[int, ...]] = LENGTHS,
    shapes: Any = None,
    call: dict[str, Any] | None = None,
    base: dict[str, Any] = TEXT,
    **options: Any,
) -> Callable[[], Case]:
    """A model that reads a text. ``options`` go into its configuration, over those of ``base``; ``...`` drops one."""

    def build() -> Case:
        own = {name: value for name, value in {**base, **options}.items() if value is not ...}
        model = Keyword(made(auto, kind, **own), names.split(), field.split(), **(call or {}))
        return sized(model, make, sizes, shapes or (SEQUENCE,) * len(names.split()))

    return build

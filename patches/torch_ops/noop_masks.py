"""An `if` that saves the work for a mask that hides nothing: `if not padding.any(): padding = None`."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from onnxpatch import Proof, exporting, patch, running_model
from onnxpatch.decisions.if_rules.noop_masks import answer_that_uses_mask
from onnxpatch.decisions.place import deciding_frame
from onnxpatch.formulas.proof_models import Computes, randomised
from onnxpatch.formulas.symbolic import traced_from_sizes
from onnxpatch.formulas.tracing import constant


class _Tokens(torch.nn.Module):
    """Negative ids are looked up in a table of their own; padding (id 0) is left out of the mean."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.special = (randomised(torch.nn.Embedding(9, 4)) for _ in range(2))

    def padding(self, ids: Tensor) -> Tensor | None:
        padding = ids.eq(0)
        if not padding.any():
            padding = None  # type: ignore[assignment]  # as fairseq's models write it
        return padding

    def forward(self, ids: Tensor) -> Tensor:
        x, special, padding = self.words(ids.clamp(min=0)), ids < 0, self.padding(ids)
        if special.any():
            other = self.special(ids.clamp(max=0).abs())
            x = torch.where(special[..., None], other, x)
        return x.cumsum(1) if padding is None else x.masked_fill(padding[..., None], 0.0).cumsum(1)


def _texts() -> list[tuple[Tensor]]:
    # The example has neither padding nor special ids; the others have one kind, and both.
    return [
        (torch.tensor(ids),) for ids in ([[1, 5, 3], [2, 7, 7]], [[1, 0, 3, 0]], [[2, -4]], [[-1, 0, 7], [1, 2, 3]])
    ]


@patch(
    "torch.Tensor.__bool__",
    name="idle-mask",
    why="Could not guard on data-dependent expression Eq(u0, 1): `if mask.any():`; under trace, the graph keeps the "
    "example's answer and ignores a mask",
    link="https://github.com/huggingface/transformers/blob/main/src/transformers/models/fsmt/modeling_fsmt.py",
    exporters=("dynamo", "trace"),
    proof=Proof(
        _Tokens,
        _texts,
        ({0: "batch", 1: "length"},),
        fails=("dynamo", "trace"),
        reason="data-dependent expression|relative error",
        unchanged=lambda: Computes(lambda ids: ids.double().masked_fill(ids.eq(0), 3).cumsum(1)),
    ),
)
def idle_mask(original: Callable[[Tensor], bool], tensor: Tensor) -> bool:
    """Answers so that the mask is used: a mask that hides nothing changes nothing."""
    frame = deciding_frame(1)
    if frame is None or tensor.dim() or traced_from_sizes(tensor):
        return NotImplemented
    answer = answer_that_uses_mask(frame)
    running = running_model()
    if answer is None or running is None or running.model is None:
        return NotImplemented
    if exporting() == "dynamo" and constant(tensor, running.model, running.tensors) is not None:
        return NotImplemented  # a mask of the model's own: the export knows its value
    return answer

"""`.item()` and `.tolist()` of tensors that were computed from sizes, under the TorchScript exporter."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from onnxpatch import op
from onnxpatch.formulas.symbolic import static_number, traced_from_sizes

FROZEN = "Converting a tensor to a Python number might cause the trace to be incorrect: .item() of sizes freezes them"
LINK = "https://github.com/pytorch/pytorch/issues/21576"


def _longest(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """The length of the longer of two sequences, and how many entries each lacks."""
    lengths = torch.stack([torch.arange(rows.shape[0]).amax() + 1 for rows in (x, y)])
    longest = lengths.amax().item()
    first, second = lengths.tolist()
    return torch.arange(longest) * x.sum(), torch.cat([x.new_zeros(longest - first), y.new_ones(longest - second)])


@op(
    "item",
    "tolist",
    name="symbolic-items",
    why=FROZEN,
    reason="shape",
    link=LINK,
    exporters=("trace",),
    tries=lambda m, n: (torch.randn(m, 2), torch.randn(n, 2)),
    sizes=((3, 5), (7, 2), (4, 4)),  # the second is the longer one, the first, neither
    case=_longest,
)
def symbolic_items(original: Callable[..., Tensor], tensor: Tensor) -> object:
    """Keeps a tensor that is computed from sizes as a 0-d tensor, or as nested lists of them for tolist()."""
    if not traced_from_sizes(tensor) or (not tensor.dim() and static_number(tensor) is not None):
        return NotImplemented
    if original.__name__ == "item":
        return tensor.reshape(())
    # The example's numbers are read for the nesting of the lists only.
    return _nested(tensor, original(tensor))


def _nested(tensor: Tensor, numbers: object) -> object:
    if not isinstance(numbers, list):
        return tensor
    return [_nested(tensor[index], inner) for index, inner in enumerate(numbers)]

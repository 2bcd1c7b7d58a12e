"""Restores the values of a model's tensors. Small buffers are copied at once, large tensors before a write."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch

from onnxpatch._torch.cond import storage_key

_BUFFER_BYTES = 256 * 1024 * 1024


@dataclass
class _Tensor:
    """One tensor and what is known of it.

    data: shares its storage, to detect that the tensor was given another one. content: a copy, or None.
    version: torch's count of writes, which misses writes through `.data`. written: a write was seen.
    """

    name: str
    tensor: torch.Tensor
    data: torch.Tensor
    version: int
    content: torch.Tensor | None = None
    written: bool = False


class TensorContents:
    """The values of a model's buffers and parameters, and of tensors in its other attributes."""

    def __init__(self, model: object, others: Iterable[torch.Tensor]) -> None:
        self._tensors: list[_Tensor] = []
        seen: set[int] = set()
        room = _BUFFER_BYTES
        for name, tensor in (*_registered(model), *((f"a tensor of shape {tuple(one.shape)}", one) for one in others)):
            if id(tensor) in seen or not _can_be_kept(tensor):
                continue
            seen.add(id(tensor))
            noted = _Tensor(name, tensor, tensor.data, tensor._version)
            size = tensor.numel() * tensor.element_size()
            if not isinstance(tensor, torch.nn.Parameter) and size <= room:
                room -= size
                noted.content = tensor.detach().clone()
            self._tensors.append(noted)
        self._in_storage: dict[int, list[_Tensor]] = {}
        for noted in self._tensors:
            self._in_storage.setdefault(storage_key(noted.tensor), []).append(noted)

    def keep(self, tensor: torch.Tensor) -> None:
        """Copy the storage of `tensor`, which is about to be written."""
        for noted in self._in_storage.get(storage_key(tensor), ()):
            noted.written = True
            if noted.content is None and noted.tensor._version == noted.version:
                noted.content = noted.data.clone()

    def restore(self) -> None:
        """Restore every tensor that was written and has a copy."""
        for noted in self._tensors:
            tensor = noted.tensor
            if tensor.data_ptr() != noted.data.data_ptr() or tensor.shape != noted.data.shape:
                tensor.data = noted.data
            if noted.content is not None and (noted.written or tensor._version != noted.version):
                with torch.no_grad():
                    noted.data.copy_(noted.content)
                noted.version = tensor._version

    def lost(self) -> list[str]:
        """Names of the tensors that were written and have no copy."""
        return [one.name for one in self._tensors if one.content is None and one.tensor._version != one.version]


def _registered(model: object) -> list[tuple[str, torch.Tensor]]:
    return [*model.named_buffers(), *model.named_parameters()] if isinstance(model, torch.nn.Module) else []


def _can_be_kept(tensor: torch.Tensor) -> bool:
    """Whether a copy is possible: inference tensors count no writes, meta tensors have no storage."""
    try:
        return (
            not (tensor.is_meta or tensor.is_inference()) and tensor.layout == torch.strided and tensor.data_ptr() >= 0
        )
    except (RuntimeError, NotImplementedError):
        return False

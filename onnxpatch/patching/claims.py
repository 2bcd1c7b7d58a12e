"""One thread at a time has a model patched: torch's exporters put other tensors into the very modules they run, so two
exports of one model disturb each other, whatever patches it."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

import torch

from onnxpatch.errors import InputError
from onnxpatch.patching.swap import UndoLog


@dataclass
class _Claim:
    owner: threading.Thread
    # One for each time that the owner patched the model: contexts nest.
    logs: set[int] = field(default_factory=set)


_lock = threading.Lock()
# By id: a model may be of a class that cannot be hashed, and it is alive as long as it is patched.
_claims: dict[int, _Claim] = {}


def claim(model: torch.nn.Module, log: UndoLog) -> None:
    """Note that this thread has `model` patched, until `log` is undone. Raises InputError where another thread has."""
    here = threading.current_thread()
    with _lock:
        held = _claims.get(id(model))
        if held is not None and held.owner is not here and held.owner.is_alive():
            raise InputError(
                f"the {type(model).__name__} is patched by thread {held.owner.name!r} at the moment. Two exports of "
                "one model at the same time disturb each other: let that thread restore it first, or export "
                "copy.deepcopy(model)"
            )
        log.call(lambda: _release(id(model), id(log)))
        taken = _claims.setdefault(id(model), _Claim(here))
        taken.owner = here
        taken.logs.add(id(log))


def _release(model: int, log: int) -> None:
    with _lock:
        held = _claims.get(model)
        if held is not None:
            held.logs.discard(log)
            if not held.logs:
                del _claims[model]

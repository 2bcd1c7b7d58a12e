"""Lets one thread at a time patch a model.

torch's exporters put FakeTensors into the modules that they run. Two exports of one model at the same time disturb each
other, with or without patches.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

import torch

from onnxpatch.errors import InputError
from onnxpatch.patching.swap import UndoLog


@dataclass
class _Claim:
    owner: threading.Thread
    # One entry for each `patched` of the owner: contexts nest.
    logs: set[int] = field(default_factory=set)


_lock = threading.Lock()
# By id, since a class may define __eq__ without __hash__. An id stays valid while the model is patched.
_claims: dict[int, _Claim] = {}


def claim(model: torch.nn.Module, log: UndoLog) -> None:
    """Mark `model` as patched by this thread until `log` is undone. Raises InputError if another thread patched it."""
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

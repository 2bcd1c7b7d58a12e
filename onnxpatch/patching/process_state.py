"""`process_state_kept`: what a forward may set in the process comes back: random generators, default dtype, modes."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import torch

from onnxpatch._torch.function_modes import modes_kept
from onnxpatch.process import Shared, undone


@contextmanager
def process_state_kept(seed: int | None = None) -> Iterator[None]:
    """A context that restores what a forward may set: random generators, default dtype, gradients on or off, modes.

    seed: for all random generators, inside.
    """
    # Where threads overlap, each puts back what it found, which may be another's. Last comes what the first found.
    # Modes belong to this thread alone.
    with _KEPT.held(), undone(_put_back()), modes_kept():
        if seed is not None:
            random.seed(seed)
            np.random.seed(seed)
            _seed_torch(seed)
        yield


def _put_back() -> Callable[[], None]:
    """Sets the random generators and the default dtype, which belong to the process, to what they are now."""
    cuda = torch.cuda.is_initialized()
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    devices = torch.cuda.get_rng_state_all() if cuda else []
    dtype = torch.get_default_dtype()

    def put_back() -> None:
        random.setstate(states[0])
        np.random.set_state(states[1])
        torch.set_rng_state(states[2])
        if cuda:
            torch.cuda.set_rng_state_all(devices)
        torch.set_default_dtype(dtype)

    return put_back


_KEPT = Shared(lambda: undone(_put_back()))


def _seed_torch(seed: int) -> None:
    """torch.manual_seed also notes the seed for a CUDA that nobody uses yet, with the whole stack as text."""
    if torch.cuda.is_initialized() or torch.backends.mps.is_available():
        torch.manual_seed(seed)
    else:
        torch.default_generator.manual_seed(seed)

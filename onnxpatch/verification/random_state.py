"""Keeps the random state of torch, NumPy and Python."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

from onnxpatch.undone import undone


@contextmanager
def random_state_kept(seed: int | None = None) -> Iterator[None]:
    """A context that restores all random generators afterwards. seed: for all of them, inside."""
    # Asking CUDA for its state would initialize it.
    cuda = torch.cuda.is_initialized()
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    devices = torch.cuda.get_rng_state_all() if cuda else []

    def put_back() -> None:
        random.setstate(states[0])
        np.random.set_state(states[1])
        torch.set_rng_state(states[2])
        if cuda:
            torch.cuda.set_rng_state_all(devices)

    with undone(put_back):
        if seed is not None:
            random.seed(seed)
            np.random.seed(seed)
            _seed_torch(seed)
        yield


def _seed_torch(seed: int) -> None:
    """Seed torch. torch.manual_seed would also queue the seed for an unused CUDA, and format the stack for that."""
    if torch.cuda.is_initialized() or torch.backends.mps.is_available():
        torch.manual_seed(seed)
    else:
        torch.default_generator.manual_seed(seed)

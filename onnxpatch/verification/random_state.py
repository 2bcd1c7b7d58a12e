"""The random numbers of torch, NumPy and Python: what runs inside a block takes none of the caller's."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


@contextmanager
def random_state_kept(seed: int | None = None) -> Iterator[None]:
    """After the block the generators go on as if it had not run. seed: what all of them start from inside."""
    cuda = torch.cuda.is_initialized()
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    devices = torch.cuda.get_rng_state_all() if cuda else []
    try:
        if seed is not None:
            random.seed(seed)
            np.random.seed(seed)
            _seed_torch(seed)
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
        torch.set_rng_state(states[2])
        if cuda:
            torch.cuda.set_rng_state_all(devices)


def _seed_torch(seed: int) -> None:
    """torch.manual_seed also notes the seed for a CUDA that nobody uses yet, with the whole stack as text."""
    if torch.cuda.is_initialized() or torch.backends.mps.is_available():
        torch.manual_seed(seed)
    else:
        torch.default_generator.manual_seed(seed)

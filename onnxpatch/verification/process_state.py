"""Keeps what a forward may change in the process: random generators, the default dtype, whether gradients are on."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

from onnxpatch.undone import undone


@contextmanager
def process_state_kept(seed: int | None = None) -> Iterator[None]:
    """A context that restores all of it afterwards. seed: for all random generators, inside."""
    cuda = torch.cuda.is_initialized()
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    devices = torch.cuda.get_rng_state_all() if cuda else []
    dtype, gradients = torch.get_default_dtype(), torch.is_grad_enabled()

    def put_back() -> None:
        random.setstate(states[0])
        np.random.set_state(states[1])
        torch.set_rng_state(states[2])
        if cuda:
            torch.cuda.set_rng_state_all(devices)
        torch.set_default_dtype(dtype)
        torch.set_grad_enabled(gradients)

    with undone(put_back):
        if seed is not None:
            random.seed(seed)
            np.random.seed(seed)
            _seed_torch(seed)
        yield


def _seed_torch(seed: int) -> None:
    """torch.manual_seed also notes the seed for a CUDA that nobody uses yet, with the whole stack as text."""
    if torch.cuda.is_initialized() or torch.backends.mps.is_available():
        torch.manual_seed(seed)
    else:
        torch.default_generator.manual_seed(seed)

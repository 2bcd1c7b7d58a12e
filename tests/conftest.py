"""Shared by every test: quiet exporters, one torch thread, a registry of its own, torchvision beside a CPU torch."""

from __future__ import annotations

import logging

import pytest
import torch

import onnxpatch
from benchmarks import torchvision_ops

torch.set_num_threads(1)
logging.getLogger("torch.onnx").setLevel(logging.ERROR)
torchvision_ops.declare()


@pytest.fixture
def registry() -> onnxpatch.Registry:
    """An empty registry, so that a test's patches reach no other test."""
    return onnxpatch.Registry()


@pytest.fixture(autouse=True)
def _same_numbers_every_time() -> None:
    torch.manual_seed(0)

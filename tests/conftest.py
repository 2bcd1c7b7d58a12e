"""Shared by every test: quiet exporters, one torch thread, a registry of its own, torchvision beside a CPU torch."""

from __future__ import annotations

import logging

import pytest
import torch

import onnxpatch

torch.set_num_threads(1)
logging.getLogger("torch.onnx").setLevel(logging.ERROR)


def _declare_missing_torchvision_ops() -> None:
    # torchvision's wheel has compiled operators for the CUDA build only; beside a CPU torch its import fails on two.
    for name, signature in (
        ("nms", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"),
        ("qnms", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"),
    ):
        if not hasattr(torch.ops.torchvision, name):
            library = torch.library.Library("torchvision", "FRAGMENT")
            library.define(name + signature)
            _KEPT.append(library)


_KEPT: list[torch.library.Library] = []
_declare_missing_torchvision_ops()


@pytest.fixture
def registry() -> onnxpatch.Registry:
    """An empty registry, so that a test's patches reach no other test."""
    return onnxpatch.Registry()


@pytest.fixture(autouse=True)
def _same_numbers_every_time() -> None:
    torch.manual_seed(0)

"""Methods known by what they do: copies elsewhere are found, changed code is refused with the reason."""

import torch
from torch import nn

import onnxpatch
from onnxpatch.bodies import fingerprint


class Known(nn.Module):
    def forward(self, x):
        """Doubles."""
        return x * 2  # twice


class Copied(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2


class Changed(nn.Module):
    def forward(self, x):
        return x * 3


class Doubling:
    def forward(self, x):
        return x + x


def test_comments_docstrings_and_annotations_do_not_count():
    assert fingerprint(Known.forward) == fingerprint(Copied.forward) != fingerprint(Changed.forward)
    assert fingerprint(len) is None


def test_a_copy_is_a_target_and_a_changed_class_of_that_name_is_a_near_miss(registry):
    bodies = {"forward": [fingerprint(Known.forward)]}
    onnxpatch.patch("*.Known", "*.Changed", why="w", name="p", bodies=bodies, registry=registry)(Doubling)
    plan = onnxpatch.plan(nn.Sequential(Known(), Copied(), Changed(), nn.ReLU()), registry=registry)
    assert [swap.path for swap in plan.swaps] == ["0", "1"]
    assert "its forward() is other code than this patch was written for" in plan.near_misses[0].reason

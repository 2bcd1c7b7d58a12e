"""What ends the process is tried in a copy of it; onnxruntime does so at size 0."""

from __future__ import annotations

import io
import os
import signal
import time

import pytest
import torch
from torch import nn

import onnxpatch
from onnxpatch.onnxfile.trial_process import survives

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork, so nothing is tried")


def fails() -> None:
    raise ValueError("an error is no end of the process")


def test_a_job_that_returns_or_raises_survives():
    assert survives(lambda: None, 10)
    assert survives(fails, 10)


def test_a_job_that_ends_the_process_or_hangs_does_not():
    assert not survives(lambda: os.kill(os.getpid(), signal.SIGFPE), 10)
    started = time.monotonic()
    assert not survives(lambda: time.sleep(60), 0.1)
    assert time.monotonic() - started < 10


class Scores(nn.Module):
    """Products of tokens as nn.MultiheadAttention makes them, whose transposes onnxruntime takes into the product."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tokens = x.transpose(0, 1)
        return torch.bmm(tokens, tokens.transpose(1, 2)).sum((1, 2))


@pytest.mark.exports
def test_a_file_that_ends_the_process_at_size_0_is_wrong_there():
    report = onnxpatch.export(Scores(), torch.randn(5, 2, 4), io.BytesIO(), dynamic_shapes=({0: "tokens"},))
    assert report.ok and report.wrong_at_zero == ["tokens"]


class Frames(nn.Module):
    """Each row as often as its duration says, of which there may be none; then normed over all of them."""

    def forward(self, x: torch.Tensor, durations: torch.Tensor) -> torch.Tensor:
        frames = x.repeat_interleave(durations, 0).t()[None]
        return nn.functional.instance_norm(frames).sum(-1)


@pytest.mark.exports
def test_a_file_that_ends_the_process_at_other_data_is_refused():
    args, shapes = (torch.randn(5, 4), torch.tensor([1, 2, 3, 1, 2])), ({0: "n"}, {0: "n"})
    with pytest.raises(onnxpatch.OnnxpatchError, match="it ends the process, at a tensor without elements"):
        onnxpatch.export(
            Frames(), args, io.BytesIO(), dynamic_shapes=shapes, exporter="trace", attempts="asked",
            exclude=["instance-norm"],
        )  # fmt: skip

"""Models, inputs and runtimes on a GPU: each test is skipped where torch sees none.

The files run in onnxruntime on the CPU and, where it was built for CUDA, on the GPU.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from einops.layers.torch import Rearrange
from torch import nn

import onnxpatch

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU")

CUDA = "CUDAExecutionProvider"
PROVIDERS = [None, *([[CUDA, "CPUExecutionProvider"]] if CUDA in onnxruntime.get_available_providers() else [])]
FREE = ({0: "batch", 2: "height", 3: "width"},)


class Patches(nn.Module):
    """Patches of 4 by 4 pixels, a position table resized to the image, attention, and pooling in uneven bins."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.split = nn.Sequential(Rearrange("b c (h p) (w q) -> b h w (p q c)", p=4, q=4), nn.Linear(48, width))
        self.table = nn.Parameter(torch.randn(1, width, 4, 4))
        self.qkv, self.pool = nn.Linear(width, 3 * width), nn.AdaptiveAvgPool1d(5)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """(batch, 3, height, width) to (batch, width, 5)."""
        x = self.split(image)
        table = nn.functional.interpolate(self.table, size=x.shape[1:3], mode="bicubic", align_corners=False)
        x = (x + table.permute(0, 2, 3, 1)).flatten(1, 2)
        q, k, v = self.qkv(x)[:, None].chunk(3, -1)
        x = nn.functional.scaled_dot_product_attention(q, k, v)[:, 0]
        places = torch.arange(x.shape[1], device=x.device, dtype=x.dtype)
        return self.pool((x * torch.cos(places)[:, None]).transpose(1, 2))


class Branching(nn.Module):
    """Nothing is returned where the input is all zeros, and its rows are sorted where their sum is positive."""

    def forward(self, x: torch.Tensor) -> torch.Tensor | None:
        if x.abs().sum() == 0:
            return None
        if x.sum() > 0:
            return torch.sort(x, dim=-1).values
        return torch.cumsum(x, -1) * torch.ones(x.shape[-1], device=x.device)


def example(dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, ...]:
    return (torch.randn(2, 3, 16, 24, device="cuda", dtype=dtype),)


def devices(model: nn.Module) -> set[str]:
    return {tensor.device.type for tensor in (*model.parameters(), *model.buffers())}


@pytest.mark.parametrize("providers", PROVIDERS, ids=str)
@pytest.mark.parametrize("exporter", ["dynamo", "trace"])
def test_a_model_on_the_gpu(exporter: Any, providers: list[str] | None, tmp_path: Path) -> None:
    model, args = Patches().eval().cuda(), example()
    before = copy.deepcopy(model.state_dict())
    report = onnxpatch.export(
        model, args, tmp_path / "m.onnx", dynamic_shapes=FREE, exporter=exporter, providers=providers
    )
    assert report.ok, str(report)
    assert len({tuple(check.sizes.values()) for check in report.checks}) > 2
    assert devices(model) == {"cuda"} and args[0].is_cuda
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert onnxpatch.verify(tmp_path / "m.onnx", model, args, dynamic_shapes=FREE, providers=providers).ok


@pytest.mark.parametrize("providers", PROVIDERS, ids=str)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("exporter", ["dynamo", "trace"])
def test_other_dtypes_on_the_gpu(
    exporter: Any, dtype: torch.dtype, providers: list[str] | None, tmp_path: Path
) -> None:
    model = nn.Sequential(nn.Linear(24, 8), nn.LayerNorm(8), nn.Tanh(), Rearrange("b c h w -> b (c h) w")).eval()
    file, free = tmp_path / "m.onnx", ({0: "batch", 2: "height"},)
    report = onnxpatch.export(
        model.to("cuda", dtype), example(dtype), file, dynamic_shapes=free, exporter=exporter, providers=providers
    )
    assert report.ok, str(report)


@pytest.mark.parametrize("exporter", ["dynamo", "trace"])
def test_autocast_on_the_gpu(exporter: Any, tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(24, 8), nn.GELU(), nn.Linear(8, 8)).eval().cuda()
    free = ({0: "batch", 2: "height"},)
    with torch.autocast("cuda", torch.float16):
        report = onnxpatch.export(model, example(), tmp_path / "m.onnx", dynamic_shapes=free, exporter=exporter)
    assert report.ok, str(report)


@pytest.mark.parametrize("providers", PROVIDERS, ids=str)
@pytest.mark.parametrize("exporter", ["dynamo", "trace"])
def test_branches_on_the_gpu(exporter: Any, providers: list[str] | None, tmp_path: Path) -> None:
    model, x = Branching().eval(), torch.randn(3, 7, device="cuda")
    report = onnxpatch.export(
        model, (x,), tmp_path / "m.onnx", dynamic_shapes=({0: "n"},), branches=True, exporter=exporter,
        providers=providers, data=[(torch.zeros(3, 7, device="cuda"),), (x.abs(),), (-x.abs(),)],
    )  # fmt: skip
    assert report.ok, str(report)


class Words(nn.Module):
    """Rows of a table by token ids, and a part of the model that is made on the CPU and moved."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.places = nn.Embedding(19, 8), torch.randn(64, 8)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        places = self.places[: ids.shape[1]].to(ids.device)
        return self.table(ids) + places * torch.arange(ids.shape[1]).cuda()[:, None]


@pytest.mark.parametrize("exporter", ["dynamo", "trace"])
def test_ids_that_the_table_lacks_are_tried_and_the_gpu_stays_usable(exporter: Any, tmp_path: Path) -> None:
    ids = torch.randint(0, 19, (2, 6), device="cuda")
    report = onnxpatch.export(
        Words().eval().cuda(), (ids,), tmp_path / "m.onnx", dynamic_shapes=({0: "b", 1: "n"},), exporter=exporter
    )
    assert report.ok, str(report)
    assert float(torch.ones(2, device="cuda").sum()) == 2


class Solved(nn.Module):
    """What a stand-in computes with tables of its own."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        squares = x.transpose(1, 2) @ x + 5 * torch.eye(x.shape[2], device=x.device)
        return torch.linalg.inv(squares) @ x.transpose(1, 2)


@pytest.mark.parametrize("exporter", ["dynamo", "trace"])
def test_stand_ins_make_their_tensors_on_the_gpu(exporter: Any, tmp_path: Path) -> None:
    with torch.device("cuda"):  # the default device of everything, the kit's own work too
        report = onnxpatch.export(
            Solved().eval(), (torch.randn(2, 6, 8),), tmp_path / "m.onnx", dynamic_shapes=({0: "b", 1: "n"},),
            exporter=exporter,
        )  # fmt: skip
    assert report.ok, str(report)


def test_the_random_state_of_the_gpu_is_as_it_was(tmp_path: Path) -> None:
    model, args = Patches().eval().cuda(), example()
    before = torch.cuda.get_rng_state()
    onnxpatch.export(model, args, tmp_path / "m.onnx", dynamic_shapes=FREE)
    assert torch.equal(before, torch.cuda.get_rng_state())


def test_inputs_left_on_the_cpu_are_one_clear_error(tmp_path: Path) -> None:
    model = Patches().eval().cuda()
    with pytest.raises(onnxpatch.OnnxpatchError, match="cuda"):
        onnxpatch.export(model, (example()[0].cpu(),), tmp_path / "m.onnx", dynamic_shapes=FREE)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("providers", PROVIDERS, ids=str)
def test_a_session_takes_tensors_of_the_gpu(providers: list[str] | None, tmp_path: Path) -> None:
    model, args = Patches().eval().cuda(), example()
    onnxpatch.export(model, args, tmp_path / "m.onnx", dynamic_shapes=FREE)
    session = onnxpatch.Session(tmp_path / "m.onnx", providers=providers)
    other = torch.randn(1, 3, 20, 32, device="cuda")
    with torch.no_grad():
        wanted = model(other).cpu()
    assert np.allclose(torch.as_tensor(session(other)).cpu(), wanted, atol=1e-3)


def test_doctor_on_the_gpu() -> None:
    diagnosis = onnxpatch.doctor(Patches().eval().cuda(), example(), dynamic_shapes=FREE)
    assert "patches" in str(diagnosis).lower()

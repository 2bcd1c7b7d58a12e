"""Position tables as users meet them: stored for one size on request, and errors that say what is wrong."""

from __future__ import annotations

import math
from pathlib import Path

import onnx
import pytest
import torch
from torch import nn

import onnxpatch
from onnxpatch.errors import InputError
from tests import exporting

pytestmark = pytest.mark.exports

BATCH = ({0: "batch"},)
ANY = ({0: "batch", 2: "height", 3: "width"},)
# What resizing a table is made of, in any form.
RESIZING = {"Resize", "Range", "MatMul", "Shape", "Floor", "Where", "Clip", "Pow", "ReduceMax"}


class Plain(nn.Module):
    """Patch means and a table, too large for the exporter to fold, resized by `F.interpolate`."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(1, 96, 13, 13))

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        patches = nn.functional.avg_pool2d(image, 4)
        table = nn.functional.interpolate(self.table, size=patches.shape[2:], mode="bicubic")
        return patches.mean(1, keepdim=True) + table


class Dino(nn.Module):
    """The positions of DINOv2's repository and its copies: a class token's, and a square table with an offset."""

    def __init__(self, side: int = 5, dim: int = 6, offset: float = 0.1, antialias: bool = True) -> None:
        super().__init__()
        self.offset, self.antialias = offset, antialias
        self.pos_embed = nn.Parameter(torch.randn(1, side * side + 1, dim))
        self.embed = nn.Conv2d(3, dim, 4, 4)

    def interpolate_pos_encoding(self, x: torch.Tensor, w: int, h: int) -> torch.Tensor:
        count = self.pos_embed.shape[1] - 1
        if x.shape[1] - 1 == count and w == h:
            return self.pos_embed
        side, dim = int(math.sqrt(count)), x.shape[-1]
        rows, columns = w // 4, h // 4
        scaled = {}
        if self.offset:
            scaled["scale_factor"] = (float(rows + self.offset) / side, float(columns + self.offset) / side)
        else:
            scaled["size"] = (rows, columns)
        table = nn.functional.interpolate(
            self.pos_embed[:, 1:].reshape(1, side, side, dim).permute(0, 3, 1, 2),
            mode="bicubic",
            antialias=self.antialias,
            **scaled,
        )
        assert (rows, columns) == table.shape[-2:]
        table = table.permute(0, 2, 3, 1).view(1, -1, dim)
        return torch.cat((self.pos_embed[:, :1], table), dim=1)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        tokens = self.embed(image).flatten(2).transpose(1, 2)
        tokens = torch.cat((tokens.mean(1, keepdim=True), tokens), dim=1)
        return tokens + self.interpolate_pos_encoding(tokens, image.shape[2], image.shape[3])


def operators(file: bytes) -> set[str]:
    model = onnx.load_from_string(file)
    return {node.op_type for graph in (model.graph, *model.functions) for node in graph.node}


def exported(model: nn.Module, exporter: str, size: tuple[int, int], dynamic=BATCH, **options) -> bytes:
    with onnxpatch.patched(model, exporter=exporter, **options):
        return exporting.export(model, (torch.randn(2, 3, *size),), exporter, dynamic)


@pytest.mark.parametrize("exporter", ["dynamo", "trace"])
@pytest.mark.parametrize("build", [Plain, lambda: Dino(13, dim=96)], ids=["resized", "DINO"])
def test_image_size_stores_the_table(build, exporter):
    model = build().eval()
    file = exported(model, exporter, (28, 36), image_size=(28, 36))
    # The class token's average and the batch's size are no part of the table.
    assert operators(file) & RESIZING <= {"Shape"}, operators(file)
    image = (torch.randn(3, 3, 28, 36),)
    assert exporting.wrong(exporting.run(file, image), model(*image), 1e-5) is None


@pytest.mark.parametrize("exporter", ["dynamo", "trace"])
def test_the_exporters_by_themselves_store_nothing(exporter):
    assert "Resize" in operators(exporting.export(Plain().eval(), (torch.randn(2, 3, 28, 36),), exporter, BATCH))


def test_without_a_dynamic_size_dynamo_stores_it_unasked():
    file = exported(Plain().eval(), "dynamo", (28, 36))
    assert not operators(file) & RESIZING - {"Shape"}


@pytest.mark.parametrize("form", ["dynamic", {"interpolate": "dynamic"}])
def test_the_form_is_the_users_choice_for_all_or_by_patch(form):
    assert "MatMul" in operators(exported(Plain().eval(), "dynamo", (28, 36), form=form))


def test_the_form_of_another_patch_is_not_this_ones():
    assert "MatMul" not in operators(exported(Plain().eval(), "dynamo", (28, 36), form={"another": "dynamic"}))


def test_an_unknown_form_is_refused():
    with pytest.raises(InputError, match="form='fixed' is not known: use 'dynamic' or 'static'"):
        exported(Plain().eval(), "trace", (28, 36), form="fixed")


@pytest.mark.parametrize("exporter", ["dynamo", "trace"])
def test_an_example_of_another_size_than_asked_for_is_refused(exporter):
    model = Plain().eval()
    with pytest.raises(Exception, match=r"image_size=\(28, 36\), but the example that is exported holds 3x20x20"):
        exported(model, exporter, (20, 20), image_size=(28, 36))
    assert type(model) is Plain


class Checked(Dino):
    """As the repositories do, the patch embedding refuses a size that the patch size does not divide."""

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        assert image.shape[2] % 4 == 0, f"height {image.shape[2]} is no multiple of 4"
        return super().forward(image)


@pytest.mark.parametrize("exporter", ["dynamo", "trace"])
def test_a_size_that_patches_do_not_divide_is_refused_as_eager_does(exporter):
    with pytest.raises(Exception, match="height 30 is no multiple of 4"):
        exported(Checked().eval(), exporter, (30, 36), image_size=(30, 36))


def test_verification_says_that_eager_refuses_such_a_size(tmp_path: Path):
    model = Checked().eval()
    file = tmp_path / "m.onnx"
    file.write_bytes(exported(model, "trace", (28, 36), ANY))
    example = (torch.randn(2, 3, 28, 36),)
    with pytest.raises(InputError, match=r"(?s)the model itself refuses it: .*height 30 is no multiple of 4"):
        onnxpatch.verify(file, model, example, dynamic_shapes=ANY, data=[(torch.randn(2, 3, 30, 36),)])
    report = onnxpatch.verify(file, model, example, dynamic_shapes=ANY)
    assert report.ok
    assert "at which the model itself raises, left out" in report.table()


@pytest.mark.parametrize(
    ("exporter", "offset", "antialias"),
    [
        ("trace", 0.1, False),
        pytest.param("trace", 0.1, True, marks=pytest.mark.slow),
        pytest.param("dynamo", 0.1, False, marks=pytest.mark.slow),
        pytest.param("dynamo", 0.0, True, marks=pytest.mark.slow),
    ],
)
def test_dino_at_its_own_square_size_is_exported_for_every_other(exporter, offset, antialias, tmp_path: Path):
    model = Dino(offset=offset, antialias=antialias).eval()
    images = [(torch.randn(2, 3, *size),) for size in ((28, 36), (8, 32), (21, 20), (52, 52))]
    asked = {"exporter": exporter, "dynamic_shapes": ANY, "attempts": "asked", "data": images}
    assert onnxpatch.export(model, (torch.randn(2, 3, 20, 20),), tmp_path / "m.onnx", **asked).ok


class Indexed(nn.Module):
    """A table gathered by an index that is written part by part, as BEiT's relative positions are."""

    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.randn(4, 6))

    def forward(self, x):
        index = torch.zeros(3, 3, dtype=torch.int64)
        index[1:, 1:] = torch.tensor([[1, 2], [3, 1]])
        table = self.table[index.view(-1)].view(1, 3, 3, 6).permute(0, 3, 1, 2)
        return x + nn.functional.interpolate(table, size=(x.shape[2], x.shape[3]), mode="bilinear")


def test_an_index_that_is_written_is_no_constant_of_its_first_value():
    model, x = Indexed().eval(), torch.randn(2, 6, 5, 7)
    with onnxpatch.patched(model, exporter="dynamo"):
        file = exporting.export(model, (x,), "dynamo", ({0: "batch"},))
    assert exporting.wrong(exporting.run(file, (x,)), model(x), 1e-5) is None

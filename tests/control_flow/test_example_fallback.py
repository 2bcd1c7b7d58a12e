"""What is right without `branches=True` is right with it: conditions on sizes that need no second path."""

import pytest
import torch
from torch import Tensor, nn

import onnxpatch
from onnxpatch.control_flow import report_of
from tests.exporting import export

pytestmark = pytest.mark.exports

EXPORTERS = ("dynamo", "trace")
EXAMPLE = (torch.ones(2, 6, 4),)
SEQUENCES = ({0: "batch", 1: "length"},)


class PadsToFit(nn.Module):
    """The second half of a UNet: what was halved and doubled is padded where the size was odd."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.InstanceNorm2d(6)

    def forward(self, image: Tensor) -> Tensor:
        small = nn.functional.interpolate(nn.functional.max_pool2d(image, 2), scale_factor=2.0)
        pads = [0, 0, 0, 0]
        for i in range(2):
            if image.shape[-i - 1] != small.shape[-i - 1]:
                pads[i * 2 + 1] = 1
        return self.norm(torch.cat([image, nn.functional.pad(small, pads, "replicate")], dim=1))


class SizeAndData(nn.Module):
    """The side of eight rows cannot run with an example of six, and changes nothing."""

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[1] == 8:
            x = x + torch.zeros(8)[:, None]
        if x.sum() > 0:
            return x.relu()
        return -x


class OnlyAtEight(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        if x.shape[1] == 8:
            return x + torch.arange(8.0)[:, None]
        return x.relu()


class ManySizes(nn.Module):
    """Seven conditions on sizes: 128 paths that compute the same."""

    def forward(self, x: Tensor) -> Tensor:
        for n in range(7):
            if x.shape[1] > n + 100:
                x = x + 0
        return x * 2


class TooLarge(nn.Module):
    """torch has no node for this comparison: a graph that computes it needs one."""

    def forward(self, x: Tensor) -> Tensor:
        x = x[:, ::2].repeat(1, 2, 1)
        if x.numel() * 3 > 2**31:
            x = x.contiguous()
        return x * 2


class Windows(nn.Module):
    """One side takes the image apart into windows, and asks how many images they make."""

    def forward(self, x: Tensor) -> Tensor:
        b, h, w, c = x.shape
        windows = x.reshape(b, h // 4, 4, w // 4, 4, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, 4, 4, c)
        if x.sum() > 0:
            images = int(windows.shape[0] / (h * w / 4 / 4))
            x = windows.reshape(images, h // 4, w // 4, 4, 4, -1).permute(0, 1, 3, 2, 4, 5).reshape(b, h, w, c) * 2
        return x


RIGHT = {
    "pads_to_fit": (PadsToFit, (2, 3, 8, 12), ({0: "batch", 2: "height", 3: "width"},)),
    "size_and_data": (SizeAndData, (2, 6, 4), SEQUENCES),
    "many_sizes": (ManySizes, (2, 6, 4), SEQUENCES),
    "too_large": (TooLarge, (2, 6, 4), SEQUENCES),
    "windows": (Windows, (2, 8, 12, 3), ({0: "batch", 1: "height", 2: "width"},)),
}


@pytest.mark.parametrize("exporter", EXPORTERS)
@pytest.mark.parametrize("name", RIGHT)
def test_branches_refuse_nothing_that_is_right_without_them(name: str, exporter: str) -> None:
    model, shape, dynamic = RIGHT[name]
    options = {"branch_form": "if"} if name == "windows" else {}
    report = onnxpatch.export(
        model().eval(), (torch.randn(*shape),), None, dynamic_shapes=dynamic, exporter=exporter, branches=True,
        attempts="asked", **options,
    )  # fmt: skip
    assert report.ok
    settled = [note for note in report.notes if "answered as in the example" in note]
    if name != "too_large":  # under dynamo alone
        assert bool(settled) == (name in ("size_and_data", "many_sizes")), report.notes


@pytest.mark.parametrize("exporter", EXPORTERS)
def test_a_condition_that_a_patch_answers_is_no_decision(exporter: str) -> None:
    model, shape, dynamic = RIGHT["pads_to_fit"]
    made = model().eval()
    with onnxpatch.patched(made, branches=True, exporter=exporter):
        export(made, (torch.randn(*shape),), exporter, dynamic)
        report = report_of(made)
        assert report is not None
        assert not report.decided


@pytest.mark.parametrize("exporter", EXPORTERS)
def test_a_side_that_matters_is_refused(exporter: str) -> None:
    model, options = OnlyAtEight().eval(), {"branches": True, "attempts": "asked"}
    with pytest.raises(onnxpatch.ExportError, match=r"(?s)test_example_fallback.py:\d+ .*cannot be run with it"):
        onnxpatch.export(model, EXAMPLE, None, dynamic_shapes=SEQUENCES, exporter=exporter, **options)


@pytest.mark.parametrize("exporter", EXPORTERS)
def test_a_side_is_refused_where_nothing_is_compared(exporter: str) -> None:
    model = SizeAndData().eval()
    with onnxpatch.patched(model, branches=True), pytest.raises(Exception, match="cannot be run with it"):
        export(model, EXAMPLE, exporter, SEQUENCES)


class Shortened(nn.Module):
    """Each round doubles the expression of its length: the tenth would take sympy minutes."""

    def forward(self, x: Tensor) -> Tensor:
        while x.shape[1] > 3:
            x = x[:, 1:] + x[:, :-1]
        return x


@pytest.mark.slow  # sympy, up to the round that ends it
def test_a_loop_that_lengthens_an_expression_is_refused_by_its_line() -> None:
    said = r"test_example_fallback.py:\d+ in forward: a loop whose number of rounds depends on the input"
    with pytest.raises(onnxpatch.ExportError, match=said):
        onnxpatch.export(
            Shortened().eval(), EXAMPLE, dynamic_shapes=SEQUENCES, branches=True, attempts="asked", max_seconds=300
        )


class OddKernel(nn.Module):
    """A number of sizes made odd, by max() and float() of sizes, and checked again."""

    def forward(self, x: Tensor) -> Tensor:
        size = int(max(x.shape[1] / 4, 3))
        size = size if size % 2 else size + 1
        if not isinstance(size, int) or size % 2 != 1:
            raise ValueError(f"{size} is not odd")
        return torch.arange(size) - float(size // 2)


def test_answers_on_sizes_follow_from_those_before() -> None:
    report = onnxpatch.export(
        OddKernel(), EXAMPLE, dynamic_shapes=SEQUENCES, exporter="dynamo", branches=True, attempts="asked",
        data=[(torch.ones(1, 16, 4),), (torch.ones(1, 23, 4),)],
    )  # fmt: skip
    # Two paths, and none in which an odd number has no remainder: no line for what was left out.
    assert not any("dropped" in note for note in report.notes), str(report)

"""Numbers that forward has as defaults, left out of a call: the TorchScript exporter makes inputs of them, plainly."""

from __future__ import annotations

import functools

import pytest
import torch
from torch import Tensor, nn

import onnxpatch
from tests import exporting

pytestmark = pytest.mark.exports


class Scaled(nn.Module):
    """Doubled where asked, and divided; `mask` is absent by default."""

    def forward(self, x, mask=None, double: bool = True, by: int = 3, last=None):
        x = x * 2 if double else x
        x = x / by
        x = x if mask is None else x * mask
        return x if last is None else x + last


def inputs_of(file: bytes) -> list[str]:
    import onnx

    return [node.name for node in onnx.load_from_string(file).graph.input]


def exported(model: nn.Module, args: tuple, **patched: str) -> bytes:
    with onnxpatch.patched(model, **patched):
        return exporting.export(model, args, "trace", None)


def test_omitted_numbers_are_no_inputs_of_the_graph():
    model, x = Scaled().eval(), torch.randn(2, 3)
    file = exported(model, (x,), exporter="trace")
    assert inputs_of(file) == ["in0"]
    assert exporting.wrong(exporting.run(file, (x,)), model(x), 1e-6) is None
    assert len(inputs_of(exporting.export(Scaled().eval(), (x,), "trace", None))) > 1


@pytest.mark.parametrize(
    "given", [{"double": False}, {"by": 5}, {"last": torch.ones(2, 3)}, {"mask": torch.zeros(2, 3)}]
)
def test_what_is_given_arrives_where_it_belongs(given, tmp_path):
    model, x = Scaled().eval(), torch.randn(2, 3)
    with onnxpatch.patched(model, exporter="trace"):
        assert torch.equal(model(x, **given), Scaled()(x, **given))
        file = str(tmp_path / "m.onnx")
        torch.onnx.export(model, (x,), file, kwargs=given, dynamo=False)
    import onnxruntime

    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    values = [x, *(torch.as_tensor(value) for value in given.values())]
    feed = {node.name: value.numpy() for node, value in zip(session.get_inputs(), values, strict=False)}
    assert torch.allclose(torch.as_tensor(session.run(None, feed)[0]), Scaled()(x, **given))
    assert type(model) is Scaled and "forward" not in vars(model)


def with_config(forward):
    """As transformers does it: what the call leaves open comes from the configuration, by keyword."""

    @functools.wraps(forward)
    def wrapped(self, *args, **kwargs):
        kwargs["scaled"] = True if kwargs.get("scaled") is None else kwargs["scaled"]
        return forward(self, *args, **kwargs)

    return wrapped


class Configured(nn.Module):
    @with_config
    def forward(self, x: Tensor, mask: Tensor | None = None, scaled: bool | None = None) -> Tensor:
        x = x * 2 if scaled else x
        return x if mask is None else x * mask


@pytest.mark.parametrize("given", [1, 2])
def test_a_decorator_of_forward_gives_what_was_left_out(given, tmp_path):
    args = (torch.randn(2, 3), torch.ones(2, 3))[:given]
    report = onnxpatch.export(
        Configured().eval(), args, tmp_path / "m.onnx", dynamic_shapes=({0: "n"},) * given, exporter="trace",
        attempts="asked",
    )  # fmt: skip
    assert report.ok

"""The table of translations is built once, is given out as a copy, and is built again when something is registered."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch

from onnxpatch._torch.exporters import kept_translations

pytestmark = pytest.mark.exports

registration = pytest.importorskip("torch.onnx._internal.exporter._registration")


def table(opset: int = 18) -> Any:
    return registration.ONNXRegistry().from_torchlib(opset_version=opset)


def some(found: Any) -> Any:
    """A translation as the table has it."""
    return found.functions["aten::relu"][0]


def test_a_table_is_built_once_for_an_opset() -> None:
    with kept_translations():
        first, second, other = table(), table(), table(23)
    assert some(first) is some(second) and some(first) is not some(other)
    assert set(first.functions) == set(table().functions) and first.opset_version == 18 and other.opset_version == 23


def test_what_one_export_adds_no_other_has() -> None:
    with kept_translations():
        first = table()
        first.register_op(torch.ops.aten.relu.default, lambda x: x)
        second = table()
    assert some(first).is_custom and not some(second).is_custom


def test_an_operator_registered_later_is_seen() -> None:
    with kept_translations():
        before = table()
        library = torch.library.Library("onnxpatch_registered_later", "DEF")
        library.define("nothing(Tensor x) -> Tensor")
        assert some(table()) is not some(before)


@pytest.mark.slow  # ten seconds, of which most is torch's
def test_outside_and_in_another_thread_it_is_torchs_own() -> None:
    before, found = registration.ONNXRegistry.__dict__["from_torchlib"], []
    with kept_translations():
        kept = table()
        other = threading.Thread(target=lambda: found.append(table()))
        other.start()
        other.join()
    assert some(found[0]) is not some(kept)
    assert registration.ONNXRegistry.__dict__["from_torchlib"] is before

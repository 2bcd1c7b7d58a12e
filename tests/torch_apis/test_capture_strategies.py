"""How torch.export is called by the dynamo exporter: never by way of torch.jit.trace."""

from __future__ import annotations

import pytest
from torch.onnx._internal.exporter import _capture_strategies as strategies

from onnxpatch._torch.exporters import without_tracing


class JitTraceConvertStrategy:
    """Named as torch's own up to 2.7."""


def test_the_strategy_that_traces_is_left_out_and_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    before = (*strategies.CAPTURE_STRATEGIES, JitTraceConvertStrategy)
    monkeypatch.setattr(strategies, "CAPTURE_STRATEGIES", before)
    with pytest.raises(KeyError), without_tracing():
        assert JitTraceConvertStrategy not in strategies.CAPTURE_STRATEGIES
        assert len(strategies.CAPTURE_STRATEGIES) == len([s for s in before if not s.__name__.startswith("Jit")])
        raise KeyError
    assert before == strategies.CAPTURE_STRATEGIES

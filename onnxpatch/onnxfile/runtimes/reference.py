"""onnx.reference: ONNX in plain NumPy. Slow, and there wherever onnx is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from onnxpatch.errors import RunError
from onnxpatch.onnxfile.limits import TimeLimit, limited
from onnxpatch.onnxfile.runtimes.interface import BFLOAT16, Array, LoadedGraph, Output, Provider, Runtime, stopped

if TYPE_CHECKING:
    from onnx.reference import ReferenceEvaluator


class _OnnxReference(Runtime):
    """onnx.reference.ReferenceEvaluator."""

    name = "reference"
    distribution = "onnx"

    def available(self) -> bool:
        return True

    def load(self, model: str | bytes, providers: Sequence[Provider] | None) -> LoadedGraph:
        from onnx.reference import ReferenceEvaluator

        return _InReference(ReferenceEvaluator(model))


class _InReference:
    """Its runs are interrupted by an alarm at their limit, which works in the main thread only."""

    def __init__(self, evaluator: ReferenceEvaluator) -> None:
        self._evaluator = evaluator
        types = zip(evaluator.input_names, evaluator.input_types, strict=True)
        self._bfloat16 = {name for name, type_ in types if type_.tensor_type.elem_type == BFLOAT16}

    def run(self, names: Sequence[str] | None, feed: Mapping[str, Array], seconds: float | None) -> list[Output]:
        values = {name: _to_bfloat16(a) if name in self._bfloat16 else a for name, a in feed.items()}
        try:
            with limited(seconds):
                return list(self._evaluator.run(names, values))
        except TimeLimit:
            raise stopped(seconds) from None
        except Exception as error:
            raise RunError(f"{type(error).__name__}: {' '.join(str(error)[:10_000].split())[:500]}") from error


def _to_bfloat16(array: Array) -> Array:
    """The float32 that stands for bfloat16, as the ml_dtypes.bfloat16 that onnx.reference takes."""
    import onnx

    return array.astype(onnx.helper.tensor_dtype_to_np_dtype(BFLOAT16))


RUNTIME = _OnnxReference()

"""What the installed exporters can do with an operator, as one sentence."""

from __future__ import annotations

from onnxpatch.diagnosis.operators import operator

_DYNAMO = {
    "translated": "the dynamo exporter translates it",
    "decomposed": "the dynamo exporter takes it apart into other operators",
    "none": "the dynamo exporter has no translation",
}


def describe(name: str) -> str:
    """One sentence on an aten operator, with or without its overload (`aten::stft`, `aten::add.Tensor`)."""
    one = operator(name)
    if one is None:
        return "not an operator of the installed torch"
    since = f" (ONNX operators from opset {one.opset})" if one.opset else ""
    if one.trace is not None:
        return f"{_DYNAMO[one.dynamo]}{since}; TorchScript's translates it from opset {one.trace}"
    return (
        f"{_DYNAMO[one.dynamo]}{since}, nor has TorchScript's"
        if one.dynamo == "none"
        else (f"{_DYNAMO[one.dynamo]}{since}; TorchScript's has none")
    )

"""One run of a graph in OpenVINO, in a process of its own: `python -m` this module. Imports neither torch nor the kit.

OpenVINO cannot be stopped inside a loop, and a process that has such a run in the background does not end; a child
process can be killed. The feed comes in by stdin and the outputs go out by stdout, as `packed` writes them.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from openvino import CompiledModel, InferRequest

Array = npt.NDArray[Any]
# bfloat16, which NumPy lacks, goes in as float32 and comes out as the 16 bits of each number.
Raw = tuple[Array, bool]  # an output, and whether it is such bits


def compiled(model: str | bytes, threads: int) -> CompiledModel:
    """A graph compiled for the CPU. Left to itself, OpenVINO computes in bfloat16 on processors that have it."""
    import openvino

    options = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": threads}
    return openvino.Core().compile_model(model, "CPU", options)


def started(model: CompiledModel, feed: Mapping[str, Array]) -> InferRequest:
    """A run that has begun. Inputs that no node reads are not part of the compiled model, and are left out."""
    request = model.create_infer_request()
    for port in model.inputs:
        name = next(name for name in port.get_names() if name in feed)
        request.set_tensor(port, _tensor(feed[name], port.get_element_type()))
    request.start_async()
    return request


def outputs(model: CompiledModel, request: InferRequest, names: Sequence[str] | None) -> list[Raw]:
    """What a finished run gave: the outputs of these names, or all of them."""
    ports = model.outputs if names is None else [model.output(name) for name in names]
    tensors = [request.get_tensor(port) for port in ports]
    return [_raw(tensor.data, tensor.element_type.get_type_name() == "bf16") for tensor in tensors]


def _raw(data: Array, bits: bool) -> Raw:
    # A copy: the memory is the request's.
    return np.array(data.view(np.uint16) if bits else data), bits


def _tensor(array: Array, element: Any) -> Any:
    import openvino

    if element.get_type_name() != "bf16":
        return openvino.Tensor(np.array(array, order="C"))  # a copy: the run may outlive the caller
    whole = array.astype(np.float32).view(np.uint32).astype(np.uint64)
    # Rounds to the nearest upper 16 bits, halves to the even one, as torch does.
    nearest = (whole + 0x7FFF + ((whole >> 16) & 1)) >> 16
    # The addition could carry a NaN over into infinity or zero.
    bits = np.where(np.isnan(array), 0x7FC0, nearest).astype(np.uint16)
    return openvino.Tensor(bits, list(array.shape), openvino.Type.bf16)


def packed(entries: Iterable[tuple[str, Array]]) -> bytes:
    """Named arrays as bytes that `unpacked` reads without running code."""
    names, arrays = zip(*entries, strict=True) if (entries := list(entries)) else ((), ())
    file = io.BytesIO()
    np.savez(file, np.frombuffer(json.dumps(names).encode(), np.uint8), *arrays)
    return file.getvalue()


def unpacked(content: bytes) -> list[tuple[str, Array]]:
    """What `packed` was given."""
    with np.load(io.BytesIO(content), allow_pickle=False) as file:
        names = json.loads(file["arr_0"].tobytes())
        return [(name, file[f"arr_{i + 1}"]) for i, name in enumerate(names)]


def _main(threads: str, model: str, names: str) -> None:
    feed = dict(unpacked(sys.stdin.buffer.read()))
    graph = compiled(model or feed.pop("").tobytes(), int(threads))
    request = started(graph, feed)
    request.wait()
    found = outputs(graph, request, json.loads(names))
    sys.stdout.buffer.write(packed([("bits" if bits else "", array) for array, bits in found]))


if __name__ == "__main__":
    _main(*sys.argv[1:])

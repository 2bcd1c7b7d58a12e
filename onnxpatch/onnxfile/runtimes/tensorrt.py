"""TensorRT, on a GPU of NVIDIA. Written against its documented Python API (10), and not run without a GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from onnxpatch.errors import InputError, RunError
from onnxpatch.onnxfile.runtimes.interface import Array, LoadedGraph, Output, Provider, Runtime, importable

if TYPE_CHECKING:
    import tensorrt as trt

_ROOM = 4  # times the size of a dynamic dimension in the first run is the largest that the engine is built for


class _TensorRt(Runtime):
    """tensorrt.Builder and OnnxParser. A run cannot be stopped: `max_seconds` has no effect inside one."""

    name = "tensorrt"
    distribution = "tensorrt"

    def available(self) -> bool:
        return importable("tensorrt")

    def load(self, model: str | bytes, providers: Sequence[Provider] | None) -> LoadedGraph:
        import tensorrt as trt

        if not torch.cuda.is_available():
            raise InputError("tensorrt needs a GPU that torch can use, and torch.cuda.is_available() is False")
        logger = trt.Logger(trt.Logger.ERROR)
        builder = trt.Builder(logger)
        network = builder.create_network(0)
        parser = trt.OnnxParser(network, logger)
        read = parser.parse_from_file(model) if isinstance(model, str) else parser.parse(model)
        if not read:
            raise RunError("; ".join(str(parser.get_error(i)) for i in range(parser.num_errors)))
        return _InTensorRt(builder, network, parser, logger)


class _InTensorRt:
    """A network, and the engine that is built for the range of sizes seen so far."""

    def __init__(self, builder: trt.Builder, network: trt.INetworkDefinition, *kept: object) -> None:
        self._builder, self._network, self._kept = builder, network, kept  # the network refers to parser and logger
        self._inputs = [network.get_input(i) for i in range(network.num_inputs)]
        self._outputs = [network.get_output(i).name for i in range(network.num_outputs)]
        self._largest: dict[str, tuple[int, ...]] = {}
        self._engine: Any = None

    def run(self, names: Sequence[str] | None, feed: Mapping[str, Array], seconds: float | None) -> list[Output]:
        wanted = self._outputs if names is None else list(names)
        self._fit({one.name: feed[one.name].shape for one in self._inputs})
        context = self._engine.create_execution_context()
        held = {}
        for one in self._inputs:
            held[one.name] = torch.from_numpy(feed[one.name]).to("cuda", _dtype(one.dtype)).contiguous()
            context.set_input_shape(one.name, tuple(held[one.name].shape))
            context.set_tensor_address(one.name, held[one.name].data_ptr())
        allocators = {name: _allocator() for name in self._outputs}  # sizes of outputs may depend on data
        for name, allocator in allocators.items():
            context.set_output_allocator(name, allocator)
        stream = torch.cuda.Stream()
        if not context.execute_async_v3(stream.cuda_stream):
            raise RunError("tensorrt could not run the graph on this input")
        stream.synchronize()
        return [self._output(name, allocators[name]) for name in wanted]

    def _output(self, name: str, allocator: Any) -> Output:
        dtype = _dtype(self._engine.get_tensor_dtype(name))
        count = int(torch.Size(allocator.shape).numel())
        value = allocator.memory.view(dtype)[:count].reshape(allocator.shape).cpu()
        return value if dtype == torch.bfloat16 else value.numpy()

    def _fit(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Build an engine for sizes from 1 to some times these shapes, unless the present one takes them."""
        known = self._largest
        if self._engine and all(all(a <= b for a, b in zip(s, known[n], strict=True)) for n, s in shapes.items()):
            return
        config, profile = self._builder.create_builder_config(), self._builder.create_optimization_profile()
        # TF32 multiplies with ten bits of mantissa, which is not float32's answer.
        config.clear_flag(_flag("TF32"))
        for one in self._inputs:
            shape, free = shapes[one.name], [size < 0 for size in one.shape]
            largest = tuple(max(1, size * _ROOM if moves else size) for size, moves in zip(shape, free, strict=True))
            smallest = tuple(min(1, size) if moves else size for size, moves in zip(shape, free, strict=True))
            self._largest[one.name] = largest
            profile.set_shape(one.name, smallest, shape, largest)
        config.add_optimization_profile(profile)
        built = self._builder.build_serialized_network(self._network, config)
        if built is None:
            raise RunError("tensorrt could not build an engine for the graph")
        import tensorrt as trt

        self._engine = trt.Runtime(trt.Logger(trt.Logger.ERROR)).deserialize_cuda_engine(built)


def _flag(name: str) -> object:
    import tensorrt as trt

    return getattr(trt.BuilderFlag, name)


def _dtype(dtype: Any) -> torch.dtype:
    """torch's dtype for one of TensorRT's."""
    names = {"HALF": "float16", "BF16": "bfloat16", "FLOAT": "float32", "UINT8": "uint8", "INT8": "int8"}
    names |= {"INT32": "int32", "INT64": "int64", "BOOL": "bool"}
    found: torch.dtype = getattr(torch, names[dtype.name])
    return found


def _allocator() -> object:
    """An object that gives TensorRT memory for one output, and keeps its shape."""
    import tensorrt as trt

    # In here, since its base class is TensorRT's, which may not be installed.
    class Allocator(trt.IOutputAllocator):
        def __init__(self) -> None:
            super().__init__()
            self.memory = torch.empty(0, dtype=torch.uint8, device="cuda")
            self.shape: tuple[int, ...] = (0,)

        def reallocate_output(self, _name: str, _memory: int, size: int, _alignment: int) -> int:
            self.memory = torch.empty(max(size, 1), dtype=torch.uint8, device="cuda")
            return int(self.memory.data_ptr())

        def notify_shape(self, _name: str, shape: Sequence[int]) -> None:
            self.shape = tuple(shape)

    return Allocator()


RUNTIME = _TensorRt()

"""Reading an ONNX graph: its nodes, how often each operator occurs, and the module that each node came from.

Both exporters leave the module's path in a node, each in its own way. For the `Add` in `model.blocks[0]`:

    dynamo    metadata "pkg.torch.onnx.name_scopes" = "['', 'blocks', 'blocks.0', 'add']"
    trace     the node's name "/blocks/blocks.0/Add"

`check_functions` refuses a file whose functions call each other so often that no runtime can load it. 40 functions of
two calls each are a file of 4 KB and 2^40 nodes: onnxruntime writes every call out when it loads a file, and no limit
stops it there.
"""

from __future__ import annotations

import ast
import mmap
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from onnx import FunctionProto

from onnxpatch.errors import InputError
from onnxpatch.onnxfile.mapped_weights import Content, fields

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto, ValueInfoProto

_SCOPES = "pkg.torch.onnx.name_scopes"
_LONGEST = 100_000  # characters of metadata that are parsed: the file may come from anywhere
_NO_MODULE = "_empty_nn_module_stack_from_metadata_hook"  # torch.fx writes it for a node without a module stack
# ONNX's names that differ from torch's by more than case.
_DTYPES = {"float": "float32", "double": "float64"}
_QUANTIZED = ("Quantize", "QLinear", "MatMulInteger", "ConvInteger", "NBits")  # parts of operators' names
_DRAWN = {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli", "Multinomial"}
_FUNCTIONS = 25  # of ModelProto
_MOST = 100_000  # nodes of one function, written out
Key = tuple[str, str]


def dtype_name(elem_type: int) -> str:
    """The dtype of a value by its number in the file, such as "float32"; "undefined" for 0.

    "type 29" for a number that the installed onnx does not know: of a later version, or of a damaged file.
    """
    from onnx import TensorProto

    if elem_type not in TensorProto.DataType.values():
        return f"type {elem_type}"
    name = TensorProto.DataType.Name(elem_type).lower()
    return _DTYPES.get(name, name)


def all_nodes(graph: GraphProto | FunctionProto) -> Iterator[NodeProto]:
    """Every node of a graph and of the graphs in its nodes' attributes (If, Loop, Scan)."""
    for node in graph.node:
        yield node
        for inner in inner_graphs(node):
            yield from all_nodes(inner)


def all_graphs(graph: GraphProto) -> Iterator[GraphProto]:
    """A graph, and those inside it: each before its nodes are looked at, so that they may be replaced."""
    yield graph
    for node in graph.node:
        for inner in inner_graphs(node):
            yield from all_graphs(inner)


def inner_graphs(node: NodeProto) -> Iterator[GraphProto]:
    """The graphs in a node's attributes."""
    for attribute in node.attribute:
        yield from (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs)


def opset_of(proto: ModelProto) -> int:
    """The opset of ONNX's own operators; 0 for a file that names none."""
    return next((one.version for one in proto.opset_import if one.domain in ("", "ai.onnx")), 0)


def computes_in_less(proto: ModelProto) -> bool:
    """Whether it computes in whole numbers that stand for floats, as quantized files do, or has float16 weights."""
    floats16 = any(dtype_name(one.data_type) == "float16" for one in proto.graph.initializer)
    return floats16 or any(part in name for name in operator_counts(proto) for part in _QUANTIZED)


def unfed_outputs(proto: ModelProto) -> list[str]:
    """The outputs that no input has a part in: they are constants, computed when the file was made."""
    fed = {value.name for value in proto.graph.input} - {one.name for one in proto.graph.initializer}
    for node in proto.graph.node:
        within = (one for graph in inner_graphs(node) for one in all_nodes(graph))
        if any(name in fed for one in (node, *within) for name in one.input):
            fed.update(node.output)
    return [value.name for value in proto.graph.output if value.name not in fed]


def has_text_names(proto: ModelProto) -> bool:
    """Whether every name in a model is valid UTF-8: for a damaged one protobuf gives bytes in place of str."""
    graph = proto.graph
    names = [graph.name, *(part for entry in proto.metadata_props for part in (entry.key, entry.value))]
    names += [o.domain for o in proto.opset_import] + [one.name for one in graph.initializer]
    for value in (*graph.input, *graph.output, *graph.value_info):
        names += [value.name, *(dim.dim_param for dim in value.type.tensor_type.shape.dim)]
    for node in (one for part in (graph, *proto.functions) for one in all_nodes(part)):
        names += [node.name, node.op_type, node.domain, node.doc_string, *node.input, *node.output]
        names += [part for entry in node.metadata_props for part in (entry.key, entry.value)]
    return all(isinstance(name, str) for name in names)


def operator_counts(proto: ModelProto) -> Counter[str]:
    """How often each operator occurs in a model. Constant is left out: some exporters keep weights in it."""
    graphs = (proto.graph, *proto.functions)
    return Counter(node.op_type for graph in graphs for node in all_nodes(graph) if node.op_type != "Constant")


def random_nodes(proto: ModelProto) -> list[NodeProto]:
    """The nodes that draw random numbers, so that two runs of the graph may differ."""
    nodes = (node for part in (proto.graph, *proto.functions) for node in all_nodes(part))
    # Dropout draws where it is told that it trains, by its third input.
    return [node for node in nodes if node.op_type in _DRAWN or (node.op_type == "Dropout" and any(node.input[2:]))]


def module_of(node: NodeProto) -> str | None:
    """The path of the module that a node was exported from ("" for the root); None where the node does not say."""
    names = scopes(node)
    if names is not None:
        # The last name is the node's own.
        modules = [name for name in names[:-1] if name != _NO_MODULE]
        return modules[-1] if modules else ""
    # dynamo's metadata, and it cannot be read: its node names are not paths.
    if any(entry.key == _SCOPES for entry in node.metadata_props):
        return None
    if not node.name.startswith("/"):
        return None
    return _joined(node.name.strip("/").split("/")[:-1])


def scopes(node: NodeProto) -> list[str] | None:
    """The names of the modules around a node and its own, outermost first, as dynamo wrote them.

    None where the node has no such metadata, or something else than a list of strings in it.
    """
    written = next((entry.value for entry in node.metadata_props if entry.key == _SCOPES), None)
    if written is None or len(written) > _LONGEST:
        return None
    try:
        names = ast.literal_eval(written)
    # The last two are what deeply nested text ends in, OverflowError a sum of a huge and an imaginary number.
    except (ValueError, SyntaxError, TypeError, OverflowError, MemoryError, RecursionError):
        return None
    return names if isinstance(names, list) and all(isinstance(name, str) for name in names) else None


def _joined(names: list[str]) -> str:
    parts: list[str] = []
    for name in names:
        if parts and name.startswith(parts[-1] + "."):  # ModuleList: "blocks", then "blocks.0"
            parts[-1] = name
        else:
            parts.append(name)
    return ".".join(parts)


def by_module(proto: ModelProto) -> dict[str, list[NodeProto]]:
    """The nodes of the main graph by the path of the module that they came from; Constant is left out."""
    found: dict[str, list[NodeProto]] = {}
    for node in proto.graph.node:
        path = module_of(node)
        if path is not None and node.op_type != "Constant":
            found.setdefault(path, []).append(node)
    return found


def shape_texts(proto: ModelProto) -> dict[str, str]:
    """The shape of every annotated value of the main graph as text, such as `2×h×8`; "" where it is not annotated."""
    graph = proto.graph
    return {value.name: _shape_text(value) for value in (*graph.value_info, *graph.input, *graph.output)}


def _shape_text(value: ValueInfoProto) -> str:
    if not value.type.HasField("tensor_type") or not value.type.tensor_type.HasField("shape"):
        return ""
    dims = value.type.tensor_type.shape.dim
    return "×".join(str(d.dim_value) if d.HasField("dim_value") else (d.dim_param or "?") for d in dims) or "scalar"


def check_functions(model: str | bytes) -> None:
    """Raises InputError for such a file; model: its path or its bytes. Nothing else of the file is read."""
    try:
        if isinstance(model, bytes):
            calls = _calls(model)
        else:
            with open(model, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                calls = _calls(content)
    except Exception:  # damaged, or no file: the runtime says how
        return
    largest = max(_written_out(calls).values(), default=0)
    if largest > _MOST:
        raise InputError(
            f"{model_name(model)}: its functions call each other so often that they have {largest:,} nodes written "
            f"out, at most {_MOST:,} are loaded"
        )


def model_name(model: str | bytes) -> str:
    """What a message calls a file (its path), or a model in memory."""
    return "the model given as bytes" if isinstance(model, bytes) else model


def _calls(content: Content) -> dict[Key, list[Key]]:
    """The operators that each function calls."""
    functions = (
        FunctionProto.FromString(content[inside:end])
        for number, _, inside, end in fields(content, 0, len(content))
        if number == _FUNCTIONS
    )
    return {(one.domain, one.name): [(n.domain, n.op_type) for n in all_nodes(one)] for one in functions}


def _written_out(calls: Mapping[Key, list[Key]]) -> dict[Key, int]:
    """How many nodes each function has. One that calls itself counts once: the runtime refuses it."""
    known: dict[Key, int] = {}
    for key in _inner_first(calls):
        known[key] = sum(known.get(called, 1) for called in calls[key])
    return known


def _inner_first(calls: Mapping[Key, list[Key]]) -> Iterator[Key]:
    entered: set[Key] = set()
    for first in calls:
        waiting = [(first, False)]
        while waiting:
            key, left = waiting.pop()
            if left:
                yield key
            elif key not in entered:
                entered.add(key)
                waiting += [(key, True), *((called, False) for called in calls[key] if called in calls)]

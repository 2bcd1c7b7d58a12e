"""Tells which operators have an ONNX translation, and which are new; replaces those without one in a captured program.

Between capture and translation torch traces the whole program twice more, to replace operators that have no
translation. That takes longer than the capture. In most models these are a few that change no value, or that have a
twin (`operator_rules`), and blocks under `torch.no_grad()`. Here they are written as torch's second trace writes them,
each in its place. A program with anything else, a branch say, is left to torch. Private torch APIs:

- `torch.onnx._internal.exporter._fx_passes.decompose_with_registry`: replaced in this thread. If it moves, torch
  decomposes every program.
- `insert_type_promotion_nodes` beside it is run with `soft_pending_unbacked_not_found_error` of
  `torch.fx.experimental._config`, and an error of `torch.fx.experimental.symbolic_shapes.rebind_unbacked` is passed
  over. If they move, branches whose sizes are data are refused.
- `torch._C._dispatch_has_kernel_for_dispatch_key` tells which operators torch writes in terms of others. If it moves,
  the same.
- `torch.onnx._internal.exporter` (its registry and decompositions), `torch.onnx._internal.torchscript_exporter` (its
  symbolics) and `torch._C._dispatch_get_all_op_names` have the tables. If they move, `onnxpatch ops` is empty and says
  so; nothing else uses them.
- `torch.testing._internal`, with which torch is installed, has the database `op_db`. Its source is read: importing it
  takes seconds and libraries that torch does not bring. If it moves, `onnxpatch drift` lists no operator as new.
"""

from __future__ import annotations

import contextlib
import importlib
import pkgutil
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import fx
from torch.fx.experimental import _config

from onnxpatch._torch.one_export import Replaced
from onnxpatch._torch.operator_rules import CONDITIONS, RULES, SIZED, gives_its_input
from onnxpatch.errors import RefusedError

# OpInfo("abs", ...), UnaryUfuncInfo(\n    "sin", ...
_ENTRY = re.compile(r"\w*Info\(\s*(?:name=)?['\"](?!_refs|Test)([\w.]+)['\"]")


def onnx_translations() -> dict[str, list[Callable[..., Any]]]:
    """{"aten::add.Tensor": [the functions that write it in ONNX]} of the dynamo exporter; {} where torch moved them."""
    try:
        from torch.onnx._internal.exporter import _registration

        registered = _registration.ONNXRegistry.from_torchlib().functions
    except (ImportError, AttributeError):
        return {}
    found: dict[str, list[Callable[..., Any]]] = {}
    for metas in registered.values():
        for meta in metas:
            name = _qualified(meta.fx_target)
            written = meta.onnx_function
            found.setdefault(name, []).append(getattr(written, "func", getattr(written, "function", written)))
    return found


def onnx_decompositions() -> set[str]:
    """Overloads that the dynamo exporter decomposes before translation; empty if torch has moved them."""
    try:
        from torch.onnx._internal.exporter import _decomp, _registration

        registry = _registration.ONNXRegistry.from_torchlib()
        written = set(_decomp.get_onnx_implemented_overloads(registry))
        table = _decomp.create_onnx_friendly_decomposition_table(written)
    except (ImportError, AttributeError, TypeError):
        return set()
    return {_qualified(overload) for overload in table}


def _qualified(target: object) -> str:
    """`aten::add.Tensor`, `aten::gelu`; a Python function by its own name."""
    schema = getattr(target, "_schema", None)
    if schema is None:
        return str(getattr(target, "__name__", target))
    return f"{schema.name}.{schema.overload_name}" if schema.overload_name else str(schema.name)


def torchscript_symbolics() -> dict[str, list[int]]:
    """{"aten::gelu": opsets that have a symbolic of their own} of the TorchScript exporter; {} where torch moved it."""
    # Where newer versions of torch have them, then where older ones do.
    for home, written in (("torch.onnx._internal.torchscript_exporter",) * 2, ("torch.onnx._internal", "torch.onnx")):
        try:
            registry = importlib.import_module(f"{home}.registration").registry
            package = importlib.import_module(written)
        except (ImportError, AttributeError):
            continue
        for module in pkgutil.iter_modules(package.__path__):  # importing a module registers its symbolics
            if module.name.startswith("symbolic_opset"):
                importlib.import_module(f"{written}.{module.name}")
        groups = {name: registry.get_function_group(name) for name in registry.all_functions()}
        opsets = {name: getattr(group, "_functions", ()) for name, group in groups.items() if group is not None}
        return {name: sorted(known) for name, known in opsets.items() if known}
    return {}


def aten_operators() -> list[str]:
    """Every aten overload that torch has, `aten::add.Tensor`: those that write into an argument left out."""
    everything: Callable[[], list[str]] = getattr(torch._C, "_dispatch_get_all_op_names", list)
    names = [name for name in everything() if name.startswith("aten::")]
    return sorted(name for name in names if not _writes(name))


def _writes(name: str) -> bool:
    packet, _, overload = name.removeprefix("aten::").partition(".")
    found = getattr(getattr(torch.ops.aten, packet, None), overload or "default", None)
    return found is None or bool(found._schema.is_mutable)


def is_composite(name: str) -> bool:
    """Whether torch itself writes the operator in terms of others, so that an exporter never sees it."""
    has_kernel: Callable[..., bool] | None = getattr(torch._C, "_dispatch_has_kernel_for_dispatch_key", None)
    return has_kernel is not None and bool(has_kernel(name, "CompositeImplicitAutograd"))


def tested_operators() -> frozenset[str]:
    """Such as "abs" and "linalg.inv"; empty where torch has moved them."""
    home = Path(torch.__file__).parent / "testing" / "_internal"
    files = home / "common_methods_invocations.py", *(home / "opinfo" / "definitions").glob("*.py")
    texts = (file.read_text(encoding="utf-8") for file in files if file.exists())
    return frozenset(name for text in texts for name in _ENTRY.findall(text))


# torch's exporter removes them from the program after the decomposition.
_CHECKS = frozenset(
    {
        "aten::_assert_async", "aten::_assert_scalar", "aten::_assert_tensor_metadata",
        "aten::sym_constrain_range_for_size",
    }
)  # fmt: skip


@contextlib.contextmanager
def few_decompositions(few: bool = True) -> Iterator[None]:
    """A context in which a dynamo export in this thread traces a program again only where it must.

    few=False: always, as torch does. In both, a program that ends the process there is refused, and branches whose
    sizes are data may be traced.
    """
    with _REPLACED.held(few), _PROMOTING.held(), _REBINDING.held():
        yield


def _rewriting(original: Callable[..., Any]) -> Callable[..., Any]:
    def decompose(program: Any, registry: Any) -> Any:
        asked = _REPLACED.here()
        # torch would read memory that such a constant does not have: a segmentation fault.
        if asked and any(type(value).__name__ == "FakeTensor" for value in program.constants.values()):
            raise RefusedError("torch.export has lost the values of a tensor that is read by `.data`: use detach()")
        if not any(asked):
            return original(program, registry)
        if not rewritten(program, registry):
            _under_one_name(program)
            program = original(program, registry)
            _strides_as_sizes(program.graph_module)
        return program

    return decompose


_REPLACED = Replaced("torch.onnx._internal.exporter._fx_passes.decompose_with_registry", _rewriting)


def _promoting_types(original: Callable[..., Any]) -> Callable[..., Any]:
    def insert(graph_module: Any) -> Any:
        if not _PROMOTING.here() or not hasattr(_config, "soft_pending_unbacked_not_found_error"):
            return original(graph_module)
        # The pass runs the program node by node and asks for no bindings: symbols of numbers from data pile up, and
        # torch takes them for ones that the next branch has lost.
        with _config.patch(soft_pending_unbacked_not_found_error=True):  # type: ignore[attr-defined]
            return original(graph_module)

    return insert


_PROMOTING = Replaced("torch.onnx._internal.exporter._fx_passes.insert_type_promotion_nodes", _promoting_types)


def _rebinding_symbols(original: Callable[..., Any]) -> Callable[..., Any]:
    def rebind(*arguments: Any) -> None:
        try:
            original(*arguments)
        except AssertionError as error:
            # The second trace may know a size of data in terms of another, 2*u0, for which the first made a symbol.
            # torch only passes over plain numbers. The old symbol stands in the old program alone.
            if not _REBINDING.here() or "should have been constant" not in str(error):
                raise

    return rebind


_REBINDING = Replaced("torch.fx.experimental.symbolic_shapes.rebind_unbacked", _rebinding_symbols)


def rewritten(program: Any, registry: Any) -> bool:
    """Write what has no translation in terms of what has; False, and nothing is changed, where torch must do it."""
    module = program.graph_module
    try:
        if not all(_known(module, node, registry) for node in module.graph.nodes):
            return False
    except AttributeError:  # a private API has moved
        return False
    for node in list(module.graph.nodes):
        if _is_block(node):
            _inline(program, node)
    for node in list(module.graph.nodes):
        rule = RULES.get(node.target) if node.op == "call_function" else None
        if rule is not None and not _is_the_users(node.target, registry):
            rule(node)
    module.graph.eliminate_dead_code()
    return True


def _under_one_name(program: Any) -> None:
    """Read a tensor by its first name where parts that share it give it several.

    torch refuses the others where forward writes such a buffer: `expected compiled_fn to be GraphModule`.
    """
    graph, specs = program.graph, program.graph_signature.input_specs
    held = {**program.state_dict, **program.constants}
    first: dict[int, fx.Node] = {}
    inputs = [node for node in graph.nodes if node.op == "placeholder"]
    for node, spec in zip(inputs, list(specs), strict=True):
        if not isinstance(held.get(spec.target), torch.Tensor):
            continue
        same = first.setdefault(id(held[spec.target]), node)
        if same is not node:
            node.replace_all_uses_with(same)
            graph.erase_node(node)
            specs.remove(spec)
            program.state_dict.pop(spec.target, None)
            program.constants.pop(spec.target, None)


def _strides_as_sizes(program: fx.GraphModule) -> None:
    """Read a size where a trace reads it from a stride: the rows of a square matrix, in the body of a loop.

    ONNX knows no strides.
    """
    blocks = [one for one in program.modules() if isinstance(one, fx.GraphModule)]
    for node in [node for block in blocks for node in block.graph.nodes]:
        if node.target is torch.ops.aten.sym_stride.int:
            tensor, axis = node.args
            value = tensor.meta["val"]
            stride = str(value.stride(axis))
            same = next((at for at, size in enumerate(value.shape) if str(size) == stride), None)
            if same is not None:
                node.target, node.args = torch.ops.aten.sym_size.int, (tensor, same)


def _known(module: fx.GraphModule, node: fx.Node, registry: Any) -> bool:
    """Whether the node has a translation as it is, or is rewritten here."""
    # A capture may have removed a node and not told those that it reads.
    if any(node not in one.users for one in node.all_input_nodes):
        return False
    if node.op == "get_attr":  # the body of a block, which is looked at where the block is
        return all(_is_block(user) for user in node.users)
    if node.op != "call_function":
        return node.op in ("placeholder", "output")
    if _is_block(node):
        body = _body(module, node)
        return body is not None and all(_known_in_block(body, one, registry) for one in body.graph.nodes)
    if not isinstance(node.target, torch._ops.OpOverload):  # arithmetic of sizes, and parts of several results
        # torch.vmap and torch.func.grad stand in a capture as they are called: the second trace carries them out.
        functorch = getattr(node.target, "__module__", "").startswith("torch._functorch")
        return not functorch and not isinstance(node.target, torch._ops.HigherOrderOperator)
    return _has_translation(node, node.target, registry)


def _has_translation(node: fx.Node, operator: torch._ops.OpOverload, registry: Any) -> bool:
    if operator in RULES:
        condition = CONDITIONS.get(operator)
        return condition is None or condition(node)
    if operator._schema.name in _CHECKS:
        return True
    return not operator._schema.is_mutable and registry.is_registered(operator) and not _is_taken_apart(operator)


def _known_in_block(body: fx.GraphModule, node: fx.Node, registry: Any) -> bool:
    # Where sizes come from is looked for in the graph that a node is in.
    return not _is_block(node) and node.target not in SIZED and _known(body, node, registry)


def _is_the_users(target: Any, registry: Any) -> bool:
    """Whether the caller gave a translation, and torch would let it see the operator."""
    custom = any(one.is_custom for one in registry.get_decomps(target))
    return custom and not target._schema.is_mutable and not _is_taken_apart(target)


def _is_taken_apart(target: Any) -> bool:
    """Whether torch writes the operator in terms of others although it has a translation.

    As torch.export does with all that may give out its input.
    """
    if not gives_its_input(target):
        return False
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(_qualified(target), "CompositeImplicitAutograd"))


# ------------------------------------------------------------------ blocks
def _is_block(node: fx.Node) -> bool:
    """Whether the node is the body of `with torch.no_grad():`, its opposite, or autocast switched off."""
    name = getattr(node.target, "__name__", "") if node.op == "call_function" else ""
    return name == "wrap_with_set_grad_enabled" or (name == "wrap_with_autocast" and node.args[2] is False)


def _parts(node: fx.Node) -> tuple[Any, tuple[Any, ...]]:
    """(The node that names the body, what the body is given), after the settings."""
    settings = 1 if len(node.args) < 5 or isinstance(node.args[1], fx.Node) else 4
    return node.args[settings], node.args[settings + 1 :]


def _body(module: fx.GraphModule, node: fx.Node) -> fx.GraphModule | None:
    named, _ = _parts(node)
    body = getattr(module, str(named.target), None) if isinstance(named, fx.Node) and named.op == "get_attr" else None
    return body if isinstance(body, fx.GraphModule) else None


def _inline(program: Any, node: fx.Node) -> None:
    module = program.graph_module
    body, (named, given) = _body(module, node), _parts(node)
    assert body is not None
    inputs = [one for one in body.graph.nodes if one.op == "placeholder"]
    values: dict[fx.Node, Any] = dict(zip(inputs, given, strict=True))
    with module.graph.inserting_before(node):
        found = module.graph.graph_copy(body.graph, values)
    for user in list(node.users):  # each takes one of the results
        result = found[user.args[1]]
        user.replace_all_uses_with(result)
        # Of a block around the whole forward, the results are the graph's outputs, which the signature has by name.
        program.graph_signature.replace_all_uses(user.name, result.name)
        module.graph.erase_node(user)
    module.graph.erase_node(node)
    if not named.users:
        module.graph.erase_node(named)
        delattr(module, str(named.target))

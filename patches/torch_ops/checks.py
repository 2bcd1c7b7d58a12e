"""Code that changes no output and has no ONNX form: assertions, messages, casts to the same dtype, saving of memory."""

from __future__ import annotations

import ast
import gc
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx
from torch.distributions import Categorical, Distribution, Normal
from torch.utils.checkpoint import checkpoint

from onnxpatch import Proof, op
from onnxpatch.decisions.ask import deciding_frame
from onnxpatch.decisions.conditionals import is_idle
from onnxpatch.decisions.if_rules.source import Lines, at_line, ifs


def _asserted(x: Tensor) -> Tensor:
    scale = x.abs().amax(1, keepdim=True) + 1
    assert (scale > 0).all(), "a scale of 0"
    assert not x.isnan().any() and not x.isinf().any()
    if x.min() < -1e6 or (np.array(x.shape) > 99).any():
        print("a value of", x.abs().max())
    if (scale < 0.5).any():
        message = f"a scale of {scale.min()}"
        raise ValueError(message)
    return x / scale


@op(
    "__bool__",
    name="asserted-data",
    why="Could not guard on data-dependent expression Eq(u0, 1), at an `assert` on the values of a tensor, or an `if` "
    "that only prints, logs, warns or raises",
    reason="data-dependent",
    link="https://github.com/gemelo-ai/vocos/blob/main/vocos/spectral_ops.py",
    exporters=("dynamo",),
    tries=lambda b, n: torch.randn(b, n),
    sizes=((2, 5), (3, 9), (1, 1)),
    case=_asserted,
    unchanged=lambda x: x * 2,
)
def asserted_data(tensor: Tensor) -> bool:
    """Answers as the `assert` expects it, or past an `if` that only tells or raises: the graph does neither."""
    frame = deciding_frame(1)
    return next(iter(_answers(frame)), NotImplemented) if frame is not None else NotImplemented


def _drawn_from(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    normal, choice = Normal(x, y.abs() + 0.1), Categorical(logits=x)
    return normal.log_prob(y), choice.entropy(), choice.log_prob(y.argmax(-1))


@op(
    "torch.distributions.Distribution.__init__",
    name="distributions-not-validated",
    why="Could not guard on data-dependent expression Eq(u0, 1): a distribution raises for parameters out of its range",
    reason="data-dependent",
    link="https://docs.pytorch.org/docs/stable/distributions.html",
    exporters=("dynamo",),
    tries=lambda b, n: (torch.randn(b, n), torch.randn(b, n)),
    sizes=((2, 5), (3, 9), (1, 2)),
    case=_drawn_from,
)
def not_validated(original: Callable[..., None], self: Distribution, *shapes: object, **named: object) -> None:
    """Makes the distribution without the checks of its parameters and samples, which the graph does not make."""
    original(self, *shapes[:2], **{**named, "validate_args": False})


@at_line
def _answers(tree: ast.AST) -> Iterator[tuple[Lines, bool]]:
    """What the bools in such a test have to be, where that can be told."""
    asserts = ((node.test, True) for node in ast.walk(tree) if isinstance(node, ast.Assert))
    told = ((node.test, False) for node, _ in ifs(tree) if is_idle(node.body))
    for test, passes in itertools.chain(asserts, told):
        expected = _expected(test)
        if expected is not None:
            yield test, expected == passes


def _expected(test: ast.expr) -> bool | None:
    parts = test.values if isinstance(test, ast.BoolOp) else [test]
    inner = [part.operand if _is_negated(part) else part for part in parts]  # type: ignore[attr-defined]
    negated = set(map(_is_negated, parts))
    # What is decided on the way to the test need not be as the test.
    nodes = [node for part in inner for node in ast.walk(part)]
    decided = any(isinstance(node, ast.IfExp | ast.BoolOp | ast.Not) for node in nodes)
    called = any(isinstance(node, ast.Call) and ast.unparse(node.func) == "bool" for node in nodes)
    return None if decided or called or len(negated) > 1 else not negated.pop()


def _is_negated(part: ast.expr) -> bool:
    return isinstance(part, ast.UnaryOp) and isinstance(part.op, ast.Not)


class _Checked(torch.nn.Module):
    """Checks that lengths add up to the number of rows."""

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        torch._check_tensor_all_with(ValueError, lengths.sum() == x.shape[0])
        return x.cumsum(0) / lengths.max()


def _parts() -> list[tuple[Tensor, Tensor]]:
    return [(torch.randn(n, 3), torch.tensor([n - 2, 2])) for n in (5, 3, 8)]


@op(
    "_check_tensor_all_with",
    name="tensor-checks",
    why="No ONNX function found for <OpOverload(op='aten._is_all_true', overload='default')>",
    link="https://github.com/huggingface/transformers/issues/44265",
    proof=Proof(_Checked, _parts, fails=("dynamo",), reason="aten._is_all_true"),
)
def tensor_checks(error_type: object, cond: Tensor, message: object = None) -> None:
    """Does nothing: an ONNX graph has no assertions. torch.onnx drops those that it knows, too."""


class _Router(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.classifier = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        # torch.onnx.export tries torch.export with strict=False, then with strict=True. Dynamo, in the second, passes
        # the cast but cannot trace this call: so the proof fails as `reason` says.
        gc.get_count()
        self.classifier = self.classifier.to(torch.float32)
        return self.classifier(x)


@op(
    "nn.Module.to",
    name="idle-cast",
    why="_apply(): Couldn't swap Linear.weight: Cannot swap t1 because it has weakref associated with it",
    reason="Couldn't swap",
    link="https://github.com/pytorch/pytorch/issues/126021",
    exporters=("dynamo",),
    tries=lambda n: torch.randn(n, 4),
    sizes=(3, 5, 1),
    case=_Router,
)
def idle_cast(module: nn.Module, *args: object, **kwargs: object) -> nn.Module:
    """Returns the module as it is if only a dtype is asked for and all its parameters and buffers have that dtype."""
    wanted = [*args, *kwargs.values()]
    if len(wanted) != 1 or not isinstance(wanted[0], torch.dtype) or not kwargs.keys() <= {"dtype"}:
        return NotImplemented
    held = itertools.chain(module.parameters(), module.buffers())
    # A cast leaves whole numbers as they are.
    return module if all(t.dtype == wanted[0] or not t.is_floating_point() for t in held) else NotImplemented


# ------------------------------------------------------------------ autograd functions
class _Checkpointed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return checkpoint(self.within, x, use_reentrant=True)

    def within(self, x: Tensor) -> Tensor:
        return checkpoint(self.layer, x, use_reentrant=True)


@op(
    "autograd.Function.apply",
    name="autograd-functions",
    why="unordered_map::at: a torch.autograd.Function reads parameters that are no arguments of its forward, as that "
    "of torch.utils.checkpoint.checkpoint(use_reentrant=True) does",
    reason="unordered_map",
    link="https://pytorch.org/docs/stable/notes/extending.html",
    exporters=("trace",),
    tries=lambda b: torch.randn(b, 4),
    case=_Checkpointed,
)
def forward_alone(original: Any, cls: Any, *args: Any, **kwargs: Any) -> Any:
    """Calls its forward: an export records no gradients. One that says what its ONNX nodes are (`symbolic`) is kept."""
    if hasattr(cls, "symbolic"):
        if "apply" in vars(cls):
            return NotImplemented
        # The tracer notes the class's `apply`, and the exporter asks later whether it is still that: so torch's own.
        cls.apply = classmethod(original.__func__)
        try:
            return cls.apply(*args, **kwargs)
        finally:
            del cls.apply
    context = FunctionCtx()
    context.needs_input_grad = (False,) * len(args)  # type: ignore[attr-defined]  # torch sets it in C++
    alone = cls.setup_context is not torch.autograd.Function.setup_context  # its forward takes no context
    return cls.forward(*(() if alone else (context,)), *args, **kwargs)

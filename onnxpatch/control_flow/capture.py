"""The state of one export of one model with branches: which forwards run, and who decides for them.

One `Capture` exists for each run of the root's forward under an exporter. Torch calls come in through `execute`, bools
that depend on data through `decide`; both go to the explorers, one for each forward that runs now, the innermost last.
`recording` has the calls, `optional_outputs` the errors.

A condition is a decision: the forward runs once for each answer. Numbers stay in the graph, unless they are static:

    if x.sum() > 0:          Tensor.__bool__      a decision; the predicate is the tensor
    if x.shape[0] > 4:       SymBool.__bool__     under dynamo; the predicate is torch.full((), condition)
    self.layers[x.shape[0]]  SymInt.__index__     a decision for each entry of the list

A number that is the same for all inputs of the export Python may have as it is. Under dynamo a size is a SymInt, static
if its expression has no symbols. Under trace it is a tensor; `SymbolicShadow` knows the symbolic size that belongs to
it, else the graph that was traced so far.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeVar, cast

import torch

from onnxpatch._torch.cond import constant_answer
from onnxpatch._torch.function_modes import tracing_paused, unseen
from onnxpatch._torch.symbolic_sizes import static_number
from onnxpatch.control_flow.optional_outputs import BranchReport
from onnxpatch.control_flow.path_explorer import PathExplorer
from onnxpatch.control_flow.recording import Recording, latest, running
from onnxpatch.control_flow.symbolic_shadow import SymbolicShadow
from onnxpatch.decisions.ask import deciding_frame, here
from onnxpatch.errors import BranchError

BranchForm = Literal["auto", "if", "where"]
ArgsT = TypeVar("ArgsT")


class Capture(Recording):
    """One run of a root model under an exporter. form: how branches are written."""

    explorers: list[PathExplorer]

    def __init__(
        self, path_of: Callable[[torch.nn.Module], str], max_paths: int, form: BranchForm, report: BranchReport
    ) -> None:
        super().__init__(path_of, max_paths, report)
        self.form, self.explorers = form, []
        self.delegating: set[int] = set()  # ids of modules whose decisions belong to the module that calls them
        self.inputs: list[torch.Tensor] = []
        # By id of a row that `tensor[i]` copied and that is a view in eager: (tensor, index).
        self.rows_taken: dict[int, tuple[torch.Tensor, object]] = {}
        # By id of the index of a loop, an int in eager: the least that it is known to be.
        self.counters: dict[int, int] = {}

    def begin(self, inputs: list[torch.Tensor]) -> None:
        """Note the tensors that the root is called with."""
        self.inputs = inputs
        self.shadow = SymbolicShadow(inputs) if self.exporter == "trace" else None

    def decide(self, predicate: torch.Tensor, condition: torch.SymBool | None = None) -> bool:
        """Answer a bool that depends on data: the innermost explorer chooses the path."""
        site = here()
        if id(predicate) in self.random:
            raise self.refusal(
                site,
                "forward branches on a random number",
                remedy="draw the number outside the model and pass it in as an input",
            )
        return self.explorers[-1].decide(predicate, site, condition)

    def delegate(self, explorer: PathExplorer, caller: PathExplorer) -> None:
        """Let the calling module make this module's decisions from now on; its own search starts over."""
        self.delegating.add(id(explorer.module))
        caller.restart = True

    # ---- loops

    def with_updates(self, values: ArgsT) -> ArgsT:
        """The arguments of a call, with what stands for the tensors that loops have updated in place."""
        for explorer in self.explorers:
            values = explorer.path.updated.in_call(self, values)
        return values

    def looping(self) -> PathExplorer | None:
        """The outermost explorer in which a loop on data runs now."""
        return next((explorer for explorer in self.explorers if explorer.path.running is not None), None)

    def check_len(self, container: object) -> None:
        """Refuse `len` of a list that a loop fills: it has as many entries as rounds were run, not as the input has."""
        for loop in (loop for explorer in self.explorers for loop in explorer.path.loops):
            if loop.rounds_in(container) > 1:
                raise loop.refusal("len() of a list that it fills depends on the number of rounds")

    def check_counter(self, tensor: torch.Tensor, use: str) -> None:
        """Refuse a loop's index as a key or as text: it is a tensor here, and an int in eager."""
        # `i + 1` is another tensor than the index: while a loop runs, every 0-d whole number may come from it.
        looping = any(not loop.done for explorer in self.explorers for loop in explorer.path.loops)
        if id(tensor) in self.counters or (tensor.dim() == 0 and not tensor.is_floating_point() and looping):
            raise self.refusal(
                here(),
                f"in a loop whose number of rounds depends on the input, the loop's index is used as {use}",
                remedy="look values up in a tensor (table[i]), and leave text to code that is not exported",
            )


def current_capture(paused: bool = False) -> Capture | None:
    """The innermost capture of this thread; None where none runs, or it is paused. paused: a paused one too."""
    found = latest() if paused else running()
    return found if isinstance(found, Capture) else None


_T = torch.Tensor


def decide_tensor(capture: Capture, function: Callable[..., object], tensor: torch.Tensor) -> bool:
    """The answer to `bool(tensor)` on this path; torch's own where torch itself asks for a size."""
    # A check of torch's own layers has no second side to explore.
    if capture.sizes.on_sizes(tensor) and deciding_frame(0) is None:
        with unseen():
            return bool(tensor)
    return decide_bool(capture, tensor)


def decide_bool(capture: Capture, tensor: torch.Tensor) -> bool:
    """The answer to `bool(tensor)` on this path; tensor: one element of any dtype and shape."""
    if tensor.dtype is not torch.bool:
        tensor = capture.execute(_T.ne, (tensor, 0))
    if tensor.dim():
        tensor = capture.execute(_T.reshape, (tensor, ()))
    return capture.decide(tensor)


def decide_sizes(capture: Capture, function: Callable[..., object], condition: torch.SymBool) -> bool:
    """The answer to a condition on sizes on this path."""
    settled = capture.sizes.answer(condition)
    if settled is not None:
        return settled
    # Where and torch.cond are given a tensor, whether sizes decide or data.
    predicate = capture.execute(torch.full, ((), condition), {"dtype": torch.bool})
    return capture.decide(predicate, condition)


def decide_one_of(capture: Capture, number: Any, numbers: list[int]) -> bool:
    """The decision whether a whole number, as a 0-d tensor or a size, is one of two."""
    first, second = numbers
    condition = (number == first) | (number == second)
    if isinstance(condition, torch.Tensor):
        return decide_bool(capture, condition)
    known = condition if isinstance(condition, bool) else constant_answer(condition)
    return decide_sizes(capture, torch.SymBool.__bool__, condition) if known is None else known


def decide_entry(capture: Capture, number: torch.Tensor | torch.SymInt, length: int | None = None) -> int:
    """The index that a number has on this path, in the list that the user's code indexes with it.

    length: of the list, where it is known.
    """
    # Equal sizes may be different SymInt objects, so the expression is the key.
    key = id(number) if isinstance(number, torch.Tensor) else cast(Any, number.node.expr)
    return capture.list_lengths.choose(key, lambda numbers: decide_one_of(capture, number, numbers), length)


def as_number(capture: Capture, tensor: torch.Tensor) -> torch.Tensor | torch.SymInt:
    """`tensor.item()` in the graph: a 0-d tensor; under dynamo, a SymInt for whole numbers."""
    whole = not tensor.dtype.is_floating_point and not tensor.dtype.is_complex and tensor.dtype is not torch.bool
    if whole and capture.exporter == "dynamo":
        return cast(torch.SymInt, capture.execute(_T.item, (tensor,)))
    return capture.execute(_T.reshape, (tensor, ())) if tensor.dim() else tensor


def static_size(size: object) -> int | None:
    """A size that is the same for all inputs, as an int; None where it may depend on them."""
    if isinstance(size, bool | int):
        return size
    if isinstance(size, torch.SymInt):
        return int(size.node.expr) if not size.node.expr.free_symbols else None
    return None


def static_value(capture: Capture, number: object) -> int | bool | None:
    """The value of a 0-d tensor, size or condition that is the same for all inputs; None where it may depend on one."""
    if isinstance(number, torch.SymBool):
        return constant_answer(number)
    if capture.exporter == "dynamo" or not isinstance(number, torch.Tensor):
        return static_size(number)
    symbolic = capture.shadow.get(number) if capture.shadow is not None else None
    if symbolic is None and number.dim() == 0:  # a call on the way could not be repeated: the graph may tell
        known = static_number(number)
        return None if isinstance(known, float) else known
    return constant_answer(symbolic) if isinstance(symbolic, torch.SymBool) else static_size(symbolic)


def static_dim(capture: Capture, tensor: torch.Tensor, dim: int) -> int | None:
    """The size of one dimension if it is the same for all inputs; None where it may depend on them."""
    if capture.shadow is None:
        return static_size(tensor.shape[dim])
    if capture.shadow.unknown(tensor):
        return None
    symbolic = capture.shadow.get(tensor)
    # Reading a size of a traced tensor would put a node into the graph.
    with tracing_paused():
        return static_size((symbolic if isinstance(symbolic, torch.Tensor) else tensor).shape[dim])


def needs_static(capture: Capture, what: str) -> BranchError:
    """The refusal of what needs a number that is the same for all inputs."""
    return capture.refusal(
        here(),
        f"{what}, whose value depends on the inputs",
        remedy="keep it a tensor (slices and sizes take 0-d tensors), or put a loop's body into a function marked "
        "@onnxpatch.scan or @onnxpatch.while_loop",
    )

"""The state of one export of one model with branches: which forwards run, which calls were made, what was refused.

One `Capture` exists for each run of the root's forward under an exporter. Torch calls come in through `execute`, bools
that depend on data through `decide`; both go to the explorers, one for each forward that runs now, the innermost last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import is_dataclass
from typing import Literal, TypeVar, cast

import torch
from torch.overrides import TorchFunctionMode

from onnxpatch._torch import exporting
from onnxpatch.control_flow.branch_report import BranchReport
from onnxpatch.control_flow.call_effects import is_mutation, is_random
from onnxpatch.control_flow.current_capture import captures
from onnxpatch.control_flow.list_lengths import ListLengths
from onnxpatch.control_flow.loops.results import StackedRounds, joined
from onnxpatch.control_flow.nests import tensors
from onnxpatch.control_flow.optional_outputs.decorator import OptionalOutput
from onnxpatch.control_flow.path_explorer import PathExplorer
from onnxpatch.control_flow.settled_sizes import SettledSizes
from onnxpatch.control_flow.symbolic_shadow import SymbolicShadow
from onnxpatch.control_flow.tape import TorchCall
from onnxpatch.decisions.instructions import raised_on_purpose
from onnxpatch.decisions.place import Site, here, line_of
from onnxpatch.errors import BranchError
from onnxpatch.undone import undone

BranchForm = Literal["auto", "if", "where"]
Declared = tuple[OptionalOutput, torch.Tensor | None]
"""What a forward was marked with, and the argument that gives the sentinel its shape."""
ResultT = TypeVar("ResultT")
ArgsT = TypeVar("ArgsT")
KwargsT = TypeVar("KwargsT")


class Capture:
    """One run of a root model under an exporter.

    path_of: names a module for messages. max_paths: the most paths of one call of one module. form: how branches are
    written. shadow: symbolic sizes, under the trace exporter only. missing: set when an optional output was None.
    mode: what sends torch calls here.
    """

    def __init__(
        self, path_of: Callable[[torch.nn.Module], str], max_paths: int, form: BranchForm, report: BranchReport
    ) -> None:
        self.exporter = exporting()
        self.path_of, self.max_paths, self.form, self.report = path_of, max_paths, form, report
        self.explorers: list[PathExplorer] = []
        self.delegating: set[int] = set()  # ids of modules whose decisions belong to the module that calls them
        self.paused = False
        self.refused: BranchError | None = None
        self.inputs: list[torch.Tensor] = []
        # What torch refers to without owning it, and objects whose ids are keys: an id must not be used twice.
        self.alive: list[object] = []
        self.random: set[int] = set()  # ids of tensors that depend on random numbers
        self.shadow: SymbolicShadow | None = None
        self.declared: dict[int, Declared] = {}
        self.missing: Declared | None = None
        self.list_lengths = ListLengths(self)
        # By id of a row that `tensor[i]` copied and that is a view in eager: (tensor, index).
        self.rows_taken: dict[int, tuple[torch.Tensor, object]] = {}
        self.mode: TorchFunctionMode | None = None
        self.sizes = SettledSizes(self)
        self.counters: set[int] = set()  # ids of tensors that are ints in eager: the indices of loops

    def begin(self, inputs: list[torch.Tensor]) -> None:
        """Note the tensors that the root is called with."""
        self.inputs = inputs
        self.shadow = SymbolicShadow(inputs) if self.exporter == "trace" else None

    @contextmanager
    def entered(self) -> Iterator[None]:
        """This is the capture of the current thread inside the block."""
        # A copy, so that the thread's list is set back even if an inner capture was not left properly.
        before = list(captures())
        with undone(lambda: captures().__setitem__(slice(None), before)):
            captures().append(self)
            yield

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Calls inside the block go straight to torch: neither recorded nor answered."""
        before = self.paused
        with undone(lambda: setattr(self, "paused", before)):
            self.paused = True
            yield

    @contextmanager
    def recorded(self) -> Iterator[None]:
        """Torch calls inside the block are the path's, also where torch has its modes off: while one of them runs."""
        with nullcontext() if self.mode is None else self.mode:
            yield

    # ---- recording

    def execute(
        self, function: Callable[..., ResultT], args: tuple[object, ...], kwargs: dict[str, object] | None = None
    ) -> ResultT:
        """Call a torch function, or take its result from the previous path; record the call in every explorer."""
        options: dict[str, object] = {} if kwargs is None else kwargs
        args, options = self.with_loop_results(function, args, options)
        if args and isinstance(args[0], StackedRounds):
            with self.pause():
                join: Callable[..., object] = joined
                return cast(ResultT, join(function, *args, **options))
        # The innermost explorer that made this call on its previous path answers it. The ones around it recorded the
        # call when it ran; the explorer itself and those further in are on new paths, and append it now.
        call, start = None, len(self.explorers)
        while call is None and start:
            start -= 1
            call = self.explorers[start].replay(function, args, options)
        if call is None:
            call, start = self._call(function, args, options), 0
        for explorer in self.explorers[start:]:
            explorer.append(call)
        # A list is copied: what the model appends to it must not reach the recorded call.
        return cast(ResultT, list(call.result) if type(call.result) is list else call.result)

    def with_loop_results(self, function: object, args: ArgsT, kwargs: KwargsT) -> tuple[ArgsT, KwargsT]:
        """The arguments of a call, with the results of the loops that ended before it."""
        for explorer in reversed(self.explorers):
            args, kwargs = explorer.loops.in_call(function, args, kwargs)
        return args, kwargs

    def with_updates(self, values: ArgsT) -> ArgsT:
        """The arguments of a call, with what stands for the tensors that loops have updated in place."""
        for explorer in self.explorers:
            values = explorer.loops.updated.in_call(self, values)
        return values

    def looping(self) -> PathExplorer | None:
        """The outermost explorer in which a loop on data runs now."""
        return next((explorer for explorer in self.explorers if explorer.loops.running is not None), None)

    def _call(self, function: Callable[..., object], args: tuple[object, ...], kwargs: dict[str, object]) -> TorchCall:
        with self.pause():
            # Paused: the call may be a loop, whose body runs modules of the user's and compares sizes.
            result = function(*args, **kwargs)
        call = TorchCall(function, args, kwargs, result, is_mutation(function, kwargs))
        self.alive.append(call)
        if is_random(function, args, kwargs) or any(id(t) in self.random for t in tensors((args, kwargs))):
            # An update in place with random numbers makes its target random too.
            self.random.update(id(t) for t in tensors((result, args[:1]) if call.mutates else result))
        if self.shadow is not None:
            self.shadow.follow(call)
        return call

    # ---- optional outputs

    def declare(self, output: object, mark: OptionalOutput, args: Sequence[object], kwargs: dict[str, object]) -> None:
        """Note the tensors that a forward marked with `optional_output` returns on this path."""
        like = mark.sentinel_like(args, kwargs)
        # `tensors` opens containers, and takes a dataclass for a plain value.
        fields = is_dataclass(output) and not isinstance(output, type)
        for tensor in tensors(list(vars(output).values()) if fields else output):
            self.declared[id(tensor)] = mark, like
        self.alive.append(output)

    def declared_for(self, values: Sequence[object]) -> OptionalOutput | None:
        """The mark of the forward that returned one of the values; None where none was marked."""
        return next((self.declared[id(v)][0] for v in values if id(v) in self.declared), None)

    def sentinel_for(self, values: Sequence[object]) -> tuple[torch.Tensor | None, float]:
        """(the tensor whose shape the sentinel takes, its fill) as declared; (None, 0) where nothing was."""
        found = next((self.declared[id(v)] for v in values if id(v) in self.declared), None)
        return (None, 0) if found is None else (found[1], found[0].fill)

    # ---- deciding

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

    def delegate(self, explorer: PathExplorer) -> None:
        """Let the calling module make this module's decisions from now on; its own search starts over."""
        self.delegating.add(id(explorer.module))
        caller = self.explorers[self.explorers.index(explorer) - 1]
        caller.restart = True

    def check_len(self, container: object) -> None:
        """Refuse `len` of a list that a loop fills: it has as many entries as rounds were run, not as the input has."""
        for loop in (loop for explorer in self.explorers for loop in explorer.loops.all):
            if loop.rounds_in(container) > 1:
                raise loop.refusal("len() of a list that it fills depends on the number of rounds")

    def check_counter(self, tensor: torch.Tensor, use: str) -> None:
        """Refuse a loop's index as a key or as text: it is a tensor here, and an int in eager."""
        # `i + 1` is another tensor than the index: while a loop runs, every 0-d whole number may come from it.
        if id(tensor) in self.counters or (tensor.dim() == 0 and not tensor.is_floating_point() and self._looping()):
            raise self.refusal(
                here(),
                f"in a loop whose number of rounds depends on the input, the loop's index is used as {use}",
                remedy="look values up in a tensor (table[i]), and leave text to code that is not exported",
            )

    def _looping(self) -> bool:
        return any(not loop.done for explorer in self.explorers for loop in explorer.loops.all)

    # ---- refusing

    def refusal(
        self, site: Site | None, found: str, *, remedy: str, module: torch.nn.Module | None = None
    ) -> BranchError:
        """The error to raise: module path, source line, what was found, what to write instead."""
        module = module if module is not None else self.explorers[-1].module
        path = self.path_of(module) or "(root)"
        error = BranchError(f"{path} ({type(module).__name__}), {site or here()}: {found}; {remedy}")
        # A model may catch the error and go on. The first refusal is the cause; later ones follow from it.
        self.refused = self.refused or error
        return error

    def refuse_paths(self, explorer: PathExplorer) -> None:
        """Raise the refusal for a module with more than `max_paths` paths."""
        sites = list(explorer.root.sites())
        lines = ", ".join(dict.fromkeys(f"line {site.line}" for site in sites))
        raise self.refusal(
            sites[0] if sites else None,
            f"more than {self.max_paths} paths; forward branches at {lines}",
            module=explorer.module,
            remedy="put the parts that branch into modules of their own (paths multiply inside a module only), or "
            "raise max_paths=",
        )

    def check_path_error(self, explorer: PathExplorer, error: Exception) -> None:
        """Refuse a path that fails because of the example; a `raise` or `assert` of the user's may end a path."""
        # Before the first decision eager fails in the same way, and a probe of a list's length is meant to fail.
        if not explorer.decided or self.list_lengths.probing or raised_on_purpose(error):
            return
        text = " ".join(str(error).split())[:300]
        raise self.refusal(
            line_of(error),
            f"a branch that the example does not take cannot be run with it: {type(error).__name__}: {text}",
            module=explorer.module,
            remedy="export with an example that fits both branches, or write the branch so that it fits every input",
        ) from error

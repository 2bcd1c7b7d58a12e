"""The state of one export of one model with branches: its frames, what is recorded, what is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, is_dataclass
from typing import Any

import torch

from onnxpatch._torch import exporting
from onnxpatch.control_flow import tape
from onnxpatch.control_flow.current_capture import captures
from onnxpatch.control_flow.loops.results import StackedRounds, joined
from onnxpatch.control_flow.optional_outputs.decorator import OptionalOutput
from onnxpatch.control_flow.path_explorer import Frame, Node, is_dropped
from onnxpatch.control_flow.source_sites import Site, here, line_of
from onnxpatch.control_flow.symbolic_shadow import SymbolicShadow
from onnxpatch.control_flow.tape import Entry, tensors
from onnxpatch.errors import BranchError


@dataclass
class Dropped:
    """A path that ended in a `raise` or a failed `assert`: not in the graph."""

    module: str
    line: str
    error: str


@dataclass
class BranchReport:
    """What forking did: modules that decided, paths run, paths dropped, notes on what the graph does differently.

    rewritten: the file will be worked over by the kit, so that it may promise what the exporter itself cannot write.
    """

    decided: dict[str, list[str]] = field(default_factory=dict)
    paths: dict[str, int] = field(default_factory=dict)
    dropped: list[Dropped] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    outputs: list[Any] = field(default_factory=list)
    layout: Any = None
    rewritten: bool = False
    # Compiled functions that the traced graph refers to without owning them: they live as long as the model is patched.
    compiled: list[Any] = field(default_factory=list, repr=False)

    def __str__(self) -> str:
        lines = [
            f"{path or '(root)'}: {self.paths[path]} paths, decided at {', '.join(at)}"
            for path, at in self.decided.items()
        ]
        lines += [f"dropped: {d.module or '(root)'}, {d.line}: {d.error}" for d in self.dropped]
        return "\n".join([*lines, *self.notes]) or "No branch depends on data or on a dynamic size."


class Capture:
    """One run of a root model under an exporter."""

    def __init__(self, path_of: Callable[[torch.nn.Module], str], limit: int, form: str, report: BranchReport) -> None:
        self.exporter = exporting()
        self.path_of, self.limit, self.form, self.report = path_of, limit, form, report
        self.frames: list[Frame] = []
        self.delegating: set[int] = set()
        self.paused = False
        self.refused: Exception | None = None
        self.inputs: list[torch.Tensor] = []
        self.alive: list[Any] = []  # what torch refers to without owning it, and ids that must not be reused
        self.random: set[int] = set()
        self.shadow: SymbolicShadow | None = None
        self.declared: dict[int, tuple[OptionalOutput, torch.Tensor | None]] = {}
        self.missing: tuple[OptionalOutput, torch.Tensor | None] | None = None
        self.lengths: dict[tuple[int, Site], int] = {}
        self.probed: dict[tuple[int, Site], int] = {}
        self.probe: tuple[tuple[int, Site], int] | None = None
        self.counters: set[int] = set()  # ids of tensors that are ints in eager: the numbers of loops

    def begin(self, inputs: list[torch.Tensor]) -> None:
        """Note the tensors that the root is called with."""
        self.inputs = inputs
        self.shadow = SymbolicShadow(inputs) if self.exporter == "trace" else None

    # ---- being in force

    @contextmanager
    def entered(self) -> Iterator[None]:
        captures().append(self)
        try:
            yield
        finally:
            captures().remove(self)

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Calls inside the block go straight to torch: neither recorded nor answered."""
        before, self.paused = self.paused, True
        try:
            yield
        finally:
            self.paused = before

    # ---- recording

    def execute(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call, or take the answer from the path before; and note it in every frame that runs."""
        args, kwargs = self.with_loop_results(function, args, kwargs)
        if args and isinstance(args[0], StackedRounds):
            with self.pause():
                return joined(function, *args, **kwargs)
        entry, above = None, len(self.frames)
        while entry is None and above:
            above -= 1
            entry = self.frames[above].replay(function, args, kwargs)
        if entry is None:
            entry, above = self._call(function, args, kwargs), 0
        for frame in self.frames[above:]:
            frame.append(entry)
        return list(entry.result) if type(entry.result) is list else entry.result

    def with_loop_results(self, function: Any, args: Any, kwargs: Any) -> tuple[Any, Any]:
        """The arguments of a call, with the final state of the loops on data before it."""
        for frame in reversed(self.frames):
            if frame.loops:
                args, kwargs = frame.with_loop_results(function, args, kwargs)
        return args, kwargs

    def _call(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Entry:
        with self.pause():
            result = function(*args, **kwargs)
        entry = Entry(function, args, kwargs, result, tape.is_mutation(function, kwargs))
        self.alive.append(entry)
        if tape.is_random(function, kwargs, args) or any(id(t) in self.random for t in tensors((args, kwargs))):
            self.random.update(id(t) for t in tensors((result, args[:1]) if entry.mutates else result))
        if self.shadow is not None:
            self.shadow.follow(entry)
        return entry

    # ---- what authors declared about optional outputs

    def declare(self, output: Any, declared: OptionalOutput, args: Any, kwargs: Any) -> None:
        """Note the tensors that a forward marked with `optional_output` returns on this path."""
        like = declared.sentinel_like(args, kwargs)
        for tensor in tensors(list(vars(output).values()) if is_dataclass(output) else output):
            self.declared[id(tensor)] = declared, like
        self.alive.append(output)

    def declared_for(self, values: Sequence[Any]) -> OptionalOutput | None:
        return next((self.declared[id(v)][0] for v in values if id(v) in self.declared), None)

    def like_for(self, values: Sequence[Any]) -> tuple[torch.Tensor | None, float]:
        """(the tensor whose shape a sentinel takes, its fill)."""
        found = next((self.declared[id(v)] for v in values if id(v) in self.declared), None)
        return (None, 0) if found is None else (found[1], found[0].fill)

    # ---- deciding

    def decide(self, predicate: torch.Tensor, condition: torch.SymBool | None = None) -> bool:
        """Answer a bool that depends on data: the innermost frame's business."""
        site = here()
        if id(predicate) in self.random:
            raise self.refusal(site, "a branch on a random number", remedy="draw it outside and pass it in as an input")
        return self.frames[-1].decide(predicate, site, condition)

    def choose(self, key: Any, is_any: Callable[[list[int]], bool]) -> int:
        """A number from data that a Python list is indexed with: one path for each entry of the list.

        How long the list is shows by an IndexError only: until then the numbers are tried one after another, in runs
        that count for nothing. `key`: equal for equal numbers, so that one number is decided once on a path.
        is_any: the decision whether the number is one of several.
        """
        frame = self.frames[-1]
        if key in frame.chosen:
            return frame.chosen[key]
        place = id(frame.module), here()
        if place not in self.lengths:
            self.probe = place, self.probed.get(place, 0)
            return self.probe[1]
        frame.chosen[key] = among(self.lengths[place], is_any)
        return frame.chosen[key]

    def settle_probe(self, error: Exception | None) -> bool:
        """After a run: whether it was one that asks how long a list is, so that the module must be run again."""
        if self.probe is None:
            return False
        (place, number), self.probe = self.probe, None
        if isinstance(error, IndexError):
            self.lengths[place] = number
        elif number >= self.limit:
            raise self.refusal(
                place[1],
                f"a list indexed with a number from data has more than {self.limit} entries",
                remedy="keep what it holds in one tensor and index that, or raise max_paths=",
            )
        else:
            self.probed[place] = number + 1
        return True

    @property
    def parent(self) -> Frame | None:
        """The frame around the innermost one."""
        return self.frames[-2] if len(self.frames) > 1 else None

    def delegate(self, frame: Frame) -> None:
        """From now on the decisions of this frame's module belong to the frame around it, which starts over."""
        self.delegating.add(id(frame.module))
        around = self.frames[self.frames.index(frame) - 1]
        around.restart = True

    def check_len(self, container: Any) -> None:
        """`len` of a list that a loop on data fills: as long as the input says, and not as the rounds that were run."""
        for loop in (loop for frame in self.frames for loop in frame.loops):
            if loop.rounds_in(container) > 1:
                raise loop.refusal("len() of a list that it fills depends on the number of rounds")

    def check_counter(self, tensor: torch.Tensor, use: str) -> None:
        """The number of a loop's round is a tensor here: as a key or as text it is not what it is in eager."""
        if id(tensor) in self.counters or (tensor.dim() == 0 and not tensor.is_floating_point() and self._looping()):
            raise self.refusal(
                here(),
                f"a loop that runs as often as the input says: a number of its rounds used as {use}",
                remedy="look values up in a tensor (table[i]), and leave text to code that is not exported",
            )

    def _looping(self) -> bool:
        return any(not loop.done for frame in self.frames for loop in frame.loops)

    # ---- refusing

    def site(self) -> Site:
        return here()

    def refusal(
        self, site: Site | None, found: str, *, remedy: str, module: torch.nn.Module | None = None
    ) -> BranchError:
        """The error to raise: module path, source line, what was found, what to write instead."""
        module = module if module is not None else self.frames[-1].module
        path = self.path_of(module) or "(root)"
        error = BranchError(f"{path} ({type(module).__name__}), {site or here()}: {found}; {remedy}")
        self.refused = self.refused or error
        return error

    def refuse_paths(self, frame: Frame) -> None:
        decided = ", ".join(dict.fromkeys(f"line {site.line}" for site in sites(frame.root)))
        raise self.refusal(
            next(sites(frame.root), None),
            f"more than {self.limit} paths; decided at {decided}",
            module=frame.module,
            remedy="put the parts that decide into modules of their own (paths multiply inside a module only), or "
            "raise max_paths=",
        )

    def check_error(self, frame: Frame, error: Exception) -> None:
        """A path may end in a raise of the user's; it may not fail because of the example."""
        if not frame.decided or self.probe is not None or is_dropped(error):
            return
        text = " ".join(str(error).split())[:300]
        raise self.refusal(
            line_of(error),
            f"a branch that the example does not take cannot be run with it: {type(error).__name__}: {text}",
            module=frame.module,
            remedy="export with an example that fits both branches, or write the branch so that it fits every input",
        ) from error


def among(length: int, is_any: Callable[[list[int]], bool]) -> int:
    """Which entry of a list a number from data means, negative ones from the end: one decision for all but the last."""
    for number in range(length - 1):
        if is_any([number, number - length]):
            return number
    return max(0, length - 1)


def sites(node: Node) -> Iterator[Site]:
    """Where the decisions of a tree were made."""
    if node.site is not None:
        yield node.site
        for child in node.children.values():
            yield from sites(child)

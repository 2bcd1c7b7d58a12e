"""Running one module's forward once per path: decisions are answered from a list, the last one is flipped each time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from onnxpatch._torch.cond import constant_answer, equates, hint_of, storage_key, suppressed_guards
from onnxpatch.control_flow.loops.inference import Loop, refused
from onnxpatch.control_flow.merging.output_template import Template, assembled
from onnxpatch.control_flow.source_sites import Site, raised_on_purpose
from onnxpatch.control_flow.tape import Entry, leaves, names_in, plain_values, target_of, tensors
from onnxpatch.errors import OnnxpatchError
from onnxpatch.patching.model_state import Bindings

if TYPE_CHECKING:
    from onnxpatch.control_flow.capture import Capture

# The same line asked this often on one path is a loop on data, not a branch.
_LOOP = 24


@dataclass(eq=False)
class Leaf:
    """One finished path: its calls, where in them each decision fell, and what it returned or raised."""

    tape: list[Entry]
    cuts: list[int]
    value: Any = None
    error: Exception | None = None
    changed: dict[tuple[int, str], Any] = field(default_factory=dict)
    loops: list[Loop] = field(default_factory=list)


@dataclass(eq=False)
class Node:
    """A decision with its two outcomes, or the end of a path. Index into `children`: the answer."""

    predicate: torch.Tensor | None = None
    site: Site | None = None
    pins: dict[bool, bool] = field(default_factory=dict)
    children: dict[bool, Node] = field(default_factory=dict)
    leaf: Leaf | None = None

    def leaves(self) -> Iterator[Leaf]:
        """The finished paths, those that raised left out."""
        if self.leaf is not None:
            if self.leaf.error is None:
                yield self.leaf
            return
        for child in self.children.values():
            yield from child.leaves()

    @property
    def alive(self) -> bool:
        return next(self.leaves(), None) is not None

    def first(self) -> Leaf:
        """Any finished path below."""
        return self.leaf if self.leaf is not None else next(iter(self.children.values())).first()


class Frame:
    """One call of one module's forward. Decisions made while it is the innermost frame belong to it.

    `reuse`: the calls before a flipped decision are not run again but answered from the path before. Given up, by
    starting over, as soon as something is updated in place.
    """

    def __init__(self, capture: Capture, module: torch.nn.Module, call: Callable[[], Any]) -> None:
        self.capture, self.module, self._call = capture, module, call
        self.attributes = Bindings(module)
        self.reuse = True
        self.restart = False
        self.rounds = 3
        self.whiles: set[Site] = set()
        self._seen: list[Any] | None = None
        self._reset()

    def _reset(self) -> None:
        self.root = Node()
        self.answers: list[bool] = []
        self.paths = 0
        self.restart = False
        self.outside: tuple[Entry, Site | None] | None = None
        self.looped: Site | None = None
        self._shared: list[Entry] = []

    def explore(self) -> Node:
        """Every path, as a tree of decisions. A tree without a decision is the plain forward."""
        while True:
            leaf = self._run()
            if self.capture.settle_probe(leaf.error) or self.restart:
                self.attributes.restore()
                self._reset()
                continue
            self._end.leaf = leaf
            self.paths += 1
            if not self._flip(leaf):
                if self._looks_the_same():
                    return self.root
                self._reset()
            self.attributes.restore()

    def _looks_the_same(self) -> bool:
        """Whether a forward with loops does the same after another number of rounds; asks for that run first."""
        if not self.looped:
            return True
        seen = [path_summary(leaf) for leaf in self.root.leaves()]
        if self._seen is None:
            self._seen, self.rounds = seen, self.rounds + 1
            return False
        if seen != self._seen:
            raise refused(self.capture, self.looped, "a Python value after it depends on the number of rounds")
        return True

    def _run(self) -> Leaf:
        self._begin()
        leaf = Leaf(self.tape, self.cuts)
        try:
            leaf.value = self._final_value(self._call())
            self._check_assumed()
        except OnnxpatchError:
            raise
        except Exception as error:
            leaf.error = error
            if self.loops and not self.loops[-1].done and not is_dropped(error):
                text = " ".join(str(error).split())[:200]
                raise self.loops[-1].refusal(f"{type(error).__name__} inside it: {text}") from error
            self.capture.check_error(self, error)
        finally:
            while self._pinned:
                self._pinned.pop().__exit__(None, None, None)
        leaf.changed, leaf.loops = self.attributes.changes(), self.loops
        return leaf

    def _check_assumed(self) -> None:
        """torch.export takes sizes that an operator needs equal to be so for good, whatever they are in the example:
        the other side of the condition would be gone."""
        for condition, text, site in self._assumed:
            if constant_answer(condition) is not None:
                raise self.capture.refusal(
                    site,
                    f"a branch runs only on sizes that are equal, {text}, which they are not in the example",
                    module=self.module,
                    remedy="export with an example in which they are",
                )

    def _begin(self) -> None:
        self.tape: list[Entry] = []
        self.cuts: list[int] = []
        self._end = self.root
        self._born: set[int] = set()
        self._outer_storages: set[int] = set()
        self._scanned = 0
        self.chosen: dict[Any, int] = {}
        self._pinned: list[Any] = []
        self._assumed: list[tuple[torch.SymBool, str, Site]] = []
        self.loops: list[Loop] = []

    def _flip(self, leaf: Leaf) -> bool:
        while self.answers and not self.answers[-1]:
            self.answers.pop()
        if not self.answers:
            return False
        self.answers[-1] = False
        if self.paths >= self.capture.limit:
            self.capture.refuse_paths(self)
        self._shared = leaf.tape[: leaf.cuts[len(self.answers) - 1]] if self.reuse else []
        return True

    # ---- what the forward does while a path runs

    def decide(self, predicate: torch.Tensor, site: Site, condition: torch.SymBool | None = None) -> bool:
        """The answer on this path to a bool that depends on data."""
        if site in self.whiles and condition is None:
            return self._another_round(predicate, site)
        if self.loops and not self.loops[-1].done:
            raise self.loops[-1].refusal(f"line {site.line} decides inside it")
        depth, node = len(self.cuts), self._end
        if node.predicate is None:
            node.predicate, node.site = predicate, site
        elif node.site != site:
            raise self.capture.refusal(
                site,
                "the forward took another way the second time it was run",
                module=self.module,
                remedy="make it depend on its inputs alone: no counters, no Python random numbers",
            )
        if depth == len(self.answers):
            self._check_loop(site, on_sizes=condition is not None)
            self.answers.append(True)
        answer = self.answers[depth]
        self.cuts.append(len(self.tape))
        if condition is not None and equates(condition, answer) and hint_of(condition) is not None:
            node.pins[answer] = True
            if hint_of(condition) is answer:
                guard = suppressed_guards(condition)
                guard.__enter__()
                self._pinned.append(guard)
            else:
                self._assumed.append((condition, f"{condition.node.expr}", site))
        self._end = node.children.setdefault(answer, Node())
        return answer

    def _check_loop(self, site: Site, on_sizes: bool) -> None:
        node, asked = self.root, 0
        for answer in self.answers:
            asked += node.site == site
            node = node.children[answer]
        if on_sizes and asked >= self.capture.limit:  # each of them is a path of its own
            raise refused(self.capture, site, "a Python number is compared with one from the input in every round")
        if not on_sizes and asked >= _LOOP:
            self.whiles.add(site)  # the path is left as soon as possible, to start over
            self.restart = True

    # ---- loops on data

    def open_loop(self, loop: Loop) -> None:
        """A loop that runs as often as the data says begins."""
        if self.loops and not self.loops[-1].done:
            raise loop.refusal("it stands inside another one, or runs beside it")
        self.loops.append(loop)
        self.looped = loop.site

    def close_loop(self, loop: Loop) -> None:
        """The last round is over."""
        if self.loops[-1] is not loop:
            raise loop.refusal("it runs beside another one")
        loop.finish()

    def _another_round(self, predicate: torch.Tensor, site: Site) -> bool:
        if not self.loops or self.loops[-1].done:
            self.open_loop(Loop(self.capture, None))
        loop = self.loops[-1]
        if loop.rows is not None or loop.site != site:
            raise loop.refusal(f"line {site.line} decides inside it")
        loop.end()
        loop.answers.append(predicate)
        if len(loop.answers) <= self.rounds:
            loop.begin()
            return True
        self.close_loop(loop)
        return False

    def with_loop_results(self, function: Any, args: Any, kwargs: Any) -> tuple[Any, Any]:
        """The arguments of a call, with the final state of the loops before it."""
        for loop in self.loops:
            if loop.done:
                args, kwargs = loop.results.in_call(function, args, kwargs)
        return args, kwargs

    def _final_value(self, value: Any) -> Any:
        if not self.loops:
            return value
        if not self.loops[-1].done:
            raise self.loops[-1].refusal("it is left before its end")
        template = Template([value], liberal=True)
        made = {id(slot): slot.values[0] for slot in template.slots}
        for loop in self.loops:
            made = {name: loop.results.final(leaf) for name, leaf in made.items()}
        return assembled(template.structure, made)

    def replay(self, function: Any, args: Any, kwargs: Any) -> Entry | None:
        """The entry of the path before, when this call is one that both share."""
        at = len(self.tape)
        if at >= len(self._shared) or not self.reuse:
            return None
        entry = self._shared[at]
        kinds = type(entry.function).__name__, type(function).__name__
        alike = entry.function == function or kinds in (("IfCall", "IfCall"), ("LoopCall", "LoopCall"))
        if alike and entry.needs() == names_in((args, kwargs)):
            return entry
        self.reuse, self.restart = False, True  # something between the calls was not seen: run every path in full
        return None

    def append(self, entry: Entry) -> None:
        """Note a call; an update in place ends the reuse of earlier paths."""
        self.tape.append(entry)
        if entry.mutates:
            if self.reuse:
                self.reuse, self.restart = False, bool(self.cuts or self.paths)
            if self.outside is None and any(self._is_outer(target) for target in target_of(entry)):
                self.outside = (entry, self.capture.site())
            self.chosen.clear()
        self._born.update(id(t) for t in tensors(entry.result))

    def _is_outer(self, target: torch.Tensor) -> bool:
        for entry in self.tape[self._scanned :]:
            for leaf in leaves((entry.args, entry.kwargs)):
                if isinstance(leaf, torch.Tensor) and id(leaf) not in self._born:
                    self._outer_storages.add(storage_key(leaf))
        self._scanned = len(self.tape)
        return id(target) not in self._born or storage_key(target) in self._outer_storages

    @property
    def decided(self) -> bool:
        return self.root.predicate is not None


def path_summary(leaf: Leaf) -> Any:
    """What a path did outside its loops, as far as Python values go: equal for paths that do the same."""
    inner = {id(entry) for loop in leaf.loops for entries in loop.rounds for entry in entries}
    rows = {id(row) for loop in leaf.loops for row in loop.given}
    calls = [e for e in leaf.tape if id(e) not in inner and not any(id(t) in rows for t in tensors(e.result))]
    return [(getattr(e.function, "__name__", ""), plain_values((e.args, e.kwargs))) for e in calls] + [
        ("return", plain_values(leaf.value))
    ]


def is_dropped(error: Exception) -> bool:
    """Whether a path that ended so stands for "this must not happen": a raise or an assert of the user's."""
    return raised_on_purpose(error)

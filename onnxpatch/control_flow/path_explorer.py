"""Runs one module's forward once per path: answers decisions from a list, and flips the last answer each time.

Depth-first search by replay. Python cannot be stopped at an `if` and resumed on the other side, so the whole forward
runs again with another list of answers. A new decision is answered True and appended; after each run, trailing False
answers are dropped and the last True becomes False.

    def forward(self, x):           run   list of answers   decisions
        if x.sum() > 0:     # A     1     []                A True, B True
            if x.max() > 1: # B     2     [True, False]     A True, B False
                ...                 3     [False]           A False

Calls before the flipped decision are the same in both runs: their results are reused, so that the graph has them once.
In-place updates break that, and then every path runs in full. Each run starts from the same module attributes. A line
that decides 24 times on one path is a `while` on data; the search starts over and treats it as a loop (`loops/`).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from types import TracebackType
from typing import TypeVar

import torch

from onnxpatch._torch.cond import constant_answer, equates, hint_of, operations, suppressed_guards
from onnxpatch.control_flow.loops.recorded_loop import loop_refusal
from onnxpatch.control_flow.path_tree import Path, PathNode, path_summary
from onnxpatch.control_flow.pytrees import Name
from onnxpatch.control_flow.recording import Recording
from onnxpatch.control_flow.tape import CallRecorder, TorchCall, same_call
from onnxpatch.decisions.ask import Site
from onnxpatch.decisions.functions_run import raised_on_purpose
from onnxpatch.errors import OnnxpatchError
from onnxpatch.patching.forward_state import Bindings

# The same line asked this often on one path is a loop on data, not a branch. The first path answers True every time:
# without a limit, a `while` would never end.
_DECISIONS_OF_A_LOOP = 24
# A loop on sizes makes the expression of its size longer in every round: `x[:, 1:] + x[:, :-1]` doubles it, and sympy
# takes minutes for the tenth. So long an expression, after so many rounds, ends the search.
_LONG_CONDITION, _ROUNDS_ON_SIZES = 60, 4
ArgsT = TypeVar("ArgsT")
KwargsT = TypeVar("KwargsT")
# Rounds of a loop that are run and compared; the whole forward is then run once more with one round more.
_ROUNDS = 3


class PathExplorer:
    """Explores the paths of one call of one module's forward. Decisions belong to the innermost explorer.

    restart: the paths so far do not count, and the search starts over. rounds: how many rounds of a loop are run.
    path: the one that runs. On it, chosen: the entry that a number from data means in a Python list; facts: what was
    answered of sizes; asked: the calls whose results were decided.
    """

    def __init__(self, capture: Recording, module: torch.nn.Module, call: Callable[[], object]) -> None:
        self.capture, self.module, self._call = capture, module, call
        # Every path starts from these, whatever the one before has set.
        self.attributes = Bindings(module)
        self.recorder = CallRecorder()
        self.rounds = _ROUNDS
        # These two outlive `_reset`, as `rounds` does: what one search found out is how the next one is set up.
        self._while_sites: set[Site] = set()
        self._summaries: list[list[tuple[str, object]]] | None = None
        self._reset()

    def _reset(self) -> None:
        self.root = PathNode()
        self.answers: list[bool] = []
        self.paths = 0
        self.restart = False
        self.recorder.outer_write = None
        self._looped: Site | None = None
        self._shared: list[TorchCall] = []

    def explore(self) -> PathNode:
        """Run every path; returns the tree of decisions. A tree without a decision is the plain forward."""
        while True:
            path = self._run()
            # A run that only found a list's length, or that showed that the search must be set up otherwise, is no
            # path: forget everything and begin again.
            if self.capture.list_lengths.settle_probe(path.error) or self.restart:
                self.attributes.restore()
                self._reset()
                continue
            self._end.end = path
            self.paths += 1
            if not self._flip(path):  # all paths are known
                if self._same_after_another_round():
                    return self.root
                self._reset()
            self.attributes.restore()
            self.capture.sizes.forget(self.module)

    def _same_after_another_round(self) -> bool:
        """Whether a forward with loops does the same when its loops run one round more; False asks for that run."""
        # Python code after a loop may depend on what the rounds left, such as the length of a list: one round more
        # shows it.
        if not self._looped:
            return True
        summaries = [path_summary(path) for path in self.root.finished()]
        if self._summaries is None:
            self._summaries, self.rounds = summaries, self.rounds + 1
            return False
        if summaries != self._summaries:
            raise loop_refusal(self.capture, self._looped, "a Python value after it depends on the number of rounds")
        return True

    def _run(self) -> Path:
        self._begin()
        path = self.path
        with self._equal_sizes:
            try:
                path.value = self.path.final_states(self._call())
                self._check_equal_sizes()
            # A refusal speaks to the user, and ends the export, not the path.
            except OnnxpatchError:
                raise
            except Exception as error:
                # A user's `raise` or `assert` ends this path only: eager raises on such inputs too. Other errors are
                # refused by the two checks.
                path.error = error
                self.path.refuse_error(error)
                # Before the first decision eager fails so too, and a probe of a list's length is meant to fail.
                if self.decided and not self.capture.list_lengths.probing and not raised_on_purpose(error):
                    raise self.capture.failed_path(self.module, error) from error
        path.changed = self.attributes.changes()
        if path.loops:
            self._looped = path.loops[-1].site
        return path

    def _begin(self) -> None:
        self.recorder.begin_path(self._shared)
        self.chosen: dict[Name, int] = {}
        self.facts: list[tuple[torch.SymBool, bool]] = []
        self.asked: list[tuple[TorchCall | None, bool]] = []
        self.path = Path(self.capture, self.recorder.calls, self.rounds)
        self._end = self.root
        self._equal_sizes = _EqualSizes()

    def _flip(self, path: Path) -> bool:
        """Turn the last answer that is True to False; False where none is left."""
        # A decision that is answered False has both of its sides behind it.
        while self.answers and not self.answers[-1]:
            self.answers.pop()
        if not self.answers:
            return False
        self.answers[-1] = False
        # One more path is to come, so the limit is checked here and not after it.
        if self.paths >= self.capture.max_paths:
            raise self.capture.too_many_paths(self.module, self.root.sites(), self.capture.max_paths)
        # The next run makes the same calls up to the decision that was flipped.
        self._shared = path.calls[: path.decided_at[len(self.answers) - 1]] if self.recorder.reuse else []
        return True

    # ---- decisions

    def decide(self, predicate: torch.Tensor, site: Site, condition: torch.SymBool | None = None) -> bool:
        """Answer, on this path, a bool that depends on data. condition: set where it depends on sizes."""
        on_sizes = condition is not None or self.capture.sizes.on_sizes(predicate)
        settled = self.capture.sizes.answer(predicate) if on_sizes and condition is None else None
        if settled is not None:
            return settled
        # A known `while` on data is answered by its loop, which decides how many rounds run: no paths fork there.
        if site in self._while_sites and condition is None:
            return self.path.another_round(predicate, site)
        maker = self.recorder.maker(predicate)
        known = self._known(maker, site)
        if known is not None:
            return known
        answer = self._answer(predicate, site, condition)
        self.asked.append((maker, answer))
        self.path.decided_at.append(len(self.recorder.calls))
        # A number from data has no value at the example.
        of_data = condition is not None and hint_of(condition) is None
        if not of_data:
            self._learn(condition, self.capture.sizes.written(predicate), answer, site)
        self._end.on_sizes = on_sizes and not of_data
        # The node may be there: other paths have come this way.
        self._end = self._end.children.setdefault(answer, PathNode())
        return answer

    def _learn(self, condition: torch.SymBool | None, traced: torch.SymBool | None, answer: bool, site: Site) -> None:
        """Note what an answer says about sizes. traced: the condition, where a trace has a tensor in its place."""
        known = traced if condition is None else condition
        if known is not None:
            self.facts.append((known, answer))
        # On the side of `h == w`, torch.export must not record the equality as a guard of the whole graph.
        if condition is not None and equates(condition, answer):
            self._equal_sizes.assume(condition, answer, site)

    def _known(self, maker: TorchCall | None, site: Site) -> bool | None:
        """The answer in the running loop, or to the same call before it on this path."""
        in_round = self.path.in_round(maker, site)
        if in_round is not None or maker is None:
            return in_round
        return next((answer for call, answer in self.asked if call and same_call(call, maker)), None)

    def _answer(self, predicate: torch.Tensor, site: Site, condition: torch.SymBool | None) -> bool:
        depth, node = len(self.path.decided_at), self._end
        # The first path that comes here gives the predicate. Later ones have the same tensor, or compute an equal one.
        if node.predicate is None:
            node.predicate, node.site = predicate, site
        elif node.site != site:  # the run before asked at another line here: forward is not deterministic
            raise self.capture.refusal(
                site,
                "forward took a different path when it was run again",
                module=self.module,
                remedy="make it depend on its inputs alone: no counters, no Python random numbers",
            )
        if depth == len(self.answers):
            self._check_loop(site, condition)
            self.answers.append(True)
        return self.answers[depth]

    def _check_loop(self, site: Site, condition: torch.SymBool | None) -> None:
        # How often this line has decided on the way from the root to here.
        node, times = self.root, 0
        for answer in self.answers:
            times += node.site == site
            node = node.children[answer]
        on_sizes = condition is not None
        grows = times >= _ROUNDS_ON_SIZES and operations(condition) > _LONG_CONDITION
        if on_sizes and (grows or times >= self.capture.max_paths):  # each of them is a path of its own
            raise loop_refusal(self.capture, site, "its condition compares a Python number with one from the input")
        if not on_sizes and times >= _DECISIONS_OF_A_LOOP:
            self._while_sites.add(site)  # this run goes on to its end; then the search starts over
            self.restart = True

    def _check_equal_sizes(self) -> None:
        fixed = self._equal_sizes.made_permanent()
        if fixed is not None:
            condition, site = fixed
            raise self.capture.refusal(
                site,
                f"a branch runs only where sizes are equal ({condition.node.expr}), and in the example they differ",
                module=self.module,
                remedy="export with an example in which they are equal",
            )

    @property
    def decided(self) -> bool:
        return self.root.predicate is not None

    # ---- recording calls

    def replay(self, function: Callable[..., object], args: object, kwargs: object) -> TorchCall | None:
        """The same call of the previous path, where both paths share it; None where the call has to run."""
        could_share = self.recorder.reuse
        call = self.recorder.shared_call(function, args, kwargs)
        # The paths so far have shared calls that are not the same after all: they run again, each in full.
        self.restart |= could_share and not self.recorder.reuse
        return call

    def in_call(self, function: object, args: ArgsT, kwargs: KwargsT) -> tuple[ArgsT, KwargsT]:
        """The arguments of a call, with the results of the loops of this path that ended before it."""
        return self.path.in_call(function, args, kwargs)

    def append(self, call: TorchCall) -> None:
        """Record a call that ran."""
        could_share = self.recorder.reuse
        self.recorder.append(call)
        if call.mutates:
            # Nothing is shared yet while the first path has not decided anything: no need to start over.
            self.restart |= could_share and bool(self.path.decided_at or self.paths)
            # What was compared, or indexed lists, may have changed in place: decide it anew.
            self.chosen.clear()
            self.asked.clear()


class _EqualSizes:
    """The sizes that one path takes for equal. As a context manager, it ends the suppression of guards."""

    def __init__(self) -> None:
        self._guards = ExitStack()
        self._assumed: list[tuple[torch.SymBool, Site]] = []

    def assume(self, condition: torch.SymBool, answer: bool, site: Site) -> None:
        """Take sizes for equal from here to the end of the path. answer: of the condition, on this path."""
        # Guards can be suppressed only where the example fits: torch.export goes on with its sizes.
        if hint_of(condition) is answer:
            self._guards.enter_context(suppressed_guards(condition))
        else:
            self._assumed.append((condition, site))

    def made_permanent(self) -> tuple[torch.SymBool, Site] | None:
        """A condition, and its line, that torch.export has fixed since it was assumed; None where none was."""
        return next((pair for pair in self._assumed if constant_answer(pair[0]) is not None), None)

    def __enter__(self) -> _EqualSizes:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._guards.close()

"""`SidesTaken`: records which sides of its own `if`s a model's Python takes while the reference runs in eager.

    with watched_run(sides) as taken:      taken.jumps: (function, instruction, whether it jumped)
        model(x)                           taken.lines: (function, line)

Functions of the model and its libraries are watched, but not those of torch, Python's own library or this package.
"""

from __future__ import annotations

import functools
import itertools
import sysconfig
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any

from onnxpatch.decisions.choice_outcomes import UNKNOWN, Choice
from onnxpatch.decisions.choices import choices
from onnxpatch.decisions.conditionals import source_of
from onnxpatch.decisions.functions_run import OUTSIDE, Caller, Function, Kind
from onnxpatch.messages.user_code import is_user_frame, package_of

_PASSED_OVER = frozenset({"numpy", "scipy", "mpmath", "einops", "typing_extensions", "packaging", "regex"})
_IMPORT_DEPTH = 12  # frames
_PLAIN = (type(None), bool, int, float, complex, str, bytes)
_GIVEN = (int, float, str, tuple, list, dict, set, frozenset)
_LOOKED_AT = 4  # calls from one place of which the arguments are looked at
_DEEPEST, _MOST_HELD = 3, 64  # containers in containers, and values of each, that are searched for tensors

Jump = tuple[int, int, bool]


@dataclass
class Taken:
    """What one run took. jumps: (number of the function, offset, whether it jumped); lines: (number, line).

    chosen: (choice, outcome) of what was chosen without a jump.
    """

    jumps: set[Jump] = field(default_factory=set)
    lines: set[tuple[int, int]] = field(default_factory=set)
    chosen: set[tuple[Choice, Any]] = field(default_factory=set)


class SidesTaken:
    """The functions of one model that have run, and what each run took.

    fixed: (file, function, line, offset) of comparisons that no size turned. attributes: by name, of which kinds those
    of other objects than modules were. able: whether runs are recorded; not while another tracer, a debugger say, has
    the place.
    """

    def __init__(
        self,
        is_own: Callable[[object], bool] = lambda value: False,
        unseen: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        """is_own: whether a tensor is the model's own, a weight say. unseen: a block whose calls nobody records."""
        self.functions: list[Function] = []
        self.attributes: dict[str, set[Kind]] = {}
        self.able = True
        self.is_own, self.unseen = is_own, unseen
        self.fixed: frozenset[tuple[str, str, int, int]] = frozenset()
        self.choices: dict[Function, dict[int, list[Choice]]] = {}  # by line; of a lambda, those of what is around it
        self._by_code: dict[int, tuple[CodeType, Function | None]] = {}
        self.passed_over: set[int] = set()  # the ids of the code that is not looked at
        self.taken = Taken()
        self._seen: set[Jump] = set()
        self._outcomes: dict[Choice, set[Any]] = {}

    def keep(self, taken: Taken) -> None:
        """Count a run as one that is compared: functions of which every side is taken are not watched any more."""
        self._seen |= taken.jumps
        for choice, outcome in taken.chosen:
            self._outcomes.setdefault(choice, set()).add(outcome)
        for one in self.functions:
            one.done = one.done or (
                all((one.number, at, jumped) in self._seen for at in one.jumps for jumped in (True, False))
                and all(map(self._is_known, itertools.chain.from_iterable(self.choices.get(one, {}).values())))
            )

    def _is_known(self, choice: Choice) -> bool:
        """Whether a choice came out in two ways, or cannot be looked at."""
        return choice.is_left or len(self._outcomes.get(choice, ())) > 1

    def is_new(self, taken: Taken | None) -> bool:
        """Whether a run took a side that none of those to be compared has taken."""
        return taken is not None and (not taken.jumps <= self._seen or any(
            len(seen := self._outcomes.get(choice, set())) < 2 and outcome not in seen
            for choice, outcome in taken.chosen
        ))  # fmt: skip

    # -------------------------------------------------------------- what the two ways of watching call
    def function(self, frame: FrameType) -> Function | None:
        """The model's function that a frame runs; None for one that is not looked at."""
        code = frame.f_code
        known = self._by_code.get(id(code))
        if known is None:
            found = self._entered(frame) if _is_models(frame) else None
            known = self._by_code[id(code)] = code, found  # with the code, so that its id stays its own
            self.passed_over |= {id(code)} if found is None else set()
        return known[1]

    def called(self, one: Function, frame: FrameType, base: FrameType | None) -> Caller:
        """Who called a function; noted the first times that it is called from there."""
        back, caller = frame.f_back, (OUTSIDE, 0)
        while back is not None and back is not base:
            if (calling := self.by_code(back.f_code)) is not None:
                caller = calling.number, back.f_lasti
                break
            back = back.f_back
        calls = one.callers.get(caller, 0)
        if calls < _LOOKED_AT:
            one.callers[caller] = calls + 1
            self._note_kinds(one, frame)
        return caller

    def returned(self, one: Function, caller: Caller, value: object) -> None:
        """Note what a function returns to a caller, the first times."""
        kinds, calls = one.returns.setdefault(caller, (set(), 0))
        if calls < _LOOKED_AT:
            one.returns[caller] = {*kinds, self._kind(value)}, calls + 1

    def tested(self, one: Function, at: int, frame: FrameType) -> None:
        """Note what a local name is that a jump tests, the first times."""
        name = one.names.get(at)
        kinds, often = one.tested.get(at, (set(), 0))
        if name is not None and often < _LOOKED_AT:
            one.tested[at] = {*kinds, self._kind(frame.f_locals.get(name))}, often + 1

    def choose(self, one: Function, frame: FrameType) -> None:
        """Note what the line chooses that a frame is about to run."""
        open_ones = [choice for choice in self.choices[one].get(frame.f_lineno, ()) if not self._is_known(choice)]
        if open_ones:
            with self.unseen():
                found = [(choice, choice.outcome(frame)) for choice in open_ones]
            self.taken.chosen |= {(choice, outcome) for choice, outcome in found if outcome is not UNKNOWN}

    def by_code(self, code: CodeType) -> Function | None:
        """The function of a code object, if it has run."""
        known = self._by_code.get(id(code))
        return known[1] if known is not None else None

    def _entered(self, frame: FrameType) -> Function:
        made = Function(len(self.functions), frame.f_code, frame.f_globals)
        self.functions.append(made)
        around = next((one for one in self.functions if frame.f_code in one.inner), made)
        source = source_of(around.code)
        if around is not made and around in self.choices:
            self.choices[made] = self.choices[around]
        else:
            self.choices[made] = choices(source) if source is not None else {}
        return made

    def _note_kinds(self, one: Function, frame: FrameType) -> None:
        code, values = frame.f_code, frame.f_locals
        count = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & 4) + bool(code.co_flags & 8)
        for name in code.co_varnames[:count]:
            value = values.get(name)
            self._note_attributes(value)
            self._note(one, name, value)
            if name in one.gathering and isinstance(value, dict | tuple):
                for key, held in value.items() if isinstance(value, dict) else enumerate(value):
                    one.kinds.setdefault((name, str(key)), set()).add(self._kind(held))
        for name in code.co_freevars:
            self._note(one, name, values.get(name))

    def _note(self, one: Function, name: str, value: object) -> None:
        kind = self._kind(value)
        one.kinds.setdefault(name, set()).add(kind)
        if kind in ("plain", "other") and isinstance(value, _GIVEN):
            one.given.setdefault(name, value)

    def _note_attributes(self, value: object) -> None:
        """Note what the attributes of an object are that is no module, such as a cache's."""
        if self._kind(value) != "other" or isinstance(value, dict | list | tuple | set):
            return
        held = [vars(value)] if type(value).__dictoffset__ else []
        for names in (*held, *(vars(cls) for cls in type(value).__mro__[:-1])):
            for name, one in list(names.items())[:_MOST_HELD]:
                if not name.startswith("__") and not callable(one) and not isinstance(one, property):
                    self.attributes.setdefault(name, set()).add(self._kind(one))

    def _kind(self, value: object, depth: int = _DEEPEST) -> Kind:
        # Its class is asked: an object may have a __getattr__ of its own, which fails before its __init__ has run.
        if hasattr(type(value), "untyped_storage") or type(value).__module__ == "numpy":
            return "other" if self.is_own(value) else "tensor"
        if hasattr(type(value), "named_modules"):
            return "module"
        if isinstance(value, _PLAIN) or type(value).__module__ == "torch":  # a dtype, a device
            return "plain"
        if depth and isinstance(value, dict | list | tuple):
            held = value.values() if isinstance(value, dict) else value
            kinds = {self._kind(one, depth - 1) for one in list(held)[:_MOST_HELD]}
            return "container" if kinds & {"tensor", "container"} else "other"
        return "other"


@functools.cache
def _standard_library() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    return tuple(f"{paths[name]}/" for name in ("stdlib", "platstdlib"))


def _is_models(frame: FrameType) -> bool:
    if not is_user_frame(frame) or package_of(frame) in _PASSED_OVER or frame.f_code.co_name == "__del__":
        return False
    file = frame.f_code.co_filename
    if file.startswith(_standard_library()) and "site-packages" not in file and "dist-packages" not in file:
        return False
    return not _importing(frame)


def _importing(frame: FrameType | None) -> bool:
    """Whether a frame runs for an import in the middle of a forward: torch imports some modules late."""
    for _ in range(_IMPORT_DEPTH):
        if frame is None:
            return False
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False

"""Which conditions can an input turn? Follows the names of a condition through the functions that ran.

    if self.causal: ...                     fixed: an attribute that no forward assigns
    if mask is not None: ...                fixed, where the caller hands over a tensor, or None, in any case
    if x.dim() == 3: ...                    fixed by the export; sizes and data are not
    if x.shape[1] > 512: ...                an input turns it
    n = len(kept); if self.most and n: ...  n of a selection: an input turns it

What is assigned on one side of a condition that an input turns has the level ANY (`expression_levels.py`). Only what
ran counts: what did not stands behind a condition that is named itself. Levels only rise, until none does: loops and
recursion end.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from onnxpatch.decisions.code_run import CodeRun, handed_over
from onnxpatch.decisions.definitions import How, binding, definitions
from onnxpatch.decisions.expression_levels import (
    ANY,
    FIXED,
    HELD,
    NUMBER,
    TENSOR,
    element,
    expression_level,
    held,
    lowered,
    may_turn,
    merged,
    of_kinds,
)
from onnxpatch.decisions.functions_run import OUTSIDE, Function

Key = tuple[Any, ...]
_ROUNDS = 60  # a level rises four times at most, along each way; this ends what a mistake here would not


class Dependence:
    """The levels of expressions in the functions of one model.

    run: the functions that ran. answers: what each test came out as, where it ran. tested: of a test that is a name,
    the kinds of what it was. attributes: by name, the kinds of what the modules have under it.
    """

    def __init__(
        self,
        run: CodeRun,
        answers: Mapping[ast.expr, Collection[bool]],
        tested: Mapping[ast.expr, Collection[str]],
        attributes: Mapping[str, Collection[str]],
    ) -> None:
        self.run, self.answers, self.tested = run, answers, tested
        self._attributes = attributes
        self._defined = functools.cache(definitions)
        self._bindings: dict[tuple[ast.AST, str], tuple[ast.AST | None, Sequence[Any]]] = {}
        self._known: dict[Key, int] = {}
        self._readers: dict[Key, set[Key]] = {}
        self._waiting: list[Key] = []
        self._now: Key | None = None

    def turned(self, tests: Collection[tuple[Function, ast.expr]]) -> set[ast.expr]:
        """Those of the tests that an input can turn."""
        for one, test in tests:
            self._read(("test", one, test))
        self._settle()
        return {test for one, test in tests if self._known["test", one, test]}

    def is_decided(self, one: Function, name: str) -> bool:
        """Whether an input decides the argument of a function, or is in it."""
        self._read(("argument", one, name))
        self._settle()
        return self._known["argument", one, name] > FIXED

    def _settle(self) -> None:
        for _ in range(_ROUNDS * (1 + len(self._known))):
            if not self._waiting:
                break
            self._renew(self._waiting.pop())

    # -------------------------------------------------------------- the levels that are known so far
    def _read(self, key: Key) -> int:
        if self._now is not None:
            self._readers.setdefault(key, set()).add(self._now)
        if key not in self._known:
            self._known[key] = FIXED
            self._waiting.append(key)
        return self._known[key]

    def _renew(self, key: Key) -> None:
        self._now = key
        level = getattr(self, f"_of_{key[0]}")(*key[1:])
        self._now = None
        if level > self._known[key]:
            self._known[key] = level
            self._waiting += self._readers.get(key, ())

    def level(self, one: Function, node: ast.AST | None) -> int:
        """The level of an expression in a function."""
        return expression_level(self, one, node) if node is not None else FIXED

    def turns(self, one: Function, test: ast.expr) -> bool:
        """Whether an input can turn a condition, as far as is known yet."""
        return bool(self._read(("test", one, test)))

    def _of_test(self, one: Function, test: ast.expr) -> int:
        return int(not self.settled(one, test) and may_turn(self, one, test))

    def settled(self, one: Function, test: ast.expr) -> list[ast.BoolOp]:
        """The `a and b and c` that gave a name the only answer that it can have, since c is fixed; [] elsewhere.

        test: the name where it is tested. Where a and b were true and the name was false, c was, and it always is.
        """
        answers = self.answers.get(test, ())
        if len(answers) != 1 or not isinstance(test, ast.Name):
            return []
        made = [place for place in self._binding(one, test, test.id)[1] if self.run.ran(one, place.statement)]
        ended = [place.value for place in made
                 if place.how == "value" and isinstance(place.value, ast.BoolOp)
                 and self._ended(one, place.value, *answers)]  # fmt: skip
        return ended if len(ended) == len(made) else []

    def _ended(self, one: Function, value: ast.BoolOp, answer: bool) -> bool:
        """Whether the last part of `a and b and c` ran, made it false, and is fixed; the same of a true `or`."""
        passed = (not answer) in self.answers.get(value.values[-2], ()) and isinstance(value.op, ast.Or) == answer
        return passed and not may_turn(self, one, value.values[-1])

    # -------------------------------------------------------------- names
    def name(self, one: Function, node: ast.AST, name: str) -> int:
        """The level of a name where `node` reads it."""
        scope, found = self._binding(one, node, name)
        if isinstance(scope, ast.comprehension):
            return element(self.level(one, scope.iter))
        if scope is not None:
            defined = self._defined(scope)[name]
            return self._read(("name", one, scope, name, tuple(map(defined.index, found))))
        if name in one.code.co_freevars:  # of a function that did not run meanwhile
            return of_kinds(one.kinds.get(name, set()))
        return self._read(("attribute", f"global {name}"))

    def _binding(self, one: Function, node: ast.AST, name: str) -> tuple[ast.AST | None, Sequence[Any]]:
        if (node, name) not in self._bindings:
            source = self.run.source(one)
            self._bindings[node, name] = (
                binding(node, name, source.parents, self._defined) if source is not None else (None, ())
            )
        return self._bindings[node, name]

    def _of_name(self, one: Function, scope: ast.AST, name: str, places: tuple[int, ...]) -> int:
        levels: list[tuple[int, bool, ast.AST | None]] = []
        for defined in (self._defined(scope)[name][place] for place in places):
            value = defined.value
            if defined.how == "argument":
                owner = self.run.with_tree(one, scope)
                levels.append((self._read(("argument", owner, name)) if owner else FIXED, False, None))
            elif self.run.ran(one, defined.statement):
                turned = self._controlled(one, defined.statement, scope)
                levels.append((self._taken_from(one, value, defined.how, turned), turned, value))
        return merged(levels)

    def _taken_from(self, one: Function, value: ast.AST, how: How, turned: bool) -> int:
        if isinstance(how, int):
            return self.part(one, value, how)
        level = self.level(one, value)
        if how == "grown":
            return ANY if turned else held([level])
        return element(level) if how == "element" else level

    def part(self, one: Function, value: ast.AST, place: int) -> int:
        """The level of one of the values that an expression is unpacked into."""
        called = self.run.called(one, value) if isinstance(value, ast.Call) else []
        if called:
            return max(self._read(("return", other, place)) for other, _ in called)
        if isinstance(value, ast.Tuple) and place < len(value.elts):
            return self.level(one, value.elts[place])
        return element(self.level(one, value))

    def _controlled(self, one: Function, node: ast.AST, scope: ast.AST) -> bool:
        """Whether an input decides that a node is run."""
        source = self.run.source(one)
        below, node = node, source.parents.get(node, scope) if source else scope
        while node is not scope and source is not None:
            if isinstance(node, ast.If | ast.While | ast.IfExp) and below is not node.test:
                if self.turns(one, node.test):
                    return True
            elif isinstance(node, ast.For) and below is not node.iter and self.level(one, node.iter) >= NUMBER:
                return True
            below, node = node, source.parents.get(node, scope)
        return False

    # -------------------------------------------------------------- arguments
    def _of_argument(self, one: Function, name: str) -> int:
        return self._given(one, name, one.kinds.get(name, set()))

    def _of_item(self, one: Function, name: str, key: str) -> int:
        kinds = one.kinds.get((name, key))
        if kinds is None and not key.isdecimal():
            return FIXED  # nobody ever handed it over
        return self._given(one, name, kinds or one.kinds.get(name, set()), key)

    def item(self, one: Function, node: ast.AST, key: str) -> int | None:
        """The level of `kwargs[key]`, of `args[place]`; None where the node is no `**kwargs` and no `*args`."""
        owner = self.run.around(one)
        if isinstance(node, ast.Name) and node.id in owner.gathering:
            return self._read(("item", owner, node.id, key))
        return None

    def _given(self, one: Function, name: str, kinds: Collection[str], key: str | None = None) -> int:
        levels = [of_kinds(kinds) if caller == OUTSIDE else self._at_call(one, caller, at, name, key)
                  for caller, at in one.callers]  # fmt: skip
        return lowered(max(levels, default=FIXED), kinds)

    def _at_call(self, one: Function, caller: int, at: int, name: str, key: str | None) -> int:
        calling = one.calling or self.run.functions[caller]
        node = self.run.expression_at(calling, at)
        kinds: Collection[str] = one.kinds.get(name if key is None else (name, key), set())
        if node is None:
            return of_kinds(kinds, unknown=True)
        if not isinstance(node, ast.Call):
            return max((self.level(calling, part) for part in ast.iter_child_nodes(node)), default=FIXED)
        given = handed_over(node, one.code, name, key)
        return max((self._of_handed_over(calling, *value) for value in given), default=FIXED)

    def _of_handed_over(self, calling: Function, value: ast.expr, inside: bool, key: str | None) -> int:
        inner = self.item(calling, value, key) if key is not None else None
        if inner is not None:
            return inner
        level = self.level(calling, value)
        return element(level) if inside else level

    # -------------------------------------------------------------- what calls return, and what is kept
    def returned(self, one: Function, kinds: Collection[str]) -> int:
        """The level of what a function returns. kinds: of what it returned."""
        return lowered(self._read(("return", one)), kinds)

    def _of_return(self, one: Function, place: int | None = None) -> int:
        source = self.run.source(one)
        if source is None:
            return ANY
        bodies = self.run.bodies(one)
        if bodies is not None:  # a lambda; what calls a comprehension is the expression itself
            return max((self._value(one, body, place) for body in bodies), default=FIXED)
        levels = []
        for node, value, scope in self.run.returned(one):
            turned = self._controlled(one, node, scope)
            levels.append((self._value(one, value, place), turned, value))
        return merged(levels)

    def _value(self, one: Function, node: ast.expr, place: int | None) -> int:
        return self.level(one, node) if place is None else self.part(one, node, place)

    def attribute(self, name: str, level: int) -> int:
        """The level of an attribute. level: of what it is taken from; counted are also those that forwards assign."""
        kinds = self._attributes.get(name, ())
        inside = lowered(element(level), kinds) if level in (HELD, TENSOR) else level
        return max(inside, self._read(("attribute", name))) if level in (FIXED, ANY) or kinds else element(level)

    def _of_attribute(self, name: str) -> int:
        return max((self._of_stored(one, value, item) for one, value, item in self.run.stores().get(name, ())
                    if self.run.ran(one, value)), default=FIXED)  # fmt: skip

    def _of_stored(self, one: Function, value: ast.expr, item: bool) -> int:
        source = self.run.source(one)
        if source is not None and self._controlled(one, value, source.tree):
            return ANY
        return held([self.level(one, value)]) if item else self.level(one, value)

"""Which conditions can an input turn? Follows the names of a condition through the functions that ran.

    if self.causal: ...                     fixed: an attribute that no forward assigns
    if mask is not None: ...                fixed, where the caller hands over a tensor, or None, in any case
    if x.dim() == 3: ...                    fixed by the export; sizes and data are not
    if x.shape[1] > 512: ...                an input turns it
    n = len(kept); if self.most and n: ...  n of a selection: an input turns it

A value has a level: FIXED; TENSOR, of which the data and sizes depend on the inputs, but neither its type nor whether
it is there; HELD, a container of such tensors, and SIZES, one of numbers, both of fixed length; NUMBER; ANY, which may
be None for some inputs. What is assigned on one side of a condition that an input turns is ANY. Only what ran counts:
what did not stands behind a condition that is named itself. Levels only rise, until none does: loops and recursion end.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, TypeGuard

from onnxpatch.decisions.conditionals import Source, source_of
from onnxpatch.decisions.definitions import SCOPES, Definition, How, binds, definitions, kept, reaching, within
from onnxpatch.decisions.expression_levels import ANY, FIXED, HELD, NUMBER, SIZES, TENSOR, Expressions, element, held
from onnxpatch.decisions.functions_run import OUTSIDE, Caller, Function, position

Key = tuple[Any, ...]
_GOING_OVER = ("<genexpr>", "<listcomp>", "<setcomp>", "<dictcomp>")  # names of code
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_DEEPEST_SITE = 3  # calls in calls that are told apart by the place of each
_ROUNDS = 60  # a level rises four times at most, along each way; this ends what a mistake here would not


class Dependence:
    """The levels of expressions in the functions of one model.

    functions: those that ran. lines: by a function's number, its lines that ran; {} for one of which this is not known.
    answers: what each test came out as, where it ran. tested: of a test that is a name, the kinds of what it was.
    """

    def __init__(
        self,
        functions: Sequence[Function],
        lines: Mapping[int, Collection[int]],
        answers: Mapping[ast.expr, Collection[bool]],
        tested: Mapping[ast.expr, Collection[str]],
        attributes: Mapping[str, Collection[str]],
    ) -> None:
        self.functions, self.lines, self.answers, self.tested = functions, lines, answers, tested
        self._attributes = attributes
        self._sources: dict[int, Source | None] = {}
        self._outer = {id(code): one for one in functions for code in one.inner}
        self._callees: dict[tuple[str, tuple[int, ...]], list[tuple[Function, Caller, Collection[str]]]] = {}
        self._sites: dict[tuple[Function, Function, Caller], Function] = {}
        self._stored: dict[str, list[tuple[Function, ast.expr, bool]]] | None = None
        self._definitions: dict[ast.AST, dict[str, list[Definition]]] = {}
        self._known: dict[Key, int] = {}
        self._readers: dict[Key, set[Key]] = {}
        self._waiting: list[Key] = []
        self._now: Key | None = None
        for one in functions:
            for caller, at in one.callers:
                # `any(f(x) for x in xs)` calls any: the values that it goes over are read from its argument.
                if caller != OUTSIDE and one.code.co_name not in _GOING_OVER:
                    code = functions[caller].code
                    kinds, _ = one.returns.get((caller, at), ((), 0))
                    place = code.co_filename, position(code, at)
                    self._callees.setdefault(place, []).append((one, (caller, at), kinds))

    def turned(self, tests: Collection[tuple[Function, ast.expr]]) -> set[ast.expr]:
        """Those of the tests that an input can turn."""
        for one, test in tests:
            self._read(("test", one, test))
        for _ in range(_ROUNDS * (1 + len(self._known))):
            if not self._waiting:
                break
            self._renew(self._waiting.pop())
        return {test for one, test in tests if self._known["test", one, test]}

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

    def source(self, one: Function) -> Source | None:
        """The source of a function, that of the function around it for a lambda or a comprehension."""
        if one.number not in self._sources:
            outer = self._outer.get(id(one.code))
            found = self.source(outer) if outer is not None and outer is not one else source_of(one.code)
            self._sources[one.number] = found
        return self._sources[one.number]

    def level(self, one: Function, node: ast.AST | None) -> int:
        """The level of an expression in a function."""
        return Expressions(self, one).level(node) if node is not None else FIXED

    def turns(self, one: Function, test: ast.expr) -> bool:
        """Whether an input can turn a condition, as far as is known yet."""
        return bool(self._read(("test", one, test)))

    def _of_test(self, one: Function, test: ast.expr) -> int:
        return int(not self.settled(one, test) and Expressions(self, one).truth(test))

    def settled(self, one: Function, test: ast.expr) -> list[ast.BoolOp]:
        """The `a and b and c` that gave a name the only answer that it can have, since c is fixed; [] elsewhere.

        test: the name where it is tested. Where a and b were true and the name was false, c was, and it always is.
        """
        answers = self.answers.get(test, ())
        if len(answers) != 1 or not isinstance(test, ast.Name):
            return []
        made = [place for place in self._binding(one, test, test.id)[1] if self._ran(one, place.statement)]
        ended = [place.value for place in made
                 if place.how == "value" and isinstance(place.value, ast.BoolOp)
                 and self._ended(one, place.value, *answers)]  # fmt: skip
        return ended if len(ended) == len(made) else []

    def _ended(self, one: Function, value: ast.BoolOp, answer: bool) -> bool:
        """Whether the last part of `a and b and c` ran, made it false, and is fixed; the same of a true `or`."""
        passed = (not answer) in self.answers.get(value.values[-2], ()) and isinstance(value.op, ast.Or) == answer
        return passed and not Expressions(self, one).truth(value.values[-1])

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
            return _of_kinds(one.kinds.get(name, set()))
        return self._read(("global", name))

    def _binding(self, one: Function, node: ast.AST, name: str) -> tuple[ast.AST | None, Sequence[Definition]]:
        """(the function that gives a name its value where `node` reads it, the definitions that it may be from).

        (the `for` part, ()) of a comprehension's own name; (None, ()) where no function around assigns it.
        """
        source = self.source(one)
        trail, scope = [node], source.parents.get(node) if source else None
        while scope is not None and source is not None:
            if isinstance(scope, _COMPREHENSIONS):
                made = [part for part in _made_before(scope.generators, trail) if binds(part.target, name)]
                if made:
                    return made[-1], ()
            elif isinstance(scope, SCOPES) and name in (defined := self._defined(scope)):
                return scope, reaching(node, defined[name], scope, source.parents)
            trail.append(scope)
            scope = source.parents.get(scope)
        return None, ()

    def _of_name(self, one: Function, scope: ast.AST, name: str, places: tuple[int, ...]) -> int:
        levels: list[tuple[int, bool, ast.AST | None]] = []
        for defined in (self._defined(scope)[name][place] for place in places):
            value = defined.value
            if defined.how == "argument":
                owner = self._function_of(one, scope)
                levels.append((self._read(("argument", owner, name)) if owner else FIXED, False, None))
            elif self._ran(one, defined.statement):
                turned = self._controlled(one, defined.statement, scope)
                levels.append((self._taken_from(one, value, defined.how, turned), turned, value))
        return merged(levels)

    def _defined(self, scope: ast.AST) -> dict[str, list[Definition]]:
        if scope not in self._definitions:
            self._definitions[scope] = definitions(scope)
        return self._definitions[scope]

    def _taken_from(self, one: Function, value: ast.AST, how: How, turned: bool) -> int:
        if isinstance(how, int):
            return self.part(one, value, how)
        level = self.level(one, value)
        if how == "grown":
            return ANY if turned else held([level])
        return element(level) if how == "element" else level

    def part(self, one: Function, value: ast.AST, place: int) -> int:
        """The level of one of the values that an expression is unpacked into."""
        called = self.called(one, value) if isinstance(value, ast.Call) else []
        if called:
            return max(self._read(("part", other, place)) for other, _ in called)
        if isinstance(value, ast.Tuple) and place < len(value.elts):
            return self.level(one, value.elts[place])
        return element(self.level(one, value))

    def _function_of(self, one: Function, scope: ast.AST) -> Function | None:
        """The function that ran with this tree as its body: `one`, or the one around or inside of it."""
        name, line = getattr(scope, "name", "<lambda>"), getattr(scope, "lineno", 0)
        first = min([line, *(d.lineno for d in getattr(scope, "decorator_list", ()))])
        fits = (
            other
            for other in (one, *self.functions)
            if other.code.co_name == name
            and other.code.co_filename == one.code.co_filename
            and other.code.co_firstlineno in (line, first)
        )
        return next(fits, None)

    def _ran(self, one: Function, node: ast.AST) -> bool:
        """Whether the statement of an expression ran, as far as is known."""
        lines, line = self.lines.get(one.number), getattr(node, "lineno", 0)
        if not lines or (self._outer.get(id(one.code)) is not None):
            return True
        source = self.source(one)
        while source is not None and node is not None and not isinstance(node, ast.stmt):
            node = source.parents.get(node)  # type: ignore[assignment]
        first, last = getattr(node, "lineno", line), getattr(node, "end_lineno", line)
        return any(first <= ran <= last for ran in lines)

    def _controlled(self, one: Function, node: ast.AST, scope: ast.AST) -> bool:
        """Whether an input decides that a node is run."""
        source = self.source(one)
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
        owner = self._outer.get(id(one.code), one)
        if isinstance(node, ast.Name) and node.id in owner.gathering:
            return self._read(("item", owner, node.id, key))
        return None

    def _given(self, one: Function, name: str, kinds: Collection[str], key: str | None = None) -> int:
        levels = [_of_kinds(kinds) if caller == OUTSIDE else self._at_call(one, caller, at, name, key)
                  for caller, at in one.callers]  # fmt: skip
        return _lowered(max(levels, default=FIXED), kinds)

    def _at_call(self, one: Function, caller: int, at: int, name: str, key: str | None) -> int:
        calling = one.calling or self.functions[caller]
        source = self.source(calling)
        node = _node_at(source, position(calling.code, at)) if source is not None else None
        kinds: Collection[str] = one.kinds.get(name if key is None else (name, key), set())
        if node is None:
            return _of_kinds(kinds, unknown=True)
        if not isinstance(node, ast.Call):
            return max((self.level(calling, part) for part in ast.iter_child_nodes(node)), default=FIXED)
        return self._bound(calling, node, one.code, name, key)

    def _bound(self, calling: Function, call: ast.Call, code: Any, name: str, key: str | None) -> int:
        """The level of what a call hands over for an argument."""
        names = code.co_varnames[: code.co_argcount]
        first = call.args[0] if call.args else None
        method = names[:1] in (("self",), ("cls",)) and not (isinstance(first, ast.Name) and first.id == names[0])
        if method and name == names[0]:
            return self.level(calling, call.func.value) if isinstance(call.func, ast.Attribute) else FIXED
        place = names.index(name) - method if name in names else None
        if key is not None and key.isdecimal():  # one of `*args`
            place = len(names) - method + int(key)
        given = list(self._by_keyword(calling, call, name, key, {*names, *_keyword_only(code)}))
        spelled = any(keyword.arg == (key or name) for keyword in call.keywords)
        for index, argument in enumerate(call.args):
            if isinstance(argument, ast.Starred):
                if (place is None and key is None) or (place is not None and place >= index and not spelled):
                    inner = self.item(calling, argument.value, str(place - index)) if place is not None else None
                    given.append(element(self.level(calling, argument.value)) if inner is None else inner)
                break
            if index == place or (place is None and key is None and index >= len(names) - method):
                given.append(self.level(calling, argument))
        return max(given, default=FIXED)

    def _by_keyword(
        self, calling: Function, call: ast.Call, name: str, key: str | None, own: Collection[str]
    ) -> Iterator[int]:
        wanted = key or name
        for keyword in call.keywords:
            if keyword.arg == wanted:
                yield self.level(calling, keyword.value)
            elif keyword.arg is None:
                inner = self.item(calling, keyword.value, wanted)
                yield element(self.level(calling, keyword.value)) if inner is None else inner
            elif name not in own and key is None:  # the whole of `**kwargs`
                yield self.level(calling, keyword.value)

    # -------------------------------------------------------------- what calls return, and what is kept
    def called(self, one: Function, node: ast.AST) -> Sequence[tuple[Function, Collection[str]]]:
        """The functions of the model that an expression was seen to call, each with the kinds of what it returned."""
        place = (node.lineno, node.col_offset, node.end_lineno, node.end_col_offset)  # type: ignore[attr-defined]
        file = one.code.co_filename
        found = self._callees.get((file, place)) or self._callees.get((file, place[:1]), [])
        return [(self._at_site(one, other, caller), kinds) for other, caller, kinds in found]

    def _at_site(self, calling: Function, called: Function, caller: Caller) -> Function:
        """A short function as it is called from one place: `exists(mask)` says nothing of `exists(self.rotary)`."""
        if not called.is_short or calling.depth >= _DEEPEST_SITE:
            return called
        key = called, calling, caller
        if key not in self._sites:
            self._sites[key] = called.at_site(calling, caller)
        return self._sites[key]

    def returned(self, one: Function, kinds: Collection[str]) -> int:
        """The level of what a function returns. kinds: of what it returned."""
        return _lowered(self._read(("return", one)), kinds)

    def _of_part(self, one: Function, place: int) -> int:
        return self._of_return(one, place)

    def _of_return(self, one: Function, place: int | None = None) -> int:
        source = self.source(one)
        if source is None:
            return ANY
        if one.code.co_name.startswith("<"):  # a lambda; what calls a comprehension is the expression itself
            bodies = [node.body for node in ast.walk(source.tree) if _is_lambda(node, one.code.co_firstlineno)]
            return max((self._value(one, body, place) for body in bodies), default=FIXED)
        functions = [node for node in ast.walk(source.tree) if isinstance(node, SCOPES)]
        scope = next((node for node in functions if self._function_of(one, node) is one), None)
        levels = []
        for node in within(scope.body) if isinstance(scope, SCOPES) and isinstance(scope.body, list) else ():
            if isinstance(node, ast.Return | ast.Yield) and node.value is not None and self._ran(one, node):
                turned = self._controlled(one, node, scope)  # type: ignore[arg-type]
                levels.append((self._value(one, node.value, place), turned, node.value))
        return merged(levels)

    def _value(self, one: Function, node: ast.expr, place: int | None) -> int:
        return self.level(one, node) if place is None else self.part(one, node, place)

    def attribute(self, name: str, level: int) -> int:
        """The level of an attribute. level: of what it is taken from; counted are also those that forwards assign."""
        kinds = self._attributes.get(name, ())
        inside = _lowered(element(level), kinds) if level in (HELD, TENSOR) else level
        return max(inside, self._read(("attribute", name))) if level in (FIXED, ANY) or kinds else element(level)

    def _of_attribute(self, name: str) -> int:
        return max((ANY if self._controlled(one, value, source.tree) else (held([self.level(one, value)]) if item
                    else self.level(one, value))
                    for one, value, item in self._stores().get(name, ())
                    if (source := self.source(one)) is not None and self._ran(one, value)), default=FIXED)  # fmt: skip

    def _of_global(self, name: str) -> int:
        return self._of_attribute(f"global {name}")

    def _stores(self) -> dict[str, list[tuple[Function, ast.expr, bool]]]:
        """By name: what the functions that ran assign to attributes, and put into what attributes hold."""
        if self._stored is None:
            self._stored = {}
            for one in self.functions:
                names = set(one.code.co_names)
                source = self.source(one) if names and id(one.code) not in self._outer else None
                for node in ast.walk(source.tree) if source is not None else ():
                    for name, value, item in kept(node):
                        self._stored.setdefault(name, []).append((one, value, item))
        return self._stored


def merged(levels: Sequence[tuple[int, bool, ast.AST | None]]) -> int:
    """The level of what has one of several values.

    levels: of each its level, whether an input decides that it is this one, and the value itself.
    """
    level = max((one for one, _, _ in levels), default=FIXED)
    if len(levels) > 1 and any(turned for _, turned, _ in levels):
        none = any(isinstance(value, ast.Constant) and value.value is None for _, _, value in levels)
        kinds = {one for one, _, _ in levels}
        if none or (FIXED in kinds and kinds & {HELD, TENSOR}):
            return ANY
        return level if kinds <= {HELD, TENSOR} else max(level, NUMBER)
    return level


def _lowered(level: int, kinds: Collection[str]) -> int:
    """The level of a value, where it is known of which kinds it was."""
    if level in (HELD, TENSOR, SIZES) and kinds and set(kinds) <= {"plain", "module"}:
        return FIXED  # no tensor, and no number of one either
    if level in (TENSOR, SIZES, NUMBER) and kinds and not set(kinds) & {"tensor", "plain"}:
        return HELD
    return level


def _of_kinds(kinds: Collection[str], unknown: bool = False) -> int:
    """The level of what came from outside, by what it was."""
    if "tensor" in kinds or "container" in kinds:
        return TENSOR if "tensor" in kinds else HELD
    return NUMBER if unknown and "plain" in kinds else FIXED


def _made_before(generators: Sequence[ast.comprehension], trail: Sequence[ast.AST]) -> Sequence[ast.comprehension]:
    """The `for` parts of a comprehension whose names are there where the trail, from a node up to it, begins.

    [x for x in x]     the second x is the comprehension's, the third is not
    """
    part = trail[-1]
    if not isinstance(part, ast.comprehension):
        return generators
    at = generators.index(part)
    return generators[: at + (trail[-2] is not part.iter)]


def _keyword_only(code: Any) -> tuple[str, ...]:
    return tuple(code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount])


def _is_lambda(node: ast.AST, line: int) -> TypeGuard[ast.Lambda]:
    return isinstance(node, ast.Lambda) and node.lineno == line


def _node_at(source: Source, place: tuple[int, ...]) -> ast.AST | None:
    """The expression of an instruction: a call, an item, an operation."""
    if len(place) == 1:
        calls = [node for node in ast.walk(source.tree) if isinstance(node, ast.Call) and node.lineno == place[0]]
        return calls[0] if len(calls) == 1 else None
    for node in ast.walk(source.tree):
        if isinstance(node, ast.expr) and place == (
            node.lineno, node.col_offset, node.end_lineno, node.end_col_offset
        ):  # fmt: skip
            return node
    return None

"""How far an expression in a forward's source can change with the inputs: its level.

    x.dtype       FIXED     nothing changes
    x + 1         TENSOR    data and sizes; it is a tensor in any case
    [x, y]        HELD      the tensors in it; the container has a fixed length
    x.shape       SIZES     the numbers in it; the container has a fixed length
    x.shape[0]    NUMBER    its value
    (anything)    ANY       all of it: also its type, or whether it is None

The level of an expression follows from those of its parts. `dependence.py` knows those of names, arguments and calls.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

FIXED, HELD, TENSOR, SIZES, NUMBER, ANY = range(6)


def element(level: int) -> int:
    """The level of what is taken out of a container."""
    return {HELD: TENSOR, SIZES: NUMBER}.get(level, level)


def held(levels: Iterable[int]) -> int:
    """The level of a container of fixed length with such values."""
    level = max(levels, default=FIXED)
    return {TENSOR: HELD, NUMBER: SIZES}.get(level, level)


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


def lowered(level: int, kinds: Collection[str]) -> int:
    """The level of a value, where it is known of which kinds it was."""
    if level in (HELD, TENSOR, SIZES) and kinds and set(kinds) <= {"plain", "module"}:
        return FIXED  # no tensor, and no number of one either
    if level in (TENSOR, SIZES, NUMBER) and kinds and not set(kinds) & {"tensor", "plain"}:
        return HELD
    return level


def of_kinds(kinds: Collection[str], unknown: bool = False) -> int:
    """The level of what came from outside, by what it was. unknown: a number of it may be computed from an input."""
    if "tensor" in kinds or "container" in kinds:
        return TENSOR if "tensor" in kinds else HELD
    return NUMBER if unknown and "plain" in kinds else FIXED


if TYPE_CHECKING:
    from onnxpatch.decisions.code_run import CodeRun
    from onnxpatch.decisions.functions_run import Function

# What a tensor's type and rank fix, whatever its sizes and data are: also where it may be None, which has none of them.
_TYPE = frozenset(("dtype", "device", "layout", "is_cuda", "requires_grad", "ndim"))
_TYPE_CALLS = frozenset(("dim", "ndimension", "is_floating_point", "is_complex", "element_size", "get_device"))
_FIXED_PARTS = _TYPE | frozenset((
    "is_sparse", "names", "is_nested", "type",
    "is_mps", "is_quantized", "is_meta", "itemsize", "grad_fn", "is_leaf", "__class__", "__name__", "training",
    "is_cpu", "is_xla",
))  # fmt: skip
_FIXED_CALLS = frozenset((
    "isinstance", "issubclass", "hasattr", "callable", "type", "is_tensor", "is_contiguous", "is_storage", "id",
    "is_autocast_enabled", "finfo", "iinfo", "is_signed", "is_conj",
))  # fmt: skip
_NUMBERS = frozenset((
    "item", "numel", "nelement", "equal", "allclose", "is_nonzero", "int", "float", "bool", "str", "abs", "min", "max",
    "sum", "round", "divmod", "pow", "any", "all", "hash", "repr", "format", "index", "count", "find", "startswith",
    "endswith", "torch_int", "torch_float", "storage_offset", "__len__", "__bool__", "__int__", "ceil", "floor",
))  # fmt: skip
_OF_TENSORS = frozenset(("abs", "min", "max", "sum", "round", "pow", "any", "all", "ceil", "floor", "count"))
_SAME = frozenset((
    "list", "tuple", "dict", "set", "zip", "enumerate", "reversed", "iter", "next", "map", "filter", "sorted", "copy",
    "keys", "values", "items", "deepcopy", "frozenset", "cast", "range",
))  # fmt: skip


class _Levels(Protocol):
    """What an expression's level asks about names, arguments, calls and attributes."""

    def name(self, one: Function, node: ast.AST, name: str) -> int: ...
    def item(self, one: Function, node: ast.AST, key: str) -> int | None: ...
    def attribute(self, name: str, level: int) -> int: ...
    def returned(self, one: Function, kinds: Collection[str]) -> int: ...
    def part(self, one: Function, value: ast.AST, place: int) -> int: ...
    def turns(self, one: Function, test: ast.expr) -> bool: ...
    @property
    def run(self) -> CodeRun: ...
    @property
    def answers(self) -> Mapping[ast.expr, Collection[bool]]: ...
    @property
    def tested(self) -> Mapping[ast.expr, Collection[str]]: ...


def expression_level(known: _Levels, one: Function, node: ast.AST) -> int:
    """The level of an expression in a function."""
    return _Expressions(known, one).level(node)


def may_turn(known: _Levels, one: Function, test: ast.expr) -> bool:
    """Whether an input can turn whether an expression in a function is true."""
    return _Expressions(known, one).truth(test)


class _Expressions:
    """The levels of the expressions of one function."""

    def __init__(self, known: _Levels, one: Function) -> None:
        self.known, self.one = known, one

    def level(self, node: ast.AST) -> int:
        """The level of an expression."""
        rule = getattr(self, f"_{type(node).__name__}", None)
        return rule(node) if rule is not None else self._largest(ast.iter_child_nodes(node))

    def _largest(self, nodes: Iterable[ast.AST]) -> int:
        return max((self.level(node) for node in nodes if isinstance(node, ast.expr | ast.keyword | ast.comprehension)),
                   default=FIXED)  # fmt: skip

    # -------------------------------------------------------------- conditions
    def truth(self, test: ast.expr) -> bool:
        """Whether an input can turn whether an expression is true."""
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            return self.truth(test.operand)
        if isinstance(test, ast.BoolOp):
            return any(self.truth(value) for value in self._evaluated(test))
        level = self.level(test)
        if level == TENSOR and isinstance(test, ast.Name):
            kinds = self.known.tested.get(test)
            return not kinds or "tensor" in kinds
        return level in (TENSOR, NUMBER, ANY)

    def _evaluated(self, node: ast.BoolOp) -> Sequence[ast.expr]:
        """The operands that were looked at: those behind a part that always ended it were not."""
        ends = isinstance(node.op, ast.Or)
        for place, value in enumerate(node.values[:-1]):
            test, negated = _bare(value)
            answers = self.known.answers.get(test)
            if answers is not None and (not ends) ^ negated not in answers:
                return node.values[: place + 1]
        return node.values

    def _BoolOp(self, node: ast.BoolOp) -> int:
        values = self._evaluated(node)
        level = self._largest(values)
        decided = any(self.known.turns(self.one, value) for value in node.values[:-1] if value in values)
        return max(level, NUMBER) if decided and level != TENSOR else level

    def _UnaryOp(self, node: ast.UnaryOp) -> int:
        if isinstance(node.op, ast.Not):
            return NUMBER if self.known.turns(self.one, node.operand) else FIXED
        return self.level(node.operand)

    def _IfExp(self, node: ast.IfExp) -> int:
        test, negated = _bare(node.test)
        answers = self.known.answers.get(test)
        sides = [side for side, wanted in ((node.body, True), (node.orelse, False))
                 if answers is None or (wanted ^ negated) in answers]  # fmt: skip
        levels = [self.level(side) for side in sides]
        level = max(levels, default=FIXED)
        if len(sides) < 2 or not self.known.turns(self.one, node.test):
            return level
        none = any(isinstance(side, ast.Constant) and side.value is None for side in sides)
        if none or (FIXED in levels and level in (HELD, TENSOR)):
            return ANY
        return level if level == TENSOR else max(level, NUMBER)

    def _Compare(self, node: ast.Compare) -> int:
        operands = [node.left, *node.comparators]
        level = self._largest(operands)
        if all(isinstance(op, ast.Is | ast.IsNot) for op in node.ops):
            return NUMBER if level == ANY else FIXED
        if any(isinstance(op, ast.In | ast.NotIn) for op in node.ops):
            # A text in a dict: which keys it has is fixed.
            return FIXED if self.level(node.left) == FIXED and level in (HELD, TENSOR, SIZES) else min(level, NUMBER)
        if level == TENSOR and any(isinstance(one, ast.Constant) and isinstance(one.value, str) for one in operands):
            return FIXED
        return level if level in (FIXED, TENSOR) else NUMBER  # of sizes, and of containers of tensors

    # -------------------------------------------------------------- values
    def _Constant(self, node: ast.Constant) -> int:
        return FIXED

    def _Lambda(self, node: ast.Lambda) -> int:
        return FIXED

    def _Name(self, node: ast.Name) -> int:
        return self.known.name(self.one, node, node.id)

    def _Attribute(self, node: ast.Attribute) -> int:
        properties = self.known.run.called(self.one, node)
        if properties:
            return max(self.known.returned(*one) for one in properties)
        return self._part(self.level(node.value), node.attr)

    def _part(self, level: int, name: str) -> int:
        if name in _TYPE or (name in _FIXED_PARTS and level < ANY):
            return FIXED
        if name == "shape":
            return SIZES if level in (HELD, TENSOR, ANY) else level
        return self.known.attribute(name, level)

    def _Subscript(self, node: ast.Subscript) -> int:
        value, key = self.level(node.value), self.level(node.slice)
        if isinstance(node.slice, ast.Constant):
            inner = self.known.item(self.one, node.value, str(node.slice.value))
            if inner is not None:
                return inner
        place = node.slice.value if isinstance(node.slice, ast.Constant) else None
        if isinstance(place, int) and place >= 0 and self.known.run.called(self.one, node.value):
            return self.known.part(self.one, node.value, place)
        if isinstance(node.slice, ast.Slice):
            return value if key < NUMBER or value == ANY else max(value, TENSOR)
        if value == FIXED:
            return ANY if key >= NUMBER else TENSOR if key else FIXED
        return element(value)

    def _NamedExpr(self, node: ast.NamedExpr) -> int:
        return self.level(node.value)

    def _JoinedStr(self, node: ast.JoinedStr) -> int:
        return NUMBER if self._largest(node.values) else FIXED

    def _container(self, node: ast.Tuple | ast.List | ast.Set) -> int:
        return held(map(self.level, node.elts))

    _Tuple = _List = _Set = _container

    def _Dict(self, node: ast.Dict) -> int:
        keys = self._largest(key for key in node.keys if key is not None)
        return ANY if keys >= NUMBER else held(map(self.level, node.values))

    def _gathered(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp) -> int:
        return self._collected(node.generators, self.level(node.elt))

    _ListComp = _SetComp = _GeneratorExp = _gathered  # a method named _comprehension would be the rule of its parts

    def _DictComp(self, node: ast.DictComp) -> int:
        return self._collected(node.generators, max(self.level(node.key), self.level(node.value)))

    def _collected(self, parts: Sequence[ast.comprehension], value: int) -> int:
        """The level of a comprehension: an input may decide how many values there are."""
        turned = any(self.known.turns(self.one, test) for part in parts for test in part.ifs)
        counted = any(self.level(part.iter) >= NUMBER for part in parts)
        return ANY if turned or counted else held([value])

    # -------------------------------------------------------------- calls
    def _Call(self, node: ast.Call) -> int:
        called = self.known.run.called(self.one, node)
        arguments = self._largest([*node.args, *node.keywords])
        if called:
            made = [one for one in called if one[0].code.co_name.strip("_") not in ("init", "new", "post_init")]
            return max([self.known.returned(*one) for one in made] or [held([arguments])])
        base = self.level(node.func.value) if isinstance(node.func, ast.Attribute) else FIXED
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        return self._by_name(node, name, base, max(base, arguments))

    def _by_name(self, node: ast.Call, name: str, base: int, level: int) -> int:
        """The level of a call of a function that is not the model's: Python's, torch's, numpy's."""
        if name == "getattr" and len(node.args) > 1 and isinstance(node.args[1], ast.Constant):
            return self._part(self.level(node.args[0]), str(node.args[1].value))
        if name in ("get", "pop", "setdefault") and node.args:
            return self._looked_up(node, base)
        if name in _TYPE_CALLS:
            return FIXED
        if name in _FIXED_CALLS:
            return NUMBER if level == ANY and self._may_be(node, name) else FIXED
        if level == FIXED or name in _SAME:
            return level
        return self._computed(node, name, level)

    def _may_be(self, node: ast.Call, name: str) -> bool:
        """Whether what an input brings about, a tensor, None or a number, may be of the class or have the name."""
        if len(node.args) != 2 or name not in ("isinstance", "hasattr"):
            return True
        if name == "hasattr":
            named = node.args[1].value if isinstance(node.args[1], ast.Constant) else None
            return not isinstance(named, str) or any(hasattr(one, named) for one in _brought())
        found = self.known.run.found(self.one, node.args[1])
        return not isinstance(found, type) or any(issubclass(one, found) for one in _brought())

    def _computed(self, node: ast.Call, name: str, level: int) -> int:
        """The level of what a function computes from arguments that depend on the inputs."""
        if name == "len":
            return FIXED if level in (HELD, SIZES) else NUMBER
        if name in ("size", "stride"):
            return NUMBER if node.args else SIZES
        if name == "tolist":
            return ANY
        if name in _NUMBERS and not (name in _OF_TENSORS and level == TENSOR and isinstance(node.func, ast.Attribute)):
            return NUMBER
        return TENSOR if level < ANY else ANY

    def _looked_up(self, node: ast.Call, base: int) -> int:
        """The level of `table.get(key, default)`."""
        key, holder = node.args[0], node.func.value if isinstance(node.func, ast.Attribute) else None
        others = self._largest(node.args[1:])
        if isinstance(key, ast.Constant) and holder is not None:
            inner = self.known.item(self.one, holder, str(key.value))
            if inner is not None:
                return max(inner, others)
        return ANY if self.level(key) >= NUMBER else max(element(base), others)


def _brought() -> tuple[type, ...]:
    """The classes of what an input may bring about."""
    tensor = getattr(sys.modules.get("torch"), "Tensor", object)  # without torch, which this module is loaded without
    return (tensor, type(None), bool, int, float, str, tuple, list, dict)


def _bare(test: ast.expr) -> tuple[ast.expr, bool]:
    """(a test without the `not` in front of it, whether these turn its answer)."""
    negated = False
    while isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        test, negated = test.operand, not negated
    return test, negated

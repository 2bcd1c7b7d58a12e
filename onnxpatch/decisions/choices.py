"""What Python chooses without a jump, by a number that may come from an input.

    max(int(n), 100)                     which of the two
    [x, x * 7][bool(torch.equal(a, b))]  true or false
    sorted(ids), table.get(n, 1.0)       in which order; which key, or none
    int(f"{n:04d}"[1]), np.ceil(n / 256) a text, a hash, what numpy makes of a size: its value

No event tells these outcomes. So before a line runs, its choices are computed once more from what its names hold there:
only those that are made of Python's own functions, and of some of torch and numpy, which change nothing.
"""

from __future__ import annotations

import ast
import builtins
import functools
from collections.abc import Callable
from dataclasses import dataclass
from types import CodeType, FrameType, FunctionType, MethodType, ModuleType
from typing import Any, TypeGuard

from onnxpatch.decisions.conditionals import SAYING, Source

Place = tuple[int, int, int, int]


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_BUILTINS = _words(
    "abs all any bin bool divmod enumerate float format hash hex int len list map max min ord pow range repr reversed "
    "round set sorted str sum tuple zip dict frozenset"
)
_METHODS = _words(
    "item tolist size dim numel max min sum mean any all argmax argmin abs norm sort values get index count find "
    "startswith endswith split join strip lower upper zfill keys items bit_length is_integer eq ne gt lt ge le diff "
    "isnan isinf isfinite numpy astype unique nonzero float int long bool double"
)
_MODULES = {
    "torch": _words("equal allclose is_nonzero isclose any all sum max min abs numel tensor"),
    "numpy": _words(
        "ceil floor clip round rint minimum maximum searchsorted digitize where sqrt log log2 log10 prod array asarray "
        "argmax argmin sum mean isclose allclose array_equal sort argsort max min abs any all isfinite isnan interp "
        "int64 int32 float32 float64 count_nonzero"
    ),
}
_PURE_MODULES = _words("math operator bisect _bisect _operator")
_HOLDERS = (str, int, float, list, tuple, dict, set, frozenset, range)
_BOOLS = _words("bool equal allclose is_nonzero isclose array_equal startswith endswith is_integer")
_VALUES = frozenset((
    "str", "repr", "format", "hash", "hex", "bin", "ord", "index", "count", "find", "bit_length", "bisect",
    "bisect_left", "bisect_right", "isqrt",
))  # fmt: skip
_WRAPS = _words("int float len ord str hash bool abs round count find startswith endswith strip index")
_NODES = (
    ast.Name, ast.Constant, ast.Attribute, ast.Subscript, ast.Slice, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare,
    ast.Call, ast.keyword, ast.JoinedStr, ast.FormattedValue, ast.Tuple, ast.List, ast.Dict, ast.Set, ast.IfExp,
    ast.GeneratorExp, ast.ListComp, ast.comprehension, ast.Lambda, ast.arguments, ast.arg, ast.Starred,
    ast.expr_context, ast.operator, ast.unaryop, ast.boolop, ast.cmpop,
)  # fmt: skip
_LARGEST = 1 << 16  # elements of a tensor that is looked at
_FAILURES = 3  # in one function, after which a choice is left
_MOST = 400  # times that one is looked at
_LONGEST = 32  # of what is sorted
UNKNOWN: Any = object()


@dataclass(eq=False)
class Choice:
    """kind: bool, which (of several), order, key or value. node: the expression; on: what an input has to change."""

    node: ast.expr
    kind: str
    on: tuple[ast.expr, ...]
    failed: int = 0
    looks: int = 0

    @property
    def is_left(self) -> bool:
        """Whether it is not looked at any more: it could not be told, or has come out often enough."""
        return self.failed >= _FAILURES or self.looks >= _MOST

    def outcome(self, frame: FrameType) -> Any:
        """What it comes out as in a running function; UNKNOWN where that cannot be told."""
        self.looks += 1
        try:
            found = self._outcome(_values(self._names, frame))
        except Exception:  # a name that is not there yet, say
            found = UNKNOWN
        self.failed += found is UNKNOWN
        return found

    def _outcome(self, names: dict[str, Any]) -> Any:
        if not all(_is_left_as_it_is(value) for value in names.values()):
            return UNKNOWN
        if not all(_is_known(part, names) for part in self._parts):
            return UNKNOWN
        found = [one(names) for one in self._compiled]
        return _OUTCOMES[self.kind](*found)

    @functools.cached_property
    def _names(self) -> list[str]:
        return list({one.id for one in ast.walk(self.node) if isinstance(one, ast.Name)})

    @functools.cached_property
    def _parts(self) -> list[tuple[ast.AST, Callable[[dict[str, Any]], Any] | None]]:
        """Calls, and what is taken from an object, inner ones first, with what they are taken from; attributes, with
        themselves."""
        found: list[tuple[ast.AST, Callable[[dict[str, Any]], Any] | None]] = []
        parts = list(ast.walk(self.node))
        called = [one.func for one in parts if isinstance(one, ast.Call)]
        for one in reversed(parts):
            if isinstance(one, ast.Call):
                of = one.func.value if isinstance(one.func, ast.Attribute) else None
                found.append((one, _compiled(of) if of is not None else None))
            elif isinstance(one, ast.Subscript):
                found.append((one, _compiled(one.value)))
            elif isinstance(one, ast.Attribute) and one not in called:
                found.append((one, _compiled(one)))
        return found

    @functools.cached_property
    def _compiled(self) -> list[Callable[[dict[str, Any]], Any]]:
        node = self.node
        if self.kind in ("which", "order"):
            assert isinstance(node, ast.Call)
            return [_compiled(node.func), *map(_compiled, node.args)]
        if self.kind == "key":
            if isinstance(node, ast.Subscript):
                return [_compiled(node.value), _compiled(node.slice)]
            assert isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
            return [_compiled(node.func.value), _compiled(node.args[0])]
        return [_compiled(node)]


def choices(source: Source) -> dict[int, list[Choice]]:
    """By line: what is chosen there, in a function and in the lambdas and comprehensions inside of it."""
    found: dict[Place, Choice] = {}
    # What a condition asks is known; what is checked or said, the output does not depend on.
    apart = [*source.tests, *(node for node in source.nodes if _only_says(node))]
    passed_over = {part for node in apart for part in ast.walk(node)}
    named = {test.id for test in source.tests if isinstance(test, ast.Name)}
    for node in source.nodes:
        choice = _chosen(node, source) if isinstance(node, ast.expr) and node not in passed_over else None
        # `is_long = n > 100` is asked where `if is_long` is.
        if choice is None or _assigned(choice.node, source) in named or not _is_pure(choice.node):
            continue
        found.setdefault(place(choice.node), choice)
    by_line: dict[int, list[Choice]] = {}
    for choice in found.values():
        by_line.setdefault(choice.node.lineno, []).append(choice)
    return by_line


def place(node: ast.expr) -> Place:
    """Where an expression stands."""
    return node.lineno, node.col_offset, node.end_lineno or 0, node.end_col_offset or 0


def _assigned(node: ast.expr, source: Source) -> str:
    """The name that an expression is assigned to; "" if it is to none, or to more."""
    around = source.parents.get(node)
    target = around.targets[0] if isinstance(around, ast.Assign) else getattr(around, "target", None)
    return target.id if isinstance(target, ast.Name) and getattr(around, "value", None) is node else ""


def _chosen(node: ast.expr, source: Source) -> Choice | None:
    """The choice that an expression makes."""
    if isinstance(node, ast.Compare):
        return Choice(node, "bool", (node,))
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load) and _is_place(node.slice):
        return Choice(node, "key", (node.slice,))
    if isinstance(node, ast.JoinedStr):
        return _as_value(node, source)
    return _chosen_by_call(node, source) if isinstance(node, ast.Call) else None


def _only_says(node: ast.AST) -> bool:
    function = node.func if isinstance(node, ast.Call) else None
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    return isinstance(node, ast.Raise) or name in SAYING or "assert" in name or "check" in name


def _chosen_by_call(node: ast.Call, source: Source) -> Choice | None:
    name, own = getattr(node.func, "attr", ""), isinstance(node.func, ast.Name)
    name, numpy = getattr(node.func, "id", name), _root(node.func) in ("np", "numpy")
    if name in _BOOLS or _is_bool_as_number(node, name):  # or a tensor, which is none
        return Choice(node, "bool", (node,))
    if own and name in ("min", "max", "sorted"):
        plain = not node.keywords and not any(isinstance(one, ast.Starred) for one in node.args)
        return Choice(node, ("order" if name == "sorted" else "which") if plain else "value", _compared(node))
    if name == "get" and node.args and not own:
        return Choice(node, "key", (node.args[0],))
    return _as_value(node, source) if numpy or name in _VALUES else None


def _is_bool_as_number(node: ast.Call, name: str) -> bool:
    return name in ("int", "float") and any(isinstance(one, ast.Compare) for one in node.args)


def _compared(node: ast.Call) -> tuple[ast.expr, ...]:
    only = node.args[0] if len(node.args) == 1 else None
    return tuple(only.elts) if isinstance(only, ast.Tuple | ast.List) else (node,)


def _as_value(node: ast.expr, source: Source) -> Choice:
    """The value that is made of a text, or of a number: of `int(f"{n:04d}"[1])` the whole."""
    around = source.parents.get(node)
    while isinstance(around, ast.expr) and _passes_on(around, node):
        node, around = around, source.parents.get(around)
        if isinstance(around, ast.expr) and isinstance(node, ast.Attribute):  # the method's name, of its call
            node, around = around, source.parents.get(around)
    return Choice(node, "value", (node,))


def _passes_on(around: ast.expr, node: ast.expr) -> bool:
    if isinstance(around, ast.Subscript):
        return around.value is node
    if isinstance(around, ast.Attribute):
        return around.attr in _WRAPS
    return isinstance(around, ast.Call) and isinstance(around.func, ast.Name) and around.func.id in _WRAPS


def _is_place(node: ast.expr) -> bool:
    """Whether it may be a number or a key: no constant, no slice."""
    parts = node.elts if isinstance(node, ast.Tuple) else [node]
    return not any(isinstance(one, ast.Slice | ast.Starred) for one in parts) and any(
        isinstance(part, ast.Name) for part in ast.walk(node)
    )


def _root(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _is_pure(node: ast.expr) -> bool:
    """Whether an expression is made of what changes nothing, as far as its text tells."""
    parts = list(ast.walk(node))
    calls = (one for one in parts if isinstance(one, ast.Call))
    named = any(isinstance(one, ast.Name) and one.id not in _BUILTINS for one in parts)
    return named and all(isinstance(one, _NODES) for one in parts) and all(map(_may_be_pure, calls))


def _may_be_pure(call: ast.Call) -> bool:
    if isinstance(call.func, ast.Name | ast.Attribute):
        return isinstance(call.func, ast.Name) or call.func.attr in _METHODS or bool(_root(call.func))
    return False


# ------------------------------------------------------------------ in a frame
@functools.lru_cache(maxsize=4096)
def _code_of(node: ast.expr) -> CodeType:
    return compile(ast.Expression(node), __file__, "eval")


def _compiled(node: ast.expr) -> Callable[[dict[str, Any]], Any]:
    code = _code_of(node)
    return lambda names: eval(code, names)


def _values(wanted: list[str], frame: FrameType) -> dict[str, Any]:
    """What the names hold; sizes and numbers that are watched as plain ones."""
    found: dict[str, Any] = {"__builtins__": builtins}
    local, outer = frame.f_locals, frame.f_globals
    for name in wanted:
        if name in local:
            found[name] = _plain(local[name])
        elif name in outer:
            found[name] = outer[name]
    return found


def _plain(value: Any) -> Any:
    if type(value) not in (int, float, bool):
        for kind in (int, float):
            if isinstance(value, kind):
                return kind(value)
        if isinstance(value, tuple) and type(value).__name__ == "Size":  # torch's
            return tuple(map(int, value))
    return value


def _is_left_as_it_is(value: object) -> bool:
    """Whether looking at a value costs little and changes nothing: an iterator is used up, a defaultdict grows, and a
    function of the model's that `sorted` or `map` is handed may do anything."""
    if _is_tensor(value):
        return bool(value.numel() <= _LARGEST)
    if isinstance(value, FunctionType | MethodType | functools.partial):
        return _is_function_known(value)
    return not hasattr(type(value), "__next__") and not hasattr(type(value), "__missing__")


def _is_tensor(value: object) -> TypeGuard[Any]:
    return hasattr(value, "untyped_storage")  # without torch, which this module is loaded without


def _is_known(part: tuple[ast.AST, Callable[[dict[str, Any]], Any] | None], names: dict[str, Any]) -> bool:
    """Whether a call or an item is one of those that change nothing."""
    node, of = part
    if of is not None:
        holder = of(names)
        if isinstance(node, ast.Attribute):
            return _is_left_as_it_is(holder)
        if isinstance(holder, ModuleType):
            return isinstance(node, ast.Call) and _is_function_known(getattr(holder, node.func.attr))  # type: ignore[attr-defined]
        known = _is_tensor(holder) or isinstance(holder, _HOLDERS) or type(holder).__module__ == "numpy"
        method = isinstance(node, ast.Subscript) or node.func.attr in _METHODS  # type: ignore[attr-defined]
        return known and method and _is_left_as_it_is(holder)
    name = node.func.id  # type: ignore[attr-defined]
    return name in _BUILTINS if name not in names else _is_function_known(names[name])


def _is_function_known(function: object) -> bool:
    name, home = getattr(function, "__name__", ""), getattr(function, "__module__", "") or ""
    if isinstance(function, type):
        home = function.__module__
    home = home.partition(".")[0] or type(function).__module__  # numpy's ufuncs say so by their type
    return home in _PURE_MODULES or name in _MODULES.get(home.replace("_VariableFunctions", "torch"), ())


def _bool(found: object) -> Any:
    plain = isinstance(found, int | float) or type(found).__module__ == "numpy"
    return bool(found) if plain and found in (0, 1) else UNKNOWN


def _which(function: Callable[..., Any], *args: Any) -> Any:
    """The place of the argument, or of the element of a single one, that min or max gives."""
    values = list(args[0]) if len(args) == 1 else list(args)
    if any(_is_tensor(one) and one.numel() > 1 for one in values):
        return UNKNOWN
    best = function(values)
    return next(i for i, one in enumerate(values) if one is best)


def _order(function: object, values: Any) -> Any:
    values = list(values)
    return tuple(sorted(range(len(values)), key=values.__getitem__)) if len(values) <= _LONGEST else UNKNOWN


def _key(holder: Any, key: Any) -> Any:
    if _is_tensor(holder) or isinstance(key, str):  # a text is looked at where it is made
        return UNKNOWN
    if isinstance(holder, dict):
        return key if key in holder else None
    return int(key)


def _value(found: Any) -> Any:
    plain = isinstance(found, bool | int | float | str | tuple) or type(found).__module__ == "numpy"
    return repr(found)[:64] if plain else UNKNOWN


_OUTCOMES: dict[str, Callable[..., Any]] = {
    "bool": _bool, "which": _which, "order": _order, "key": _key, "value": _value,
}  # fmt: skip


# ------------------------------------------------------------------ what was not chosen
def not_chosen(choice: Choice, outcome: Any) -> str:
    """What would have to be so, in words, where a choice came out in this way alone."""
    node, text = choice.node, ast.unparse(choice.node)
    if choice.kind == "bool":
        return f"not ({text})" if outcome else text
    if choice.kind == "key":
        return f"{ast.unparse(choice.on[0])} is {f'not {outcome!r}' if outcome is not None else 'one of the keys'}"
    if choice.kind == "value":
        return f"{text} is not {outcome}"
    others = node.args if isinstance(node, ast.Call) and len(node.args) == 2 else ()
    return f"{text} is {ast.unparse(others[1 - outcome])}" if others else f"{text} takes another of them"

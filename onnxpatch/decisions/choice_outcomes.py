"""`Choice`: an expression that chooses without an `if`. Its outcome is computed before its line runs.

No event of Python tells these outcomes. So the expression is computed once more from what its names hold there: only
where it is made of Python's own functions, and of some of torch and numpy, which change nothing.

    max(int(n), 100)       the place of the larger one: 1
    table.get(n, 1.0)      the key, or None
    math.gcd(n, 97)        its value: 1, where n was another one at another time
"""

from __future__ import annotations

import ast
import builtins
import collections
import functools
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import CodeType, FrameType, FunctionType, MethodType, ModuleType, NoneType
from typing import Any, TypeGuard

Place = tuple[int, int, int, int]


def words(text: str) -> frozenset[str]:
    """The words of a text."""
    return frozenset(text.split())


BUILTINS = words(
    "abs all any bin bool divmod enumerate float format hash hex int len list map max min ord pow range repr reversed "
    "round set sorted str sum tuple zip dict frozenset bytes bytearray slice filter iter next"
)
METHODS = words(  # of tensors, arrays and containers
    "item tolist size dim numel max min sum mean any all argmax argmin abs norm sort values get index count split keys "
    "items eq ne gt lt ge le diff isnan isinf isfinite numpy astype unique nonzero float int long bool double"
)
_UNCHANGING = (str, bytes, int, float)  # values of which no method changes anything
TEXT_AND_NUMBER = frozenset(name for kind in _UNCHANGING for name in vars(kind))
_MODULES = {
    "torch": words("equal allclose is_nonzero isclose any all sum max min abs numel tensor"),
    "numpy": words(
        "ceil floor clip round rint minimum maximum searchsorted digitize where sqrt log log2 log10 prod array asarray "
        "argmax argmin sum mean isclose allclose array_equal sort argsort max min abs any all isfinite isnan interp "
        "int64 int32 float32 float64 count_nonzero"
    ),
    "functools": words("partial"),
}
PURE_MODULES = words(
    "math operator bisect heapq statistics struct zlib binascii fractions decimal textwrap unicodedata itertools "
    "collections _bisect _operator _heapq _struct"
)
_HOLDERS = (*_UNCHANGING, list, tuple, dict, set, frozenset, range, bytearray, collections.deque)
_LARGEST = 1 << 16  # elements of a tensor that is looked at
_FAILURES = 3  # in one function, after which a choice is left
_MOST = 400  # times that one is looked at
_LONGEST = 32  # of what is sorted
UNKNOWN: Any = object()


@dataclass(eq=False)
class Choice:
    """kind: bool, which (of several), order, key or value. node: the expression; on: what an input has to change.

    moves: whether the sizes and numbers of which a value is computed were others at another time.
    """

    node: ast.expr
    kind: str
    on: tuple[ast.expr, ...]
    failed: int = 0
    looks: int = 0
    moves: bool = False
    first: object = None

    @property
    def is_left(self) -> bool:
        """Whether it is not looked at any more: it could not be told, or has come out often enough."""
        return self.failed >= _FAILURES or self.looks >= _MOST

    def outcome(self, frame: FrameType) -> Any:
        """What it comes out as in a running function; UNKNOWN where that cannot be told."""
        self.looks += 1
        try:
            found = self._outcome(_values(self._names, frame))
        except NameError:  # it is not there yet, or in the function around
            return UNKNOWN
        except Exception:
            found = UNKNOWN
        self.failed += found is UNKNOWN
        return found

    def _outcome(self, names: dict[str, Any]) -> Any:
        if not all(_is_left_as_it_is(value) for value in names.values()):
            return UNKNOWN
        if not all(_is_known(part, names) for part in self._parts):
            return UNKNOWN
        found = [one(names) for one in self._compiled]
        if self.kind == "value" and not self.moves:
            of = [_operand(one(names)) for one in self._operands]
            self.first = of if self.first is None else self.first
            self.moves = self.first != of
        return _OUTCOMES[self.kind](*found)

    @functools.cached_property
    def _operands(self) -> list[Callable[[dict[str, Any]], Any]]:
        """Of what it is computed: `x.shape[0]`, and names."""
        bound = {one.id for one in ast.walk(self.node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}
        bound |= {one.arg for one in ast.walk(self.node) if isinstance(one, ast.arg)}
        return [_compiled(one) for one in _leaves(self.node) if bound.isdisjoint(named(one))]

    @functools.cached_property
    def _names(self) -> list[str]:
        return list(named(self.node))

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


def place(node: ast.expr) -> Place:
    """Where an expression stands."""
    return node.lineno, node.col_offset, node.end_lineno or 0, node.end_col_offset or 0


def is_name(nodes: list[ast.expr]) -> bool:
    """Whether it is `x` or `self.layers`: how many there are, the size itself tells."""
    return isinstance(nodes[0], ast.Name | ast.Attribute) if nodes else True


def _leaves(node: ast.AST) -> Iterator[ast.expr]:
    """The names in an expression; `x.shape` and `len(x)` in place of x."""
    asks = isinstance(node, ast.Attribute) and node.attr == "shape"
    if isinstance(node, ast.Call):
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        asks = name in ("size", "dim", "numel") or (name == "len" and is_name(node.args))
    if asks or isinstance(node, ast.Name):
        yield node  # type: ignore[misc]
    else:
        yield from itertools.chain.from_iterable(map(_leaves, ast.iter_child_nodes(node)))


def named(node: ast.AST) -> set[str]:
    """The names in an expression."""
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}


def _operand(value: object) -> object:
    """What stands for a value when it is compared with its value at another time; a new object for data."""
    if isinstance(value, int | float | str | NoneType | ModuleType) or callable(value):
        return value
    sizes = isinstance(value, tuple) and all(isinstance(one, int) for one in value)
    return tuple(value) if sizes else object()  # type: ignore[arg-type]


def root(node: ast.expr) -> str:
    """The name that attributes are taken from: `np` of `np.linalg.norm`."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


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
    return hasattr(type(value), "untyped_storage")  # without torch, which this module is loaded without


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
        method = isinstance(node, ast.Subscript) or node.func.attr in METHODS | TEXT_AND_NUMBER  # type: ignore[attr-defined]
        return known and method and _is_left_as_it_is(holder)
    name = node.func.id  # type: ignore[attr-defined]
    return name in BUILTINS if name not in names else _is_function_known(names[name])


def _is_function_known(function: object) -> bool:
    name, home = getattr(function, "__name__", ""), getattr(function, "__module__", "") or ""
    if isinstance(function, type):
        home = function.__module__
    home = home.partition(".")[0] or type(function).__module__  # numpy's ufuncs say so by their type
    return home in PURE_MODULES or name in _MODULES.get(home.replace("_VariableFunctions", "torch"), ())


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
    if hasattr(type(found), "__next__"):  # made here, of what is left as it is
        found = tuple(itertools.islice(found, _LONGEST))
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

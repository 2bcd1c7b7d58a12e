"""Classifies lines of Python that a graph cannot represent, by their syntax alone.

    if x.sum() > 0:           branch on a tensor's value
    n = int(x.shape[1] / 2)   Python number made of a size
    for row in x:             loop over the rows of a tensor
    torch.tensor([n, 2])      tensor built from Python numbers

Syntax does not tell tensors from numbers, so this is a hint in addition to the exporter's error, never a verdict: names
assigned from `.shape`, `.size()` or `len()` count as sizes, and attributes of `self` and `config` as settings.

`statement_at` gives the statement that a line belongs to: its lines, the names it assigns, and whether it branches.
"""

from __future__ import annotations

import ast
import functools
import inspect
import linecache
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import Any

BRANCH_TENSOR = "branch on a tensor's value"
BRANCH_SIZE = "branch on a size"
NUMBER_TENSOR = "Python number taken out of a tensor"
NUMBER_SIZE = "Python number made of a size"
LOOP_ROWS = "loop over the rows of a tensor"
LOOP_SIZE = "loop whose length is a size"
LOOP_TENSOR = "loop whose end depends on a tensor's value"
BUILT = "tensor built from Python numbers"
FIXED_SIZE = "size fixed at its value in the example"
DATA_SIZE = "size that depends on data"
NO_TRANSLATION = "operator without an ONNX translation"
WRONG_TRANSLATION = "operator whose ONNX translation computes something else"
NOT_LOADED = "ONNX operator that the runtime does not load"
COMPLEX = "complex numbers"
NOT_SCRIPTABLE = "Python that TorchScript cannot compile"
DEFAULTS = "default arguments become graph inputs"
STATE = "state kept between calls"
CAUGHT = "exception caught in forward"
UNKNOWN = "not identified"

# What running both sides of a branch, or a loop as a loop, may cure.
CURED_BY_BRANCHES = frozenset({BRANCH_TENSOR, BRANCH_SIZE, NUMBER_TENSOR, LOOP_TENSOR, DATA_SIZE, UNKNOWN})
LOOPS = frozenset({LOOP_ROWS, LOOP_SIZE, LOOP_TENSOR})

_SIZES = {"shape", "size", "numel", "nelement"}
_NUMBERS = {"int", "float", "round", "bool"}
_TO_PYTHON = {"item", "tolist", "__int__", "__float__", "numpy"}
_CONSTRUCTORS = {"tensor", "as_tensor", "Tensor", "FloatTensor", "LongTensor", "from_numpy"}
_MATH = {"ceil", "floor", "sqrt", "log", "log2", "pow", "prod", "gcd", "isqrt", "exp"}
_DATA_SHAPED = {"nonzero", "masked_select", "unique", "argwhere", "unique_consecutive", "repeat_interleave", "bincount"}
_SETTINGS = {"training", "is_scripting", "is_tracing", "is_exporting", "isinstance", "hasattr", "callable", "device",
           "dtype", "is_floating_point", "is_cuda", "is_in_onnx_export", "requires_grad"}  # fmt: skip


@dataclass(frozen=True)
class _Construct:
    """One place in a source file that a graph cannot represent. line, end: first and last line of the expression."""

    kind: str
    file: str
    line: int
    code: str
    end: int = 0


def code_at(file: str, line: int) -> str:
    """A line of source, stripped; a lone opening bracket together with the next line."""
    code = linecache.getline(file, line).strip()
    return f"{code} {linecache.getline(file, line + 1).strip()}" if code in ("(", "[", "{") else code


def construct_at(file: str, line: int) -> _Construct | None:
    """The most telling construct on a line, or around it; None where there is none."""
    function = _function_at(file, line)
    if function is None:
        return None
    # A traceback may name any line of an expression that spans several.
    on_line = [c for c in _constructs(function, file) if c.line == line]
    covering = [c for c in _constructs(function, file) if c.line < line <= c.end]
    return min(on_line or covering, key=_rank, default=None)


def in_function(function: object) -> list[_Construct]:
    """The constructs of a function, or of its code, the most telling first; [] where there is no source."""
    unwrapped: Any = inspect.unwrap(function)  # type: ignore[arg-type]
    code = getattr(unwrapped, "__code__", unwrapped)
    if not isinstance(code, CodeType):
        return []
    file, first = code.co_filename, code.co_firstlineno
    node = _function_at(file, first, exact=True)
    return sorted(_constructs(node, file), key=_rank) if node else []


_ORDER = (BRANCH_TENSOR, LOOP_ROWS, LOOP_TENSOR, LOOP_SIZE, NUMBER_TENSOR, NUMBER_SIZE, BRANCH_SIZE, BUILT, DATA_SIZE)


def _rank(construct: _Construct) -> int:
    return _ORDER.index(construct.kind) if construct.kind in _ORDER else len(_ORDER)


def _function_at(file: str, line: int, exact: bool = False) -> ast.FunctionDef | None:
    tree = _file_tree(file)
    best: ast.FunctionDef | None = None
    for node in ast.walk(tree) if tree else ():
        if not isinstance(node, ast.FunctionDef):
            continue
        start = min([node.lineno, *(d.lineno for d in node.decorator_list)])
        # Of several functions around a line, the innermost is the one that starts last.
        inside = start <= line <= (node.end_lineno or line)
        if (start == line or node.lineno == line) if exact else inside and (best is None or node.lineno >= best.lineno):
            best = node
    return best


def _constructs(function: ast.FunctionDef, file: str) -> Iterator[_Construct]:
    sizes = _size_names(function)
    for node in ast.walk(function):
        kind = _kind(node, sizes)
        if kind:
            # The `for` of a comprehension has no line of its own in the syntax tree.
            line: int = getattr(node, "lineno", function.lineno)
            head = getattr(node, "test", getattr(node, "iter", node))
            yield _Construct(kind, file, line, code_at(file, line), getattr(head, "end_lineno", None) or line)


def _kind(node: ast.AST, sizes: set[str]) -> str | None:
    if isinstance(node, ast.If | ast.IfExp | ast.Assert):
        return _branch(node.test, sizes)
    if isinstance(node, ast.While):
        return {BRANCH_TENSOR: LOOP_TENSOR, BRANCH_SIZE: LOOP_SIZE}.get(_branch(node.test, sizes) or "")
    if isinstance(node, ast.For | ast.comprehension):
        return _loop(node.iter, sizes)
    if isinstance(node, ast.Call):
        return _call(node, sizes)
    return None


def _branch(test: ast.expr, sizes: set[str]) -> str | None:
    """The kind of a condition; None for one that only reads settings, such as `self.training`."""
    if _mentions_size(test, sizes):
        return BRANCH_SIZE
    names = _words(test)
    if names & _SETTINGS:
        return None
    # `is None` and `in` ask about Python objects, not about values of tensors.
    if isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Is | ast.IsNot | ast.In | ast.NotIn):
        return None
    calls = any(isinstance(n, ast.Call) for n in ast.walk(test))
    compares = any(isinstance(n, ast.Compare) for n in ast.walk(test))
    plain = all(_is_setting(n) for n in ast.walk(test) if isinstance(n, ast.Attribute | ast.Name))
    return BRANCH_TENSOR if (calls or compares or isinstance(test, ast.Name)) and not plain else None


def _is_setting(node: ast.AST) -> bool:
    while isinstance(node, ast.Attribute):
        node = node.value
    # By convention: what hangs on these names is configuration or a function, no tensor of the call.
    return isinstance(node, ast.Name) and node.id in ("self", "s", "config", "cfg", "torch", "math", "np")


def _loop(over: ast.expr, sizes: set[str]) -> str | None:
    if isinstance(over, ast.Call) and _name_of(over.func) == "reversed":
        return _loop(over.args[0], sizes)
    if isinstance(over, ast.Call) and isinstance(over.func, ast.Name) and over.func.id == "range":
        if _mentions_size(over, sizes):
            return LOOP_SIZE
        converted = any(isinstance(n, ast.Call) and _name_of(n.func) in _NUMBERS | _TO_PYTHON for n in ast.walk(over))
        return LOOP_TENSOR if converted else None
    # A name may be a tensor; `self.layers` or `zip(...)` is a Python list in nearly all models.
    pieces = isinstance(over, ast.Call) and _name_of(over.func) in ("split", "unbind")
    return LOOP_ROWS if pieces or isinstance(over, ast.Name) else None


def _call(node: ast.Call, sizes: set[str]) -> str | None:
    name, bare = _name_of(node.func), isinstance(node.func, ast.Name)
    size = any(_mentions_size(a, sizes) for a in node.args)
    computed = not all(isinstance(one, ast.Constant) for one in node.args[:1])
    if bare and name in _NUMBERS and computed:
        return NUMBER_SIZE if size else NUMBER_TENSOR
    if name in _MATH and size:
        return NUMBER_SIZE
    if not bare and name in _TO_PYTHON:
        return NUMBER_TENSOR
    if not bare and name in _CONSTRUCTORS and computed:
        return BUILT
    return DATA_SIZE if _is_shaped_by_data(name, node) else None


def _is_shaped_by_data(name: str, node: ast.Call) -> bool:
    return name in _DATA_SHAPED or (name == "where" and len(node.args) == 1)


def _name_of(function: ast.expr) -> str:
    return function.id if isinstance(function, ast.Name) else getattr(function, "attr", "")


def _words(node: ast.AST) -> set[str]:
    names = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
    return names | {n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute)}


def _mentions_size(node: ast.AST, sizes: set[str]) -> bool:
    for one in ast.walk(node):
        if isinstance(one, ast.Attribute) and one.attr in _SIZES:
            return True
        if isinstance(one, ast.Name) and one.id in sizes:
            return True
        if isinstance(one, ast.Call) and isinstance(one.func, ast.Name) and one.func.id == "len":
            return True
    return False


def _size_names(function: ast.FunctionDef) -> set[str]:
    """Local names that are sizes: assigned from .shape, .size(), len(), or from such names."""
    names = {a.arg for a in function.args.args if a.arg in ("h", "w", "H", "W", "height", "width", "size", "hw_shape")}
    for _ in range(3):  # names assigned from names found in the round before
        for node in ast.walk(function):
            if isinstance(node, ast.Assign) and _mentions_size(node.value, names) and _is_size_expression(node.value):
                names |= {n.id for target in node.targets for n in ast.walk(target) if isinstance(n, ast.Name)}
    return names


def _is_size_expression(value: ast.expr) -> bool:
    """Whether an expression gives numbers: arithmetic, `int(...)`, `.shape`; not a tensor that is sliced by a size."""
    if isinstance(value, ast.Call):
        return _name_of(value.func) in _NUMBERS | _MATH | {"size", "len", "numel", "min", "max", "divmod", "abs"}
    if isinstance(value, ast.Subscript):
        return _is_size_expression(value.value)
    if isinstance(value, ast.BinOp):
        return _is_size_expression(value.left) and _is_size_expression(value.right)
    if isinstance(value, ast.Attribute):
        return value.attr in _SIZES
    if isinstance(value, ast.Tuple | ast.List):
        return all(_is_size_expression(v) for v in value.elts)
    return isinstance(value, ast.Name | ast.Constant | ast.UnaryOp | ast.IfExp | ast.Starred)


_BRANCHING = (ast.If, ast.IfExp, ast.While, ast.For, ast.comprehension, ast.Assert, ast.BoolOp)
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


@dataclass(frozen=True)
class Statement:
    """One statement. start, end: its first and last line; of an `if` or a loop, those of its head alone.

    names: local names that it assigns. branches: it chooses what runs next.
    """

    file: str
    start: int
    end: int
    names: tuple[str, ...] = ()
    branches: bool = False


# A file is asked for once for each of its lines that is looked at. Its source is taken not to change meanwhile.
@functools.lru_cache(maxsize=64)
def _file_tree(file: str) -> ast.Module | None:
    """A source file, parsed; None where it cannot be read."""
    try:
        return ast.parse(Path(file).read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError):
        return None


@functools.lru_cache(maxsize=4096)
def statement_at(file: str, line: int) -> Statement | None:
    """The innermost statement on a line; None where there is none."""
    tree = _file_tree(file)
    found = [node for node in ast.walk(tree) if isinstance(node, ast.stmt)] if tree else []
    # A `def` is a statement too, around all the lines of its body.
    inside = [node for node in found if node.lineno <= line <= _last_line(node) and not isinstance(node, _DEFINITIONS)]
    if not inside:
        return None
    # Of nested statements the innermost starts last.
    node = max(inside, key=lambda one: one.lineno)
    return Statement(file, node.lineno, _last_line(node), tuple(_names(node)), _branches(node))


def _last_line(node: ast.stmt) -> int:
    """The last line; of a statement with a body, of its head alone."""
    body = getattr(node, "body", None)
    return max(node.lineno, body[0].lineno - 1) if body else node.end_lineno or node.lineno


def _names(node: ast.stmt) -> list[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    found = [one for target in targets if target is not None for one in ast.walk(target)]
    return [one.id for one in found if isinstance(one, ast.Name)]


def _branches(node: ast.stmt) -> bool:
    """Whether a statement chooses what runs next: an if, a loop, a conditional expression, and/or."""
    if isinstance(node, ast.If | ast.While | ast.For | ast.Assert):
        return True
    return any(isinstance(one, _BRANCHING) for one in ast.walk(node)) and not getattr(node, "body", None)

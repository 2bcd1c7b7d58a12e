"""Recognizes methods by a hash of their source, so that a patch acts only on the code that it was written for.

A stand-in repeats what a method computes. Where a new version of the library computes something else, it would be wrong
without an error. So a patch states a hash of each method that it knows. Comments, docstring, annotations, decorators
and layout do not count:

    def forward(self, x: Tensor) -> Tensor:        fingerprint 186f835c85f7
        "Doubles what the layer gives."          outline a878 (the def), 15b6 (the return)
        return self.layer(x) * 2  # twice

    return self.layer(x) * 3                       fingerprint 0b35e3486f0a: not patched, and the plan names this line

A copy of the method in another library has the same fingerprint, and is patched too.
"""

from __future__ import annotations

import ast
import difflib
import functools
import hashlib
import inspect
import sys
import textwrap
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

Bodies = Mapping[str, Collection[str]]


class KnownBody(str):
    """The fingerprint of a method that a patch was written for, for `When(bodies={"forward": {...}})`.

        onnxpatch.KnownBody.of(Layer.forward, "timm 1.0.31")  # "a74311d9ca9d"

    fingerprint: twelve hex digits. where: the library's version or the repository that has this code, for messages.
    outline: a hash of four hex digits for each line, so that a message can name changed lines.
    """

    where: str
    outline: str

    def __new__(cls, fingerprint: str, where: str, outline: str = "") -> KnownBody:
        made = super().__new__(cls, fingerprint)
        made.where, made.outline = where, outline
        return made

    @classmethod
    def of(cls, function: Callable[..., object], where: str) -> KnownBody:
        """The fingerprint and outline of a function as it is installed; empty if its source cannot be read."""
        return cls(fingerprint(function) or "", where, outline(function))


@functools.lru_cache(maxsize=4096)
def fingerprint(function: object) -> str | None:
    """A hash of the source of `function`, twelve hex digits; None if the source cannot be read.

    Comments, docstring, annotations, decorators and layout are left out: they do not change what it computes.
    """
    code = _code(function)
    return None if code is None else hashlib.sha256(code.encode()).hexdigest()[:12]


def outline(function: object) -> str:
    """A hash of four hex digits for each line of `function`: it shows changed lines without storing the code."""
    return "".join(map(_digest, (_code(function) or "").splitlines()))


def marked_lines(function: object, known_outline: str) -> list[str]:
    """The lines of `function`, with "+ " before new ones; last, how many lines of the known code are gone."""
    lines = (_code(function) or "").splitlines()
    digests = [_digest(line) for line in lines]
    before = [known_outline[i : i + 4] for i in range(0, len(known_outline), 4)]
    marked: list[str] = []
    # autojunk would leave out lines that repeat in long code, such as `return x`.
    for kind, i, j, first, last in difflib.SequenceMatcher(None, before, digests, autojunk=False).get_opcodes():
        if kind in ("replace", "delete"):
            marked.append(f"- {j - i} line{'s' if j - i > 1 else ''} of the known code")
        sign = "  " if kind == "equal" else "+ "
        marked += [sign + line for line in lines[first:last]]
    return marked


def _digest(line: str) -> str:
    # Four digits collide once in 65,536 lines: enough for a message, and no decision depends on them.
    return hashlib.sha256(line.encode()).hexdigest()[:4]


@functools.lru_cache(maxsize=4096)
def _code(function: Any) -> str | None:
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(function))))
        if not tree.body or not isinstance(tree.body[0], ast.FunctionDef):
            return None
        return _written(_bare(tree.body[0]))
    except (OSError, TypeError, SyntaxError, RecursionError):  # the last: a generated sum of hundreds of terms
        return None


def _bare(function: ast.FunctionDef) -> ast.FunctionDef:
    function.decorator_list, function.returns = [], None
    # A body that is nothing but its docstring keeps it: without a statement it is no Python.
    if ast.get_docstring(function, clean=False) is not None and len(function.body) > 1:
        function.body = function.body[1:]
    for node in ast.walk(function):
        if isinstance(node, ast.arg):
            node.annotation = None
    return function


def _written(function: ast.FunctionDef) -> str:
    """The function as text, the same in every version of Python.

    The fingerprints in patches were made by 3.11 and later. Python 3.10 writes brackets in `(a, b) = c`.
    """
    if sys.version_info >= (3, 11):
        return ast.unparse(function)
    return ast.unparse(_Unbracketed().visit(function)).replace("lambda :", "lambda:")


class _Unbracketed(ast.NodeTransformer):
    """`for (a, b) in c` becomes `for a, b in c`: the tuple is replaced by one name with the text `a, b`."""

    def visit_For(self, node: Any) -> Any:
        node.target = _text(node.target)
        return self.generic_visit(node)

    visit_comprehension = visit_For

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        node.targets = [_text(target) for target in node.targets]
        return self.generic_visit(node)


def _text(target: ast.expr) -> ast.expr:
    if not isinstance(target, ast.Tuple) or not target.elts:
        return target
    names = ", ".join(map(ast.unparse, target.elts))
    return ast.Name(names if len(target.elts) > 1 else f"{names},", ast.Store())


def has_known_bodies(cls: type, bodies: Bodies) -> bool:
    """Whether all the methods of `cls` that a patch names have one of its fingerprints; False where it names none."""
    # Reading source is slow: first ask whether the class has all of the methods at all.
    return (
        bool(bodies)
        and all(hasattr(cls, name) for name in bodies)
        and all(fingerprint(getattr(cls, name)) in prints for name, prints in bodies.items())
    )


def unknown_body(cls: type, bodies: Bodies) -> str | None:
    """Why `cls` is not patched: the first method whose source is not a supported version. None if all are."""
    for name, prints in bodies.items():
        found = fingerprint(getattr(cls, name, None))
        if found not in prints:
            known_ones = ", ".join(sorted(_named(known_one) for known_one in prints))
            return (
                f"the source of {name}() differs from the versions this patch supports ({known_ones}): its fingerprint "
                f"is {found}" + _difference(getattr(cls, name, None), prints)
            )
    return None


def _named(known_one: str) -> str:
    return f"{known_one.where}: {known_one}" if isinstance(known_one, KnownBody) else known_one


def _difference(function: object, prints: Collection[str]) -> str:
    """The lines that differ from the most similar supported version."""
    outlines = [p.outline for p in prints if isinstance(p, KnownBody) and p.outline]
    lines = (_code(function) or "").splitlines()
    if not outlines or not lines:
        return ""
    known_lines = [[text[i : i + 4] for i in range(0, len(text), 4)] for text in outlines]
    nearest = min(known_lines, key=lambda known: len(_without(map(_digest, lines), known)))
    changed = _without(map(_digest, lines), nearest)
    shown = "; ".join(f"`{line.strip()}`" for line in lines if _digest(line) in changed)
    gone = len(_without(nearest, map(_digest, lines)))
    return f"; lines that only it has: {shown or 'none'}; lines of the supported version that it lacks: {gone}"


def _without(digests: Iterable[str], others: Iterable[str]) -> set[str]:
    return set(digests) - set(others)

"""What the page of a plan shows, of which other pages have parts: the tree of modules, a card for each patch, its code.

Code has colours: a patch beside what it replaces, and the lines of a file around one line.
"""

from __future__ import annotations

import ast
import inspect
import linecache
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

import torch

from onnxpatch.inputs.modules import modules
from onnxpatch.messages.text import plural
from onnxpatch.onnxfile.metadata import versions
from onnxpatch.patching.plan import Plan, Swap
from onnxpatch.patching.registry import Patch
from onnxpatch.patching.when import resolve
from onnxpatch.results.checks import Untried

_REACH = 5  # lines before and after
_MOST_LINES = 90
_MOST_TARGETS = 4  # functions of one patch whose code is shown


@dataclass
class _LinePair:
    """The code that a patch replaces and its own, as HTML."""

    before: str
    after: str


def pair(patch: Patch, module: torch.nn.Module | None = None) -> _LinePair:
    """The code before and after `patch`. module: one that it applies to, whose class has the methods."""
    return _LinePair(coloured(original(patch, module)), coloured(source(patch.stand_in)))


def original(patch: Patch, module: torch.nn.Module | None = None) -> str:
    """The source of the methods or functions that a patch replaces; a comment with the name where there is none."""
    if patch.kind == "function":
        functions = [(target, resolve(target)) for target in patch.targets[:_MOST_TARGETS]]
        return "\n\n".join(source(code) if code is not None else f"# {name}" for name, code in functions)
    if module is None:
        return "\n".join(f"# {target}" for target in patch.targets)
    cls = type(module)
    if patch.kind == "replacement":
        return source(cls)
    methods = [getattr(cls, name) for name in sorted(patch.methods) if hasattr(cls, name)]
    # What the class inherits from nn.Module itself is torch's machinery, and not what the patch is about.
    own = [method for method in methods if getattr(method, "__module__", "") != "torch.nn.modules.module"]
    return f"class {cls.__name__}:  # {cls.__module__}\n" + "\n\n".join(textwrap.indent(source(m), "    ") for m in own)


def source(code: object) -> str:
    """The source of a class or function, dedented and cut to a page; a comment where it is compiled."""
    unwrapped = inspect.unwrap(code) if callable(code) else code
    try:
        # getsource takes classes and functions, and raises TypeError for the rest.
        text = inspect.getsource(unwrapped)  # type: ignore[arg-type]
    except (OSError, TypeError):
        return f"# {getattr(unwrapped, '__qualname__', unwrapped)}: compiled code, without Python source"
    lines = _without_docstrings(textwrap.dedent(text).rstrip())
    more = len(lines) - _MOST_LINES
    return "\n".join([*lines[:_MOST_LINES], *([f"# ... {more} more lines"] if more > 0 else [])])


def _without_docstrings(text: str) -> list[str]:
    """The lines of source without docstrings and the decorators on top. The page has the reasons in its own text."""
    lines = text.splitlines()
    try:
        tree = ast.parse(text)
    except SyntaxError:  # getsource goes by lines, and may cut a statement in two
        return lines
    top = tree.body[0] if tree.body else None
    dropped: set[int] = set()
    if isinstance(top, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and top.decorator_list:
        dropped |= set(range(1, top.lineno))
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        # A body of a docstring alone keeps it, since it would be no Python without.
        if isinstance(body, list) and len(body) > 1 and _is_string(body[0]):
            dropped |= set(range(body[0].lineno, (body[0].end_lineno or body[0].lineno) + 1))
    return [line for number, line in enumerate(lines, 1) if number not in dropped]


def _is_string(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def coloured(text: str) -> str:
    """Python code as an HTML block, coloured where pygments is installed."""
    lines = "\n".join(_coloured_lines(text))
    # tabindex: a block that scrolls is moved by the keyboard only once it has the focus.
    return f'<div class="code" tabindex="0"><pre>{lines}</pre></div>'


def _coloured_lines(text: str) -> list[str]:
    """The lines of Python code as HTML. No element goes over a line's end, so that lines can be shown one by one."""
    try:
        from pygments import highlight
        from pygments.formatters import HtmlFormatter
        from pygments.lexers import PythonLexer
    except ImportError:
        return escape(text).split("\n")
    # By default pygments drops empty lines at the start, and every number of a line would be off.
    shown = str(highlight(text, PythonLexer(stripnl=False, ensurenl=False), HtmlFormatter(nowrap=True)))
    return shown.removesuffix("\n").split("\n")


@dataclass(frozen=True)
class _Line:
    """One line of source as HTML. at: whether it is the line that was asked for. mark: of a condition, what ran."""

    number: int
    code: str
    at: bool
    mark: str = ""


def around(source: str) -> list[_Line]:
    """The line at `source`, written as file:line, and its neighbours. [] where the file has no such line."""
    file, _, number = source.rpartition(":")
    lines = linecache.getlines(file)
    if not number.isdecimal() or not 1 <= int(number) <= len(lines):
        return []
    at = int(number)
    first, last = max(at - _REACH, 1), min(at + _REACH, len(lines))
    coloured = _coloured(lines, first, last)
    return [_Line(n, code, n == at) for n, code in enumerate(coloured, first) if code or first < n < last]


def marked(sides: Sequence[Untried]) -> list[_Line]:
    """The functions' source with a mark at each condition, as tools for coverage show it. sides: of one function."""
    file = sides[0].place.rpartition(" in ")[0].rpartition(":")[0]
    lines, (first, last), marks = linecache.getlines(file), sides[0].span, dict(sides[0].marks)
    if not 0 < first <= last <= len(lines):
        return around(sides[0].place.rpartition(" in ")[0])
    shown = {n for at in marks for n in range(at - _REACH, at + _REACH + 1)} if last - first > _WHOLE else set()
    return [
        _Line(n, code, marks.get(n) == "never", marks.get(n, ""))
        for n, code in enumerate(_coloured(lines, first, last), first)
        if not shown or n in shown
    ]


def _coloured(lines: list[str], first: int, last: int) -> list[str]:
    """Lines `first` to `last`, counted from 1, dedented.

    The whole file is coloured: a string that begins above the first line would otherwise seem to begin at its end.
    """
    plain = [line.rstrip("\r\n").expandtabs(4) for line in lines]
    margin = min((len(line) - len(line.lstrip()) for line in plain[first - 1 : last] if line.strip()), default=0)
    bare = [line.removeprefix(" " * margin) for line in plain]
    return _coloured_lines("\n".join(bare))[first - 1 : last]


_MOST_NAMES = 6
_WHOLE = 60  # lines of a function that is shown as a whole


@dataclass
class _Card:
    """One patch. where: paths of the modules that it applies to, or its targets where it applies to none."""

    patch: Patch
    where: str
    pair: _LinePair


def cards(patches: Sequence[Patch], plan: Plan | None) -> list[_Card]:
    """A card for each patch. The code before is that of the first module that the plan applies the patch to."""
    swaps: dict[str, list[Swap]] = {}
    for swap in plan.swaps if plan else ():
        swaps.setdefault(swap.patch.name, []).append(swap)
    return [_card(patch, swaps.get(patch.name, [])) for patch in patches]


def _card(patch: Patch, swaps: list[Swap]) -> _Card:
    if not swaps:
        return _Card(patch, shortened(patch.targets), pair(patch))
    return _Card(patch, shortened([swap.path or "(root)" for swap in swaps]), pair(patch, swaps[0].module))


def shortened(names: Sequence[str]) -> str:
    """The first few names and the number of the others: `a, b and 3 more`."""
    more = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")


def plan_context(plan: Plan) -> dict[str, object]:
    """The names that plan.html.j2 uses."""
    likely = plan.likely()
    swapped = list({swap.patch.name: swap.patch for swap in plan.swaps}.values())
    return {
        "model": type(plan.model).__name__,
        "verdict": f"{plural(len({swap.path for swap in plan.swaps}), 'module')} swapped, "
        f"{plural(len(likely), 'function')} replaced",
        "state": "",
        "summary": _summary(plan),
        "rows": tree_rows(plan.model, plan_notes(plan)),
        "aliases": [(swap.path or "(root)", swap.aliases) for swap in plan.swaps if swap.aliases],
        "swapped": cards(swapped, plan),
        "likely": [
            (cards([patch], None)[0], *likely[patch.name]) for patch, _ in plan.functions if patch.name in likely
        ],
        "functions": [patch for patch, _ in plan.functions if patch.name not in likely],
        "shortened": shortened,
        "left_alone": _left_alone(plan),
        "missed": len(plan.near_misses),
        "findings": plan.findings,
        "versions": versions(),
    }


def _summary(plan: Plan) -> str:
    settings = plan.settings
    options = [f"for {settings.exporter or 'any exporter'}"]
    options += [f"opset {settings.opset}"] if settings.opset else []
    options += ["image size {}x{}".format(*settings.image_size)] if settings.image_size else []
    options += ["with branches"] if settings.branches else []
    return f"what patching would do, {', '.join(options)}; nothing was changed"


def _left_alone(plan: Plan) -> list[tuple[str, str, str]]:
    """(patch, reason, modules) where a patch matched but does not apply; one row for all modules with one reason."""
    modules: dict[tuple[str, str], list[str]] = {}
    for miss in plan.near_misses:
        paths = modules.setdefault((miss.patch, miss.reason), [])
        paths += [] if miss.path is None else [miss.path or "(root)"]
    return [(patch, reason, shortened(paths)) for (patch, reason), paths in modules.items()]


Notes = Mapping[str, tuple[str, str]]  # path of a module: (state, note)


@dataclass
class _TreeRow:
    """One module of the tree. state: swapped, near (matched and left alone), culprit, or ''."""

    path: str
    name: str
    depth: int
    cls: str
    state: str = ""
    note: str = ""
    nodes: str = ""


def tree_rows(model: torch.nn.Module, notes: Notes, nodes: Callable[[str], str] = lambda path: "") -> list[_TreeRow]:
    """A row for each module of the first two levels, for each with a note, and for those around it.

    A module that is in the model twice gets one row. nodes: the text about a module's nodes in the graph, by its path.
    """
    table, seen = [], set[int]()
    for path, module in modules(model):
        if id(module) in seen:  # a module that several parents share
            continue
        seen.add(id(module))
        if _has_row(path, notes):
            name, depth = path.rpartition(".")[2] or "(root)", path.count(".") + bool(path)
            table.append(_TreeRow(path, name, depth, type(module).__name__, *notes.get(path, ("", "")), nodes(path)))
    return table


def _has_row(path: str, noted: Iterable[str]) -> bool:
    # Two levels show the model's outline; deeper modules only where there is something to say of them.
    return path.count(".") < 1 or any(one == path or one.startswith(f"{path}.") for one in noted)


def plan_notes(plan: Plan | None) -> dict[str, tuple[str, str]]:
    """A note for each module that a plan swaps, and for each that a patch matched but does not apply to."""
    notes: dict[str, tuple[str, str]] = {}
    for miss in plan.near_misses if plan else ():
        if miss.path is not None:
            _add_note(notes, miss.path, "near", f"{miss.patch}: {miss.reason}")
    for swap in plan.swaps if plan else ():
        _add_note(notes, swap.path, "swapped", f"{swap.patch.name}: {swap.patch.why}")
    return notes


def _add_note(notes: dict[str, tuple[str, str]], path: str, state: str, note: str) -> None:
    """Add a note after others of the same state. "swapped", which is added last, replaces "near"."""
    before = notes.get(path)
    notes[path] = (state, f"{before[1]}; {note}" if before and before[0] == state else note)

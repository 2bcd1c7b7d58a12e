"""Everything that the kit can say is in tests/snapshots/messages.txt, to be read side by side.

Collected from the source: every text in a `raise`, in the call of an exception or a warning, and in `help=`; the
docstrings of the commands; and every other text of three words or more, which is how reasons, notes and `why` are
written before they are passed on. Module paths and lines are left out: moving code changes nothing here.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
WORDS = 3


@pytest.mark.quick  # every change of words shows here
def test_messages_are_the_committed_ones(same_as_snapshot):
    trees = [ast.parse(file.read_text(encoding="utf-8")) for file in source_files()]
    texts = {text for tree in trees for text in messages(tree)}
    same_as_snapshot("messages.txt", "".join(f"{text}\n" for text in sorted(texts, key=sorting_key)))


def source_files() -> list[Path]:
    linked = ROOT / "onnxpatch" / "patches"  # a link to patches/
    kit = [file for file in (ROOT / "onnxpatch").rglob("*.py") if linked not in file.parents]
    return [*kit, *(ROOT / "patches").rglob("*.py"), ROOT / "pytest_onnxpatch.py"]


def sorting_key(text: str) -> tuple[str, str]:
    return text.lower(), text


def messages(tree: ast.Module) -> Iterator[str]:
    """Texts of a module that somebody may read, each on one line."""
    spoken = {text for node in ast.walk(tree) if speaks(node) for text in texts_in(node)}
    prose = {text for text in texts_in(tree, docstrings=False) if is_prose(text)}
    commands = {ast.get_docstring(node) or "" for node in ast.walk(tree) if is_command(node)}
    for text in spoken | prose | commands:
        if re.search(r"[A-Za-z]{2}", text):
            yield text.strip().replace("\n", "\\n")


def speaks(node: ast.AST) -> bool:
    """A raise, the making of an exception, a warning, a note, or the help of an option."""
    if isinstance(node, ast.Raise):
        return True
    if isinstance(node, ast.keyword):
        return node.arg in ("help", "why")
    if not isinstance(node, ast.Call):
        return False
    called = ast.unparse(node.func)
    return bool(re.search(r"(Error|Exception|Refused)$|(^|\.)warn(ing)?$|notes\.append$|[Rr]efuse\w*$", called))


def is_command(node: ast.AST) -> bool:
    """A function of the command line: typer shows its docstring. Its parameters are typer's options."""
    if not isinstance(node, ast.FunctionDef):
        return False
    return any(re.search(r"Opt\b", ast.unparse(arg.annotation)) for arg in node.args.args if arg.annotation is not None)


def texts_in(node: ast.AST, docstrings: bool = True) -> Iterator[str]:
    """The strings below a node, f-strings whole with {…} for what is put in, and what is put in on its own."""
    if isinstance(node, ast.JoinedStr):
        yield "".join(str(part.value) if isinstance(part, ast.Constant) else "{…}" for part in node.values)
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                yield from texts_in(part.value, docstrings)
        return
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    for child in ast.iter_child_nodes(node):
        if docstrings or not (isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant)):
            yield from texts_in(child, docstrings)


def is_prose(text: str) -> bool:
    """Three words in a row, and no code, einops pattern or regular expression."""
    in_a_row = r"[A-Za-z][A-Za-z']+[,:;]? (?:\{…\}|[A-Za-z][A-Za-z']*)[,:;]? (?:\{…\}|[A-Za-z][A-Za-z']+)"
    return bool(re.search(in_a_row, text)) and not re.search(r"\(\?|\\[bwsd]|^\s*(def|class|import|from) ", text)


def test_what_is_collected():
    source = '''
"""The docstring of this module is read by nobody at run time."""
REASON = "the model returns no tensor"
PATTERN = "b c h w -> b h w c"

def check(x):
    """Neither is this one here."""
    if x:
        raise ValueError("short " f"{x.shape}: {'odd' if x else 'even'}")
    return None, f"{x} has no form here"

def command(target: TargetOpt):
    """What TARGET is."""
'''
    assert set(messages(ast.parse(source))) == {
        "the model returns no tensor",
        "short {…}: {…}",
        "odd",
        "even",
        "{…} has no form here",
        "What TARGET is.",
    }

"""Prints the answers of some conditions as they are recorded. Runs without torch, under any Python."""

from __future__ import annotations

import ast
import importlib.util
import sys
import types
from pathlib import Path

ROOT = Path(__file__).parents[2] / "onnxpatch"


def load(name: str) -> types.ModuleType:
    """A module of the package, without the package's own imports."""
    rooms = ("messages", "decisions", "decisions.if_rules", "verification")
    for part in ("onnxpatch", *(f"onnxpatch.{room}" for room in rooms)):
        if part not in sys.modules:
            sys.modules[part] = types.ModuleType(part)
            sys.modules[part].__path__ = []  # type: ignore[attr-defined]
    spec = importlib.util.spec_from_file_location(f"onnxpatch.{name}", ROOT / f"{name.replace('.', '/')}.py")
    assert spec is not None and spec.loader is not None
    module = sys.modules[f"onnxpatch.{name}"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def asked(a: int, b: int, n: int) -> object:
    """Conditions of every kind."""
    found = []
    if a and (b or not n):
        found.append(1)
    elif n is None:
        found.append(2)
    elif 1 < n < 5:
        found.append(3)
    while n > 3:
        n -= 1
    found += [i for i in range(n) if i > 1]
    w = a if b else n
    w += max(n, 4) + [1, 2][n > 8] + sum(map(lambda i: (i == 3) * 2, range(n)))
    match n:
        case 3:
            w = 3
        case k if k > 2:
            w = 4
    assert n >= 0
    if not (a and b):
        w += 1
    return w


def main() -> None:
    """Record two calls, and print the answers of each condition and the lines that ran."""
    load("messages.text")
    load("messages.user_code")
    load("process")
    load("decisions.functions_run")
    load("decisions.if_rules.source")
    load("decisions.definitions")
    conditionals = load("decisions.conditionals")
    load("decisions.choice_outcomes")
    load("decisions.choices")
    record = load("decisions.sides_taken").SidesTaken()
    watched_run = load("decisions.watched_run").watched_run
    answers: dict[tuple[int, str], set[bool]] = {}
    lines: set[int] = set()
    chosen: dict[str, set[str]] = {}
    for args in ((1, 0, 0), (1, 1, 9), (0, 0, 4)):
        with watched_run(record) as taken:
            asked(*args)
        source = conditionals.source_of(record.functions[0].code)
        for one in record.functions:
            for (at, jumped), (test, answer) in conditionals.sides_of_jumps(source, one.code).items():
                if (one.number, at, jumped) in taken.jumps and answer is not None:
                    answers.setdefault((test.lineno, ast.unparse(test)), set()).add(answer)
        for choice, outcome in taken.chosen:
            chosen.setdefault(ast.unparse(choice.node), set()).add(repr(outcome))
        lines |= {line for number, line in taken.lines if number == 0}
    for test, found in sorted(answers.items()):
        print(test, sorted(found))
    for text, outcomes in sorted(chosen.items()):
        print(text, sorted(outcomes))
    print(sorted(lines), record.able)


if __name__ == "__main__":
    main()

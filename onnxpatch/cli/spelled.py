"""Advice of the package as a shell takes it: what a message writes in Python, with the command's options.

onnxpatch.export(model, ..., exclude='gate', branches=True)     onnxpatch export ... --exclude gate --branches
ask for branches=True                                           ask for --branches
"""

from __future__ import annotations

import re
import shlex

# Keywords of `export` and `verify` that are options by another name; the others have their own, with dashes.
_OPTIONS = {"opset_version": "opset"}
_KEYWORDS = (
    "attempts", "bounds", "branches", "check", "exclude", "exporter", "image_size", "max_memory", "max_probes",
    "max_seconds", "only", "operators", "opset_version", "prefer", "runtime", "tolerance",
)  # fmt: skip
_VALUE = r"True|False|None|'[^']*'|\"[^\"]*\"|\([^()]*\)|\[[^\[\]]*\]|[\d.]+"
_GIVEN = re.compile(rf"\b({'|'.join(_KEYWORDS)})=({_VALUE})")
_CALL = re.compile(r"onnxpatch\.(export|verify|doctor)\(model, \.\.\.,? ?((?:[^()]|\([^()]*\))*)\)")


def as_typed(text: str) -> str:
    """The text with calls and keywords of Python in the command line's own spelling."""
    # Calls first, with their commas: what is left are single keywords in a sentence.
    calls = _CALL.sub(lambda call: f"onnxpatch {call[1]} ... {_GIVEN.sub(_option, call[2]).replace(', -', ' -')}", text)
    return re.sub(r"(onnxpatch \w+ \.\.\.) (?!-)", r"\1", _GIVEN.sub(_option, calls))


def _option(given: re.Match[str]) -> str:
    keyword, value = given[1], given[2]
    option = f"--{_OPTIONS.get(keyword, keyword).replace('_', '-')}"
    if value in ("True", "False"):
        return option if value == "True" else option.replace("--", "--no-", 1)
    names = re.findall(r"'([^']*)'|\"([^\"]*)\"", value)
    parts = [shlex.quote(one or other) for one, other in names] if names or value[0] in "('\"" else [value]
    # No patch at all, only=(), is every patch left out.
    return " ".join(f"{option} {part}" for part in parts) or "--exclude '*'"

"""`drift`: compares the code that onnxpatch and its patches rely on with the installed libraries.

The known state is in `known_code.json` beside this file: for every method and private API the version of its library, a
fingerprint, and a digest of each line. No code of other projects is stored. `known_operators.txt` has the operators of
torch's own tests. `Drift` is what came of it, as text and JSON.
"""

from __future__ import annotations

import enum
import functools
import importlib
import inspect
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from importlib import metadata, resources
from typing import Any, Literal, TypedDict

from onnxpatch._torch.operator_tables import tested_operators
from onnxpatch._torch.relied_on import RELIED_ON, find, is_there
from onnxpatch.messages.text import table
from onnxpatch.onnxfile.metadata import versions
from onnxpatch.patching.fingerprints import KnownBody, fingerprint, marked_lines, outline
from onnxpatch.patching.op_rows import spellings
from onnxpatch.patching.registry import REGISTRY, Patch, Registry
from onnxpatch.patching.when import ANY_TORCH_FUNCTION, resolve


class _Known(TypedDict):
    """The record of one method or private API. version: of its library. fingerprint: None if it has no source."""

    version: str
    fingerprint: str | None
    outline: str


def drift(registry: Registry = REGISTRY) -> Drift:
    """Compare the code that every patch and onnxpatch itself rely on with what is installed. Imports the libraries.

    Returns a `Drift`; `.ok` is False where code changed or is gone. No patch is applied to changed code in any case.
    """
    record = known_code()
    rows = [_private(*api, record) for api in RELIED_ON]
    for patch in registry:
        rows += _of_patch(patch, record)
    rows += _new_operators(registry)
    return Drift(rows, versions())


@functools.cache
def known_code() -> dict[str, _Known]:
    """The records, by dotted path."""
    text = resources.files("onnxpatch").joinpath("known_code.json").read_text(encoding="utf-8")
    kept: dict[str, _Known] = json.loads(text)
    return kept


def known_operators() -> frozenset[str]:
    """The operators of torch's own tests, in the versions known so far."""
    return frozenset(resources.files("onnxpatch").joinpath("known_operators.txt").read_text(encoding="utf-8").split())


def code_to_keep() -> dict[str, _Known]:
    """New records, of what is installed now. They are written into the file when a new version is supported."""
    found = {api.path: _kept(api.path, find(api.path)) for api in RELIED_ON if is_there(api.path)}
    for patch in REGISTRY:
        for target in _loaded_targets(patch) if patch.when.bodies else ():
            for name in patch.when.bodies:
                method = getattr(resolve(target), name, None)
                if fingerprint(method) in patch.when.bodies[name]:
                    found[f"{target}.{name}"] = _kept(target, method)
    return dict(sorted(found.items()))


def _kept(path: str, code: object) -> _Known:
    return {"version": _version(path), "fingerprint": _fingerprint(code), "outline": outline(_function(code))}


# ------------------------------------------------------------------ private torch APIs
def _private(path: str, used_in: str, without: str, moved_to: str, record: dict[str, _Known]) -> Reliance:
    kept, installed = record.get(path), _version(path)
    recorded = kept["version"] if kept else ""
    used_by = f"_torch/{used_in}.py"
    if not is_there(path):
        if moved_to and is_there(moved_to):
            return Reliance(path, "torch", used_by, "elsewhere", recorded, installed)
        return Reliance(path, "torch", used_by, "gone", recorded, installed, without)
    code = find(path)
    same = kept is not None and _fingerprint(code) == kept["fingerprint"]
    status: Status = "changed" if not same else "known" if recorded == installed else "same"
    diff = marked_lines(_function(code), kept["outline"]) if kept and not same else []
    # The private function is called as before; the row says what to look at.
    instead = "" if same else "used unchanged: its own test shows whether it still works"
    return Reliance(path, "torch", used_by, status, recorded, installed, instead, diff)


def _function(code: object) -> Any:
    """The Python function whose source counts; a class counts by its constructor's parameters, see `_fingerprint`."""
    return inspect.unwrap(code) if inspect.isfunction(code) or inspect.ismethod(code) else None


def _fingerprint(code: object) -> str | None:
    """Of a function its source; of a class the names that its constructor takes; of anything else, nothing."""
    if isinstance(code, enum.EnumMeta):
        return ", ".join(code.__members__)
    if inspect.isclass(code):
        try:
            return ", ".join(inspect.signature(code).parameters)
        except (ValueError, TypeError):
            return None
    return fingerprint(_function(code)) if _function(code) is not None else None


def _new_operators(registry: Registry) -> Iterator[Reliance]:
    served = {target for patch in registry for target in patch.targets}
    for name in sorted(tested_operators() - known_operators()):
        if served.isdisjoint(spellings(name)):
            instead = "no patch has a form of it: it is exported as torch.onnx.export does it"
            yield Reliance(name, "operator", "", "new", "", _version("torch"), instead)


# ------------------------------------------------------------------ patches
def _of_patch(patch: Patch, record: dict[str, _Known]) -> Iterator[Reliance]:
    # Any class of a name ("*.Name"), and any function of torch, show only in a model.
    targets = [one for one in patch.targets if one != ANY_TORCH_FUNCTION and not one.startswith("*.")]
    found = {target: _imported(target) for target in targets if _version(target)}
    served = any(one is not None for one, _ in found.values())
    for target in targets:
        if target not in found:
            yield Reliance(target, "target", patch.name, "absent")
            continue
        one, error = found[target]
        if one is None:
            yield _not_there(target, patch, error, served)
        for name in patch.when.bodies if one is not None else ():
            yield _method(patch, f"{target}.{name}", getattr(one, name, None), patch.when.bodies[name], record)


def _not_there(target: str, patch: Patch, error: str, served: bool) -> Reliance:
    """served: whether another target of the patch is there."""
    gone: Status = "unread" if error else "elsewhere" if served else "gone"
    instead = error or ("" if served else "the patch has nothing to replace")
    return Reliance(target, "target", patch.name, gone, "", _version(target), instead)


def _method(patch: Patch, path: str, method: Any, prints: Any, record: dict[str, _Known]) -> Reliance:
    kept, installed = record.get(path), _version(path)
    recorded = kept["version"] if kept else ""
    if method is None:
        return Reliance(path, "method", patch.name, "gone", recorded, installed, patch.instead)
    if fingerprint(method) in prints:
        return Reliance(path, "method", patch.name, "known" if recorded == installed else "same", recorded, installed)
    outlines = [one.outline for one in prints if isinstance(one, KnownBody)] + ([kept["outline"]] if kept else [])
    diffs = [marked_lines(method, one) for one in outlines if one]
    # Of several known bodies, the most similar one shows best what has changed.
    nearest = min(diffs, key=lambda diff: sum(line[0] != " " for line in diff), default=[])
    return Reliance(path, "method", patch.name, "changed", recorded, installed, patch.instead, nearest)


def _loaded_targets(patch: Patch) -> list[str]:
    named = [target for target in patch.targets if not target.startswith("*.") and _version(target)]
    return [target for target in named if _imported(target)[0] is not None]


def _imported(target: str) -> tuple[Any | None, str]:
    """(The object at a dotted path, or None; why a module on the way could not be imported, though it is there)."""
    parts, error = target.split("."), ""
    for cut in range(1, len(parts)):
        module = ".".join(parts[:cut])
        try:
            importlib.import_module(module)
        except Exception as failure:  # libraries raise errors of many classes where another one does not fit
            missing = isinstance(failure, ModuleNotFoundError) and module == failure.name
            error = "" if missing else f"{module} cannot be imported: {' '.join(str(failure).split())[:200]}"
            break
    return resolve(target), error


@functools.cache
def _version(path: str) -> str:
    """The installed version of the distribution that a dotted path belongs to; "" where it is not installed."""
    package = path.partition(".")[0]
    if package in ("math", "builtins"):
        return "Python"
    # Distributions may be named with hyphens where the import has underscores.
    for name in (package, package.replace("_", "-")):
        try:
            # 2.13.0+cpu has the same Python code as 2.13.0.
            return metadata.version(name).partition("+")[0]
        except metadata.PackageNotFoundError:
            continue
    return ""


SCHEMA = 1
Status = Literal["known", "same", "changed", "gone", "unread", "elsewhere", "absent", "new"]


@dataclass(frozen=True)
class Reliance:
    """One thing that is relied on, compared with what is installed.

    name: its dotted path; kind: "method" (a patch knows its code), "target" (a patch stands in for it) or "torch" (a
    private API) or "operator" (of torch's own tests); used_by: the patch, or the file of onnxpatch/_torch.
    status: known (same code, same version as recorded); same (same code in another version); changed; gone (the library
    is installed and has nothing under that name); unread (its module cannot be imported here); absent (the library is
    not installed); elsewhere (this version lacks the target, and the patch has others: patches name the targets of
    several versions); new (an operator that no version known so far has, and no patch stands in for).
    recorded, installed: versions of its library. instead: what happens where it is changed or gone.
    diff: lines of the installed code, "+ " before those that the known code lacks; the known code itself is not kept,
    so what it had in their place is counted: "- 2 lines of the known code".
    """

    name: str
    kind: Literal["method", "target", "torch", "operator"]
    used_by: str
    status: Status
    recorded: str = ""
    installed: str = ""
    instead: str = ""
    diff: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return self.status not in ("changed", "gone", "unread")


@dataclass(frozen=True)
class Drift:
    """What `drift` compared: each piece of library code and private torch API that is relied on, and its status.

    rows: a `Reliance` each. versions: of the libraries. `print(drift)` shows what changed or is gone.
    """

    rows: list[Reliance]
    versions: dict[str, str]

    @property
    def ok(self) -> bool:
        """Whether nothing changed and nothing is gone."""
        return all(row.ok for row in self.rows)

    def acted_upon(self) -> bool:
        """Whether something is gone, or code that a patch knows changed. A private function of torch whose body
        changed is called as before, and may well serve."""
        return any(not row.ok and (row.kind != "torch" or row.status == "gone") for row in self.rows)

    def to_dict(self) -> dict[str, Any]:
        """Plain values only; `schema` counts the layout's versions."""
        rows = [{**asdict(row), "ok": row.ok} for row in self.rows]
        return {"schema": SCHEMA, "ok": self.ok, "versions": dict(self.versions), "rows": rows}

    def to_json(self, indent: int | None = 2) -> str:
        """`to_dict` as JSON."""
        return json.dumps(self.to_dict(), indent=indent)

    def __str__(self) -> str:
        counts = Counter(row.status for row in self.rows)
        told = [f"{count} {status}" for status, count in counts.items()]
        shown = [row for row in self.rows if not row.ok or row.status == "new"]
        parts = [f"{len(self.rows)} relied on: {', '.join(told)}"]
        if shown:
            cells = [(row.name, row.used_by, row.status, _versions(row), row.instead) for row in shown]
            parts.append(table(("relied on", "by", "status", "recorded, installed", "what changed"), cells))
        parts += [f"{row.name}:\n" + "\n".join(f"  {line}" for line in row.diff) for row in shown if row.diff]
        return "\n\n".join(parts)


def _versions(row: Reliance) -> str:
    return f"{row.recorded or '?'}, {row.installed or '?'}"

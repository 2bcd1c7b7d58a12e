"""`drift`: what changed is told, with its lines, and is not patched; the record is as the code that it is about."""

from __future__ import annotations

import ast
import importlib
import json
from pathlib import Path

import pytest
import torch
from torch import nn

import onnxpatch
from onnxpatch._torch.relied_on import RELIED_ON, find
from onnxpatch.patching.fingerprints import fingerprint, outline
from onnxpatch.patching.registry import Registry
from tests.cli.running import run

# The public name is the function.
drift_module = importlib.import_module("onnxpatch.drift")
HERE = Path(__file__).parent
FILE = HERE.parent / "onnxpatch" / "known_code.json"
NAMES = FILE.with_name("known_operators.txt")


class Known(nn.Module):
    def forward(self, x):
        y = x * 2
        return y + 1


class Changed(nn.Module):
    def forward(self, x):
        y = x * 3
        return y + 1


class StandIn:
    def forward(self, x):
        return x + x + 1


@pytest.fixture
def changed(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> Registry:
    """A patch that knew `Known.forward`, where the library has `Changed` under both names."""
    bodies = {"forward": [fingerprint(Known.forward)]}
    target = f"{__name__}.Changed"
    onnxpatch.patch(target, f"{__name__}.Known", f"{__name__}.Gone", why="w", name="p",
                    when=onnxpatch.When(bodies=bodies), registry=registry)(StandIn)  # fmt: skip
    kept = {f"{target}.forward": {"version": "1", "fingerprint": "", "outline": outline(Known.forward)}}
    monkeypatch.setattr(drift_module, "known_code", lambda: kept)
    monkeypatch.setattr(drift_module, "_version", lambda path: "2")
    return registry


def test_changed_code_is_told_with_its_lines_and_never_patched(changed: Registry) -> None:
    found = drift_module.drift(changed)
    rows = {row.name.rpartition("test_drift.")[2]: row for row in found.rows if row.used_by == "p"}
    assert {name: row.status for name, row in rows.items()} == {
        "Changed.forward": "changed",
        "Known.forward": "same",
        "Gone": "elsewhere",
    }
    assert rows["Changed.forward"].diff == [
        "  def forward(self, x):",
        "- 1 line of the known code",
        "+     y = x * 3",
        "      return y + 1",
    ]
    assert not found.ok and "+     y = x * 3" in str(found)
    plan = onnxpatch.plan(nn.Sequential(Changed(), Known()), registry=changed)
    assert [swap.path for swap in plan.swaps] == ["1"]
    reason = plan.near_misses[0].reason
    assert "differs from the versions" in reason and "no other patch is known to replace it" in reason


def test_the_plan_says_what_serves_in_place_of_a_patch_whose_code_changed() -> None:
    told = {patch.name: patch.instead for patch in onnxpatch.REGISTRY if patch.when.bodies}
    assert told["timm-swin-block"] == "under dynamo/trace the general patches apply, with more nodes"
    assert told["siglip2-positions"].startswith("under dynamo/trace no other patch applies: ")


def test_the_record_holds_all_that_is_relied_on(request: pytest.FixtureRequest) -> None:
    now = drift_module.code_to_keep()
    if request.config.getoption("--accept"):
        FILE.write_text(json.dumps(now, indent=1) + "\n", encoding="utf-8")
        drift_module.known_code.cache_clear()
        names = drift_module.known_operators() | drift_module.tested_operators()
        NAMES.write_text("\n".join(sorted(names)) + "\n", encoding="utf-8")
    missing = now.keys() - drift_module.known_code().keys()
    assert not missing, f"python -m pytest {Path(__file__).name} --accept writes the record anew, missing {missing}"
    targets = {target for patch in onnxpatch.REGISTRY for target in patch.targets}
    others = [name for name in drift_module.known_code().keys() - now if not name.startswith("torch.")]
    assert [name for name in others if name.rpartition(".")[0] not in targets] == []


def test_operators_that_no_known_torch_has_are_listed_unless_a_patch_serves_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert {"abs", "linalg.inv", "fft.rfft"} <= drift_module.tested_operators()
    known = drift_module.known_operators() - {"abs", "lgamma"}  # lgamma has a row
    monkeypatch.setattr(drift_module, "known_operators", lambda: known)
    found = drift_module.drift()
    new = [row.name for row in found.rows if row.status == "new"]
    assert "abs" in new and "lgamma" not in new
    assert found.ok and "no patch has a form of it" in str(found)


def test_the_command_writes_text_and_json_and_exits_by_what_it_found(monkeypatch: pytest.MonkeyPatch) -> None:
    found = drift_module.Drift([drift_module.Reliance("a.b", "torch", "_torch/x.py", "changed")], {})
    monkeypatch.setattr(onnxpatch, "drift", lambda: found, raising=False)
    assert run("drift").exit_code == 0 and run("drift", "--strict").exit_code == 1
    gone = drift_module.Drift([drift_module.Reliance("a.b", "torch", "_torch/x.py", "gone")], {})
    monkeypatch.setattr(onnxpatch, "drift", lambda: gone, raising=False)
    done = run("drift", "--json")
    assert done.exit_code == 1 and json.loads(done.stdout)["rows"][0]["status"] == "gone"


@pytest.mark.parametrize("api", RELIED_ON, ids=lambda api: api.path)
def test_the_installed_torch_has_every_private_api(api) -> None:
    """Those that are gone in some supported version say so in their file; none is in the one that is tested here."""
    assert find(api.path) is not None and api.without


def test_an_api_that_is_not_there_is_gone() -> None:
    for path in ("torch._C._no_such", "torch.no.such", "torch.fx.experimental.symbolic_shapes.ShapeEnv().no_such"):
        with pytest.raises(LookupError):
            find(path)


def test_the_table_names_every_private_api_that_the_files_use() -> None:
    listed = {api.path for api in RELIED_ON}
    for file in sorted((HERE.parent / "onnxpatch" / "_torch").glob("*.py")):
        for path in used_in(file):
            told = f"{file.name} uses {path}, which relied_on.py does not list"
            assert any(f"{path}.".startswith(f"{one}.") or one.startswith(f"{path}.") for one in listed), told


def used_in(file: Path) -> set[str]:
    """Dotted paths of torch with a private part in a file's code."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("torch."):
            paths = [f"{node.module}.{name.name}" for name in node.names]
        elif isinstance(node, ast.Attribute):
            paths = [dotted(node)]
        else:
            continue
        found |= {path for path in paths if path.startswith("torch.") and any(map(is_private, path.split(".")))}
    return {path for path in found if not is_prefix(path, found)}


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def dotted(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def is_prefix(path: str, others: set[str]) -> bool:
    return any(other.startswith(f"{path}.") for other in others)


def test_torch_is_what_is_recorded_or_newer() -> None:
    versions = {kept["version"] for name, kept in drift_module.known_code().items() if name.startswith("torch.")}
    assert len(versions) == 1 and torch.__version__


@pytest.mark.parametrize("api", RELIED_ON, ids=lambda api: api.path)
def test_the_table_names_the_file_that_uses_it(api) -> None:
    text = (HERE.parent / "onnxpatch" / "_torch" / f"{api.used_in}.py").read_text(encoding="utf-8")
    assert api.path.rpartition(".")[2] in text

"""What the cases of proofs export to without their patch, committed for those that `make test` runs.

It depends on torch and on the case, not on this package. tests/without_patch.jsonl has it by a digest of both; what has
another digest is exported again, and `make test-all` exports all of it again.

usage: python -m tests.without_patch      export what the record lacks, and leave out what no proof asks for
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import platform
import re
import sys
import types
from pathlib import Path
from typing import Any

import torch

import onnxpatch
from benchmarks import torchvision_ops
from benchmarks.quiet import quiet
from onnxpatch.diagnosis.proof_trial import ProofTrial, tried
from onnxpatch.onnxfile.metadata import versions
from onnxpatch.patching.proof import Proof
from onnxpatch.patching.registry import Patch
from onnxpatch.settings import Exporter

RECORD = Path(__file__).with_suffix(".jsonl")
CASES = ("onnxpatch.patches", "onnxpatch.formulas", "onnxpatch.patching.op_rows", "onnxpatch.patching.proof", "tests")


# ---- the digest of a case


@functools.cache
def environment() -> str:
    """What decides an export beside the case. A runtime or a library of another version may answer otherwise, too."""
    found = {name: version for name, version in versions().items() if name not in ("openvino", "tensorrt")}
    return json.dumps({"python": platform.python_version_tuple()[:2], **found, "torch": torch.__version__})


def digest(proof: Proof, exporter: Exporter) -> str:
    """Of the model's code and of what makes the inputs, of what the proof says of the export, and of the versions."""
    said = (exporter, proof.opset, proof.beside, proof.reason, proof.fails, proof.leaner, str(proof.dynamic_shapes))
    seen: set[int] = set()
    case = (_described(proof.build, seen), _described(proof.inputs, seen))
    return hashlib.sha256(repr((environment(), said, case)).encode()).hexdigest()[:16]


def _described(value: Any, seen: set[int]) -> Any:
    """A value by its content: code of cases is followed; libraries have their versions, the kit does not count."""
    if isinstance(value, functools.partial):
        return "partial", *(_described(part, seen) for part in (value.func, value.args, value.keywords))
    if isinstance(value, types.MethodType):
        return _described(value.__func__, seen)
    if isinstance(value, types.FunctionType | type):
        # A case that moves to another file of this project is the same.
        ours = value.__module__.startswith(CASES)
        name = value.__qualname__ if ours else f"{value.__module__}.{value.__qualname__}"
        if id(value) in seen or not ours:
            return name
        seen.add(id(value))
        return name, _class(value, seen) if isinstance(value, type) else _function(value, seen)
    if isinstance(value, dict):
        return [(_described(key, seen), _described(one, seen)) for key, one in value.items()]
    if isinstance(value, list | tuple | set | frozenset):
        found = [_described(one, seen) for one in value]
        return sorted(found, key=repr) if isinstance(value, set | frozenset) else found
    if isinstance(value, torch.Tensor):
        return "tensor", str(value.dtype), tuple(value.shape)
    return repr(value) if isinstance(value, bool | int | float | complex | str | None) else type(value).__qualname__


def _class(value: type, seen: set[int]) -> Any:
    bases = [_described(base, seen) for base in value.__bases__]
    plain = [(key, getattr(one, "__func__", getattr(one, "fget", one))) for key, one in vars(value).items()]
    # Python and torch add `__annotations__` and the like while a class is used.
    own = [(key, one) for key, one in plain if isinstance(one, types.FunctionType) or not key.startswith("_")]
    return bases, [(key, _described(one, seen)) for key, one in own]


def _function(function: types.FunctionType, seen: set[int]) -> Any:

    held = [cell.cell_contents for cell in function.__closure__ or () if _filled(cell)]
    asked = sorted(name for name in _names(function.__code__) & function.__globals__.keys() if name != "__name__")
    globals_ = [(name, _described(function.__globals__[name], seen)) for name in asked]
    given = (function.__defaults__, function.__kwdefaults__)
    return _code(function.__code__), globals_, _described(held, seen), _described(given, seen)


def _filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False


def _names(code: types.CodeType) -> set[str]:
    inner = (_names(one) for one in code.co_consts if isinstance(one, types.CodeType))
    return set(code.co_names).union(*inner)


def _code(code: types.CodeType) -> Any:
    sets = [sorted(one, key=repr) if isinstance(one, frozenset) else one for one in code.co_consts]
    consts = [_code(one) if isinstance(one, types.CodeType) else repr(one) for one in sets]
    return code.co_code.hex(), consts, code.co_names, code.co_varnames


# ---- the record


@functools.cache
def record() -> dict[str, dict[str, Any]]:
    """The committed lines, by the name of the case."""
    if not RECORD.exists():
        return {}
    return {one["proof"]: one for one in map(json.loads, RECORD.read_text(encoding="utf-8").splitlines()[1:])}


def known(patch: Patch, exporter: Exporter) -> ProofTrial | None:
    """What the record says of the export without the patch; None where it has no line, or one of another case."""
    line = record().get(f"{patch.name}-{exporter}")
    if patch.proof is None or line is None or line["case"] != digest(patch.proof, exporter):
        return None
    return ProofTrial(line["problem"], line["nodes"])


def measured_here() -> bool:
    """Whether the record was made with the installed versions."""
    first = RECORD.read_text(encoding="utf-8").partition("\n")[0]
    return bool(json.loads(first) == json.loads(environment()))


def recordable(patch: Patch, exporter: Exporter) -> bool:
    """Whether the proof exports its case without the patch, and compares no times."""
    return patch.proof is not None and exporter in {*patch.proof.fails, *patch.proof.leaner} - {*patch.proof.slower}


def made(patch: Patch, exporter: Exporter) -> dict[str, Any]:
    """The line of one case, exported now."""
    proof = patch.proof
    assert proof is not None
    trial = tried(proof, exporter)
    problem = trial.problem and re.sub(r"/tmp/\S+", "…", trial.problem.replace(os.getcwd(), ""))
    if problem and (match := re.search(proof.reason, problem)):
        # What the proof names, with a few words around it.
        problem = f"{problem.partition(':')[0]}: {problem[max(match.start() - 80, 0) : match.end() + 80]}"
        assert re.search(proof.reason, problem)
    return {
        "proof": f"{patch.name}-{exporter}",
        "case": digest(proof, exporter),
        "problem": problem,
        "nodes": trial.nodes,
    }


def main() -> None:
    """Export what the record lacks, and write it."""
    from tests.test_proofs import IN_MAKE_TEST

    torch.set_num_threads(1)
    quiet()
    torchvision_ops.declare()
    lines = []
    for name, exporter in IN_MAKE_TEST:
        patch = onnxpatch.REGISTRY[name]
        if not recordable(patch, exporter):
            continue
        line = record().get(f"{name}-{exporter}") if known(patch, exporter) else None
        if line is None:
            line = made(patch, exporter)
            print(line["proof"], (line["problem"] or f"right, {line['nodes']} nodes")[:100], file=sys.stderr)
        lines.append(json.dumps(line, ensure_ascii=False))
    RECORD.write_text("\n".join([environment(), *sorted(lines)]) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

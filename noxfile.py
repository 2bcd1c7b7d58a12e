"""The matrix of versions: `nox` makes each environment, and runs the proofs and a short tier of tests in it.

`nox -l` lists the environments, `nox -s "matrix(torch215)"` runs one, `nox -s newest` takes what is newest today, and
`nox -s table` writes the outcome into docs/compatibility.md.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import nox

nox.options.default_venv_backend = "uv|virtualenv"
nox.options.sessions = ["matrix"]

HERE = Path(__file__).parent
# Loaded by its path: nox has an installation of its own, without torch.
_spec = importlib.util.spec_from_file_location("environments", HERE / "benchmarks" / "environments.py")
assert _spec is not None and _spec.loader is not None
_module = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_module)
ENVIRONMENTS: dict[str, tuple[str, list[str]]] = _module.ENVIRONMENTS

TIER = ["tests/torch_apis", "tests/onnxfile/test_runtimes.py"]
# What the proofs import, beside what the package itself asks for.
NEEDED = ["torchvision", "scipy", "vit-pytorch"]


def _run(session: nox.Session, name: str, packages: list[str]) -> None:
    # In one call, so that the installer looks for versions that go together.
    session.install("-e", ".[verify,cli]", "pytest>=8", "pytest-timeout>=2.3", *NEEDED, *packages)
    session.run("onnxpatch", "drift", success_codes=[0, 1])
    into = HERE / "benchmarks" / "results" / f"proofs_{name}.jsonl"
    session.run("python", "-m", "benchmarks.proofs", "--environment", name, "--into", str(into), *session.posargs)
    session.run("python", "-m", "pytest", "-m", "not slow", *TIER)


@nox.session
@nox.parametrize(
    "python,environment",
    [nox.param(python, name, id=name) for name, (python, _) in ENVIRONMENTS.items()],
)
def matrix(session: nox.Session, environment: str) -> None:
    """One environment of the table, on its Python."""
    _run(session, environment, ENVIRONMENTS[environment][1])


@nox.session
def newest(session: nox.Session) -> None:
    """The newest releases of everything, on the Python that nox itself runs on. Fails where a proof does."""
    libraries = ["torch", "onnx", "onnxscript", "onnxruntime", "einops", "transformers", "timm"]
    _run(session, "newest", ["--upgrade", *libraries])
    session.run("python", "-m", "benchmarks.matrix_table", "--check", "benchmarks/results/proofs_newest.jsonl")


@nox.session(python=False)
def table(session: nox.Session) -> None:
    """Write what the runs found into docs/compatibility.md."""
    session.run("python", "-m", "benchmarks.matrix_table")

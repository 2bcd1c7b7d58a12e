"""The matrix of versions: `nox` makes each environment and runs the proofs, `onnxpatch drift` and a short tier in it.

`nox -l` lists the environments, `nox -s "matrix(oldest)"` runs one, `nox -s newest` what is newest today. The outcome
is in docs/compatibility.md, with its date.
"""

from __future__ import annotations

import nox

nox.options.default_venv_backend = "uv|virtualenv"
nox.options.sessions = ["matrix"]

# Sparse: every version at least twice, no pair of them twice on purpose. torch brings what it needs of its own.
ENVIRONMENTS = {
    "oldest": ("3.10", ["torch==2.6.*", "onnx==1.16.*", "onnxscript==0.2.*", "onnxruntime==1.18.*", "einops==0.7.*"]),
    "torch26-new-onnx": ("3.11", ["torch==2.6.*", "transformers==4.51.*", "timm==1.0.9"]),
    "torch28": ("3.12", ["torch==2.8.*", "transformers==4.51.*", "timm==1.0.9", "einops==0.7.*"]),
    "torch28-new-models": ("3.10", ["torch==2.8.*", "transformers>=5", "timm"]),
    "torch210": ("3.13", ["torch==2.10.*", "transformers>=5", "timm"]),
    "torch210-old-runtime": ("3.11", ["torch==2.10.*", "onnxruntime==1.18.*", "numpy<2"]),
    "torch213": ("3.11", ["torch==2.13.*", "transformers>=5", "timm"]),
    "torch213-old-models": ("3.12", ["torch==2.13.*", "transformers==4.51.*", "timm==1.0.9"]),
    "newest": ("3.14", ["torch", "transformers", "timm"]),
    "newest-python313": ("3.13", ["torch", "transformers", "timm"]),
}
TIER = ["tests/test_proofs.py", "tests/torch_apis", "tests/onnxfile/test_runtimes.py"]


def _run(session: nox.Session, packages: list[str]) -> None:
    # In one call, so that pip looks for versions that go together.
    session.install("-e", ".[test]", *packages)
    session.run("onnxpatch", "drift", "--strict", success_codes=[0, 1])
    report = f"--junitxml={session.create_tmp()}/proofs.xml"
    session.run("python", "-m", "pytest", "-m", "not slow", report, *TIER, *session.posargs)


@nox.session
@nox.parametrize(
    "python,environment",
    [nox.param(python, name, id=name) for name, (python, _) in ENVIRONMENTS.items()],
)
def matrix(session: nox.Session, environment: str) -> None:
    """One environment of the table, on its Python."""
    _run(session, ENVIRONMENTS[environment][1])


@nox.session
def newest(session: nox.Session) -> None:
    """The newest releases of everything, on the Python that nox itself runs on."""
    _run(session, ["--upgrade", "torch", "onnx", "onnxscript", "onnxruntime", "einops", "transformers", "timm"])

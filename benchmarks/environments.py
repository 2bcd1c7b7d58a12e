"""The environments of the matrix of versions, and the pairs of versions that cannot be installed together.

Sparse: every version at least twice, few pairs of them twice. What an environment does not name is the newest that
fits. `nox` makes them; `benchmarks.proofs` says what holds in one, `benchmarks.matrix_table` in all of them.
"""

from __future__ import annotations

_OLD_MODELS = ["transformers==4.51.*", "timm==1.0.9"]
_NEW_MODELS = ["transformers>=5", "timm>=1.0.27"]
# onnxruntime 1.18.0 names no bound on numpy, though it needs numpy 1.
_OLD_RUNTIME = ["onnx==1.16.*", "onnxruntime==1.18.*", "numpy<2"]

# By name: (Python, what is asked for).
ENVIRONMENTS: dict[str, tuple[str, list[str]]] = {
    "torch26-oldest": ("3.10", ["torch==2.6.*", "onnxscript==0.2.*", "einops==0.7.*", *_OLD_RUNTIME, *_OLD_MODELS]),
    "torch26-newer-onnx": ("3.11", ["torch==2.6.*", "transformers==4.51.*", "timm>=1.0.27"]),
    "torch26-python312": ("3.12", ["torch==2.6.*", "onnxscript==0.2.*", "transformers==4.51.*", "timm==1.0.9"]),
    "torch28-old-models": ("3.12", ["torch==2.8.*", "einops==0.7.*", *_OLD_RUNTIME, *_OLD_MODELS]),
    "torch28-new-models": ("3.10", ["torch==2.8.*", *_NEW_MODELS]),
    "torch210": ("3.13", ["torch==2.10.*", *_NEW_MODELS]),
    "torch210-old-runtime": ("3.12", ["torch==2.10.*", *_OLD_RUNTIME, "transformers>=5", "timm==1.0.9"]),
    "torch213": ("3.11", ["torch==2.13.*", *_NEW_MODELS]),
    "torch213-old-models": ("3.11", ["torch==2.13.*", "einops==0.7.*", *_OLD_MODELS]),
    "torch215": ("3.13", ["torch==2.15.*", *_NEW_MODELS]),
    "torch215-old-runtime": ("3.12", ["torch==2.15.*", *_OLD_RUNTIME, "transformers==4.51.*", "timm>=1.0.27"]),
    "torch210-python314": ("3.14", ["torch==2.10.*", *_NEW_MODELS]),
    "torch215-python314": ("3.14", ["torch==2.15.*", *_NEW_MODELS]),
}

# (what, with what, why not): read off what the registry has, for Linux x86-64.
NOT_TOGETHER = [
    ("torch 2.6, 2.8", "Python 3.14", "no wheels"),
    ("torch 2.15", "Python 3.10", "no wheels"),
    ("onnx 1.16, onnxruntime 1.18", "Python 3.13 and later", "no wheels"),
    ("onnxruntime 1.24 and later", "Python 3.10", "no wheels; the newest there is 1.23"),
    ("transformers 5.21 and later", "Python 3.10", "asks for Python 3.11; the newest there is 5.20"),
    ("onnxscript 0.2", "torch 2.8 and later", "installs, and torch.onnx does not find what it asks of onnxscript"),
    ("onnxscript 0.2", "protobuf 7", "installs; under dynamo, MaxPool, Gemm and others with flags cannot be written"),
    ("onnxscript 0.7", "onnx 1.16", "asks for onnx 1.17"),
    ("onnxruntime 1.18", "numpy 2", "installs, and does not load"),
]

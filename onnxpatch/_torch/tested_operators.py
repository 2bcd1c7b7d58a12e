"""Names of the operators in torch's own tests, the database `op_db`, with which torch is installed.

`torch.testing._internal` has it. Its source is read: importing it takes seconds and libraries that torch does not
bring. If it moves, `onnxpatch drift` lists no operator as new.
"""

from __future__ import annotations

import re
from pathlib import Path

import torch

# OpInfo("abs", ...), UnaryUfuncInfo(\n    "sin", ...
_ENTRY = re.compile(r"\w*Info\(\s*(?:name=)?['\"](?!_refs|Test)([\w.]+)['\"]")


def tested_operators() -> frozenset[str]:
    """Such as "abs" and "linalg.inv"; empty where torch has moved them."""
    home = Path(torch.__file__).parent / "testing" / "_internal"
    files = home / "common_methods_invocations.py", *(home / "opinfo" / "definitions").glob("*.py")
    texts = (file.read_text(encoding="utf-8") for file in files if file.exists())
    return frozenset(name for text in texts for name in _ENTRY.findall(text))

"""Records docs/how-to/patch-session.md: a model that nothing cures, a drafted patch, filled in, proven and used.

python docs/record_patch.py
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from record_session import ROOT, run, shown

MODEL = """import torch


class Spread(torch.nn.Module):
    def forward(self, x):
        return torch.linalg.eigh(x).eigenvalues  # both of matrices [B, 2, 2], the smaller first


def model():
    return torch.nn.Sequential(torch.nn.Linear(2, 2), Spread())
"""
BODY = """        first, second, beside = x[:, 0, 0], x[:, 1, 1], x[:, 1, 0]
        away = torch.sqrt((first - second) ** 2 / 4 + beside**2)
        return torch.stack([(first + second) / 2 - away, (first + second) / 2 + away], -1)
"""
GIVEN = "spread.py:model --input 'input=float32[B=4,2,2]'"
DRAFT = f"onnxpatch doctor {GIVEN} --write-patch spread_patch.py"
PROVE = "onnxpatch prove spread_patch.py"
EXPORT = f"onnxpatch export {GIVEN} -o spread.onnx --patches spread_patch.py"


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder, parts = Path(name), ["# A patch, recorded", f"The model, `spread.py`:\n\n```py\n{MODEL}```"]
        (folder / "spread.py").write_text(MODEL, encoding="utf-8")

        def step(told: str, command: str) -> None:
            parts.append(f"{told}\n\n```console\n$ {command}\n{shown(run(command, folder)[0])}\n```")

        step("Nothing cures it, so the doctor drafts a patch.", DRAFT)
        patch = folder / "spread_patch.py"
        drafted = patch.read_text(encoding="utf-8")
        start = drafted.index("        # as it is")
        filled = drafted[:start] + BODY
        patch.write_text(filled, encoding="utf-8")
        lines = len(filled.splitlines())
        parts.append(f"The draft ends in these lines:\n\n```py\n{drafted[start:]}```")
        parts.append(f"Filled in, the file has {lines} lines:\n\n```py\n{filled}```")
        step("The proof holds: refused without the patch, right with it.", PROVE)
        step("And the model exports.", EXPORT)
        page = ROOT / "docs" / "how-to" / "patch-session.md"
        page.write_text("\n\n".join(parts) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

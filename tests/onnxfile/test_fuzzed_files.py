"""Files with other bytes, read in a child process by everything that reads a file: an answer, or an OnnxpatchError."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.exports

READERS = ("session", "session_of_bytes", "verify", "stamp", "page")
# Where a crash of the process may come from: the runtime's own code, called from these files.
_RUNTIME = ("onnxruntime_inference_collection.py", "onnx/shape_inference.py", "onnx/checker.py")


_LONG = [pytest.mark.slow, pytest.mark.timeout(1800)]


@pytest.mark.parametrize(
    ("reader", "often"), [("all", 60), *(pytest.param(reader, 10_000, marks=_LONG) for reader in READERS)]
)  # one child in the quick tier: each imports torch
def test_files_with_other_bytes(reader: str, often: int, tmp_path: Path) -> None:
    """A crash of the runtime itself cannot be caught in its process: it is told apart, and counted."""
    left, crashes = often, 0
    while left > 0:
        done = _child(reader, left, crashes, tmp_path)
        assert done.returncode <= 0, done.stdout[-1500:] + done.stderr[-3000:]
        if done.returncode == 0:
            break
        frames = [line for line in done.stderr.splitlines() if line.strip().startswith("File")]
        assert frames and any(name in frames[0] for name in _RUNTIME), done.stderr[-3000:]
        crashes += 1
        left -= int((tmp_path / "count").read_text())
    assert "Error" not in done.stdout  # nothing of the file reaches the terminal past the kit
    print(f"{reader}: {crashes} crashes of the runtime in {often} files")


def _child(reader: str, examples: int, seed: int, folder: Path) -> subprocess.CompletedProcess[str]:
    root = Path(__file__).parents[2]
    command = [sys.executable, "-m", "tests.onnxfile.fuzz_child", reader, str(examples), str(seed), str(folder)]
    paths = os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        command, capture_output=True, text=True, errors="replace", cwd=root, env={**os.environ, "PYTHONPATH": paths}
    )

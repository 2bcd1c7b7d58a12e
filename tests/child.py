"""Scripts in processes of their own: what they do to theirs reaches no test.

Not forked: torch and onnxruntime have threads by then, and a forked child may wait for a lock that one of them held.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def run_script(
    script: Path | str, *given: str, cwd: Path | None = None, seconds: float = 500
) -> subprocess.CompletedProcess[str]:
    """Run a file, or code, with arguments, as `python -W ignore` does. A script that does not end is killed."""
    named = [str(script)] if isinstance(script, Path) else ["-c", script]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, "-W", "ignore", *named, *given],
        cwd=cwd, env=environment, capture_output=True, text=True, timeout=seconds, check=False,
    )  # fmt: skip

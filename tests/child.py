"""Scripts in forked children of the test's process: what they do to it reaches no other test, and torch is loaded."""

from __future__ import annotations

import io
import os
import signal
import sys
import tempfile
import time
import traceback
import types
import warnings
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Done:
    """How a script ended, and what it printed."""

    returncode: int
    stdout: str
    stderr: str


def run_script(script: Path | str, *given: str, cwd: Path | None = None, seconds: float = 500) -> Done:
    """Run a file, or code, with arguments, as `python -W ignore` does. A script that does not end is killed."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = os.fork()
        if child == 0:
            os._exit(_inside(script, given, cwd, out.fileno(), err.fileno()))
        end = time.monotonic() + seconds
        while (found := os.waitpid(child, os.WNOHANG)) == (0, 0):
            if time.monotonic() > end:
                os.kill(child, signal.SIGKILL)
            time.sleep(0.02)
        printed = []
        for file in (out, err):
            file.seek(0)
            printed.append(file.read().decode(errors="replace"))
    return Done(os.waitstatus_to_exitcode(found[1]), *printed)


def _inside(script: Path | str, given: tuple[str, ...], cwd: Path | None, out: int, err: int) -> int:
    code = 1
    os.dup2(out, 1)
    os.dup2(err, 2)
    sys.stdout, sys.stderr = (io.TextIOWrapper(io.FileIO(to, "w", closefd=False), "utf-8") for to in (1, 2))
    try:
        warnings.simplefilter("ignore")
        os.chdir(cwd or os.getcwd())
        text = script.read_text(encoding="utf-8") if isinstance(script, Path) else script
        name = str(script) if isinstance(script, Path) else "<string>"
        sys.argv = [name if isinstance(script, Path) else "-c", *given]
        sys.path.insert(0, str(script.parent) if isinstance(script, Path) else "")
        main = types.ModuleType("__main__")
        main.__dict__.update({"__file__": name} if isinstance(script, Path) else {})
        sys.modules["__main__"] = main
        exec(compile(text, name, "exec"), main.__dict__)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return code

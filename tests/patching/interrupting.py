"""An interrupt at a chosen line of the kit, and everything of the process that it could leave changed."""

from __future__ import annotations

import logging
import random
import signal
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import onnxpatch
from onnxpatch.patching import rebinding, runtime
from tests.fingerprint import fingerprint, surroundings

KIT = (str(Path(onnxpatch.__file__).parent), str(Path(onnxpatch.__file__).parents[1] / "patches"))


class Interrupt(BaseException):
    pass


class At:
    """Raises Interrupt at the `number`-th line that is run in the kit's files, inside the block; 0: only counts."""

    def __init__(self, number: int = 0) -> None:
        self.number, self.seen, self.place = number, 0, ""

    def __enter__(self) -> At:
        sys.settrace(self._called)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def _called(self, frame: Any, event: str, argument: Any) -> Any:
        return self._line if frame.f_code.co_filename.startswith(KIT) else None

    def _line(self, frame: Any, event: str, argument: Any) -> Any:
        if event == "line":
            self.seen += 1
            if self.seen == self.number:
                self.place = f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}"
                raise Interrupt
        return self._line


def everything(model: torch.nn.Module) -> dict[str, Any]:
    """The model and what of the process the kit changes while it works."""
    return {
        "model": fingerprint(model),
        **surroundings(),
        "standing": dict(rebinding._standing),
        "scope": runtime.current(),
        "dispatch modes": torch._C._len_torch_dispatch_stack(),
        "exporting": onnxpatch.exporting(),
        "warnings": warnings.showwarning,
        "filters": [handler.filters[:] for handler in logging.root.handlers],
        "timer": signal.getitimer(signal.ITIMER_REAL)[0] > 0,
        "handler": signal.getsignal(signal.SIGALRM),
        "random": (random.getstate(), torch.get_rng_state().tolist()),
    }


def leaks(model: torch.nn.Module, run: Callable[[], object], times: int, seed: int) -> list[str]:
    """What interrupts at `times` random lines of `run` left changed, each with its line."""
    run()
    with At() as count:
        run()
    before, chosen, found = everything(model), random.Random(seed), []
    for _ in range(times):
        at = At(chosen.randint(1, count.seen))
        try:
            with at:
                run()
        except BaseException:  # some of torch's own code makes another error of it
            pass
        after = everything(model)
        changed = [name for name in before if after[name] != before[name]]
        if changed:
            found.append(f"{', '.join(changed)} after {at.place}")
            break
    return found

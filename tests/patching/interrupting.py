"""An interrupt at a chosen line of the kit, and everything of the process that it could leave changed."""

from __future__ import annotations

import functools
import logging
import random
import signal
import sys
import threading
import warnings
from collections.abc import Callable
from contextvars import ContextVar
from pathlib import Path
from types import CodeType
from typing import Any

import torch

import onnxpatch
from onnxpatch.patching import runtime
from onnxpatch.process import Shared
from tests.fingerprint import fingerprint, surroundings

KIT = (str(Path(onnxpatch.__file__).parent), str(Path(onnxpatch.__file__).parents[1] / "patches"))


class Interrupt(BaseException):
    pass


class At:
    """Raises Interrupt at the `number`-th line that is run in the kit's files, inside the block; 0: only counts.

    seen: how many lines were run. places: the numbers at which each line was run, by code and line.
    """

    def __init__(self, number: int = 0) -> None:
        self.number, self.seen, self.place = number, 0, ""
        self.places: dict[tuple[CodeType, int], list[int]] = {}

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
            if not self.number:
                self.places.setdefault((frame.f_code, frame.f_lineno), []).append(self.seen)
            if self.seen == self.number:
                self.place = f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}"
                raise Interrupt
        return self._line


LOCK, RLOCK = type(threading.Lock()), type(threading.RLock())
HOLDERS = (threading.local, ContextVar, Shared, RLOCK, LOCK, dict, list, set)
# What the kit remembers on purpose from one call to the next.
MEMORY = {"onnxpatch.patching.code_places._kept", "onnxpatch._torch.dispatch_modes._FACTS"}


class Held(dict[str, object]):
    """State by its name. Equal to another where what both have is: a module may have been loaded in between."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        assert isinstance(other, Held)
        return all(other[name] == value for name, value in self.items() if name in other)

    def __ne__(self, other: object) -> bool:
        return not self == other


def held_by_the_kit() -> dict[str, object]:
    """Every module's state: what is kept for this thread, in containers and context variables, and locks it has."""
    return {name: _contents(holder) for name, holder in _holders(len(sys.modules))}


@functools.lru_cache(maxsize=1)
def _holders(_modules: int) -> list[tuple[str, object]]:
    """The objects in the kit's modules that can hold state, which are never others: no module has a `global`."""
    return [
        (f"{path}.{name}", value)
        for path, module in list(sys.modules.items())
        if module is not None and path.partition(".")[0] in ("onnxpatch", "patches")
        for name, value in vars(module).items()
        if isinstance(value, HOLDERS) and not name.startswith("__") and f"{path}.{name}" not in MEMORY
    ]


def _contents(holder: Any) -> object:
    if isinstance(holder, threading.local):
        return {name: _contents(value) for name, value in vars(holder).items()}
    if isinstance(holder, ContextVar):
        return holder.get(None)
    if isinstance(holder, Shared):
        return holder._holders.copy(), holder._lock._is_owned()
    if isinstance(holder, RLOCK):
        return holder._is_owned()
    if isinstance(holder, LOCK):
        return holder.locked()
    return holder.copy() if isinstance(holder, dict | list | set) else holder


def everything(model: torch.nn.Module) -> dict[str, Any]:
    """The model and what of the process the kit changes while it works."""
    return {
        "model": fingerprint(model),
        **surroundings(),
        "the kit": Held(held_by_the_kit()),
        "scope": runtime.running_model(),
        "dispatch modes": torch._C._len_torch_dispatch_stack(),
        "torch functions": torch._C._is_torch_function_enabled(),
        "dispatch keys": (torch._C._dispatch_tls_local_include_set(), torch._C._dispatch_tls_local_exclude_set()),
        "exporting": onnxpatch.exporting(),
        "tracing": torch._C._get_tracing_state() is not None,
        "warnings": warnings.showwarning,
        "filters": [handler.filters[:] for handler in logging.root.handlers],
        "timer": signal.getitimer(signal.ITIMER_REAL)[0] > 0,
        "handler": signal.getsignal(signal.SIGALRM),
        "random": (random.getstate(), torch.get_rng_state().tolist()),
    }


def leaks(model: torch.nn.Module, run: Callable[[], object], times: int, seed: int) -> list[str]:
    """What interrupts at `times` random lines of `run` left changed, each with its line.

    Half of them are drawn from all lines that are run, half from the lines of the files: what is run once, such as the
    end of a context, is rarely among the first.
    """
    run()
    with At() as count:
        run()
    before, chosen, found = everything(model), random.Random(seed), []
    places = list(count.places.values())
    for turn in range(times):
        number = chosen.choice(chosen.choice(places)) if turn % 2 else chosen.randint(1, count.seen)
        found = interrupted(model, run, number, before)
        if found:
            break
    return found


def interrupted(model: torch.nn.Module, run: Callable[[], object], number: int, before: dict[str, Any]) -> list[str]:
    """What an interrupt at the `number`-th line of `run` left changed, with the line; empty where nothing is."""
    at = At(number)
    try:
        with at:
            run()
    except BaseException:  # some of torch's own code makes another error of it
        pass
    after = everything(model)
    changed = [name for name in before if after[name] != before[name]]
    return [f"{', '.join(changed)} after {at.place}"] if changed else []
